"""Kinds of cluster policy: disruption budgets, priority classes, resource quotas.

Source: k8s.io/api policy/v1/types.go; k8s.io/api scheduling/v1/types.go; k8s.io/api
core/v1/types.go.
"""

import datetime as dt
from typing import ClassVar

from koordinator.api.core import ResourceList
from koordinator.api.meta import ApiStruct, Condition, Int32, KubeObject, LabelSelector


class PodDisruptionBudgetSpec(ApiStruct, frozen=True, kw_only=True):
    """Numbers of pods, or percentages such as ``50%``; only one of the two is set."""

    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    selector: LabelSelector | None = None
    unhealthy_pod_eviction_policy: str | None = None


class PodDisruptionBudgetStatus(ApiStruct, frozen=True, kw_only=True):
    """Allowed disruptions.  ``disrupted_pods`` are being deleted but not counted yet."""

    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    observed_generation: int = 0
    disrupted_pods: dict[str, dt.datetime] = {}
    conditions: tuple[Condition, ...] = ()


class PodDisruptionBudget(KubeObject, frozen=True, kw_only=True):
    """Limit of the pods of a set that may be evicted at a time."""

    API_VERSION: ClassVar[str] = "policy/v1"
    KIND: ClassVar[str] = "PodDisruptionBudget"
    PLURAL: ClassVar[str] = "poddisruptionbudgets"

    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


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


class ResourceQuotaSpec(ApiStruct, frozen=True, kw_only=True):
    """``hard`` has names such as ``cpu``, ``requests.cpu`` and ``count/jobs.batch``."""

    hard: ResourceList = {}


class ResourceQuota(KubeObject, frozen=True, kw_only=True):
    """Limit of a namespace, with the fields that queues read."""

    API_VERSION: ClassVar[str] = "v1"
    KIND: ClassVar[str] = "ResourceQuota"
    PLURAL: ClassVar[str] = "resourcequotas"

    spec: ResourceQuotaSpec = ResourceQuotaSpec()


KINDS = (
    PodDisruptionBudget,
    PriorityClass,
    ResourceQuota,
)
