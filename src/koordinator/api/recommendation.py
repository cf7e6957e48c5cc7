"""Recommendations of requests for the containers of a workload.

Source: koordinator apis/analysis/v1alpha1/recommendation_types.go, condition.go.
"""

import datetime as dt
from typing import ClassVar

from koordinator.api.core import ResourceList
from koordinator.api.crd import CustomResource, PrinterColumn, StandardCondition
from koordinator.api.meta import ApiStruct, LabelSelector
from koordinator.api.selector_validation import check_label_selector


class CrossVersionObjectReference(ApiStruct, frozen=True, kw_only=True):
    """Names a workload of any version."""

    kind: str
    name: str
    api_version: str = ""


class RecommendationTarget(ApiStruct, frozen=True, kw_only=True):
    """The pods in question."""

    type: str  # workload or podSelector
    workload: CrossVersionObjectReference | None = None
    pod_selector: LabelSelector | None = None


class RecommendationSpec(ApiStruct, frozen=True, kw_only=True):
    """What a recommendation is wanted for."""

    target: RecommendationTarget


class RecommendedContainerStatus(ApiStruct, frozen=True, kw_only=True):
    """What a container should request."""

    container_name: str = ""
    resources: ResourceList = {}


class RecommendedPodStatus(ApiStruct, frozen=True, kw_only=True):
    """What the containers of a pod should request."""

    container_statuses: tuple[RecommendedContainerStatus, ...] = ()


class RecommendationStatus(ApiStruct, frozen=True, kw_only=True):
    """The recommendation."""

    pod_status: RecommendedPodStatus | None = None
    update_time: dt.datetime | None = None
    conditions: tuple[StandardCondition, ...] = ()


class Recommendation(CustomResource, frozen=True, kw_only=True):
    """What pods should request, from what they used."""

    API_VERSION: ClassVar[str] = "analysis.koordinator.sh/v1alpha1"
    KIND: ClassVar[str] = "Recommendation"
    PLURAL: ClassVar[str] = "recommendations"
    SHORT_NAMES: ClassVar[tuple[str, ...]] = ("recom",)
    SUBRESOURCE_STATUS: ClassVar[bool] = True
    PRINTER_COLUMNS: ClassVar[tuple[PrinterColumn, ...]] = (
        PrinterColumn("Age", ".metadata.creationTimestamp", "date"),
        PrinterColumn("Type", ".spec.target.type"),
        PrinterColumn("Kind", ".spec.target.workload.kind"),
        PrinterColumn("Name", ".spec.target.workload.name"),
        PrinterColumn("LastUpdateTime", ".status.updateTime", "date"),
    )

    spec: RecommendationSpec
    status: RecommendationStatus = RecommendationStatus()


def validate_recommendation(recommendation: Recommendation) -> None:
    """Raise InputError for a selector that can't be read."""
    check_label_selector(recommendation.spec.target.pod_selector, "spec.target.podSelector")


KINDS = (Recommendation,)
