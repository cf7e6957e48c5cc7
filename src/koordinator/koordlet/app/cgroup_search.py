"""Search for the cgroups of pods, whose names and place the kubelet determines."""

from collections.abc import Sequence
from typing import Final

from koordinator.domain.cgroups.layout import CgroupLayout
from koordinator.host.port import Host
from koordinator.host.roots import Roots
from koordinator.koordlet.cgroup_tree import CgroupTree
from koordinator.koordlet.collectors.kubelet_config import read_kubelet_config
from koordinator.koordlet.view.pods import PodView

#: Longest wait for the kubelet to create the cgroups above all pods.
LONGEST_WAIT_FOR_CGROUPS_S: Final = 60.0
_ADVICE: Final = "set --kubelet-cgroup-root to the kubelet's cgroupRoot"


class CgroupSearch:
    """Search for the layout of the kubelet's cgroups.

    ``stated`` are the parts of the kubelet's ``cgroupRoot``; None if it has to be searched.  The
    agent may start before the kubelet has created any cgroup; a wrong guess would disable
    measuring and enforcement permanently.  If there are still none after a minute (a kubelet with
    ``cgroupsPerQOS: false``), the agent works without them and searches again in each step.
    """

    def __init__(
        self, host: Host, roots: Roots, cgroups: CgroupTree, stated: tuple[str, ...] | None
    ) -> None:
        self.layout = CgroupLayout()
        self.problem = ""  # empty if there is none
        self._host = host
        self._roots = roots
        self._cgroups = cgroups
        self._stated = stated
        self._is_found = False
        self._began_s: float | None = None
        self._lost: frozenset[str] = frozenset()  # UIDs of pods without cgroups at the last check

    def is_over(self, now_s: float) -> bool:
        """Search until there are cgroups; return whether the agent may start working."""
        if self._is_found:
            return True
        if self._began_s is None:
            self._began_s = now_s
        stated = self._stated
        if stated is None:
            stated = read_kubelet_config(self._host, self._roots).cgroup_root
        found = self._cgroups.find_layout(stated)
        if found is not None:
            self._is_found = True
            self.layout, self.problem = found, ""
            return True
        if now_s < self._began_s + LONGEST_WAIT_FOR_CGROUPS_S:
            return False
        where = f"{stated or '/'} and up to two folders below {self._roots.cgroup}"
        self.problem = (
            f"no cgroups of pods: neither kubepods nor kubepods.slice exists in {where}; {_ADVICE}"
        )
        return True

    def check(self, pods: Sequence[PodView]) -> None:
        """Record a problem if no running pod had a cgroup in two consecutive checks."""
        if not self._is_found:
            return
        running = [pod for pod in pods if pod.containers and pod.pod.status.phase == "Running"]
        lost = frozenset(pod.uid for pod in running if not self._cgroups.exists(pod.folder))
        self.problem = ""
        if lost and len(lost) == len(running) and lost & self._lost:
            first = min(pod.folder for pod in running)
            self.problem = f"none of {len(lost)} pods has a cgroup, for example {first}; {_ADVICE}"
        self._lost = lost
