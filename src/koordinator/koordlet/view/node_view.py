"""Everything that a strategy may look at in one round."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from koordinator.api.node_slo import NodeSloSpec, ResourceThresholdStrategy
from koordinator.api.qos import QosClass
from koordinator.api.resource_qos import ResourceQos, ResourceQosStrategy
from koordinator.domain.cgroups.files import CgroupFile
from koordinator.domain.cgroups.layout import CgroupLayout
from koordinator.koordlet.view.machine import Machine
from koordinator.koordlet.view.pods import PodView


class CgroupReadings(Protocol):
    """What the cgroups have now.  A cgroup that vanished has nothing."""

    def number(self, file: CgroupFile, folder: str) -> int | None:
        """Return a number in the units of cgroup v1; -1 is no limit, None is unknown."""

    def cpus(self, folder: str) -> int | None:
        """Return the CPU set of a cgroup as a mask, None if unknown."""

    def lines(self, file: CgroupFile, folder: str) -> Sequence[str]:
        """Return the lines of a file; none if it can't be read."""

    def below(self, folder: str) -> Sequence[str]:
        """Return the folders of the cgroups directly below one, in the cpuset hierarchy."""


@dataclass(frozen=True)
class NodeView:
    """State of the node at ``now_s``, the start of the round; ``slo`` has defaults filled in.

    ``pods`` are all pods that are bound to the node, by key, including pods that have ended.
    Strategies decide on ``active_pods``: a pod that has ended holds and asks for nothing.
    """

    now_s: float
    machine: Machine
    slo: NodeSloSpec
    pods: tuple[PodView, ...]
    layout: CgroupLayout
    cgroups: CgroupReadings

    @cached_property
    def active_pods(self) -> tuple[PodView, ...]:
        """The pods that run or may start, by key."""
        return tuple(pod for pod in self.pods if pod.is_active)

    @cached_property
    def sandboxes(self) -> Mapping[str, tuple[str, ...]]:
        """By folder of an active pod, the cgroups in it that belong to none of its containers.

        That is its sandbox, in which a virtual machine may run, and a container that has not been
        reported yet.
        """
        found = {}
        for pod in self.active_pods:
            known = {each.folder for each in pod.containers}
            below = self.cgroups.below(pod.folder)
            found[pod.folder] = tuple(folder for folder in below if folder not in known)
        return found

    @property
    def threshold(self) -> ResourceThresholdStrategy:
        """When best-effort pods are suppressed and evicted."""
        return self.slo.resource_used_threshold_with_be or ResourceThresholdStrategy()

    @property
    def qos_strategy(self) -> ResourceQosStrategy:
        """What every QoS class gets."""
        return self.slo.resource_qos_strategy or ResourceQosStrategy()

    def cpu_ratio(self, pod: PodView) -> float | None:
        """Return what a CPU of the node is worth to an active pod that shares CPUs; else None."""
        shares_cpus = pod.labelled_qos is QosClass.LS
        if pod.labelled_qos is QosClass.NONE:
            shares_cpus = not pod.bound_cpus
        return self.machine.cpu_normalization_ratio if shares_cpus and pod.is_active else None

    def qos_of(self, pod: PodView) -> ResourceQos:
        """Return what the class of a pod gets: LSE as LSR, SYSTEM by its own."""
        strategy = self.qos_strategy
        classes = {
            "LSE": strategy.lsr_class,
            "LSR": strategy.lsr_class,
            "LS": strategy.ls_class,
            "BE": strategy.be_class,
            "SYSTEM": strategy.system_class,
        }
        return classes.get(pod.qos) or ResourceQos()
