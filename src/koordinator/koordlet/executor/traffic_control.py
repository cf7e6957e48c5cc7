"""Traffic classes, set up with the tools of the machine: ip and tc, ipset, iptables.

A chain in POSTROUTING, replaced as a whole, assigns packets of pods to classes, before their source
address may be translated to the node's.
Source: man 8 tc-htb, tc-cgroup, ipset, iptables-restore, iptables-extensions (CLASSIFY).
"""

import json
from collections.abc import Iterator, Sequence
from typing import Final

from koordinator.foundation.errors import HostError
from koordinator.host.port import NetworkTools
from koordinator.koordlet.qos.tc_network import AddressSet, NetworkShape

_MAJOR: Final = 1
_ROOT_MINOR: Final = 1
_CHAIN: Final = "KOORDLET-NETQOS"
_NEXT: Final = "koordlet_next"  # filled first, then swapped with the set in use
_LOCK: Final = ("-w", "5")  # seconds to wait for the lock of iptables
_JUMP: Final = ("POSTROUTING", "-j", _CHAIN)
_CGROUP_PRIORITY: Final = 1


class TrafficControl:
    """Traffic classes on the interface of the default route."""

    def __init__(self, tools: NetworkTools) -> None:
        self._run = tools.run

    def shape(self, wanted: NetworkShape) -> Sequence[str]:
        """Set up the classes from any state; return warnings about unsupported parts.

        Raises HostError.
        """
        device = self._device()
        self._run("tc", "-batch", "-", text="\n".join(self._classes(device, wanted)))
        self._remove_stale_classes(device, wanted)
        warnings = self._classify_by_cgroup(device, wanted)
        for each in wanted.sets:
            self._run("ipset", "-exist", "restore", text=_restored_set(each))
        restored = "\n".join(("*mangle", f":{_CHAIN} - [0:0]", *_rules(wanted), "COMMIT", ""))
        self._run("iptables-restore", *_LOCK, "--noflush", text=restored)
        if not self._is_fine("iptables", *_LOCK, "-t", "mangle", "-C", *_JUMP):
            self._run("iptables", *_LOCK, "-t", "mangle", "-A", *_JUMP)
        return warnings

    def clear(self, sets: Sequence[str]) -> None:
        """Remove everything that ``shape`` set up, and nothing else.

        Raises HostError.
        """
        for words in (("-D", *_JUMP), ("-F", _CHAIN), ("-X", _CHAIN)):
            self._is_fine("iptables", *_LOCK, "-t", "mangle", *words)
        for name in sets:
            self._is_fine("ipset", "destroy", name)
        device = self._device()
        if self._has_qdisc(device):
            self._run("tc", "qdisc", "del", "dev", device, "root")

    def _device(self) -> str:
        routes = json.loads(self._run("ip", "-j", "-4", "route", "show", "default") or "[]")
        devices = [route["dev"] for route in routes if "dev" in route]
        if not devices:
            raise HostError("no network device has the default route")
        return str(devices[0])

    def _has_qdisc(self, device: str) -> bool:
        shown = json.loads(self._run("tc", "-j", "qdisc", "show", "dev", device) or "[]")
        return any(it.get("kind") == "htb" and it.get("handle") == f"{_MAJOR}:" for it in shown)

    def _classes(self, device: str, wanted: NetworkShape) -> Iterator[str]:
        if not self._has_qdisc(device):
            default = f"default {wanted.default_minor:x}"
            yield f"qdisc replace dev {device} root handle {_MAJOR}: htb {default}"
        total = f"rate {wanted.total_bps}bit ceil {wanted.total_bps}bit"
        yield f"class replace dev {device} parent {_MAJOR}: classid {_id(_ROOT_MINOR)} htb {total}"
        for each in wanted.classes:
            yield (
                f"class replace dev {device} parent {_id(_ROOT_MINOR)} classid {_id(each.minor)} "
                f"htb rate {each.rate_bps}bit ceil {each.ceil_bps}bit prio {each.priority}"
            )

    def _remove_stale_classes(self, device: str, wanted: NetworkShape) -> None:
        """Remove classes of deleted pods; a class that is still referenced stays."""
        kept = {_id(_ROOT_MINOR), *(_id(each.minor) for each in wanted.classes)}
        for line in self._run("tc", "class", "show", "dev", device).splitlines():
            kind, _, rest = line.removeprefix("class ").partition(" ")
            name = rest.partition(" ")[0]
            if kind == "htb" and name not in kept:
                self._is_fine("tc", "class", "del", "dev", device, "classid", name)

    def _classify_by_cgroup(self, device: str, wanted: NetworkShape) -> Sequence[str]:
        """Make ``net_cls.classid`` of a process effective; one filter serves all classes."""
        if not wanted.cgroup_minors:
            return ()
        place = ("dev", device, "parent", f"{_MAJOR}:", "protocol", "ip")
        choice = ("prio", str(_CGROUP_PRIORITY), "handle", f"{_MAJOR}:", "cgroup")
        try:
            self._run("tc", "filter", "replace", *place, *choice)
        except HostError as error:
            return (f"classes of processes: {error}",)
        return ()

    def _is_fine(self, *words: str) -> bool:
        try:
            self._run(*words)
        except HostError:
            return False
        return True


def _id(minor: int) -> str:
    return f"{_MAJOR}:{minor:x}"


def _restored_set(wanted: AddressSet) -> str:
    lines = [f"create {name} hash:ip family inet" for name in (wanted.name, _NEXT)]
    lines.append(f"flush {_NEXT}")
    lines += [f"add {_NEXT} {address}" for address in sorted(wanted.addresses)]
    lines += [f"swap {_NEXT} {wanted.name}", f"destroy {_NEXT}", ""]
    return "\n".join(lines)


def _rules(wanted: NetworkShape) -> Iterator[str]:
    for each in wanted.sets:
        chosen = f"-m set --match-set {each.name} src -j CLASSIFY --set-class {_id(each.minor)}"
        yield f"-A {_CHAIN} {chosen}"
    for address, minor in wanted.addresses:
        yield f"-A {_CHAIN} -s {address}/32 -j CLASSIFY --set-class {_id(minor)}"
