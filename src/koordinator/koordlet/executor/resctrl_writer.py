"""Writer of resctrl groups: create, configure, add tasks, remove.

Source: koordinator pkg/koordlet/util/system/resctrl.go, resourceexecutor/resctrl_updater.go.
"""

from collections.abc import Iterator

from koordinator.domain.cgroups.files import CgroupFile
from koordinator.foundation.errors import HostError, MissingFileError
from koordinator.host.port import Files
from koordinator.koordlet.cgroup_tree import CgroupTree
from koordinator.koordlet.intents import SetResctrl
from koordinator.koordlet.qos.resctrl import parse_schemata


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
