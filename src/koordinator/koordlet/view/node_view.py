"""Input of strategies and hooks in one round."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Final, Protocol

from koordinator.api.node_slo import NodeSloSpec, ResourceThresholdStrategy
from koordinator.api.qos import QosClass
from koordinator.api.resource_names import BATCH_CPU, CPU
from koordinator.api.resource_qos import ResourceQos, ResourceQosStrategy
from koordinator.domain.cgroups.files import (
    CgroupFile,
    CgroupVersion,
    runtime_weight_of_shares,
    shares_of_milli,
    weight_of_shares,
)
from koordinator.domain.cgroups.layout import CgroupLayout
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.koordlet.view.machine import Machine
from koordinator.koordlet.view.pods import PodView


class CgroupReadings(Protocol):
    """Current values of cgroup files; a vanished cgroup has none."""

    version: CgroupVersion

    def number(self, file: CgroupFile, folder: str) -> int | None:
        """Return a number in units of cgroup v1: -1 for no limit, None if unreadable."""

    def cpus(self, folder: str) -> int | None:
        """Return the CPU set of a cgroup as a mask; None if unreadable."""

    def lines(self, file: CgroupFile, folder: str) -> Sequence[str]:
        """Return the lines of a file; empty if unreadable."""

    def below(self, folder: str) -> Sequence[str]:
        """Return the child folders of a cgroup in the cpuset hierarchy."""


#: Policy that limits the best-effort tier by its quota, not by its CPU set.
CFS_QUOTA_POLICY: Final = "cfsQuota"


@dataclass(frozen=True)
class NodeView:
    """State of the node at ``now_s``, the start of the round; ``slo`` has defaults filled in.

    ``pods`` are all pods that are bound to the node, by key, including ended ones.  Strategies
    decide on ``active_pods``, because an ended pod uses and requests nothing.
    """

    now_s: float
    machine: Machine
    slo: NodeSloSpec
    pods: tuple[PodView, ...]
    layout: CgroupLayout
    cgroups: CgroupReadings

    def with_pods(self, pods: tuple[PodView, ...]) -> "NodeView":
        """Return the view with only these pods; itself if that is all of them."""
        return self if len(pods) == len(self.pods) else replace(self, pods=pods)

    @cached_property
    def active_pods(self) -> tuple[PodView, ...]:
        """Pods that run or may start, by key."""
        return tuple(pod for pod in self.pods if pod.is_active)

    @cached_property
    def lse_cpus(self) -> int:
        """Mask of the CPUs bound to pods of class LSE."""
        mask = 0
        for pod in self.active_pods:
            if pod.labelled_qos is QosClass.LSE:
                mask |= pod.bound_cpus
        return mask

    @cached_property
    def best_effort_cpus(self) -> int:
        """Mask of the CPUs that best-effort pods may use: not bound to LSE pods, not reserved."""
        machine = self.machine
        taken = self.lse_cpus | machine.reserved_cpus | machine.exclusive_system_cpus
        return machine.all_cpus & ~taken

    @property
    def lse_has_all_cpus(self) -> bool:
        """Whether pods of class LSE leave no CPU to best effort."""
        return bool(self.lse_cpus) and not self.best_effort_cpus

    @property
    def is_tier_limited_by_quota(self) -> bool:
        """Whether CPU suppress gives the best-effort tier a quota: by policy, or without CPUs."""
        threshold = self.threshold
        by_policy = threshold.enable and threshold.cpu_suppress_policy == CFS_QUOTA_POLICY
        return by_policy or self.lse_has_all_cpus

    @cached_property
    def sandboxes(self) -> Mapping[str, tuple[str, ...]]:
        """Cgroups in an active pod's folder that belong to none of its containers, by that folder.

        These are the sandbox, which may run a virtual machine, and containers that the API server
        has not reported yet.
        """
        sandboxes = {}
        for pod in self.active_pods:
            known = {each.folder for each in pod.containers}
            below = self.cgroups.below(pod.folder)
            sandboxes[pod.folder] = tuple(folder for folder in below if folder not in known)
        return sandboxes

    @cached_property
    def runtime_has_own_weights(self) -> bool:
        """Whether the container runtime converts shares to weights unlike the kubelet (cgroup v2).

        The weight of one container shows it, which the runtime gave for a native request, or for
        the shares that NRI passed.  Older containers keep their weights when a runtime is replaced.
        """
        return self.cgroups.version is CgroupVersion.V2 and any(
            self._weight(folder) == runtime_weight_of_shares(shares) != weight_of_shares(shares)
            for shares, folder in self._requested_shares()
        )

    def _requested_shares(self) -> Iterator[tuple[int, str]]:
        """Yield the shares that a container requests from the runtime, and its cgroup."""
        for pod in self.active_pods:
            for container in pod.containers:
                native = container.requests.get(CPU) or container.limits.get(CPU)
                amounts = pod.batch_resources.get(container.name)
                batch = None if amounts is None else amounts.requests.get(BATCH_CPU)
                if native is not None:
                    yield shares_of_milli(native.milli()), container.folder
                elif batch is not None:
                    yield shares_of_milli(batch.value()), container.folder

    def _weight(self, folder: str) -> int | None:
        lines = self.cgroups.lines(CgroupFile.CPU_SHARES, folder)
        return int(lines[0]) if lines and lines[0].isdecimal() else None

    @property
    def threshold(self) -> ResourceThresholdStrategy:
        """Thresholds of suppression and eviction."""
        return self.slo.resource_used_threshold_with_be or ResourceThresholdStrategy()

    @property
    def qos_strategy(self) -> ResourceQosStrategy:
        """QoS settings by class."""
        return self.slo.resource_qos_strategy or ResourceQosStrategy()

    def cpu_ratio(self, pod: PodView) -> float | None:
        """Return the CPU normalization ratio for an active pod on shared CPUs; otherwise None."""
        shares_cpus = pod.labelled_qos is QosClass.LS
        if pod.labelled_qos is QosClass.NONE:
            shares_cpus = not pod.bound_cpus and pod.uid not in self.machine.kubelet_pods
        return self.machine.cpu_normalization_ratio if shares_cpus and pod.is_active else None

    def qos_of(self, pod: PodView) -> ResourceQos:
        """Return the QoS settings of a pod's class; LSE has the settings of LSR."""
        strategy = self.qos_strategy
        classes = {
            "LSE": strategy.lsr_class,
            "LSR": strategy.lsr_class,
            "LS": strategy.ls_class,
            "BE": strategy.be_class,
            "SYSTEM": strategy.system_class,
        }
        return classes.get(pod.qos) or ResourceQos()
