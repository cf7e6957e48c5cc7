"""Preference for nodes whose resources would be used to the same degree.

Source: kubernetes pkg/scheduler/framework/plugins/noderesources/balanced_allocation.go.
"""

from collections.abc import Hashable, Sequence
from dataclasses import field, replace
from typing import ClassVar

import numpy as np

from koordinator.api.kube_version import V1_36
from koordinator.api.kubescheduler import FeatureGates, NodeResourcesBalancedAllocationArgs
from koordinator.api.kubescheduler.gates import DRA_EXTENDED_RESOURCE
from koordinator.foundation.arrays import IntArray
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.memo import Memo
from koordinator.scheduler.contract import (
    DeviceCounter,
    PluginExample,
    PluginHints,
    PluginSpec,
    Reads,
    find_device_counter,
    served_usage,
)
from koordinator.scheduler.rules.usage_kernels import Balance
from koordinator.scheduler.snapshot import PodClass, ResourceAxis, Snapshot
from koordinator.scheduler.snapshot.axis import CPU, EPHEMERAL_STORAGE, MEMORY, PODS

ALWAYS_COUNTED = (CPU, MEMORY, EPHEMERAL_STORAGE)  # others only if the pod requests them


@dataclass(frozen=True, slots=True)
class NodeResourcesBalancedAllocation:
    """Score of 100 minus the standard deviation (in percent) of the used fractions.

    From Kubernetes 1.36 on the score is the change that the pod makes to it.
    """

    columns: tuple[int, ...]
    by_change: bool = False
    delegates: bool = False  # devices of DeviceClasses count on nodes without the resource
    counters: list[DeviceCounter] = field(default_factory=list, repr=False, compare=False)
    _balance: Memo[Balance] = field(default_factory=Memo, repr=False, compare=False)
    reads: ClassVar = Reads.USAGE

    def with_gates(self, gates: FeatureGates) -> "NodeResourcesBalancedAllocation":
        """Count devices if extended resources are on; score by change from Kubernetes 1.36 on."""
        return replace(
            self,
            delegates=DRA_EXTENDED_RESOURCE in gates,
            by_change=gates.level >= V1_36,
            _balance=Memo(),
        )

    def setup(self, plugins: Sequence[object]) -> None:
        """Look up the plugin of the profile that counts devices."""
        counter = find_device_counter(plugins) if self.delegates else None
        self.counters[:] = [counter] if counter is not None else []

    @property
    def hints(self) -> PluginHints:
        counts = self.delegates and any(column > PODS for column in self.columns)
        return PluginHints(
            key=lambda pod: (pod.demand, pod.served if self.delegates else ()),
            version=self._device_version if counts else None,
            scores=self._scores,
            formula=self._formula,
        )

    def score(self, snapshot: Snapshot, pod: PodClass) -> IntArray:
        usage = None
        if self._by_devices(pod):
            usage = served_usage(snapshot, pod, self.columns, self.counters[0])
        return snapshot.score(self._balance.of(pod, self._find_balance, pod), usage)

    def _by_devices(self, pod: PodClass) -> bool:
        """Return whether devices count for a scored resource of the pod."""
        return bool(self.counters) and any(column in self.columns for column, _ in pod.served)

    def _device_version(self, snapshot: Snapshot) -> Hashable:
        """Return the version of the devices that count for any pod; None without such devices."""
        served, names = snapshot.extended.classes, snapshot.resources
        if not self.counters or not any(names[column] in served for column in self.columns):
            return None
        return self.counters[0].device_version(snapshot)

    def _scores(self, _snapshot: Snapshot, pod: PodClass) -> bool:
        """Return False for pods that request none of the resources.

        Scored, they would all go to the emptiest node.
        """
        return any(pod.amount(column) for column in self.columns)

    def _formula(self, _snapshot: Snapshot, pod: PodClass) -> Balance | None:
        """Return the formula over the always counted and the requested resources."""
        return None if self._by_devices(pod) else self._balance.of(pod, self._find_balance, pod)

    def _find_balance(self, pod: PodClass) -> Balance:
        columns = [c for c in self.columns if c in ALWAYS_COUNTED or pod.amount(c)]
        amounts = [pod.amount(c) for c in columns]
        return Balance(np.array(columns, np.int64), np.array(amounts, np.int64), self.by_change)


def build(
    args: NodeResourcesBalancedAllocationArgs, axis: ResourceAxis
) -> NodeResourcesBalancedAllocation:
    return NodeResourcesBalancedAllocation(tuple(axis.index(r.name) for r in args.resources))


EXAMPLE = PluginExample(
    args={"resources": [{"name": name} for name in ("cpu", "memory", "example.com/foo")]},
)

PLUGIN = PluginSpec(
    "NodeResourcesBalancedAllocation", NodeResourcesBalancedAllocationArgs, build, example=EXAMPLE
)
