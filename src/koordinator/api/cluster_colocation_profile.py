"""Colocation profiles: what the manager's webhook makes of pods that match.

Source: koordinator apis/config/v1alpha1/cluster_colocation_profile_types.go.
"""

import re
from typing import ClassVar, Literal

from koordinator.api.crd import CustomResource, IntOrString, UntypedObject
from koordinator.api.meta import ApiStruct, Int32, LabelSelector
from koordinator.api.selector_validation import check_label_selector
from koordinator.api.syntax import invalid_value

_PERCENT = re.compile(r"(?:100|[0-9]{1,2})%")
_WHOLE = 100


class ClusterColocationProfileSpec(ApiStruct, frozen=True, kw_only=True):
    """Selectors of None match everything; a probability of None is 100%.

    The mappings copy the value of one label or annotation to another, the suffixes are appended
    to labels that are there.
    """

    namespace_selector: LabelSelector | None = None
    selector: LabelSelector | None = None
    probability: IntOrString | None = None
    qos_class: Literal["LSE", "LSR", "LS", "BE", "SYSTEM"] | None = None
    priority_class_name: str = ""
    koordinator_priority: Int32 | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    label_keys_mapping: dict[str, str] = {}
    annotation_keys_mapping: dict[str, str] = {}
    label_suffixes: dict[str, str] = {}
    scheduler_name: str = ""
    patch: UntypedObject = {}  # a strategic merge patch of the pod


class ClusterColocationProfileStatus(ApiStruct, frozen=True, kw_only=True):
    """Always empty."""


class ClusterColocationProfile(CustomResource, frozen=True, kw_only=True):
    """How pods that match are changed when they are created."""

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


KINDS = (ClusterColocationProfile,)
