"""Writers of cgroup and resctrl files.

A limit of a parent must not be below the limits of its children.  Therefore values grow from the
top down and shrink from the bottom up: first write each value that is *looser* than the current
one, parents before children; then the exact values, children before parents.

Source: koordinator pkg/koordlet/resourceexecutor/executor.go ``LeveledUpdateBatch``, updater.go
``MergeFunc…``; koordinator pkg/koordlet/util/system/resctrl.go,
resourceexecutor/resctrl_updater.go.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from koordinator.domain.cgroups.files import UNLIMITED, CgroupFile, Nesting, is_same, parse_number
from koordinator.foundation.clock import Clock, SystemClock
from koordinator.foundation.cpu_list import format_cpu_list, parse_cpu_list
from koordinator.foundation.errors import HostError, InputError, MissingFileError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.host.port import Files
from koordinator.koordlet.cgroup_tree import CgroupTree
from koordinator.koordlet.intents import SetCgroup, SetResctrl
from koordinator.koordlet.qos.resctrl import parse_schemata

FORCED_AFTER_S: Final = 60.0
KEPT_S: Final = 120.0  # cached values without an intent for so long are dropped


@dataclass(frozen=True, slots=True)
class CgroupWrite:
    """Result of a write to one file; ``error`` is empty on success.

    ``unforeseen`` is an unexpected exception: this intent was dropped, others were applied.
    """

    intent: SetCgroup
    before: str
    after: str
    error: str = ""
    unforeseen: Exception | None = None
    took_s: float = 0.0


class CgroupWriter:
    """Cgroup writer with a cache: an equal value is not checked again for ``forced_after_s``.

    A missing file, because the pod has ended or the kernel lacks the feature, is no error.
    The shares of an idle cgroup are written when it is no longer idle.
    """

    def __init__(
        self,
        cgroups: CgroupTree,
        forced_after_s: float = FORCED_AFTER_S,
        clock: Clock | None = None,
    ) -> None:
        self._cgroups = cgroups
        self._clock = clock or SystemClock()
        self._forced_after_s = forced_after_s
        #: Last written value and its time, by file and folder.
        self._known: dict[tuple[CgroupFile, str], tuple[str, float]] = {}

    def apply(self, intents: Iterable[SetCgroup], now_s: float) -> list[CgroupWrite]:
        """Write the values that differ; return the writes and failures.

        Of several intents for one file the last one is applied.
        """
        wanted = {(intent.file, intent.folder): intent for intent in intents}
        by_file: dict[CgroupFile, list[_Change]] = defaultdict(list)
        writes: list[CgroupWrite] = []
        for key, intent in wanted.items():
            if intent.file is CgroupFile.CPU_SHARES and (CgroupFile.CPU_IDLE, key[1]) in wanted:
                self._known.pop(key, None)  # the kernel resets shares when cpu.idle changes
            known = self._known.get(key)
            is_known = not intent.is_observed and known is not None and known[0] == intent.value
            if is_known and known is not None and now_s - known[1] < self._forced_after_s:
                continue
            try:
                change = self._change(intent, now_s)
            except Exception as error:  # noqa: BLE001 -- returned
                self._drop(intent, error, writes)
                continue
            if change is not None:
                by_file[intent.file].append(change)
        for file, changes in by_file.items():
            changes.sort(key=lambda change: change.intent.folder.count("/"))
            exact = changes
            if file.nesting is not Nesting.FREE:
                exact = self._loosen(file, changes, writes)
                exact.reverse()
            for change in exact:
                try:
                    self._write(change, change.intent.value, writes, now_s)
                except Exception as error:  # noqa: BLE001 -- returned
                    self._drop(change.intent, error, writes)
        return writes

    def invalidate(self, folders: Collection[str] | None = None) -> None:
        """Drop the cached values of these cgroups, or of all: others may have written them."""
        if folders is None:
            self._known.clear()
            return
        self._known = {key: e for key, e in self._known.items() if key[1] not in folders}

    def forget(self, now_s: float) -> None:
        """Drop cached values without a recent intent, because their pods have ended."""
        self._known = {key: e for key, e in self._known.items() if now_s - e[1] < KEPT_S}

    def _change(self, intent: SetCgroup, now_s: float) -> "_Change | None":
        """Return the required change; None if the file has the value already, or is missing."""
        try:
            before = self._cgroups.read(intent.file, intent.folder).strip()
        except MissingFileError:
            self._known.pop((intent.file, intent.folder), None)
            return None
        except HostError:
            before = ""
        if self._is_idle(intent):
            before = ""  # the file shows the common shares of idle cgroups
        if is_same(intent.file, intent.value, before, self._cgroups.version):
            self._known[intent.file, intent.folder] = (intent.value, now_s)
            return None
        return _Change(intent, before, before)

    def _loosen(
        self, file: CgroupFile, changes: Sequence["_Change"], writes: list[CgroupWrite]
    ) -> list["_Change"]:
        """Write the looser values; return the changes whose write did not raise."""
        remaining = []
        for change in changes:
            try:
                looser = _looser(file, change.before, change.intent.value, self._cgroups)
                if looser is not None:
                    self._write(change, looser, writes, None)
            except Exception as error:  # noqa: BLE001 -- returned
                self._drop(change.intent, error, writes)
            else:
                remaining.append(change)
        return remaining

    def _drop(self, intent: SetCgroup, error: Exception, writes: list[CgroupWrite]) -> None:
        if isinstance(error, MemoryError):
            try:
                raise error
            finally:
                del error  # the traceback refers to this frame
        self._known.pop((intent.file, intent.folder), None)
        writes.append(CgroupWrite(intent, "", "", unforeseen=error))

    def _write(
        self, change: "_Change", value: str, writes: list[CgroupWrite], now_s: float | None
    ) -> None:
        """Write one value; ``now_s`` is None for an intermediate value, which is not cached."""
        intent = change.intent
        if value == change.current:
            if now_s is not None:
                self._known[intent.file, intent.folder] = (intent.value, now_s)
            return
        if self._is_idle(intent):
            return
        began_s = self._clock.now_s()
        error = self._try(intent.file, intent.folder, value)
        if error is None:
            return
        if error and intent.file in {CgroupFile.CFS_BURST, CgroupFile.CFS_QUOTA}:
            value, error = self._within_burst_rule(intent, value, error)
            if not error and value == change.current and now_s is not None:
                self._known[intent.file, intent.folder] = (intent.value, now_s)
                return  # the cap is unchanged
        took_s = self._clock.now_s() - began_s
        writes.append(CgroupWrite(intent, change.current, value, error, took_s=took_s))
        if error:
            self._known.pop((intent.file, intent.folder), None)
            return
        change.current = value
        if now_s is not None:
            self._known[intent.file, intent.folder] = (intent.value, now_s)

    def _is_idle(self, intent: SetCgroup) -> bool:
        """Return whether the intent sets the shares of an idle cgroup, which the kernel rejects.

        Source: Linux kernel/sched/fair.c, ``sched_group_set_shares``.
        """
        if intent.file is not CgroupFile.CPU_SHARES:
            return False
        return self._cgroups.number(CgroupFile.CPU_IDLE, intent.folder) == 1

    def _try(self, file: CgroupFile, folder: str, value: str) -> str | None:
        """Write a value; return the error, empty on success, None if the file does not exist."""
        try:
            self._cgroups.write(file, folder, value)
        except MissingFileError:
            return None
        except (HostError, InputError) as error:
            return str(error)
        return ""

    def _within_burst_rule(self, intent: SetCgroup, value: str, error: str) -> tuple[str, str]:
        """Retry with a burst no larger than the quota, as mainline kernels require.

        Source: Linux kernel/sched/core.c, ``tg_set_cfs_bandwidth``.
        """
        cgroups, folder = self._cgroups, intent.folder
        if intent.file is CgroupFile.CFS_BURST:
            quota = cgroups.number(CgroupFile.CFS_QUOTA, folder)
            if quota is not None and 0 < quota < int(value):
                return str(quota), self._try(intent.file, folder, str(quota)) or ""
            return value, error
        burst = cgroups.number(CgroupFile.CFS_BURST, folder)
        if burst is not None and 0 < int(value) < burst:
            self._known.pop((CgroupFile.CFS_BURST, folder), None)
            if self._try(CgroupFile.CFS_BURST, folder, value) == "":
                return value, self._try(intent.file, folder, value) or ""
        return value, error


@dataclass(slots=True)
class _Change:
    intent: SetCgroup
    before: str  # the first write
    current: str


def _looser(file: CgroupFile, before: str, wanted: str, cgroups: CgroupTree) -> str | None:
    """Return the value to write before children grow; None if the file is loose enough."""
    try:
        if file.nesting is Nesting.CPUS:
            now, then = parse_cpu_list(before), parse_cpu_list(wanted)
            return format_cpu_list(now | then) if then & ~now else None
        now, then = parse_number(file, before, cgroups.version), int(wanted)
    except (InputError, ValueError):
        return None
    is_larger = now != UNLIMITED and (then == UNLIMITED or then > now)
    return wanted if is_larger else None


class ResctrlWriter:
    """Writer below ``root``; without effect while resctrl is not mounted."""

    def __init__(self, files: Files, cgroups: CgroupTree, root: str) -> None:
        self._files = files
        self._cgroups = cgroups
        self._root = root

    @property
    def is_mounted(self) -> bool:
        """Whether resctrl is mounted."""
        return self._files.exists(f"{self._root}/schemata")

    def has(self, group: str) -> bool:
        """Return whether a group exists."""
        return self._files.exists(f"{self._root}/{group}/schemata")

    def apply(self, intent: SetResctrl) -> Iterator[tuple[str, str, str, str]]:
        """Apply the intent; yield file, value before, value after and error of each change."""
        if not self.is_mounted:
            return
        folder = f"{self._root}/{intent.group}"
        try:
            if not self._files.exists(folder):
                self._files.make_folder(folder)
                yield folder, "", "made", ""
            current = self._files.read(f"{folder}/schemata")
            members = set(self._files.read(f"{folder}/tasks").split())
        except HostError as failure:
            yield folder, "", "", str(failure)
            return
        lines = {line.strip().partition(":")[0]: line.strip() for line in current.splitlines()}
        values = parse_schemata(current)
        for line in intent.schemata:
            ((resource, wanted),) = parse_schemata(line).items()
            if not wanted.items() <= values.get(resource, {}).items():
                error = self._write(f"{folder}/schemata", line)
                yield f"{folder}/schemata", lines.get(resource, ""), line, error
        moved = 0
        for task in self._tasks(intent):
            if task not in members:
                moved += not self._write(f"{folder}/tasks", task)
        if moved:
            yield f"{folder}/tasks", "", f"{moved} threads", ""

    def remove(self, group: str) -> str:
        """Remove a group; return the error, empty on success."""
        try:
            self._files.remove_folder(f"{self._root}/{group}")
        except HostError as error:
            return str(error)
        return ""

    def _tasks(self, intent: SetResctrl) -> list[str]:
        tasks: list[str] = []
        for folder in intent.cgroups:
            tasks += self._cgroups.lines(CgroupFile.TASKS, folder)
        return [task for task in tasks if task]

    def _write(self, path: str, text: str) -> str:
        try:
            self._files.write(path, f"{text}\n")
        except MissingFileError:
            return "vanished"  # the thread has ended
        except HostError as error:
            return str(error)
        return ""
