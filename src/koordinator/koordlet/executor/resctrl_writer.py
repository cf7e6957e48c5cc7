"""Groups of resctrl: made, set, filled with threads, removed.

Source: koordinator pkg/koordlet/util/system/resctrl.go, resourceexecutor/resctrl_updater.go.
"""

from koordinator.domain.cgroups.files import CgroupFile
from koordinator.foundation.errors import HostError, MissingFileError
from koordinator.host.port import Files
from koordinator.koordlet.cgroup_tree import CgroupTree
from koordinator.koordlet.intents import SetResctrl
from koordinator.koordlet.qos.resctrl_schemata import parse_schemata


class ResctrlWriter:
    """Works below ``root``; nothing happens while it is not mounted."""

    def __init__(self, files: Files, cgroups: CgroupTree, root: str) -> None:
        self._files = files
        self._cgroups = cgroups
        self._root = root

    @property
    def is_mounted(self) -> bool:
        """Whether the machine has resctrl and somebody mounted it."""
        return self._files.exists(f"{self._root}/schemata")

    def apply(self, intent: SetResctrl) -> list[tuple[str, str, str, str]]:
        """Return what was changed: file, before, after, error."""
        if not self.is_mounted:
            return []
        folder = f"{self._root}/{intent.group}"
        changes = []
        try:
            if not self._files.exists(folder):
                self._files.make_folder(folder)
                changes.append((folder, "", "made", ""))
            held = self._files.read(f"{folder}/schemata")
            members = set(self._files.read(f"{folder}/tasks").split())
        except HostError as failure:
            return [*changes, (folder, "", "", str(failure))]
        lines = {line.strip().partition(":")[0]: line.strip() for line in held.splitlines()}
        values = parse_schemata(held)
        for line in intent.schemata:
            ((resource, wanted),) = parse_schemata(line).items()
            if not wanted.items() <= values.get(resource, {}).items():
                error = self._write(f"{folder}/schemata", line)
                before = lines.get(resource, "")
                changes.append((f"{folder}/schemata", before, line, error))
        moved = 0
        for task in self._tasks(intent):
            if task not in members:
                moved += not self._write(f"{folder}/tasks", task)
        if moved:
            changes.append((f"{folder}/tasks", "", f"{moved} threads", ""))
        return changes

    def remove(self, group: str) -> str:
        """Remove a group; return what was wrong, empty if nothing."""
        try:
            self._files.remove_folder(f"{self._root}/{group}")
        except HostError as error:
            return str(error)
        return ""

    def _tasks(self, intent: SetResctrl) -> list[str]:
        found: list[str] = []
        for folder in intent.cgroups:
            found += self._cgroups.lines(CgroupFile.TASKS, folder)
        return [task for task in found if task]

    def _write(self, path: str, text: str) -> str:
        try:
            self._files.write(path, f"{text}\n")
        except MissingFileError:
            return "vanished"  # a thread that has ended
        except HostError as error:
            return str(error)
        return ""
