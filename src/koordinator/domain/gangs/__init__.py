"""Gangs: pods that start together or not at all.

No I/O, no clock.

``terms``       ``GangTerms``: what a gang asks for, in any spelling
``gang``        ``Gang``: one gang and its members
``cache``        ``GangCache``: all gangs, who may enter the queue, who is tried with whom
``attempt``     ``GangAttempt``: those who are tried together
``status``      what a PodGroup's status should be
``summary``     what people want to know of a gang
``validation``  what admission refuses
"""

from koordinator.domain.gangs.attempt import GangAttempt
from koordinator.domain.gangs.cache import GangCache
from koordinator.domain.gangs.gang import Gang, Member, MemberState
from koordinator.domain.gangs.status import status_of
from koordinator.domain.gangs.summary import (
    GangSummary,
    LayerSummary,
    MemberSummary,
    gang_summaries,
)
from koordinator.domain.gangs.terms import (
    GROUP_KINDS,
    GangDefaults,
    GangTerms,
    PodGroupTerms,
    WorkloadRefs,
    contradictions,
    gang_id,
    group_reference,
    saying_of,
    terms_of_object,
    terms_of_saying,
)
from koordinator.domain.gangs.validation import check_pod_group

__all__ = [
    "GROUP_KINDS",
    "Gang",
    "GangAttempt",
    "GangCache",
    "GangDefaults",
    "GangSummary",
    "GangTerms",
    "LayerSummary",
    "Member",
    "MemberState",
    "MemberSummary",
    "PodGroupTerms",
    "WorkloadRefs",
    "check_pod_group",
    "contradictions",
    "gang_id",
    "gang_summaries",
    "group_reference",
    "saying_of",
    "status_of",
    "terms_of_object",
    "terms_of_saying",
]
