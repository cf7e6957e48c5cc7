"""Kinds of core/v1 without a module of their own, and the structures that kinds share.

Source: k8s.io/api core/v1/types.go; k8s.io/api core/v1/types.go; k8s.io/api core/v1/types.go;
k8s.io/api core/v1/types.go; k8s.io/api core/v1/types.go.
"""

import datetime as dt
from typing import ClassVar

from koordinator.api.meta import ApiStruct, Int32, Int64, KubeObject, LabelSelector
from koordinator.foundation.quantity import Quantity

ResourceList = dict[str, Quantity]  # resource name to amount


class MicroTime(dt.datetime):
    """A time that Kubernetes wants written with exactly six digits after the second."""


class ObjectReference(ApiStruct, frozen=True, kw_only=True):
    """Names an object of any kind."""

    api_version: str = ""  # API version of the object
    kind: str = ""  # kind of the object
    namespace: str = ""  # namespace of the object
    name: str = ""  # name of the object
    uid: str = ""  # UID of the object
    resource_version: str = ""  # version of the object
    field_path: str = ""  # part of the object, such as spec.containers{main}


class TypedLocalObjectReference(ApiStruct, frozen=True, kw_only=True):
    """Names an object of any kind in the same namespace, or in another one if that is given."""

    kind: str
    name: str
    api_group: str = ""
    namespace: str = ""


class ResourceClaimReference(ApiStruct, frozen=True, kw_only=True):
    """A container's use of one entry of ``spec.resourceClaims``."""

    name: str
    request: str = ""


class ResourceRequirements(ApiStruct, frozen=True, kw_only=True):
    """Requests and limits of a container, a pod or a volume claim."""

    requests: ResourceList = {}
    limits: ResourceList = {}
    claims: tuple[ResourceClaimReference, ...] = ()


class Taint(ApiStruct, frozen=True, kw_only=True):
    """``effect`` is NoSchedule, PreferNoSchedule or NoExecute."""

    key: str  # key of the taint
    effect: str  # NoSchedule, PreferNoSchedule or NoExecute
    value: str = ""  # value of the taint
    time_added: dt.datetime | None = None  # time at which a NoExecute taint was added


class Toleration(ApiStruct, frozen=True, kw_only=True):
    """No key tolerates all keys (operator Exists only), no effect all effects."""

    key: str = ""  # key of the taint; empty: all
    operator: str = ""  # Exists, Equal (also if empty), Lt or Gt
    value: str = ""  # value of the taint, for Equal
    effect: str = ""  # effect of the taint; empty: all
    toleration_seconds: Int64 | None = None  # of a NoExecute taint; None is for ever


class NodeSelectorRequirement(ApiStruct, frozen=True, kw_only=True):
    """``operator`` is In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class NodeSelectorTerm(ApiStruct, frozen=True, kw_only=True):
    """ANDed; an empty term matches no node."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(ApiStruct, frozen=True, kw_only=True):
    """ORed terms."""

    node_selector_terms: tuple[NodeSelectorTerm, ...]  # terms; the node must match one


class PreferredSchedulingTerm(ApiStruct, frozen=True, kw_only=True):
    """``weight`` is 1..100."""

    weight: Int32  # score of a node that matches, from 1 to 100
    preference: NodeSelectorTerm  # term that the node should match


class NodeAffinity(ApiStruct, frozen=True, kw_only=True):
    """Required and preferred nodes of a pod."""

    #: terms; the node must match one
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    #: weighted terms that raise the score of the nodes they match
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredSchedulingTerm, ...] = ()


class PodAffinityTerm(ApiStruct, frozen=True, kw_only=True):
    """Pods of some namespaces on nodes that share the value of ``topology_key``.

    No namespaces and no namespace selector mean the namespace of the pod itself; an empty
    namespace selector means all of them.
    """

    topology_key: str
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(ApiStruct, frozen=True, kw_only=True):
    """``weight`` is 1..100."""

    weight: Int32
    pod_affinity_term: PodAffinityTerm


class PodAffinity(ApiStruct, frozen=True, kw_only=True):
    """Pods that a pod must or should be near to or, as anti-affinity, away from."""

    required_during_scheduling_ignored_during_execution: tuple[PodAffinityTerm, ...] = ()
    preferred_during_scheduling_ignored_during_execution: tuple[WeightedPodAffinityTerm, ...] = ()


class Affinity(ApiStruct, frozen=True, kw_only=True):
    """All three affinities of a pod."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(ApiStruct, frozen=True, kw_only=True):
    """``when_unsatisfiable`` is DoNotSchedule or ScheduleAnyway."""

    max_skew: Int32  # largest difference in the number of pods between two domains
    topology_key: str  # label of nodes whose values are the domains
    when_unsatisfiable: str  # DoNotSchedule filters nodes, ScheduleAnyway scores them
    label_selector: LabelSelector | None = None  # labels of the pods that count
    min_domains: Int32 | None = None  # number of domains below which the least count is taken as 0
    node_affinity_policy: str | None = None  # Honor (also if None) or Ignore
    node_taints_policy: str | None = None  # Honor or Ignore (also if None)
    #: labels whose values the counted pods share with the pod
    match_label_keys: tuple[str, ...] = ()


class ConfigMap(KubeObject, frozen=True, kw_only=True):
    """Named texts."""

    API_VERSION: ClassVar[str] = "v1"
    KIND: ClassVar[str] = "ConfigMap"
    PLURAL: ClassVar[str] = "configmaps"

    data: dict[str, str] = {}
    immutable: bool | None = None


class Secret(KubeObject, frozen=True, kw_only=True):
    """Named bytes."""

    API_VERSION: ClassVar[str] = "v1"
    KIND: ClassVar[str] = "Secret"
    PLURAL: ClassVar[str] = "secrets"

    data: dict[str, str] = {}  # base64
    type: str = ""
    immutable: bool | None = None


class ServiceSpec(ApiStruct, frozen=True, kw_only=True):
    """An empty selector selects no pods."""

    selector: dict[str, str] = {}


class Service(KubeObject, frozen=True, kw_only=True):
    """Pods behind one name."""

    API_VERSION: ClassVar[str] = "v1"
    KIND: ClassVar[str] = "Service"
    PLURAL: ClassVar[str] = "services"

    spec: ServiceSpec = ServiceSpec()


class NamespaceStatus(ApiStruct, frozen=True, kw_only=True):
    """``phase`` is Active or Terminating."""

    phase: str = ""


class Namespace(KubeObject, frozen=True, kw_only=True):
    """A scope of names."""

    API_VERSION: ClassVar[str] = "v1"
    KIND: ClassVar[str] = "Namespace"
    PLURAL: ClassVar[str] = "namespaces"
    NAMESPACED: ClassVar[bool] = False

    status: NamespaceStatus = NamespaceStatus()


KINDS = (
    ConfigMap,
    Secret,
    Service,
    Namespace,
)
