"""Cgroup tree of this machine: files by name and folder, independent of the cgroup version."""

import re
from collections.abc import Sequence

from koordinator.domain.cgroups.files import (
    CgroupFile,
    CgroupVersion,
    cgroup_path,
    parse_number,
    spell,
)
from koordinator.domain.cgroups.layout import CgroupDriver, CgroupLayout, layout_of
from koordinator.foundation.cpu_list import parse_cpu_list
from koordinator.foundation.errors import HostError, InputError, MissingFileError
from koordinator.host.port import Files

#: kubepods-burstable-podUID.slice, or podUID; in names of systemd ``-`` separates levels.
_POD_FOLDER = re.compile(
    r"(?:(?:\w+-)*kubepods-(?:[a-z]+-)?)?pod(?P<uid>[0-9A-Za-z_-]+?)(?:\.slice)?"
)
_KUBEPODS = ("kubepods", "kubepods.slice")
DEEPEST_ROOT = 3  # as docker/ID/kubelet, where a node is a container
_CPUSET_READ = "cpuset.cpus.effective"  # of v2, where a set may be inherited


class CgroupTree:
    """Reader and writer below ``root``; implements ``view.node_view.CgroupReadings``."""

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

    def find_layout(self, stated: tuple[str, ...] | None = None) -> CgroupLayout | None:
        """Return the layout of the kubelet's cgroups; see the function ``find_layout``."""
        return find_layout(self._files, self._root, self.version, stated)

    def perf_folder(self, folder: str) -> str:
        """Return the absolute path of a cgroup for performance counters."""
        path = self.path(CgroupFile.PERF_PROCS, folder) or ""
        return path.rpartition("/")[0]

    def below(self, folder: str) -> Sequence[str]:
        """Return the child folders in the cpuset hierarchy."""
        path = self.path(CgroupFile.CPUSET, folder) or ""
        names = self._files.folders(path.rpartition("/")[0])
        return [f"{folder}/{name}" if folder else name for name in names]

    def processes(self, folder: str) -> list[int]:
        """Return the processes directly in a cgroup; empty if the cgroup has vanished."""
        try:
            return [int(pid) for pid in self.read(CgroupFile.PROCS, folder).split()]
        except (HostError, ValueError):
            return []


def find_version(files: Files, root: str) -> CgroupVersion:
    """Return the cgroup version mounted at ``root``."""
    is_v2 = files.exists(f"{root}/cgroup.controllers")
    return CgroupVersion.V2 if is_v2 else CgroupVersion.V1


def find_layout(
    files: Files, root: str, version: CgroupVersion, stated: tuple[str, ...] | None = None
) -> CgroupLayout | None:
    """Return the names and the place of the kubelet's cgroups; None if there are none yet.

    ``stated`` are the parts of the kubelet's ``cgroupRoot``; None if it is unknown.  If it is
    unknown, or has no pods, search up to ``DEEPEST_ROOT`` folders below the root.
    """
    hierarchy = f"{root}/cpu" if version is CgroupVersion.V1 else root
    for parts in (stated, ()) if stated else ((),):
        for driver in CgroupDriver:
            layout = CgroupLayout(driver, parts)
            if files.exists(f"{hierarchy}/{layout.kubepods}"):
                return layout
    level = [""]
    for _ in range(DEEPEST_ROOT):
        level = [
            f"{above}/{name}".removeprefix("/")
            for above in level
            for name in sorted(files.folders(f"{hierarchy}/{above}".rstrip("/")))
        ]
        below = (
            other
            for folder in level
            for name in files.folders(f"{hierarchy}/{folder}")
            if name.endswith(_KUBEPODS) and (other := layout_of(f"{folder}/{name}")) is not None
        )
        if (deeper := next(below, None)) is not None:
            return deeper
    return None


def find_pod_uids(tree: CgroupTree) -> frozenset[str]:
    """Return the UIDs of all pods that have a cgroup, with either cgroup driver."""
    layouts = {CgroupLayout(driver) for driver in CgroupDriver}
    if not any(tree.exists(layout.kubepods) for layout in layouts):
        layouts |= {other for other in (tree.find_layout(),) if other is not None}
    uids = set()
    for layout in layouts:
        for tier in (layout.kubepods, layout.burstable, layout.besteffort):
            for folder in tree.below(tier):
                match = _POD_FOLDER.fullmatch(folder.rpartition("/")[2])
                if match is not None:
                    uids.add(match["uid"].replace("_", "-"))
    return frozenset(uids)
