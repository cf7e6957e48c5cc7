"""Taints and tolerations, with a preference for nodes with few ``PreferNoSchedule`` taints.

Source: kubernetes pkg/scheduler/framework/plugins/tainttoleration.
"""

from typing import ClassVar

import numpy as np
from msgspec.structs import replace

from koordinator.api.core import Taint
from koordinator.api.pod import Pod
from koordinator.domain.node_selection import (
    FORBIDDING,
    UNSCHEDULABLE,
    taint_text,
    toleration_of,
    toleration_text,
    untolerated,
)
from koordinator.foundation.arrays import BoolArray, IntArray
from koordinator.scheduler.contract import (
    Action,
    EventHint,
    NoArgs,
    PluginHints,
    PluginSpec,
    Reads,
    Rejections,
    Spread,
    spread_of,
)
from koordinator.scheduler.rules.node_facts import is_put_by_control_plane, what_ends
from koordinator.scheduler.snapshot import PodClass, ResourceAxis, Snapshot

REASON = "node(s) had untolerated taint(s)"
SOFT = ("PreferNoSchedule",)


class TaintToleration:
    """Filter and score by taints.

    A cluster has few distinct taint lists: each is checked once and the result applied to its rows.
    """

    reads: ClassVar = Reads.NODE
    hints: ClassVar = PluginHints(key=lambda pod: pod.spec.tolerations, spread=Spread.LOWEST)

    def filter(self, snapshot: Snapshot, pod: PodClass) -> Rejections:
        tolerations = pod.spec.tolerations
        forbidden = np.array(
            [bool(untolerated(taints, tolerations, FORBIDDING)) for taints in snapshot.taint_sets]
        )
        return Rejections.where(forbidden[snapshot.taint_set], REASON, unresolvable=True)

    def detail(self, view: Snapshot, pod: PodClass) -> str:
        """Name the taints."""
        return ", ".join(map(taint_text, self._left(view, pod)))

    def duplicate_of(self, snapshot: Snapshot, pod: PodClass) -> tuple[str, BoolArray]:
        """Return NodeUnschedulable and the rows whose only taint is the one of cordoned nodes."""
        tolerations = pod.spec.tolerations
        lists = (untolerated(taints, tolerations, FORBIDDING) for taints in snapshot.taint_sets)
        only = np.array([{taint.key for taint in left} == {UNSCHEDULABLE.key} for left in lists])
        return "NodeUnschedulable", only[snapshot.taint_set]

    def node_remedy(self, view: Snapshot, pod: PodClass) -> str:
        """Name the step, or the condition of the control plane, that removes each taint."""
        node, steps = view.node_names[0], []
        own = [t for t in self._left(view, pod) if not is_put_by_control_plane(t.key)]
        if own:
            steps.append(f"remove the taint from {node} ({', '.join(map(taint_text, own))})")
        for taint in self._left(view, pod):
            if taint.key == UNSCHEDULABLE.key:
                steps.append(f"uncordon {node}")
            elif is_put_by_control_plane(taint.key):
                ends = what_ends(taint.key, node)
                text = f"the control plane removes {taint_text(taint)} by itself when {ends}"
                steps.append(text)
        return " and ".join(dict.fromkeys(steps))

    def pod_remedies(self, view: Snapshot, pod: PodClass, it: Pod) -> list[tuple[str, Pod]]:
        """Return the pod with added tolerations; none for taints that the control plane sets."""
        left = self._left(view, pod)
        if any(is_put_by_control_plane(taint.key) for taint in left):
            return []
        more = tuple(map(toleration_of, left))
        spec = replace(it.spec, tolerations=it.spec.tolerations + more)
        listed = ", ".join(map(toleration_text, more))
        return [(f"add to its tolerations: [{listed}]", replace(it, spec=spec))]

    def _left(self, view: Snapshot, pod: PodClass) -> list[Taint]:
        taints = view.taint_sets[int(view.taint_set[0])]
        return untolerated(taints, pod.spec.tolerations, FORBIDDING)

    def score(self, snapshot: Snapshot, pod: PodClass) -> IntArray:
        """Return the number of soft taints not tolerated."""
        tolerations = pod.spec.tolerations
        counts = np.array(
            [len(untolerated(taints, tolerations, SOFT)) for taints in snapshot.taint_sets],
            np.int64,
        )
        return counts[snapshot.taint_set]

    def normalize(self, raw: IntArray) -> IntArray:
        return spread_of(raw, reverse=True)


def build(_args: NoArgs, _axis: ResourceAxis) -> TaintToleration:
    return TaintToleration()


PLUGIN = PluginSpec(
    "TaintToleration",
    NoArgs,
    build,
    events=(
        EventHint("Node", Action.ADD | Action.UPDATE_TAINTS),
        EventHint("Pod", Action.UPDATE_TOLERATIONS),
    ),
)
