"""Hooks for a single pod, equivalent to the plans for all pods.

The reconciler uses the plans; the container runtime uses these hooks for a pod that it is about to
start, possibly before the watch has delivered it.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cached_property

from koordinator.domain.cgroups.files import CgroupFile, normalized_quota, quota_of_milli
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.koordlet.adjustments import ContainerAdjustment, LinuxResources
from koordinator.koordlet.hooks.batch_resources import pod_batch_resources
from koordinator.koordlet.hooks.cpu_qos import (
    GroupIdentities,
    identities_in_force,
    pod_group_identity,
)
from koordinator.koordlet.hooks.cpuset import is_tier_suppressed, pod_cpus, pod_cpuset
from koordinator.koordlet.intents import Intent, SetCgroup
from koordinator.koordlet.view.cpus import CpuPools, cpu_pools
from koordinator.koordlet.view.node_view import NodeView
from koordinator.koordlet.view.pods import ContainerCreation, PodView


def pod_cpu_normalization(view: NodeView, pod: PodView) -> Iterator[Intent]:
    """Yield the normalized quotas of a pod's containers, from the limits in the spec."""
    ratio = view.cpu_ratio(pod)
    if ratio is None:
        return
    reason = f"CPU normalization: ratio {ratio:g}"
    for container in pod.containers:
        if container.cpu_limit_milli > 0:
            value = str(normalized_quota(quota_of_milli(container.cpu_limit_milli), ratio))
            owner = f"{pod.key}/{container.name}"
            yield SetCgroup(CgroupFile.CFS_QUOTA, container.folder, value, reason, owner)


PodHook = Callable[[PodView], Iterable[Intent]]
#: Changes to a container outside of cgroups: environment, mounts, devices.
CreationHook = Callable[[ContainerCreation], ContainerAdjustment]


@dataclass(frozen=True)
class PodHooks:
    """Enabled hooks over one view of the node; thread-safe.

    ``identities`` is None on a kernel without group identity.  ``keep_quota`` is that argument of
    ``plan_cpusets``.
    """

    view: NodeView
    gates: Collection[str]
    pools: CpuPools
    identities: GroupIdentities | None
    keep_quota: bool = False

    @classmethod
    def of(cls, view: NodeView, gates: Collection[str], *, keep_quota: bool = False) -> "PodHooks":
        """Compute what all pods share from a view."""
        return cls(view, gates, cpu_pools(view), identities_in_force(view), keep_quota)

    @cached_property
    def pods(self) -> dict[str, PodView]:
        """Pods of the view by cgroup folder."""
        return {pod.folder: pod for pod in self.view.pods}

    @cached_property
    def bound_cpus(self) -> int:
        """Mask of the CPUs that are bound to pods of the view."""
        mask = 0
        for pod in self.view.active_pods:
            if not pod.offers_resources:
                mask |= pod.bound_cpus
        return mask

    def hooks(self, taken_cpus: int = 0) -> Iterator[tuple[str, PodHook]]:
        """Yield the hooks by gate, in order of application.

        ``taken_cpus`` is a mask of the CPUs of pods that are not in the view yet.
        """
        if "GroupIdentity" in self.gates and (identities := self.identities) is not None:
            yield "GroupIdentity", lambda pod: pod_group_identity(pod, identities)
        if "CPUNormalization" in self.gates:
            yield "CPUNormalization", lambda pod: pod_cpu_normalization(self.view, pod)
        if "BatchResource" in self.gates:
            suppressed = "BECPUSuppress" in self.gates
            yield (
                "BatchResource",
                lambda pod: pod_batch_resources(self.view, pod, is_suppressed=suppressed),
            )
        if "CPUSetAllocator" in self.gates:
            pools = self.pools.without(taken_cpus) if taken_cpus else self.pools
            yield (
                "CPUSetAllocator",
                lambda pod: pod_cpuset(
                    self.view,
                    pod,
                    pod_cpus(
                        self.view,
                        pod,
                        pools,
                        best_effort_cpus="BECPUManager" in self.gates,
                        is_suppressed=is_tier_suppressed(self.gates),
                    ),
                    keep_quota=self.keep_quota,
                ),
            )


def limits_of(intents: Iterable[Intent], folder: str) -> LinuxResources:
    """Return the intents for one container as limits of the runtime."""
    values: dict[CgroupFile, str] = {
        intent.file: intent.runtime_value or intent.value
        for intent in intents
        if isinstance(intent, SetCgroup) and intent.folder == folder
    }

    def number(file: CgroupFile) -> int | None:
        return int(values[file]) if file in values else None

    return LinuxResources(
        cpu_shares=number(CgroupFile.CPU_SHARES),
        cpu_quota_us=number(CgroupFile.CFS_QUOTA),
        cpuset_cpus=values.get(CgroupFile.CPUSET),
        memory_limit_bytes=number(CgroupFile.MEMORY_LIMIT),
    )
