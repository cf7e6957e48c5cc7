"""In-memory machine: a dictionary of paths and texts.

It reproduces the errors of Linux that depend on the order of writes: a CPU set or quota of a cgroup
outside of its parent's, or below a child's; and shares of an idle cgroup, which are also reset.  So
an executor that writes in a wrong order fails here, too.
Source: Linux kernel/cgroup/cpuset-v1.c ``validate_change_legacy``, kernel/sched/core.c
``tg_cfs_schedulable_down``, kernel/sched/fair.c ``sched_group_set_idle``.
"""

from collections.abc import Sequence

from koordinator.foundation.errors import HostError, InputError, MissingFileError


def parse_cpus(text: str) -> int:
    """Return the mask of a list such as ``0-3,8``.  Raises InputError."""
    mask = 0
    for part in filter(None, text.strip().split(",")):
        first, dash, last = part.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise InputError(f"must be a list such as 0-3,8, got {text!r}")
        mask |= (2 << int(last or first)) - (1 << int(first))
    return mask


_CPUSET, _EFFECTIVE = "cpuset.cpus", "cpuset.cpus.effective"
_IDLE = "cpu.idle"
_WEIGHTS = {"cpu.shares": ("3\n", "1024\n"), "cpu.weight": ("0\n", "100\n")}  # idle, afterwards
_QUOTA, _PERIOD = "cpu.cfs_quota_us", "cpu.cfs_period_us"


class MemoryHost:
    """Implementation of ``port.Host``.

    ``written`` has all writes in order, ``killed`` all killed processes.  Writes to ``read_only``
    paths fail; a process exists if a ``cgroup.procs`` lists it.  ``mountable`` has the files of
    mountable file systems by kind.
    """

    def __init__(self, files: dict[str, str] | None = None) -> None:
        self.written: list[tuple[str, str]] = []
        self.killed: list[int] = []
        self.read_only: set[str] = set()
        self.mountable: dict[str, dict[str, str]] = {}
        self._files: dict[str, str] = {}
        self._folders: set[str] = set()
        self._links: dict[str, str] = {}
        for path, text in (files or {}).items():
            self.put(path, text)

    def put(self, path: str, text: str) -> None:
        """Create a file and the folders above it, without checks."""
        self._files[path] = text
        self._add_folder(_parent(path))

    def link(self, path: str, target: str) -> None:
        """Create a link; its target may be missing."""
        self._links[path] = target
        self._add_folder(_parent(path))

    def snapshot(self) -> dict[str, str]:
        """Return the text of every file."""
        return dict(self._files)

    def vanish(self, path: str) -> None:
        """Remove a file, or a folder with its content, as when a cgroup is removed."""
        below = f"{path}/"
        self._files = {p: t for p, t in self._files.items() if p != path and below not in f"{p}/"}
        self._folders = {p for p in self._folders if p != path and not p.startswith(below)}

    def read(self, path: str) -> str:
        text = self._files.get(path)
        if text is None:
            raise MissingFileError(f"cannot read {path}: No such file or directory")
        return text

    def write(self, path: str, text: str) -> None:
        if path not in self._files:
            raise MissingFileError(f"cannot write {path}: No such file or directory")
        if path in self.read_only:
            raise HostError(f"cannot write {path}: Read-only file system")
        self._check(path, text)
        self.written.append((path, text))
        folder, _, name = path.rpartition("/")
        if name == "cpu.max" and len(text.split()) == 1:
            text = f"{text.strip()} {self._files[path].split()[-1]}"  # keep the period
        if name == _IDLE and text.strip() != self._files[path].strip():
            for file, (idle, default) in _WEIGHTS.items():
                if f"{folder}/{file}" in self._files:
                    self.put(f"{folder}/{file}", idle if text.strip() == "1" else default)
        if name == _CPUSET and f"{folder}/{_EFFECTIVE}" in self._files:
            self._files[f"{folder}/{_EFFECTIVE}"] = f"{text.strip()}\n"
        if path.endswith(("/tasks", "/cgroup.procs")):
            self._files[path] += f"{text.strip()}\n"  # adds a process
        else:
            self._files[path] = text if text.endswith("\n") else f"{text}\n"

    def replace(self, path: str, text: str) -> None:
        if path in self.read_only:
            raise HostError(f"cannot replace {path}: Read-only file system")
        self.put(path, text)

    def append(self, path: str, text: str) -> None:
        if path in self.read_only:
            raise HostError(f"cannot append to {path}: Read-only file system")
        self.put(path, self._files.get(path, "") + text)

    def exists(self, path: str) -> bool:
        return path in self._files or path in self._folders or path in self._links

    def folders(self, path: str) -> Sequence[str]:
        above = f"{path}/"
        return sorted(p[len(above) :] for p in self._folders if _parent(p) == path)

    def names(self, path: str) -> Sequence[str]:
        everything = {*self._folders, *self._files, *self._links}
        return sorted(p[len(path) + 1 :] for p in everything if _parent(p) == path)

    def target(self, path: str) -> str:
        resolved = self._links.get(path, path)
        if resolved not in self._files and resolved not in self._folders:
            raise MissingFileError(f"cannot resolve {path}: No such file or directory")
        return resolved

    def make_folder(self, path: str) -> None:
        if _parent(path) not in self._folders:
            raise MissingFileError(f"cannot make {path}: No such file or directory")
        self._folders.add(path)

    def remove_folder(self, path: str) -> None:
        self.vanish(path)

    def remove(self, path: str) -> None:
        self._files.pop(path, None)

    def mount(self, kind: str, folder: str) -> None:
        if kind not in self.mountable:
            raise HostError(f"cannot mount {kind} on {folder}: No such device")
        for name, text in self.mountable[kind].items():
            self.put(f"{folder}/{name}", text)

    def kill(self, pid: int, cgroup: str) -> bool:
        line = str(pid)
        holders = [
            path
            for path, text in self._files.items()
            if path.endswith("/cgroup.procs") and line in text.split()
        ]
        if not holders:
            return False
        if not any(path.endswith(f"/{cgroup}/cgroup.procs") for path in holders):
            raise HostError(f"cannot kill process {pid}: it is not in {cgroup}")
        for path in holders:
            self._files[path] = "".join(f"{p}\n" for p in self._files[path].split() if p != line)
        self.killed.append(pid)
        return True

    def _add_folder(self, path: str) -> None:
        while path and path not in self._folders:
            self._folders.add(path)
            path = _parent(path)

    def _check(self, path: str, text: str) -> None:
        folder, _, name = path.rpartition("/")
        if name in _WEIGHTS and self._files.get(f"{folder}/{_IDLE}", "").strip() == "1":
            raise _invalid(folder, name)
        if name == _CPUSET:
            self._check_cpus(folder, text)
        elif name == _QUOTA:
            self._check_quota(folder, text)

    def _check_cpus(self, folder: str, text: str) -> None:
        try:
            wanted = parse_cpus(text)
        except InputError:
            raise _invalid(folder, _CPUSET) from None
        above = self._files.get(f"{_parent(folder)}/{_CPUSET}")
        if above is not None and wanted & ~parse_cpus(above):
            raise HostError(f"cannot write {folder}/{_CPUSET}: Permission denied")
        for child in self.folders(folder):
            below = self._files.get(f"{folder}/{child}/{_CPUSET}", "")
            if parse_cpus(below) & ~wanted:
                raise HostError(f"cannot write {folder}/{_CPUSET}: Device or resource busy")

    def _check_quota(self, folder: str, text: str) -> None:
        if not text.strip().lstrip("-").isdigit():
            raise _invalid(folder, _QUOTA)
        wanted = self._share(folder, text)
        above = self._limit_above(folder)
        if above is not None and wanted is not None and wanted > above:
            raise _invalid(folder, _QUOTA)
        if wanted is not None and self._most_below(folder) > wanted:
            raise _invalid(folder, _QUOTA)

    def _limit_above(self, folder: str) -> float | None:
        while folder := _parent(folder):
            share = self._share(folder, self._files.get(f"{folder}/{_QUOTA}", "-1"))
            if share is not None:
                return share
        return None

    def _most_below(self, folder: str) -> float:
        most = 0.0
        for child in self.folders(folder):
            path = f"{folder}/{child}"
            share = self._share(path, self._files.get(f"{path}/{_QUOTA}", "-1"))
            most = max(most, self._most_below(path) if share is None else share)
        return most

    def _share(self, folder: str, text: str) -> float | None:
        """Return the quota divided by the period; None without a limit."""
        quota = int(text)
        return None if quota < 0 else quota / int(self._files.get(f"{folder}/{_PERIOD}", "100000"))


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _invalid(folder: str, name: str) -> HostError:
    return HostError(f"cannot write {folder}/{name}: Invalid argument")
