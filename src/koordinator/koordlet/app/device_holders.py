"""Which pod has which device of this node: who was given it first keeps it.

What a pod was given stands in an annotation, which the scheduler writes with the binding and
whoever may change the pod can write as well.  Nothing in it proves whose it is, so what is handed
out here is held to what no scheduler would do: give a virtual function twice, or more than the
whole of a device.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from koordinator.api.annotations.devices import ALLOCATED, DeviceAllocation, DeviceAllocations
from koordinator.api.device import DeviceType
from koordinator.api.resource_names import (
    FPGA,
    GPU_CORE,
    GPU_MEMORY_RATIO,
    RDMA,
    WHOLE_DEVICE,
)
from koordinator.foundation.errors import InputError
from koordinator.koordlet.view.pods import PodView

#: Percentages of a device by type; other types are not handed out here.
_PERCENTAGES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        DeviceType.GPU: (GPU_CORE, GPU_MEMORY_RATIO),
        DeviceType.RDMA: (RDMA,),
        DeviceType.FPGA: (FPGA,),
    }
)
_FUNCTION: Final = "virtual function"
_MOST_GRANTS: Final = 1024  # of pods that no list has yet

_Slot = tuple[str, str, str]  # type, which one, of which resource
_Shares = Mapping[_Slot, int]  # percent


@dataclass(frozen=True, slots=True)
class _Claim:
    """What the annotation of a pod says that it has; ``text`` is that annotation."""

    key: str
    uid: str
    folder: str
    text: str
    shares: _Shares


class DeviceHolders:
    """Safe to ask from any thread; ``publish`` is called by the loop alone.

    ``exists`` says whether there is a cgroup: a pod that had one and has none any more has ended,
    though the API server may tell so later than the next pod starts.
    """

    def __init__(self, exists: Callable[[str], bool]) -> None:
        self._exists = exists
        self._lock = threading.Lock()
        self._claims: dict[str, _Claim] = {}  # by UID, who was seen first goes first
        self._granted: dict[str, _Claim] = {}  # by UID: what was handed out
        self._started: set[str] = set()  # UIDs of pods whose cgroup has been seen

    def publish(self, pods: Iterable[PodView]) -> None:
        """Take in the pods of the node.

        Those that come together are in the order in which the kubelet started them.  An annotation
        that has changed counts from now on, and what the pod had by the one of before is free.
        """
        known = self._claims
        live = {str(pod.uid): pod for pod in sorted(pods, key=_age) if pod.is_active}
        claims = {
            uid: it
            for uid, it in known.items()
            if uid in live and it.text == live[uid].devices_text
        }
        for uid, pod in live.items():
            if uid not in claims and (found := _claim(pod)) is not None:
                claims[uid] = found
        started = {uid for uid, it in claims.items() if self._exists(it.folder)}
        with self._lock:
            self._claims = claims
            # A pod that was asked about before any list had it is still to come.
            self._granted = {
                uid: it
                for uid, it in self._granted.items()
                if uid in claims or (uid not in known and self._exists(it.folder))
            }
            self._started = started | (self._started & (claims.keys() | self._granted.keys()))

    def check(self, pod: PodView) -> None:
        """Raise InputError if a device of the pod is another's; else the pod has its devices."""
        claim = _claim(pod)
        if claim is None:
            return
        with self._lock:
            known = self._granted.get(claim.uid)
            if known is None or known.text != claim.text:
                self._check(claim, self._rivals(claim))
                if claim.uid in self._claims or len(self._granted) < _MOST_GRANTS:
                    self._granted[claim.uid] = claim
            if self._exists(claim.folder):
                self._started.add(claim.uid)

    def _rivals(self, claim: _Claim) -> list[_Claim]:
        """Return who goes before: who was seen earlier, and who has been handed something."""
        earlier: dict[str, _Claim] = {}
        for uid, other in self._claims.items():
            if uid == claim.uid and other.text == claim.text:
                break
            earlier[uid] = other
        rivals = {**earlier, **self._granted}
        rivals.pop(claim.uid, None)
        return [other for other in rivals.values() if not self._has_ended(other)]

    def _has_ended(self, claim: _Claim) -> bool:
        return claim.uid in self._started and not self._exists(claim.folder)

    def _check(self, claim: _Claim, rivals: Iterable[_Claim]) -> None:
        held: dict[_Slot, int] = {}
        for other in rivals:
            for slot in sorted(other.shares.keys() & claim.shares.keys()):
                held[slot] = held.get(slot, 0) + other.shares[slot]
                if held[slot] + claim.shares[slot] > WHOLE_DEVICE:
                    kind, device, _ = slot
                    raise InputError(
                        f"found {kind} {device[:80]!r}, which pod {other.key} has; "
                        "accepted is what no other pod on this node has",
                        path=f"{ALLOCATED.path}.{kind}",
                    )


def _claim(pod: PodView) -> _Claim | None:
    """Return what a pod says that it has; None for nothing, or nothing that can be read."""
    text = pod.devices_text
    if not text:
        return None
    try:
        shares = _shares(pod.devices)
    except InputError:  # nothing is handed out for it
        return None
    return _Claim(pod.key, str(pod.uid), pod.folder, text, shares) if shares else None


def _shares(allocated: DeviceAllocations) -> _Shares:
    found: dict[_Slot, int] = {}
    for kind, devices in allocated.items():
        for device in devices if kind in _PERCENTAGES else ():
            for slot, percent in _shares_of(kind, device):
                found[slot] = max(found.get(slot, 0), percent)
    return found


def _shares_of(kind: str, device: DeviceAllocation) -> Iterable[tuple[_Slot, int]]:
    functions = device.extension.vfs if device.extension is not None else ()
    if functions:
        return [((kind, vf.bus_id, _FUNCTION), WHOLE_DEVICE) for vf in functions]
    names = _PERCENTAGES[kind]
    amounts = {
        name: min(device.resources[name].value(), WHOLE_DEVICE)
        for name in names
        if name in device.resources and device.resources[name].value() > 0
    }
    if not amounts:  # it is not held to any share, so it has all
        amounts = dict.fromkeys(names, WHOLE_DEVICE)
    # One device may be named by its number in one annotation, by its id in another.
    which = [device.id] if device.id else []
    if kind == DeviceType.GPU or not which:
        which.append(f"minor {device.minor}")
    return [((kind, one, name), percent) for one in which for name, percent in amounts.items()]


def _age(pod: PodView) -> tuple[bool, float, str]:
    """Return what sorts pods by their start; those that have not started are last."""
    started = pod.pod.status.start_time
    return (started is None, started.timestamp() if started is not None else 0.0, pod.key)
