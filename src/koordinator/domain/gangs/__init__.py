"""Gangs: pods that start together or not at all.

No I/O, no clock.

``terms``    ``GangTerms``: requirements of a gang, parsed from any of its sources
``gang``     ``Gang``: one gang and its members; ``GangAttempt``: members that are placed together;
             status of a PodGroup
``trees``    ``GroupTree``: PodGroups below CompositePodGroups; enough of them start together
``cache``    ``GangCache``: all gangs, queue admission, groups
``summary``  user-facing summary of gangs
"""

from koordinator.domain.gangs.cache import GangCache
from koordinator.domain.gangs.gang import Gang, GangAttempt, Member, MemberState, status_of
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
    gang_texts_of,
    group_reference,
    terms_of_object,
    terms_of_texts,
)
from koordinator.domain.gangs.trees import POD_GROUP_SEGMENT, GroupTree

__all__ = [
    "GROUP_KINDS",
    "POD_GROUP_SEGMENT",
    "Gang",
    "GangAttempt",
    "GangCache",
    "GangDefaults",
    "GangSummary",
    "GangTerms",
    "GroupTree",
    "LayerSummary",
    "Member",
    "MemberState",
    "MemberSummary",
    "PodGroupTerms",
    "WorkloadRefs",
    "contradictions",
    "gang_id",
    "gang_summaries",
    "gang_texts_of",
    "group_reference",
    "status_of",
    "terms_of_object",
    "terms_of_texts",
]
