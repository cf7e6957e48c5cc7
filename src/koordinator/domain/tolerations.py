"""Whether a toleration covers a taint.

Source: k8s.io/api core/v1/toleration.go ``ToleratesTaint``.
"""

from collections.abc import Iterable

from koordinator.api.core import Taint, Toleration

UNSCHEDULABLE = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
FORBIDDING = ("NoSchedule", "NoExecute")


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Return whether it covers the taint.

    An empty effect or key covers all; ``Exists`` covers every value.
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and toleration.value == taint.value


def untolerated(
    taints: Iterable[Taint], tolerations: Iterable[Toleration], effects: Iterable[str]
) -> list[Taint]:
    """Return the taints of these effects that no toleration covers."""
    tolerations = tuple(tolerations)
    effects = tuple(effects)
    return [
        taint
        for taint in taints
        if taint.effect in effects and not any(tolerates(t, taint) for t in tolerations)
    ]
