"""Priority classes.

Source: k8s.io/api scheduling/v1/types.go.
"""

from typing import ClassVar

from koordinator.api.meta import Int32, KubeObject


class PriorityClass(KubeObject, frozen=True, kw_only=True):
    """A name for a priority; no ``preemption_policy`` means PreemptLowerPriority, else Never."""

    API_VERSION: ClassVar[str] = "scheduling.k8s.io/v1"
    KIND: ClassVar[str] = "PriorityClass"
    PLURAL: ClassVar[str] = "priorityclasses"
    NAMESPACED: ClassVar[bool] = False

    value: Int32 = 0
    global_default: bool = False
    description: str = ""
    preemption_policy: str | None = None


KINDS = (PriorityClass,)
