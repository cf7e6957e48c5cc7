"""Faults that one intent causes in the executor: all other intents are applied exactly."""

from collections.abc import Callable, Iterable

import pytest
from tests.core_scheduling import Kernel
from tests.memory_host import MemoryHost
from tests.nodes import START_S, Tree

from koordinator.domain.cgroups.files import CgroupFile
from koordinator.foundation.errors import Fault
from koordinator.host.linux.core_scheduling import LinuxCoreScheduling
from koordinator.koordlet.executor import AgentAuditTrail, Executor
from koordinator.koordlet.intents import (
    EvictPod,
    Intent,
    RemoveResctrl,
    SetBlockDevice,
    SetCgroup,
    SetCoreCookie,
    SetFile,
    SetOomScore,
    SetResctrl,
)

NAMES = ("a", "evil", "b")
PIDS = {"a": 11, "evil": 22, "b": 33}
CPUS = {"a": "0-1", "evil": "2-3", "b": "4-7"}


class Boom(Exception):  # noqa: N818 -- an unexpected error
    """Raised by a broken machine."""


class BreakingHost(MemoryHost):
    """Breaks at one verb over whatever ``is_evil``."""

    verb = ""
    is_evil: Callable[[str], bool] = staticmethod(lambda _: False)

    def _look(self, verb: str, about: str) -> None:
        if verb == self.verb and self.is_evil(about):
            raise Boom(about)

    def read(self, path: str) -> str:
        self._look("read", path)
        return super().read(path)

    def write(self, path: str, text: str) -> None:
        self._look("write", path)
        super().write(path, text)

    def remove_folder(self, path: str) -> None:
        self._look("remove_folder", path)
        super().remove_folder(path)

    def make_folder(self, path: str) -> None:
        self._look("make_folder", path)
        super().make_folder(path)


def is_about_evil(path: str) -> bool:
    """Return whether a path has the folder, group or process of the pod called evil."""
    return "evil" in path or f"/{PIDS['evil']}/" in path


def intents(  # noqa: PLR0911 -- one per kind
    kind: str, name: str
) -> list[Intent]:
    """Return what is wanted of one name."""
    folder, why, who = f"kubepods/{name}", "test", f"default/{name}"
    match kind:
        case "cgroup":
            return [
                SetCgroup(CgroupFile.CPUSET, folder, CPUS[name], why, who),
                SetCgroup(CgroupFile.CFS_QUOTA, folder, "50000", why, who),
                SetCgroup(CgroupFile.CPU_SHARES, folder, "2048", why, who),
            ]
        case "device":
            return [SetBlockDevice(CgroupFile.READ_BPS, folder, "8:0", "1000", why, who)]
        case "file":
            return [SetFile("sysctl", f"kernel/{name}", "1", why, who)]
        case "oom":
            return [SetOomScore(folder, 500, why, who)]
        case "core":
            return [SetCoreCookie(folder, "group", why, who)]
        case "resctrl":
            return [SetResctrl(name, ("L3:0=f",), (folder,), why)]
        case _:
            return [RemoveResctrl(f"old-{name}", why)]


KINDS = ("cgroup", "device", "file", "oom", "core", "resctrl", "removal")


class Machine:
    """Machine with a cgroup, a process and a sysctl for each name, and an executor."""

    def __init__(self, verb: str = "", names: Iterable[str] = NAMES) -> None:
        self.host = BreakingHost()
        self.tree = tree = Tree("0-7", host=self.host)
        host, roots = self.host, tree.roots
        for name in NAMES:
            folder = f"kubepods/{name}"
            tree.add(folder)
            tree.set(CgroupFile.CPUSET, folder, "0-7")
            tree.set(CgroupFile.READ_BPS, folder, "")
            tree.set(CgroupFile.PROCS, folder, PIDS[name])
            tree.set(CgroupFile.TASKS, folder, PIDS[name])
            host.put(roots.sysctl(f"kernel/{name}"), "0\n")
            host.put(f"{roots.proc}/{PIDS[name]}/oom_score_adj", "0\n")
            for group in (name, f"old-{name}"):
                host.put(f"{roots.resctrl}/{group}/schemata", "L3:0=ff\n")
                host.put(f"{roots.resctrl}/{group}/tasks", "")
        host.put(f"{roots.resctrl}/schemata", "L3:0=ff\n")
        self.kernel = Kernel(*PIDS.values())
        self.faults: list[Fault] = []
        host.verb, host.is_evil = verb, is_about_evil
        self.executor = Executor(
            host,
            roots,
            tree.cgroups,
            AgentAuditTrail(host),
            core_scheduling=LinuxCoreScheduling(self.kernel.prctl),
            on_fault=self.faults.append,
        )
        self.names = tuple(names)

    def apply(self, *kinds: str) -> dict[str, str]:
        """Apply what is wanted; return all that is not about the one called evil."""
        self.executor.apply(
            [each for kind in kinds for name in self.names for each in intents(kind, name)], START_S
        )
        self.host.verb = ""
        files = {path: text for path, text in self.host._files.items() if not is_about_evil(path)}
        named = {str(pid): bool(c) for pid, c in self.kernel.cookies.items() if pid != PIDS["evil"]}
        return files | {pid: str(has) for pid, has in named.items()}


@pytest.mark.parametrize("verb", ["read", "write", "remove_folder"])
def test_an_intent_that_breaks_voids_no_other(verb: str) -> None:
    """Of every kind, at every verb: the rest of the same apply is done as without that one."""
    expected = Machine(names=("a", "b")).apply(*KINDS)
    machine = Machine(verb)

    assert machine.apply(*KINDS) == expected
    assert machine.faults
    assert {type(fault.error) for fault in machine.faults} == {Boom}
    assert all("evil" in fault.about for fault in machine.faults)


@pytest.mark.parametrize(
    ("kind", "verb", "source"),
    [
        ("cgroup", "read", "cgroup"),
        ("cgroup", "write", "cgroup"),
        ("device", "write", "cgroup"),
        ("file", "write", "file"),
        ("oom", "write", "oom"),
        ("core", "read", "core"),
        ("resctrl", "write", "resctrl"),
        ("removal", "remove_folder", "resctrl"),
    ],
)
def test_fault_is_reported_and_audited(kind: str, verb: str, source: str) -> None:
    """By the type that the audit has for such a change, and under the name of its owner."""
    machine = Machine(verb)
    machine.apply(kind)

    assert {(fault.stage, fault.source) for fault in machine.faults} == {("applying", source)}
    broken = [event for event in machine.executor.audit.events if "internal error" in event.error]
    assert len(broken) == len(machine.faults)
    assert all("evil" in event.owner and "Boom" in event.error for event in broken)


def test_a_process_whose_cookie_breaks_costs_its_group_nothing() -> None:
    """Another process of the group creates the cookie instead."""
    machine = Machine(names=("evil", "a", "b"))
    calls = machine.executor.cookies._kernel
    own = calls.create

    def create(pid: int) -> None:
        if pid == PIDS["evil"]:
            raise Boom
        own(pid)

    calls.create = create  # type: ignore[method-assign]
    machine.apply("core")

    cookies = machine.kernel.cookies
    assert cookies[PIDS["a"]] == cookies[PIDS["b"]] != 0 == cookies[PIDS["evil"]]
    assert [str(fault) for fault in machine.faults] == [
        'kubepods/evil: internal error: applying of "core": Boom'
    ]


def test_failed_audit_of_an_intent_is_reported() -> None:
    """An unencodable name breaks the audit alone: every intent is applied."""
    machine = Machine()
    trail = AgentAuditTrail(machine.host, "/var/log/audit")
    machine.executor.audit = trail
    names = {"a": "a", "evil": "\ud800", "b": "b"}
    machine.executor.apply(
        [
            SetCgroup(CgroupFile.CPU_SHARES, f"kubepods/{name}", "2048", "test", owner)
            for name, owner in names.items()
        ],
        START_S,
    )

    shares = [machine.tree.get(CgroupFile.CPU_SHARES, f"kubepods/{name}") for name in NAMES]
    assert shares == ["2048"] * 3
    assert {fault.source for fault in machine.faults} == {"cgroup"}
    assert [event.owner for event in trail.events if event.owner in {"a", "b"}] == ["a", "b"]


def test_an_eviction_that_breaks_ends_the_other_containers() -> None:
    """The container that failed is reported."""
    machine = Machine("read")
    ended: list[int] = []

    def kill(pid: int, cgroup: str) -> bool:
        ended.append(pid)
        return bool(cgroup)

    machine.host.kill = kill  # type: ignore[method-assign]
    victim = EvictPod(
        "default", "p", "u", tuple(f"kubepods/{name}" for name in NAMES), "Why", "test", "kubepods"
    )

    assert machine.executor.kill(victim, START_S) == 2
    assert ended == [PIDS["a"], PIDS["b"]]
    assert [(fault.source, fault.about) for fault in machine.faults] == [("eviction", "default/p")]


def test_without_a_handler_it_is_raised() -> None:
    """A test without a fault handler fails on an unexpected error."""
    machine = Machine("read")
    plain = Executor(
        machine.host,
        machine.tree.roots,
        machine.tree.cgroups,
        AgentAuditTrail(machine.host),
        core_scheduling=LinuxCoreScheduling(machine.kernel.prctl),
    )
    with pytest.raises(Boom):
        plain.apply(intents("cgroup", "evil"), START_S)
