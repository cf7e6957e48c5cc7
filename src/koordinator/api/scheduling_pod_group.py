"""PodGroups of the group scheduling.k8s.io: pods that Kubernetes 1.36 and later schedule together.

Served with the API server's gate ``GenericWorkload``: v1alpha2 by 1.36, v1beta1 and v1alpha3 by
1.37.  A pod is in the group that ``spec.schedulingGroup`` names.  Not to be confused with the kind
of the same name in scheduling.sigs.k8s.io, which pods name by a label.

Source: k8s.io/api scheduling/v1alpha2, v1alpha3 and v1beta1, types.go.
"""

from typing import ClassVar

from msgspec import field

from koordinator.api.crd import StandardCondition
from koordinator.api.meta import ApiStruct, Int32, KubeObject
from koordinator.api.scheduling_workload import BasicPolicy, PodGroupPolicy

SCHEDULED_1_36 = "PodGroupScheduled"  # condition
SCHEDULED_1_37 = "PodGroupInitiallyScheduled"  # the same from 1.37 on


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
    """Whether enough pods of the group had places at a time."""

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
    """The same as Kubernetes 1.36 serves it."""

    API_VERSION: ClassVar[str] = "scheduling.k8s.io/v1alpha2"


KINDS = (SchedulingPodGroup, SchedulingPodGroupV1Alpha3, SchedulingPodGroupV1Alpha2)
