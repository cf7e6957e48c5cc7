"""Candidate nodes from the ``scheduling-hint`` annotation of another component.

``nodeNames`` restricts the candidates; ``preferredNodeNames`` are tried first, in order.

Source: koordinator pkg/scheduler/plugins/schedulinghint.
"""

from collections.abc import Iterable
from typing import ClassVar

import numpy as np

from koordinator.api.annotations.scheduling import SCHEDULING_HINT, SchedulingHint
from koordinator.api.kubescheduler import SchedulingHintArgs
from koordinator.api.meta import ObjectMeta
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.memo import Memo
from koordinator.scheduler.contract import (
    Action,
    EventHint,
    PluginExample,
    PluginHints,
    PluginSpec,
    Reads,
    Refusal,
    Rejections,
)
from koordinator.scheduler.snapshot import PodClass, ResourceAxis, Snapshot

REASON = "node(s) not in the pod's scheduling hint"
NO_HINT = SchedulingHint()
_HINT: Memo[SchedulingHint | InputError] = Memo()


def _names(pod: PodClass) -> tuple[str, ...]:
    hint = _read(pod)
    return () if isinstance(hint, InputError) else hint.node_names


def _read(pod: PodClass) -> SchedulingHint | InputError:
    """Return the hint of the pod, empty without annotation, or the error of a malformed one."""
    return _HINT.of(pod, _read_hint, pod)


def _read_hint(pod: PodClass) -> SchedulingHint | InputError:
    try:
        return SCHEDULING_HINT.read(ObjectMeta(annotations=dict(pod.annotations))) or NO_HINT
    except InputError as error:
        return error


@dataclass(frozen=True, slots=True)
class HintedNodes:
    """Filter and order of candidates for pods that carry a hint."""

    most: int  # preferred nodes beyond this number are not tried
    reads: ClassVar = Reads.NODE
    hints: ClassVar = PluginHints(key=_names, filters=lambda _snapshot, pod: bool(_names(pod)))

    def applies(self, pod: PodClass) -> bool:
        return SCHEDULING_HINT.is_in(pod.annotations)

    def prefilter(self, _snapshot: Snapshot, pod: PodClass) -> Refusal | None:
        hint = _read(pod)
        return Refusal(str(hint)) if isinstance(hint, InputError) else None

    def filter(self, snapshot: Snapshot, pod: PodClass) -> Rejections:
        numbers, by_name = snapshot.names
        wanted = [by_name[name] for name in _names(pod) if name in by_name]
        return Rejections.where(~np.isin(numbers, wanted), REASON, unresolvable=True)

    def prefer_nodes(self, snapshot: Snapshot, pod: PodClass) -> Iterable[int]:
        """Return the rows of the preferred nodes that exist."""
        hint = _read(pod)
        if isinstance(hint, InputError) or not hint.preferred_node_names:
            return ()
        by_name = snapshot.names[1]
        preferred = hint.preferred_node_names[: self.most]
        return [by_name[name] for name in preferred if name in by_name]


def build(args: SchedulingHintArgs, _axis: ResourceAxis) -> HintedNodes:
    return HintedNodes(args.max_hint_nodes)


EXAMPLE = PluginExample(
    pods=(
        {},
        {"metadata": {"annotations": {SCHEDULING_HINT.key: '{"nodeNames": ["n0", "n2"]}'}}},
        {"metadata": {"annotations": {SCHEDULING_HINT.key: '{"preferredNodeNames": ["n1"]}'}}},
    ),
)

PLUGIN = PluginSpec(
    "SchedulingHint",
    SchedulingHintArgs,
    build,
    events=(EventHint("Node", Action.ADD),),
    example=EXAMPLE,
)
