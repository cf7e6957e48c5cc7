"""Kinds of co-location: ClusterColocationProfile and Recommendation.

Source: koordinator apis/config/v1alpha1/cluster_colocation_profile_types.go; koordinator
apis/analysis/v1alpha1/recommendation_types.go, condition.go.
"""

import datetime as dt
import re
from typing import ClassVar, Literal

from koordinator.api.core import ResourceList
from koordinator.api.crd import (
    CustomResource,
    IntOrString,
    PrinterColumn,
    StandardCondition,
    UntypedObject,
)
from koordinator.api.meta import ApiStruct, Int32, LabelSelector
from koordinator.api.selectors import check_label_selector
from koordinator.api.syntax import invalid_value

_PERCENT = re.compile(r"(?:100|[0-9]{1,2})%")
_WHOLE = 100


class ClusterColocationProfileSpec(ApiStruct, frozen=True, kw_only=True):
    """A missing selector matches everything; a missing ``probability`` is 100%.

    The mappings copy the value of one label or annotation to another, the suffixes are appended
    to labels that are there.
    """

    #: namespaces whose pods match; without it all namespaces
    namespace_selector: LabelSelector | None = None
    #: labels of pods that match; without it the webhook changes all pods, the controller none
    selector: LabelSelector | None = None
    #: share of matching pods that are changed, such as 50%; by default all
    probability: IntOrString | None = None
    #: QoS class that the pods get as a label
    qos_class: Literal["LSE", "LSR", "LS", "BE", "SYSTEM"] | None = None
    priority_class_name: str = ""  # PriorityClass that the pods get, with its value
    #: priority within the band, as the label koordinator.sh/priority
    koordinator_priority: Int32 | None = None
    labels: dict[str, str] = {}  # labels that the pods get
    annotations: dict[str, str] = {}  # annotations that the pods get
    #: labels to copy: the value of the first key goes to the second
    label_keys_mapping: dict[str, str] = {}
    annotation_keys_mapping: dict[str, str] = {}  # annotations to copy, like labelKeysMapping
    label_suffixes: dict[str, str] = {}  # suffixes that are appended to labels of the pods, by key
    scheduler_name: str = ""  # scheduler that the pods get
    patch: UntypedObject = {}  # a strategic merge patch of the pod


class ClusterColocationProfileStatus(ApiStruct, frozen=True, kw_only=True):
    """Always empty."""


class ClusterColocationProfile(CustomResource, frozen=True, kw_only=True):
    """Changes that the webhook makes to matching pods when they are created."""

    API_VERSION: ClassVar[str] = "config.koordinator.sh/v1alpha1"
    KIND: ClassVar[str] = "ClusterColocationProfile"
    PLURAL: ClassVar[str] = "clustercolocationprofiles"
    NAMESPACED: ClassVar[bool] = False
    SUBRESOURCE_STATUS: ClassVar[bool] = True

    spec: ClusterColocationProfileSpec = ClusterColocationProfileSpec()
    status: ClusterColocationProfileStatus = ClusterColocationProfileStatus()


def validate_cluster_colocation_profile(profile: ClusterColocationProfile) -> None:
    """Raise InputError for a selector or a probability that can't be read."""
    spec = profile.spec
    check_label_selector(spec.namespace_selector, "spec.namespaceSelector")
    check_label_selector(spec.selector, "spec.selector")
    probability = spec.probability
    if isinstance(probability, str):
        is_good = _PERCENT.fullmatch(probability) is not None
    else:
        is_good = probability is None or 0 <= probability <= _WHOLE
    if not is_good:
        raise invalid_value("spec.probability", probability, "0..100 or 0%..100%")


class CrossVersionObjectReference(ApiStruct, frozen=True, kw_only=True):
    """Names a workload of any version."""

    kind: str  # kind of the workload
    name: str  # name of the workload
    api_version: str = ""  # API version of the workload


class RecommendationTarget(ApiStruct, frozen=True, kw_only=True):
    """The pods in question."""

    type: str  # workload or podSelector
    workload: CrossVersionObjectReference | None = None  # the workload
    pod_selector: LabelSelector | None = None  # labels of the pods


class RecommendationSpec(ApiStruct, frozen=True, kw_only=True):
    """Target of a recommendation."""

    target: RecommendationTarget  # workload or pods that the recommendation is for


class RecommendedContainerStatus(ApiStruct, frozen=True, kw_only=True):
    """Recommended requests of a container."""

    container_name: str = ""  # name of the container
    resources: ResourceList = {}  # recommended amounts


class RecommendedPodStatus(ApiStruct, frozen=True, kw_only=True):
    """Recommended requests of the containers of a pod."""

    #: recommended amounts by container
    container_statuses: tuple[RecommendedContainerStatus, ...] = ()


class RecommendationStatus(ApiStruct, frozen=True, kw_only=True):
    """The recommendation."""

    pod_status: RecommendedPodStatus | None = None  # recommended amounts
    update_time: dt.datetime | None = None  # time of the computation
    conditions: tuple[StandardCondition, ...] = ()  # conditions of the recommendation


class Recommendation(CustomResource, frozen=True, kw_only=True):
    """Recommended requests of pods, from their usage."""

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


KINDS = (
    ClusterColocationProfile,
    Recommendation,
)
