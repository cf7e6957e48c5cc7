"""Port to a host: files, cgroups and devices, and the roots of its file systems.

Linux exposes its state and its settings as small text files, so the main port is about files:
cgroups, /proc, /sys, resctrl.  Paths are absolute and as this process sees them; ``roots`` has the
mount points of the machine's trees.  No file outside of these trees is opened: paths with ``..``,
links other than the kernel's, FIFOs and devices are rejected.

Errors are ``HostError``s: MissingFileError for missing files, the base class for other errors of
the kernel.  Each adapter must pass ``tests/contract/host``.

Source: koordinator pkg/koordlet/util/perf; Linux man 2 perf_event_open,
Documentation/admin-guide/hw-vuln/core-scheduling.rst; koordinator
pkg/koordlet/util/system/config.go, ``NewHostModeConfig``, ``NewDsModeConfig``.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from koordinator.foundation.errors import HostError
from koordinator.foundation.lazy_dataclass import dataclass

#: Hierarchies of cgroup v1 that the agent uses.
HIERARCHIES: Final = ("blkio", "cpu", "cpuacct", "cpuset", "memory", "net_cls", "perf_event")


class ContainerRuntime(Protocol):
    """Container runtime; a call may take the whole grace period, so threads call it. Rule R2."""

    def reaches(self, container_id: str) -> bool:
        """Return immediately whether the runtime of a container is available."""

    def stop(self, pod_uid: str, container_id: str, grace_s: int) -> None:
        """Stop a container of a pod: SIGTERM, and SIGKILL after ``grace_s``.

        ``container_id`` is ``runtime://hash``, as the kubelet reports it.  Return when the
        container has stopped.  Raises HostError if that fails, or the pod does not own it.
        """


Released = Mapping[str, float]  # batch-cpu in milli-CPU, batch-memory in bytes


class Copilot(Protocol):
    """Agent of another runtime; a call may take seconds, so no loop may wait for it. Rule R2."""

    def release(
        self, amounts: Mapping[str, float], *, node_cpu_ratio: float, node_memory_ratio: float
    ) -> Released:
        """Stop containers until the amounts are released; return the released amounts.

        The ratios are the utilization of the node, 0..1; -1 if unknown.
        Raises HostError if the agent does not respond.
        """


class NetworkTools(Protocol):
    """Programs in the network namespace of the machine; each may take milliseconds or block.

    Rule R2.
    """

    def run(self, *words: str, text: str = "") -> str:
        """Run a program with ``text`` as its input; return its output.

        Raises HostError with the program's error output, and if it is missing or hangs.
        """


class ToolError(HostError):
    """A vendor's tool is missing, failed, or timed out.

    ``output`` is the text that it printed before it failed.
    """

    def __init__(self, problem: str, output: str = "") -> None:
        self.output = output
        super().__init__(problem)


class VendorTools(Protocol):
    """Programs installed by vendors of accelerators, and device nodes of their drivers. Rule R2."""

    def ask(self, *words: str) -> str:
        """Run a program of the machine; return its output.  Raises ToolError."""

    def device_numbers(self, name: str) -> Sequence[int]:
        """Return the numbers of the nodes ``/dev/<name><number>``, ascending."""


class RegionFile(Protocol):
    """Open region; it refers to the same file even if another one is renamed over it. Rule R2."""

    @property
    def size(self) -> int:
        """Current size in bytes.  Raises HostError."""

    def read(self, offset: int, size: int) -> bytes:
        """Return a copy of the bytes, fewer at the end of the file.  Raises HostError."""

    def write_int(self, offset: int, value: int) -> None:
        """Write 32 bits, little-endian, in one write; never extend the file.

        Raises HostError.
        """

    def close(self) -> None:
        """Close the file."""


class RegionFolders(Protocol):
    """Shared regions of HAMi-core: a folder with one folder per container.

    The container can write to its folder, so the folder may contain anything and change between
    two calls: links, FIFOs, devices, sparse files, a file truncated while it is read.  An
    implementation follows no links, opens regular files only, never blocks, and raises only
    HostError.

    Rule R2.
    """

    def names(self, most: int) -> Sequence[str]:
        """Return up to ``most`` names of folders, sorted; empty if the folder is missing."""

    def files(self, name: str, most: int) -> Sequence[str]:
        """Return up to ``most`` names in a container's folder, sorted.

        Raises HostError.
        """

    def open(self, name: str, file: str) -> RegionFile:
        """Open a regular file in a container's folder.

        Raises MissingFileError if it is missing, HostError if it is not a regular file.
        """

    def renew(self, name: str) -> None:
        """Create a container's folder with mode 0777, and move an existing one aside.

        The time does not depend on the size of the existing folder: it is renamed to a name that
        no container has, and removed later by the monitor.  Raises HostError.
        """

    def remove(self, name: str, most: int) -> bool:
        """Remove a folder and its content; return whether it is removed completely.

        One call removes at most ``most`` entries.  Raises HostError.
        """


@dataclass(frozen=True, slots=True)
class PerfCounts:
    """Counters of a cgroup's tasks, summed over all CPUs, for the time of counting."""

    cycles: float
    instructions: float


class PerfCounting(Protocol):
    """Counting in progress; ``stop`` must be called. Rule R2."""

    def stop(self) -> PerfCounts:
        """Stop counting and return the counts.  Raises HostError."""


class PerfEvents(Protocol):
    """Performance counters of this machine."""

    def start(self, folder: str, cpus: Sequence[int]) -> PerfCounting:
        """Start counting for a cgroup; ``folder`` is its absolute path.

        Raises MissingFileError for a vanished cgroup, and HostError if counters are missing or not
        permitted.
        """


class NoPerfEvents:
    """Machine without performance counters."""

    def start(self, folder: str, cpus: Sequence[int]) -> PerfCounting:
        raise HostError(f"cannot count for {folder} on {len(cpus)} CPUs: no performance counters")


class CoreScheduling(Protocol):
    """Cookies of processes.  Methods except the first raise HostError for errors of the kernel.

    They raise MissingFileError for a process that has ended, and for the calling process, which
    must have no cookie in order to remove cookies.
    """

    def is_available(self) -> bool:
        """Return whether the kernel supports core scheduling and cores have several threads."""

    def cookie(self, pid: int) -> int:
        """Return the cookie of the first thread of a process."""

    def create(self, pid: int) -> None:
        """Assign a new cookie to all threads of a process."""

    def share(self, source: int, pids: Sequence[int]) -> None:
        """Assign the cookie of ``source`` to all threads of processes."""

    def clear(self, pids: Sequence[int]) -> None:
        """Remove the cookie from all threads of processes."""


class NoCoreScheduling:
    """Kernel without core scheduling."""

    def is_available(self) -> bool:
        return False

    def cookie(self, pid: int) -> int:
        raise _absent(pid)

    def create(self, pid: int) -> None:
        raise _absent(pid)

    def share(self, source: int, pids: Sequence[int]) -> None:
        raise _absent(source, *pids)

    def clear(self, pids: Sequence[int]) -> None:
        raise _absent(*pids)


def _absent(*pids: int) -> HostError:
    return HostError(f"cannot schedule cores for {list(pids)}: the kernel has no core scheduling")


class Files(Protocol):
    """Small text files and their folders. Rule R2."""

    def read(self, path: str) -> str:
        """Return the text of a file.

        Raises MissingFileError, including for a file of a removed cgroup, and HostError.
        """

    def write(self, path: str, text: str) -> None:
        """Write an existing file in one write, as files of the kernel require.

        Raises MissingFileError, and HostError for errors of the kernel.
        """

    def replace(self, path: str, text: str) -> None:
        """Replace a file of the agent atomically, creating its folder if needed.

        Raises HostError.
        """

    def append(self, path: str, text: str) -> None:
        """Append to a file of the agent; create it and its folder if needed.

        Raises HostError.
        """

    def exists(self, path: str) -> bool:
        """Return whether a file or folder exists."""

    def folders(self, path: str) -> Sequence[str]:
        """Return the names of subfolders, sorted; empty if the folder is missing."""

    def names(self, path: str) -> Sequence[str]:
        """Return the names of all entries of a folder, sorted; empty if it is missing."""

    def target(self, path: str) -> str:
        """Return the real path behind all links.  Raises MissingFileError."""

    def make_folder(self, path: str) -> None:
        """Create a folder in an existing one, unless it exists.  Raises HostError."""

    def remove_folder(self, path: str) -> None:
        """Remove a folder of the kernel, such as a resctrl group, if it exists.

        Raises HostError.
        """

    def remove(self, path: str) -> None:
        """Remove a file if it exists.  Raises HostError."""


class Host(Files, Protocol):
    """Machine of the agent. Rule R2."""

    def mount(self, kind: str, folder: str) -> None:
        """Mount a file system of the kernel, such as resctrl, on an existing folder.

        Raises HostError if the kernel does not support it, or this process may not mount it.
        """

    def kill(self, pid: int, cgroup: str) -> bool:
        """Send SIGKILL to a process of a container's cgroup; return whether it existed.

        ``cgroup`` is the folder in its hierarchy.  Raises HostError if the process is in another
        cgroup, or the signal is not permitted.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Roots:
    """Folders without a trailing slash."""

    cgroup: str = "/sys/fs/cgroup"
    sys: str = "/sys"
    sys_fs: str = "/sys/fs"
    proc: str = "/proc"
    var_run: str = "/var/run"
    run: str = "/run"
    kubelet: str = "/var/lib/kubelet"
    terway: str = "/var/lib/terway/qos"

    def sysctl(self, name: str) -> str:
        """Return the file of a kernel setting such as ``vm/min_free_kbytes``."""
        return f"{self.proc}/sys/{name}"

    @property
    def hierarchies(self) -> tuple[str, ...]:
        """Roots of the cgroup v1 hierarchies; some distributions link them."""
        return tuple(f"{self.cgroup}/{name}" for name in HIERARCHIES)

    @property
    def resctrl(self) -> str:
        """Root of resctrl, for the allocation of caches and memory bandwidth."""
        return f"{self.sys_fs}/resctrl"


#: Mount points in a pod, as in the original's DaemonSet.
CONTAINER: Final = Roots(
    cgroup="/host-cgroup",
    sys="/host-sys",
    sys_fs="/host-sys-fs",
    var_run="/host-var-run",
    run="/host-run",
    terway="/host-var-lib/terway/qos",
)
HOST: Final = Roots()
