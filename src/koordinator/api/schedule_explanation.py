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

    question_object_key: str = ""
    question_object_template: UntypedPodTemplate | None = None  # not supported
    ttl: Duration = Duration(hours=24)


class SchedulingResult(ApiStruct, frozen=True, kw_only=True):
    """A pod and the node it fits on."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    node_name: str = ""


class NodeFailedDetail(ApiStruct, frozen=True, kw_only=True):
    """Nodes that one plugin rejected for one reason."""

    failed_plugin: str = ""
    reason: str = ""
    preempt_might_help: bool = False
    failed_nodes: tuple[str, ...] = ()


class NodeLevelExplanation(ApiStruct, frozen=True, kw_only=True):
    """What came out for the nodes of a domain."""

    schedulable: bool = False
    failed_message: str = ""
    feasible_scheduling_result: tuple[SchedulingResult, ...] = ()
    node_failed_details: tuple[NodeFailedDetail, ...] = ()


class PossibleVictim(ApiStruct, frozen=True, kw_only=True):
    """A pod that could be preempted."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    is_nominated_pod: bool = False


class NodePossibleVictims(ApiStruct, frozen=True, kw_only=True):
    """Pods of a node that could be preempted."""

    node_name: str = ""
    possible_victims: tuple[PossibleVictim, ...] = ()


class DomainExplanation(ApiStruct, frozen=True, kw_only=True):
    """What came out in one domain of the topology."""

    topology_domain: str = ""
    schedulable: bool = False
    schedulable_after_preemption: bool = False
    failed_message: str = ""
    schedule_explanation: NodeLevelExplanation = NodeLevelExplanation()
    node_possible_victims: tuple[NodePossibleVictims, ...] = ()
    preempt_explanation: NodeLevelExplanation = NodeLevelExplanation()


class ScheduleExplanationStatus(ApiStruct, frozen=True, kw_only=True):
    """The answer."""

    schedulable: bool = False
    schedulable_after_preemption: bool = False
    failed_message: str = ""
    last_update_time: dt.datetime | None = None
    detailed_explanation: tuple[DomainExplanation, ...] = ()


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
