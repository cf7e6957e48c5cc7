"""Whom the kernel ends first when memory runs out.

Source: koordinator pkg/koordlet/runtimehooks/hooks/oomscoreadj.
"""

from collections.abc import Mapping

from koordinator.api.annotations.codec import read_int32
from koordinator.api.annotations.pod_qos import OOM_SCORE_ADJ, OOM_SCORE_ADJ_SPEC
from koordinator.api.meta import ObjectMeta
from koordinator.foundation.errors import InputError
from koordinator.koordlet.intents import Intent, SetOomScore
from koordinator.koordlet.view.node_view import NodeView

ACCEPTED = range(-1000, 1000 + 1)


def plan_oom_scores(view: NodeView) -> list[Intent]:
    """Return the adjustment of containers that have one; a bad one is left out, not clamped."""
    intents: list[Intent] = []
    for pod in view.pods:
        if not pod.is_active:
            continue
        by_container, default = _scores(pod.pod.metadata)
        for container in pod.containers:
            value = by_container.get(container.name, default)
            if value is not None and value in ACCEPTED:
                owner = f"{pod.key}/{container.name}"
                intents.append(SetOomScore(container.folder, value, "OOM score annotation", owner))
    return intents


def _scores(meta: ObjectMeta) -> tuple[Mapping[str, int], int | None]:
    try:
        by_container = OOM_SCORE_ADJ_SPEC.read(meta) or {}
    except InputError:
        by_container = {}
    try:
        return by_container, read_int32(meta, OOM_SCORE_ADJ)
    except InputError:
        return by_container, None
