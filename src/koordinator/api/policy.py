"""Disruption budgets.

Source: k8s.io/api policy/v1/types.go.
"""

import datetime as dt
from typing import ClassVar

from koordinator.api.meta import ApiStruct, Condition, KubeObject, LabelSelector


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
    """How many of some pods may be evicted at a time."""

    API_VERSION: ClassVar[str] = "policy/v1"
    KIND: ClassVar[str] = "PodDisruptionBudget"
    PLURAL: ClassVar[str] = "poddisruptionbudgets"

    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


KINDS = (PodDisruptionBudget,)
