"""Core scheduling cookies: one per group, assigned to all processes of the group.

The kernel stores the cookies and they are read again each time, so a restarted agent keeps the
cookies of running processes.
Source: koordinator pkg/koordlet/runtimehooks/hooks/coresched/core_sched.go, helper.go.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from koordinator.foundation.errors import HostError, MissingFileError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.host.port import CoreScheduling
from koordinator.koordlet.cgroup_tree import CgroupTree
from koordinator.koordlet.intents import SetCoreCookie

NO_COOKIE = 0


@dataclass(frozen=True, slots=True)
class CookieChange:
    """Result for the processes of a cgroup; ``error`` is empty on success.

    ``unforeseen`` is an unexpected exception: this intent was dropped, others were applied.
    """

    intent: SetCoreCookie
    cookie: int
    moved: int  # processes
    error: str = ""
    unforeseen: Exception | None = None


@dataclass(slots=True)
class _Members:
    intent: SetCoreCookie
    cookies: dict[int, int]  # by process


class CookieWriter:
    """Writer of cookies; without effect on a kernel without core scheduling.

    ``assigned`` has the current group and cookie by folder.  ``outcomes`` counts assignments by
    existing group, and by ``succeeded`` or ``failed``.
    """

    def __init__(self, core_scheduling: CoreScheduling, cgroups: CgroupTree) -> None:
        self.assigned: dict[str, tuple[str, int]] = {}
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self._kernel = core_scheduling
        self._cgroups = cgroups
        self._cookies: dict[str, int] = {}  # by group

    def apply(self, intents: Iterable[SetCoreCookie]) -> list[CookieChange]:
        """Assign the cookies; the intents must be complete, not a difference."""
        wanted = {intent.folder: intent for intent in intents}
        if not wanted:
            return []
        try:
            if not self._kernel.is_available():
                return []
        except Exception as error:  # noqa: BLE001 -- returned
            return [_dropped(intent, error) for intent in wanted.values()]
        changes: list[CookieChange] = []
        cgroups: list[_Members] = []
        for intent in wanted.values():
            try:
                cgroups.append(_Members(intent, self._read(intent.folder)))
            except Exception as error:  # noqa: BLE001 -- returned
                changes.append(_dropped(intent, error))
        changes += self._clear([each for each in cgroups if each.intent.group is None])
        groups: dict[str, list[_Members]] = {}
        for each in cgroups:
            if each.intent.group is not None and each.cookies:
                groups.setdefault(each.intent.group, []).append(each)
        self._cookies = {group: c for group, c in self._cookies.items() if group in groups}
        self.assigned = {}
        # The larger of two groups with one cookie keeps it (a pod moved while no agent ran).
        sizes = {
            group: sum(len(each.cookies) for each in members) for group, members in groups.items()
        }
        for group in sorted(groups, key=lambda group: -sizes[group]):
            joining = self._unite(group, groups[group])
            self._count(group, joining)
            changes += joining
        self.outcomes = Counter({key: n for key, n in self.outcomes.items() if key[0] in groups})
        return changes

    def _count(self, group: str, changes: Iterable[CookieChange]) -> None:
        for change in changes:
            is_bad = change.error or change.unforeseen is not None
            self.outcomes[group, "failed" if is_bad else "succeeded"] += 1

    def _clear(self, cgroups: Sequence[_Members]) -> list[CookieChange]:
        changes = []
        for each in cgroups:
            marked = [pid for pid, cookie in each.cookies.items() if cookie != NO_COOKIE]
            if marked:
                try:
                    error = _problem(partial(self._kernel.clear, marked))
                except Exception as broken:  # noqa: BLE001 -- returned
                    changes.append(_dropped(each.intent, broken))
                else:
                    changes.append(CookieChange(each.intent, NO_COOKIE, len(marked), error))
        return changes

    def _unite(self, group: str, members: Sequence[_Members]) -> list[CookieChange]:
        changes: list[CookieChange] = []
        try:
            source, cookie = self._source(group, members, changes)
        except HostError as failure:
            return [*changes, CookieChange(members[0].intent, NO_COOKIE, 0, str(failure))]
        self._cookies[group] = cookie
        dropped = {change.intent.folder for change in changes}
        for each in members:
            if each.intent.folder in dropped:
                continue
            others = [pid for pid, current in each.cookies.items() if current != cookie]
            error = ""
            if others:
                moving = [pid for pid in others if pid != source]
                try:
                    error = _problem(partial(self._kernel.share, source, moving)) if moving else ""
                except Exception as broken:  # noqa: BLE001 -- returned
                    changes.append(_dropped(each.intent, broken))
                    continue
                changes.append(CookieChange(each.intent, cookie, len(others), error))
            if not error:
                self.assigned[each.intent.folder] = (group, cookie)
        return changes

    def _source(
        self, group: str, members: Sequence[_Members], changes: list[CookieChange]
    ) -> tuple[int, int]:
        """Return a process that has the cookie of the group, and that cookie.

        Prefer the known cookie of the group; after a restart, the most frequent cookie of its
        processes that no other group has; otherwise create one.  Dropped members are added to
        ``changes``.
        """
        by_process = {pid: cookie for each in members for pid, cookie in each.cookies.items()}
        taken = {NO_COOKIE, *(c for other, c in self._cookies.items() if other != group)}
        counted = Counter(cookie for cookie in by_process.values() if cookie not in taken)
        known = self._cookies.get(group)
        if counted:
            commonest = counted.most_common(1)[0][0]
            cookie = known if known is not None and known in counted else commonest
            return next(pid for pid, current in by_process.items() if current == cookie), cookie
        # A process may end at any time between reading its id and creating its cookie; the next
        # one is tried then.  Another error concerns the whole member, which is dropped.
        for each in members:
            for pid in each.cookies:
                try:
                    self._kernel.create(pid)
                    return pid, self._kernel.cookie(pid)
                except MissingFileError:
                    continue
                except HostError:
                    raise
                except Exception as error:  # noqa: BLE001 -- returned
                    changes.append(_dropped(each.intent, error))
                    break
        raise MissingFileError(f"all processes of {group} have ended")

    def _read(self, folder: str) -> dict[int, int]:
        cookies = {}
        for pid in self._cgroups.processes(folder):
            try:
                cookies[pid] = self._kernel.cookie(pid)
            except HostError:
                continue  # it has ended
        return cookies


def _dropped(intent: SetCoreCookie, error: Exception) -> CookieChange:
    if isinstance(error, MemoryError):
        try:
            raise error
        finally:
            del error  # the traceback refers to this frame
    return CookieChange(intent, NO_COOKIE, 0, unforeseen=error)


def _problem(attempt: Callable[[], None]) -> str:
    try:
        attempt()
    except HostError as error:
        return str(error)
    return ""
