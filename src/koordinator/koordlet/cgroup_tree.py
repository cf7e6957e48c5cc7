"""The cgroups of this machine: files by their names and folders, whatever the version."""

import re
from collections.abc import Sequence

from koordinator.domain.cgroups.files import (
    CgroupFile,
    CgroupVersion,
    cgroup_path,
    parse_number,
    spell,
)
from koordinator.domain.cgroups.layout import CgroupDriver, CgroupLayout
from koordinator.domain.cpus.cpu_list import parse_cpu_list
from koordinator.foundation.errors import HostError, InputError, MissingFileError
from koordinator.host.port import Files

#: kubepods-burstable-podUID.slice, or podUID; systemd's names have no ``-`` of their own.
_POD_FOLDER = re.compile(r"(?:kubepods-(?:[a-z]+-)?)?pod(?P<uid>[0-9A-Za-z_-]+?)(?:\.slice)?")
_CPUSET_READ = "cpuset.cpus.effective"  # of v2, where a set may be inherited


class CgroupTree:
    """Reads and writes below ``root``; implements ``view.node_view.CgroupReadings``."""

    def __init__(self, files: Files, root: str, version: CgroupVersion) -> None:
        self.version = version
        self._files = files
        self._root = root

    def path(self, file: CgroupFile, folder: str) -> str | None:
        """Return the absolute path; None if this version has no such file."""
        below = cgroup_path(file, folder, self.version)
        return None if below is None else f"{self._root}/{below}"

    def read(self, file: CgroupFile, folder: str) -> str:
        """Return the text of a file.  Raises MissingFileError, HostError."""
        path = self.path(file, folder)
        if path is None:
            raise MissingFileError(f"cgroup v{self.version} has no {file}")
        if file is CgroupFile.CPUSET and self.version is CgroupVersion.V2:
            path = path.removesuffix(str(file)) + _CPUSET_READ
        return self._files.read(path)

    def write(self, file: CgroupFile, folder: str, text: str) -> None:
        """Write a value in v1 spelling.

        Raises MissingFileError, HostError, and InputError for a value out of the file's range.
        """
        path = self.path(file, folder)
        if path is None:
            raise MissingFileError(f"cgroup v{self.version} has no {file}")
        self._files.write(path, spell(file, text, self.version))

    def number(self, file: CgroupFile, folder: str) -> int | None:
        """Return a number in v1 units, -1 for no limit; None if it can't be read."""
        try:
            return parse_number(file, self.read(file, folder), self.version)
        except (HostError, InputError):
            return None

    def cpus(self, folder: str) -> int | None:
        """Return a CPU set as a mask; None if it can't be read."""
        try:
            return parse_cpu_list(self.read(CgroupFile.CPUSET, folder).strip())
        except (HostError, InputError):
            return None

    def lines(self, file: CgroupFile, folder: str) -> Sequence[str]:
        """Return the lines of a file; none if it can't be read."""
        try:
            return self.read(file, folder).splitlines()
        except HostError:
            return ()

    def exists(self, folder: str) -> bool:
        """Return whether there is such a cgroup."""
        path = self.path(CgroupFile.PROCS, folder)
        return path is not None and self._files.exists(path)

    def perf_folder(self, folder: str) -> str:
        """Return the absolute path of a cgroup as performance counters want it."""
        path = self.path(CgroupFile.PERF_PROCS, folder) or ""
        return path.rpartition("/")[0]

    def below(self, folder: str) -> Sequence[str]:
        """Return the folders directly below, by the cpuset hierarchy."""
        path = self.path(CgroupFile.CPUSET, folder) or ""
        names = self._files.folders(path.rpartition("/")[0])
        return [f"{folder}/{name}" if folder else name for name in names]

    def processes(self, folder: str) -> list[int]:
        """Return the processes directly in a cgroup; none if it has vanished."""
        try:
            return [int(pid) for pid in self.read(CgroupFile.PROCS, folder).split()]
        except (HostError, ValueError):
            return []


def find_version(files: Files, root: str) -> CgroupVersion:
    """Return which version is mounted at ``root``."""
    is_v2 = files.exists(f"{root}/cgroup.controllers")
    return CgroupVersion.V2 if is_v2 else CgroupVersion.V1


def find_driver(files: Files, root: str, version: CgroupVersion) -> CgroupDriver | None:
    """Return who named the folders of pods; None while the kubelet has not made any."""
    hierarchy = f"{root}/cpu" if version is CgroupVersion.V1 else root
    for driver in CgroupDriver:
        if files.exists(f"{hierarchy}/{CgroupLayout(driver).kubepods}"):
            return driver
    return None


def find_pod_uids(tree: CgroupTree) -> frozenset[str]:
    """Return UIDs of all pods that have a cgroup, whoever named the folders."""
    found = set()
    for layout in map(CgroupLayout, CgroupDriver):
        for tier in (layout.kubepods, layout.burstable, layout.besteffort):
            for folder in tree.below(tier):
                match = _POD_FOLDER.fullmatch(folder.rpartition("/")[2])
                if match is not None:
                    found.add(match["uid"].replace("_", "-"))
    return frozenset(found)
