"""Pods, with the fields that scheduling reads.

Source: k8s.io/api core/v1/types.go.
"""

import datetime as dt
from typing import ClassVar, Final

from msgspec import field

from koordinator.api.core import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    PodAffinityTerm,
    ResourceList,
    ResourceRequirements,
    Toleration,
    TopologySpreadConstraint,
)
from koordinator.api.meta import ApiStruct, Condition, Int32, Int64, KubeObject, ObjectMeta
from koordinator.api.volume import Volume
from koordinator.foundation.quantity import Quantity

DISRUPTION_TARGET = "DisruptionTarget"  # condition of a pod that is about to be evicted
RESIZE_PENDING = "PodResizePending"  # condition of a pod whose node has not granted a resize
INFEASIBLE = "Infeasible"  # its reason where the node never can
DEFERRED = "Deferred"  # its reason where the node has too little room now
PREEMPTED = "PreemptionByScheduler"  # its reason where a scheduler makes room

#: Phases of pods whose containers have all ended and will not be restarted.
TERMINAL_PHASES: Final = ("Succeeded", "Failed")


class ContainerPort(ApiStruct, frozen=True, kw_only=True):
    """``host_port`` 0 takes no port of the node."""

    container_port: Int32
    name: str = ""
    host_port: Int32 = 0
    host_ip: str = field(name="hostIP", default="")
    protocol: str = ""


class ContainerRestartRule(ApiStruct, frozen=True, kw_only=True):
    """Action on the exit of a container."""

    action: str = ""


class VolumeMount(ApiStruct, frozen=True, kw_only=True):
    """Mount of a volume in a container."""

    bind_mount_options: tuple[str, ...] = ()


class Container(ApiStruct, frozen=True, kw_only=True):
    """``restart_policy`` Always makes an init container a sidecar that keeps running."""

    name: str
    image: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str | None = None
    restart_rules: tuple[ContainerRestartRule, ...] = field(name="restartPolicyRules", default=())
    mounts: tuple[VolumeMount, ...] = field(name="volumeMounts", default=())


class PodSchedulingGate(ApiStruct, frozen=True, kw_only=True):
    """A pod is not scheduled while it has one."""

    name: str


class PodResourceClaim(ApiStruct, frozen=True, kw_only=True):
    """A claim of dynamic resource allocation, by name or made from a template."""

    name: str
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class WorkloadReference(ApiStruct, frozen=True, kw_only=True):
    """The Workload, of the pod's namespace, and the group in it that a pod belongs to.

    The group's policy holds apart for every replica key.
    """

    name: str
    pod_group: str
    pod_group_replica_key: str = ""


class SchedulingGroup(ApiStruct, frozen=True, kw_only=True):
    """The PodGroup of scheduling.k8s.io, in the pod's namespace, to which a pod belongs."""

    pod_group_name: str = ""


class PodSpec(ApiStruct, frozen=True, kw_only=True):
    """Containers of a pod, and its scheduling constraints."""

    containers: tuple[Container, ...]
    init_containers: tuple[Container, ...] = ()
    node_name: str = ""
    scheduler_name: str = ""
    priority: Int32 | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    resources: ResourceRequirements | None = None  # of the whole pod
    overhead: ResourceList = {}
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    volumes: tuple[Volume, ...] = ()
    scheduling_gates: tuple[PodSchedulingGate, ...] = ()
    resource_claims: tuple[PodResourceClaim, ...] = ()
    host_network: bool = False
    host_users: bool | None = None
    restart_policy: str = ""
    termination_grace_period_seconds: Int64 | None = None
    active_deadline_seconds: Int64 | None = None
    service_account_name: str = ""
    runtime_class_name: str | None = None
    workload_ref: WorkloadReference | None = None  # of Kubernetes 1.35
    scheduling_group: SchedulingGroup | None = None  # from Kubernetes 1.36 on

    @property
    def node_affinity(self) -> NodeAffinity | None:
        """Required and preferred node affinity, None without any."""
        return None if self.affinity is None else self.affinity.node_affinity

    @property
    def required_node_affinity(self) -> NodeSelector | None:
        """Required node affinity, None without it."""
        terms = self.node_affinity
        return None if terms is None else terms.required_during_scheduling_ignored_during_execution

    @property
    def required_pod_affinity(self) -> tuple[PodAffinityTerm, ...]:
        """Required terms of pod affinity."""
        terms = None if self.affinity is None else self.affinity.pod_affinity
        return () if terms is None else terms.required_during_scheduling_ignored_during_execution

    @property
    def required_pod_anti_affinity(self) -> tuple[PodAffinityTerm, ...]:
        """Required terms of pod anti-affinity."""
        terms = None if self.affinity is None else self.affinity.pod_anti_affinity
        return () if terms is None else terms.required_during_scheduling_ignored_during_execution


class ContainerStateWaiting(ApiStruct, frozen=True, kw_only=True):
    """State of a container that does not run yet, with the reason."""

    reason: str = ""


class ContainerStateTerminated(ApiStruct, frozen=True, kw_only=True):
    """State of a container that has ended."""

    exit_code: Int32 = 0
    reason: str = ""


class ContainerState(ApiStruct, frozen=True, kw_only=True):
    """At most one is set; neither is set of a container that runs."""

    waiting: ContainerStateWaiting | None = None
    terminated: ContainerStateTerminated | None = None

    @property
    def reasons(self) -> tuple[str, ...]:
        """Reasons why the container does not run, empty if none is stated."""
        states = (self.waiting, self.terminated)
        return tuple(state.reason for state in states if state is not None and state.reason)


class ContainerStatus(ApiStruct, frozen=True, kw_only=True):
    """Report of a node about a container.

    ``allocated_resources`` are the requests that the node has granted, ``resources`` is in force.
    """

    name: str = ""
    container_id: str = field(name="containerID", default="")
    ready: bool = False
    restart_count: Int32 = 0
    allocated_resources: ResourceList = {}
    resources: ResourceRequirements | None = None
    state: ContainerState = ContainerState()


class PodResourceClaimStatus(ApiStruct, frozen=True, kw_only=True):
    """Claim created for an entry of the pod; without a name none is needed."""

    name: str
    resource_claim_name: str | None = None


class ContainerExtendedResourceRequest(ApiStruct, frozen=True, kw_only=True):
    """Request of the claim that serves an extended resource of a container."""

    container_name: str
    resource_name: str
    request_name: str


class PodExtendedResourceClaimStatus(ApiStruct, frozen=True, kw_only=True):
    """The claim that the scheduler made for extended resources of the pod.

    Gate DRAExtendedResource.
    """

    resource_claim_name: str
    request_mappings: tuple[ContainerExtendedResourceRequest, ...] = ()


class NodeAllocatableMappedResources(ApiStruct, frozen=True, kw_only=True):
    """Amount of a node's resource that the devices of a claim model."""

    name: str
    quantity: Quantity | None = None


class NodeAllocatableOverheadResources(ApiStruct, frozen=True, kw_only=True):
    """Amount of a node's resource that the devices of a claim take in addition."""

    name: str
    per_pod: Quantity | None = None
    per_container: Quantity | None = None


class NodeAllocatableResourceClaimStatus(ApiStruct, frozen=True, kw_only=True):
    """Resources of the node that a pod has by one of its claims.

    Gate DRANodeAllocatableResources.
    """

    resource_claim_name: str = ""
    containers: tuple[str, ...] = ()  # containers that reference the claim
    mapping: tuple[NodeAllocatableMappedResources, ...] = ()
    overhead: tuple[NodeAllocatableOverheadResources, ...] = ()


class PodStatus(ApiStruct, frozen=True, kw_only=True):
    """``phase`` is Pending, Running, Succeeded, Failed or Unknown."""

    phase: str = ""
    conditions: tuple[Condition, ...] = ()
    reason: str = ""
    message: str = ""
    nominated_node_name: str = ""
    pod_ip: str = field(name="podIP", default="")
    start_time: dt.datetime | None = None
    qos_class: str = ""
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    ephemeral_container_statuses: tuple[ContainerStatus, ...] = ()
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()
    extended_resource_claim_status: PodExtendedResourceClaimStatus | None = None
    allocated_resources: ResourceList = {}  # what the node has granted the whole pod
    resources: ResourceRequirements | None = None  # what is in force for the whole pod
    node_allocatable_resource_claim_statuses: tuple[NodeAllocatableResourceClaimStatus, ...] = ()


class Pod(KubeObject, frozen=True, kw_only=True):
    """Containers that share a node."""

    API_VERSION: ClassVar[str] = "v1"
    KIND: ClassVar[str] = "Pod"
    PLURAL: ClassVar[str] = "pods"

    spec: PodSpec
    status: PodStatus = PodStatus()


class PodTemplateSpec(ApiStruct, frozen=True, kw_only=True):
    """The pod that a workload makes copies of."""

    spec: PodSpec
    metadata: ObjectMeta = ObjectMeta()


KINDS = (Pod,)


def is_terminal(pod: Pod) -> bool:
    """Return whether all containers of a pod have ended and will not be restarted."""
    return pod.status.phase in TERMINAL_PHASES
