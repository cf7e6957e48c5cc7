"""Mount points of the machine's trees, as this process sees them.

Source: koordinator pkg/koordlet/util/system/config.go, ``NewHostModeConfig``, ``NewDsModeConfig``.
"""

from dataclasses import dataclass
from typing import Final

#: Hierarchies of cgroup v1 that the agent uses.
HIERARCHIES: Final = ("blkio", "cpu", "cpuacct", "cpuset", "memory", "net_cls", "perf_event")


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
