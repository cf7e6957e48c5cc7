"""Required kubelet features: a node must declare each feature that the pod needs.

Source: kubernetes pkg/scheduler/framework/plugins/nodedeclaredfeatures.
"""

from dataclasses import field, replace
from typing import ClassVar

import numpy as np

from koordinator.api.kube_version import DEFAULT_LEVEL, NEWEST, V1_36, KubeVersion
from koordinator.api.kubescheduler import FeatureGates
from koordinator.api.kubescheduler.gates import NODE_DECLARED_FEATURES
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.memo import Memo
from koordinator.scheduler.contract import (
    Action,
    ClusterEvent,
    EventHint,
    NoArgs,
    PluginExample,
    PluginHints,
    PluginSpec,
    QueueingHint,
    Reads,
    Rejections,
)
from koordinator.scheduler.rules.node_facts import needed_features
from koordinator.scheduler.snapshot import PodClass, ResourceAxis, Snapshot

REASON = "node(s) didn't match Pod's required features"


@dataclass(frozen=True, slots=True)
class NodeDeclaredFeatures:
    """Filter on ``status.declaredFeatures``."""

    level: KubeVersion = DEFAULT_LEVEL
    is_on: bool = True
    _needed: Memo[tuple[str, ...]] = field(default_factory=Memo, repr=False, compare=False)
    reads: ClassVar = Reads.NODE

    def with_gates(self, gates: FeatureGates) -> "NodeDeclaredFeatures":
        """Check the features that pods of the release need; check none with the gate off."""
        is_on = NODE_DECLARED_FEATURES in gates
        return replace(self, level=gates.level, is_on=is_on, _needed=Memo())

    def applies(self, pod: PodClass) -> bool:
        return self.is_on and bool(self._needs(pod))

    @property
    def hints(self) -> PluginHints:
        return PluginHints(key=self._needs, filters=lambda _snapshot, pod: self.applies(pod))

    def filter(self, snapshot: Snapshot, pod: PodClass) -> Rejections:
        undeclared = [~snapshot.declares(feature) for feature in self._needs(pod)]
        if not undeclared:
            return Rejections.none(snapshot)
        if self.level >= V1_36:
            return Rejections.where(np.any(undeclared, axis=0), REASON, unresolvable=True)
        reasons = tuple(
            f"node declared features check failed - unsatisfied requirements: {feature}"
            for feature in self._needs(pod)
        )
        return Rejections.by_column(undeclared, reasons, unresolvable=True)

    def detail(self, view: Snapshot, pod: PodClass) -> str:
        """Name the features that the node does not declare."""
        undeclared = [each for each in self._needs(pod) if not view.declares(each)[0]]
        return f"does not declare {', '.join(undeclared)}"

    def _needs(self, pod: PodClass) -> tuple[str, ...]:
        return self._needed.of(pod, needed_features, pod.spec, self.level)


def _on_own_change(_pod: KubeObject, event: ClusterEvent) -> QueueingHint:
    old, new = event.old, event.new
    if not isinstance(old, Pod) or not isinstance(new, Pod):
        return QueueingHint.QUEUE
    needs = [needed_features(pod.spec, NEWEST) for pod in (old, new)]
    return QueueingHint.SKIP if needs[0] == needs[1] else QueueingHint.QUEUE


def build(_args: NoArgs, _axis: ResourceAxis) -> NodeDeclaredFeatures:
    return NodeDeclaredFeatures()


EXAMPLE = PluginExample(
    nodes=({}, {"status": {"declaredFeatures": ["RestartAllContainersOnContainerExits"]}}),
    pods=(
        {},
        {
            "spec": {
                "containers": [
                    {"name": "c", "restartPolicyRules": [{"action": "RestartAllContainers"}]}
                ]
            }
        },
    ),
)

PLUGIN = PluginSpec(
    "NodeDeclaredFeatures",
    NoArgs,
    build,
    events=(
        EventHint("Node", Action.ADD | Action.UPDATE_DECLARED_FEATURES),
        EventHint("Pod", Action.UPDATE, _on_own_change),
    ),
    example=EXAMPLE,
)
