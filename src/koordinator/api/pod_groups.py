"""Kinds of gangs: PodGroup of Koordinator, PodGroup and Workload of ``scheduling.k8s.io``.

Alpha in Kubernetes 1.35, behind the API server's gate ``GenericWorkload``.  A pod is in a group of
a Workload by ``spec.workloadRef``.  Nothing in a ``spec`` can be changed; there is no status.

Served with the API server's gate ``GenericWorkload``: v1alpha2 by 1.36, v1beta1 and v1alpha3 by
1.37.  A pod is in the group that ``spec.schedulingGroup`` names.  Not to be confused with the kind
of the same name in scheduling.sigs.k8s.io, which pods name by a label.

Source: koordinator apis/thirdparty/scheduler-plugins/pkg/apis/scheduling/v1alpha1/types.go;
k8s.io/api scheduling/v1alpha1/types.go; k8s.io/api scheduling/v1alpha2, v1alpha3 and v1beta1,
types.go.
"""

import datetime as dt
from enum import StrEnum
from typing import ClassVar

from msgspec import field

from koordinator.api.core import ResourceList
from koordinator.api.crd import CustomResource, StandardCondition
from koordinator.api.meta import ApiStruct, Int32, KubeObject

SCHEDULED_1_36 = "PodGroupScheduled"  # condition
SCHEDULED_1_37 = "PodGroupInitiallyScheduled"  # the same from 1.37 on


class PodGroupPhase(StrEnum):
    """Phase of a group, empty before the first sync; Unknown is never set."""

    PENDING = "Pending"
    PRE_SCHEDULING = "PreScheduling"
    SCHEDULING = "Scheduling"
    SCHEDULED = "Scheduled"
    RUNNING = "Running"
    FINISHED = "Finished"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


class PodGroupSpec(ApiStruct, frozen=True, kw_only=True):
    """Minimum number of pods of a group; ``min_resources`` is ignored."""

    min_member: Int32 = 0  # number of members that must be able to start together
    min_resources: ResourceList = {}  # not used by the scheduler
    schedule_timeout_seconds: Int32 | None = None  # None or below 1 is the scheduler's default


class PodGroupStatus(ApiStruct, frozen=True, kw_only=True):
    """Progress of a group; ``occupied_by`` names the owners of its pods."""

    phase: str = ""  # a PodGroupPhase
    occupied_by: str = ""  # owners of the first member
    scheduled: Int32 = 0  # members with a node
    running: Int32 = 0  # members that run
    succeeded: Int32 = 0  # members that succeeded
    failed: Int32 = 0  # members that failed
    schedule_start_time: dt.datetime | None = None  # time when the phase first became Scheduling
    conditions: tuple[StandardCondition, ...] = ()  # ours: whether the object is valid


class PodGroup(CustomResource, frozen=True, kw_only=True):
    """A gang."""

    API_VERSION: ClassVar[str] = "scheduling.sigs.k8s.io/v1alpha1"
    KIND: ClassVar[str] = "PodGroup"
    PLURAL: ClassVar[str] = "podgroups"
    API_APPROVED: ClassVar[str] = "https://github.com/kubernetes-sigs/scheduler-plugins/pull/52"

    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()


class BasicPolicy(ApiStruct, frozen=True, kw_only=True):
    """Each pod is scheduled for itself."""


class GangPolicy(ApiStruct, frozen=True, kw_only=True):
    """No pod is bound before so many have places; the API server takes 1 or more."""

    min_count: Int32 = 0


class PodGroupPolicy(ApiStruct, frozen=True, kw_only=True):
    """Exactly one is set; the API server rejects other objects."""

    basic: BasicPolicy | None = None
    gang: GangPolicy | None = None


class WorkloadPodGroup(ApiStruct, frozen=True, kw_only=True):
    """Pods of a Workload with one policy, which holds for each replica key apart."""

    name: str
    policy: PodGroupPolicy = PodGroupPolicy()


class ControllerReference(ApiStruct, frozen=True, kw_only=True):
    """Reference to the creator of the Workload; informational."""

    api_group: str = ""
    kind: str = ""
    name: str = ""


class SchedulingWorkloadSpec(ApiStruct, frozen=True, kw_only=True):
    """At most eight groups, of different names."""

    controller_ref: ControllerReference | None = None
    pod_groups: tuple[WorkloadPodGroup, ...] = ()


class SchedulingWorkload(KubeObject, frozen=True, kw_only=True):
    """The scheduling policies of an application."""

    API_VERSION: ClassVar[str] = "scheduling.k8s.io/v1alpha1"
    KIND: ClassVar[str] = "Workload"
    PLURAL: ClassVar[str] = "workloads"

    spec: SchedulingWorkloadSpec = SchedulingWorkloadSpec()

    def policy_of(self, group: str) -> PodGroupPolicy | None:
        """Return the policy of the pod group of that name; None if there is no such group."""
        return next((one.policy for one in self.spec.pod_groups if one.name == group), None)


class TopologyConstraint(ApiStruct, frozen=True, kw_only=True):
    """Pods of a group run on nodes that have one value of this label."""

    key: str


class PodGroupConstraints(ApiStruct, frozen=True, kw_only=True):
    """The API server takes at most one constraint."""

    topology: tuple[TopologyConstraint, ...] = ()


class PodGroupResourceClaim(ApiStruct, frozen=True, kw_only=True):
    """A claim that all pods of a group share."""

    name: str
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class DisruptionUnit(ApiStruct, frozen=True, kw_only=True):
    """Pods that are preempted one by one, or all pods of the group together."""

    single: BasicPolicy | None = None
    all_pods: BasicPolicy | None = field(name="all", default=None)


class PodGroupWorkload(ApiStruct, frozen=True, kw_only=True):
    """The template of a Workload that a group was made from."""

    workload_name: str = ""
    template_name: str = ""


class SchedulingPodGroupSpec(ApiStruct, frozen=True, kw_only=True):
    """``disruption_mode`` is Pod or PodGroup in v1alpha2, and a union from 1.37 on."""

    scheduling_policy: PodGroupPolicy = PodGroupPolicy()
    scheduling_constraints: PodGroupConstraints | None = None
    resource_claims: tuple[PodGroupResourceClaim, ...] = ()
    disruption_mode: DisruptionUnit | str | None = None
    priority_class_name: str = ""
    priority: Int32 | None = None  # resolved by the API server; none: 0
    preemption_policy: str | None = None
    parent_composite_pod_group_name: str | None = None
    workload_ref: PodGroupWorkload | None = None

    @property
    def topology_key(self) -> str:
        """Label whose value must be equal on the nodes of all members; empty: no constraint."""
        constraints = self.scheduling_constraints
        return constraints.topology[0].key if constraints and constraints.topology else ""

    @property
    def is_disrupted_as_whole(self) -> bool:
        """Whether preempting one pod of the group means preempting all of them."""
        mode = self.disruption_mode
        return mode.all_pods is not None if isinstance(mode, DisruptionUnit) else mode == "PodGroup"


class PodGroupResourceClaimStatus(ApiStruct, frozen=True, kw_only=True):
    """The claim that was made for an entry of the group."""

    name: str
    resource_claim_name: str | None = None


class SchedulingPodGroupStatus(ApiStruct, frozen=True, kw_only=True):
    """Conditions of a group, such as that enough of its pods were scheduled together."""

    conditions: tuple[StandardCondition, ...] = ()
    resource_claim_statuses: tuple[PodGroupResourceClaimStatus, ...] = ()


class SchedulingPodGroup(KubeObject, frozen=True, kw_only=True):
    """Pods with one scheduling policy, as Kubernetes 1.37 serves them."""

    API_VERSION: ClassVar[str] = "scheduling.k8s.io/v1beta1"
    KIND: ClassVar[str] = "PodGroup"
    PLURAL: ClassVar[str] = "podgroups"

    spec: SchedulingPodGroupSpec = SchedulingPodGroupSpec()
    status: SchedulingPodGroupStatus = SchedulingPodGroupStatus()


class SchedulingPodGroupV1Alpha3(SchedulingPodGroup, frozen=True, kw_only=True):
    """The same under the name that has trees of groups."""

    API_VERSION: ClassVar[str] = "scheduling.k8s.io/v1alpha3"


class SchedulingPodGroupV1Alpha2(SchedulingPodGroup, frozen=True, kw_only=True):
    """PodGroup of scheduling.k8s.io as Kubernetes 1.36 serves it."""

    API_VERSION: ClassVar[str] = "scheduling.k8s.io/v1alpha2"


class CompositeGangPolicy(ApiStruct, frozen=True, kw_only=True):
    """No pod is bound before so many of the groups below can start."""

    min_group_count: Int32 = 0


class CompositePolicy(ApiStruct, frozen=True, kw_only=True):
    """Exactly one is set; the API server rejects other objects."""

    basic: BasicPolicy | None = None
    gang: CompositeGangPolicy | None = None


class CompositePodGroupSpec(ApiStruct, frozen=True, kw_only=True):
    """The groups below name it as their parent; a tree has at most four levels."""

    parent_composite_pod_group_name: str | None = None
    workload_ref: PodGroupWorkload | None = None
    scheduling_policy: CompositePolicy = CompositePolicy()
    scheduling_constraints: PodGroupConstraints | None = None
    disruption_mode: DisruptionUnit | None = None
    priority_class_name: str = ""
    priority: Int32 | None = None  # resolved by the API server; none: 0
    preemption_policy: str | None = None

    @property
    def min_group_count(self) -> int:
        """Number of groups below that must be able to start; 1 for the basic policy."""
        gang = self.scheduling_policy.gang
        return gang.min_group_count if gang is not None else 1

    @property
    def topology_key(self) -> str:
        """Label whose value must be equal on the nodes of all pods below; empty: no constraint."""
        constraints = self.scheduling_constraints
        return constraints.topology[0].key if constraints and constraints.topology else ""

    @property
    def is_disrupted_as_whole(self) -> bool:
        """Whether preempting one pod below means preempting all of them."""
        return self.disruption_mode is not None and self.disruption_mode.all_pods is not None


class CompositePodGroupStatus(ApiStruct, frozen=True, kw_only=True):
    """Conditions of the API; kube-scheduler 1.37 writes none about scheduling."""

    conditions: tuple[StandardCondition, ...] = ()


class CompositePodGroup(KubeObject, frozen=True, kw_only=True):
    """Groups that start together; alpha in Kubernetes 1.37."""

    API_VERSION: ClassVar[str] = "scheduling.k8s.io/v1alpha3"
    KIND: ClassVar[str] = "CompositePodGroup"
    PLURAL: ClassVar[str] = "compositepodgroups"

    spec: CompositePodGroupSpec = CompositePodGroupSpec()
    status: CompositePodGroupStatus = CompositePodGroupStatus()


#: Kinds of scheduling.k8s.io.
SCHEDULING_KINDS = (
    SchedulingPodGroup,
    SchedulingPodGroupV1Alpha3,
    SchedulingPodGroupV1Alpha2,
    CompositePodGroup,
    SchedulingWorkload,
)
KINDS = (PodGroup, *SCHEDULING_KINDS)
