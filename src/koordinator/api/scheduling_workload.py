"""Workloads of the group scheduling.k8s.io: how the pods of an application are to be scheduled.

Alpha in Kubernetes 1.35, behind the API server's gate ``GenericWorkload``.  A pod is in a group of
a Workload by ``spec.workloadRef``.  Nothing in a ``spec`` can be changed; there is no status.

Source: k8s.io/api scheduling/v1alpha1/types.go.
"""

from typing import ClassVar

from koordinator.api.meta import ApiStruct, Int32, KubeObject


class BasicPolicy(ApiStruct, frozen=True, kw_only=True):
    """Each pod is scheduled for itself."""


class GangPolicy(ApiStruct, frozen=True, kw_only=True):
    """No pod is bound before so many have places; the API server takes 1 or more."""

    min_count: Int32 = 0


class PodGroupPolicy(ApiStruct, frozen=True, kw_only=True):
    """The API server sees to it that one of them is set."""

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


KINDS = (SchedulingWorkload,)
