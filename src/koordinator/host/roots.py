"""Where the trees of the machine are, as this process sees them.

Source: koordinator pkg/koordlet/util/system/config.go, ``NewHostModeConfig``, ``NewDsModeConfig``.
"""

from dataclasses import dataclass
from typing import Final

#: Where version 1 of cgroups has hierarchies of their own that the agent uses.
HIERARCHIES: Final = ("blkio", "cpu", "cpuacct", "cpuset", "memory", "net_cls", "perf_event")


@dataclass(frozen=True, slots=True, kw_only=True)
class Roots:
    """Folders without a slash at the end."""

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
        """The roots of the hierarchies of cgroup v1; some distributions make links of them."""
        return tuple(f"{self.cgroup}/{name}" for name in HIERARCHIES)

    @property
    def resctrl(self) -> str:
        """The file system of cache and memory-bandwidth allocation."""
        return f"{self.sys_fs}/resctrl"


#: In a pod that has the machine's folders mounted, as the original's DaemonSet has them.
CONTAINER: Final = Roots(
    cgroup="/host-cgroup",
    sys="/host-sys",
    sys_fs="/host-sys-fs",
    var_run="/host-var-run",
    run="/host-run",
    terway="/host-var-lib/terway/qos",
)
HOST: Final = Roots()
