"""Groups of pods get cookies of their own, and keep them."""

import itertools

from tests.core_scheduling import Kernel, absent
from tests.nodes import START_S, Tree

from koordinator.domain.cgroups.files import CgroupFile
from koordinator.host.linux.core_scheduling import LinuxCoreScheduling
from koordinator.koordlet.executor import AgentAuditTrail, Executor
from koordinator.koordlet.executor.cookie_writer import CookieWriter
from koordinator.koordlet.intents import SetCoreCookie


def tree(**processes: list[int]) -> Tree:
    """Return cgroups with processes."""
    made = Tree()
    for folder, pids in processes.items():
        made.add(folder)
        made.set(CgroupFile.PROCS, folder, "\n".join(map(str, pids)))
    return made


def wanted(**groups: str | None) -> list[SetCoreCookie]:
    """Return intents by folder."""
    return [SetCoreCookie(folder, group, "test", folder) for folder, group in groups.items()]


def test_a_group_has_one_cookie_and_no_other_group_has_it() -> None:
    """All its containers, whatever their number of processes; the empty name is a group, too."""
    kernel = Kernel(1, 2, 3, 4, 5)
    where = tree(a=[1, 2], b=[3], c=[4], d=[5])
    writer = CookieWriter(LinuxCoreScheduling(kernel.prctl), where.cgroups)

    changes = writer.apply(wanted(a="x", b="x", c="", d=None))

    one, two = kernel.cookies[1], kernel.cookies[4]
    assert kernel.cookies == {1: one, 2: one, 3: one, 4: two, 5: 0}
    assert 0 != one != two != 0
    assert writer.assigned == {"a": ("x", one), "b": ("x", one), "c": ("", two)}
    assert sum(change.moved for change in changes) == 4


def test_correct_cookies_are_kept_after_a_restart() -> None:
    """A new agent finds the cookies in the kernel; running pods get no other ones."""
    kernel = Kernel(1, 2, 3)
    where = tree(a=[1, 2], b=[3])
    calls = LinuxCoreScheduling(kernel.prctl)
    CookieWriter(calls, where.cgroups).apply(wanted(a="x", b="y"))
    before, changes = dict(kernel.cookies), kernel.changes

    assert CookieWriter(calls, where.cgroups).apply(wanted(a="x", b="y")) == []
    assert (kernel.cookies, kernel.changes) == (before, changes)


def test_a_new_process_joins_its_group() -> None:
    """A process that joins from outside gets the group's cookie; a child inherits its parent's."""
    kernel = Kernel(1, 2)
    where = tree(a=[1])
    writer = CookieWriter(LinuxCoreScheduling(kernel.prctl), where.cgroups)
    writer.apply(wanted(a="x"))
    where.set(CgroupFile.PROCS, "a", "2\n1")
    writer.apply(wanted(a="x"))

    assert kernel.cookies[1] == kernel.cookies[2] != 0


def test_a_container_that_changes_its_group_changes_its_cookie() -> None:
    """Containers that stay keep their cookie; a restart makes no difference."""
    moved = {"b": "x", "c": "x", "a": "y"}
    for restarts, order in itertools.product((False, True), ("bca", "abc")):
        kernel = Kernel(1, 2, 3)
        where = tree(a=[1], b=[2], c=[3])
        calls = LinuxCoreScheduling(kernel.prctl)
        writer = CookieWriter(calls, where.cgroups)
        writer.apply(wanted(a="x", b="x", c="x"))
        before = kernel.cookies[2]
        writer = CookieWriter(calls, where.cgroups) if restarts else writer
        writer.apply(wanted(**{folder: moved[folder] for folder in order}))

        assert kernel.cookies[2] == kernel.cookies[3] == before
        assert kernel.cookies[1] not in {0, before}


def test_cookies_are_taken_away_when_core_scheduling_ends() -> None:
    """Once."""
    kernel = Kernel(1, 2)
    where = tree(a=[1, 2])
    writer = CookieWriter(LinuxCoreScheduling(kernel.prctl), where.cgroups)
    writer.apply(wanted(a="x"))
    (change,) = writer.apply(wanted(a=None))

    assert (change.cookie, change.moved) == (0, 2)
    assert kernel.cookies == {1: 0, 2: 0}
    assert writer.assigned == {}
    assert writer.apply(wanted(a=None)) == []


def test_ended_process_is_skipped() -> None:
    """An empty or vanished cgroup is skipped, too."""
    kernel = Kernel(2)
    where = tree(a=[1, 2], b=[])
    writer = CookieWriter(LinuxCoreScheduling(kernel.prctl), where.cgroups)
    changes = writer.apply(wanted(a="x", b="x", gone="x"))

    assert kernel.cookies[2] != 0
    assert [change.error for change in changes] == [""]


def test_a_refusal_is_in_the_audit_and_stops_no_other_group() -> None:
    """A refused process is retried, and reported once."""
    kernel = Kernel(1, 2)
    kernel.refused = {1}
    where = tree(a=[1], b=[2])
    executor = Executor(
        where.host,
        where.roots,
        where.cgroups,
        AgentAuditTrail(where.host),
        core_scheduling=LinuxCoreScheduling(kernel.prctl),
    )
    for second in range(2):
        executor.apply(wanted(a="x", b="y"), START_S + second)

    assert kernel.cookies[2] != 0
    assert [(e.owner, "not permitted" in e.error) for e in executor.audit.events] == [
        ("a", True),
        ("b", False),
    ]
    assert executor.outcomes["core", "failed"] == 2


def test_a_kernel_without_core_scheduling_is_left_alone() -> None:
    """Nothing is asked of it but whether it has it."""
    where = tree(a=[1])
    writer = CookieWriter(LinuxCoreScheduling(absent), where.cgroups)

    assert writer.apply(wanted(a="x")) == []
