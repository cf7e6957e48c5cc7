"""ScheduleExplanation: reasons why a pod is pending.

Source: koordinator apis/scheduling/v1alpha1/schedule_explanation.go.
"""

import datetime as dt
from typing import ClassVar

from koordinator.api.crd import CustomResource, UntypedPodTemplate
from koordinator.api.meta import ApiStruct
from koordinator.foundation.clock import Duration


class ScheduleExplanationSpec(ApiStruct, frozen=True, kw_only=True):
    """The question: a pod or a gang group, by key."""

    question_object_key: str = ""  # key of the pod or gang group to explain
    question_object_template: UntypedPodTemplate | None = None  # not supported
    ttl: Duration = Duration(hours=24)  # time after which the object is deleted


class SchedulingResult(ApiStruct, frozen=True, kw_only=True):
    """A pod and the node it fits on."""

    namespace: str = ""  # namespace of the pod
    name: str = ""  # name of the pod
    uid: str = ""  # UID of the pod
    node_name: str = ""  # node that the pod fits on


class NodeFailedDetail(ApiStruct, frozen=True, kw_only=True):
    """Nodes that one plugin rejected for one reason."""

    failed_plugin: str = ""  # plugin that rejected the nodes
    reason: str = ""  # reason that the plugin gave
    preempt_might_help: bool = False  # whether preemption could help
    failed_nodes: tuple[str, ...] = ()  # names of the nodes


class NodeLevelExplanation(ApiStruct, frozen=True, kw_only=True):
    """Results for the nodes of a domain."""

    schedulable: bool = False  # whether all pods fit
    failed_message: str = ""  # reason that they do not
    feasible_scheduling_result: tuple[SchedulingResult, ...] = ()  # pods that fit, with their nodes
    node_failed_details: tuple[NodeFailedDetail, ...] = ()  # reasons of the other nodes


class PossibleVictim(ApiStruct, frozen=True, kw_only=True):
    """A pod that could be preempted."""

    namespace: str = ""  # namespace of the pod
    name: str = ""  # name of the pod
    uid: str = ""  # UID of the pod
    is_nominated_pod: bool = False  # whether the pod is only nominated to the node


class NodePossibleVictims(ApiStruct, frozen=True, kw_only=True):
    """Pods of a node that could be preempted."""

    node_name: str = ""  # name of the node
    possible_victims: tuple[PossibleVictim, ...] = ()  # pods that preemption would evict there


class DomainExplanation(ApiStruct, frozen=True, kw_only=True):
    """Result in one domain of the topology."""

    topology_domain: str = ""  # name of the domain
    schedulable: bool = False  # whether it fits the domain now
    schedulable_after_preemption: bool = False  # whether it fits after preemption
    failed_message: str = ""  # reason that it does not fit
    schedule_explanation: NodeLevelExplanation = NodeLevelExplanation()  # result without preemption
    #: pods that could be preempted, by node
    node_possible_victims: tuple[NodePossibleVictims, ...] = ()
    preempt_explanation: NodeLevelExplanation = NodeLevelExplanation()  # result with preemption


class ScheduleExplanationStatus(ApiStruct, frozen=True, kw_only=True):
    """The answer."""

    schedulable: bool = False  # whether it fits now
    schedulable_after_preemption: bool = False  # whether it fits after preemption
    failed_message: str = ""  # reason that it does not fit
    last_update_time: dt.datetime | None = None  # time of the explanation
    detailed_explanation: tuple[DomainExplanation, ...] = ()  # explanation by domain and node


class ScheduleExplanation(CustomResource, frozen=True, kw_only=True):
    """A question to the scheduler and its answer."""

    API_VERSION: ClassVar[str] = "scheduling.koordinator.sh/v1alpha1"
    KIND: ClassVar[str] = "ScheduleExplanation"
    PLURAL: ClassVar[str] = "scheduleexplanations"
    SHORT_NAMES: ClassVar[tuple[str, ...]] = ("sched-exp",)
    SUBRESOURCE_STATUS: ClassVar[bool] = True

    spec: ScheduleExplanationSpec = ScheduleExplanationSpec()
    status: ScheduleExplanationStatus = ScheduleExplanationStatus()


KINDS = (ScheduleExplanation,)
