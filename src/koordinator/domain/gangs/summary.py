"""What people want to know of a gang: how many members it has and needs, and why it waits."""

from collections.abc import Iterable

import msgspec

from koordinator.api.annotations.gang import QUEUE_POSITION, QUEUE_REASON
from koordinator.api.labels import parse_int32
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.api.pod_group import PodGroup
from koordinator.domain.gangs.book import GangBook
from koordinator.domain.gangs.gang import Gang, MemberState
from koordinator.domain.gangs.terms import GangDefaults, contradictions

_SCHEDULED = "PodScheduled"


class MemberSummary(msgspec.Struct, frozen=True, rename="camel"):
    """A member; ``why`` is what keeps it from running, as far as anybody has said."""

    pod: str
    state: str
    phase: str
    node: str = ""
    why: str = ""


class GangSummary(msgspec.Struct, frozen=True, rename="camel"):
    """A gang; ``min_member`` is 0 while nobody has said how many it needs."""

    gang: str
    phase: str  # of the PodGroup, if there is one
    min_member: int
    total: int
    present: int  # members that could run
    bound: int
    running: int
    mode: str
    match_policy: str
    wait_seconds: float
    group: tuple[str, ...]
    why: str = ""  # why it has not started
    queue_position: int | None = None  # in the queue of its quota, as its PodGroup says
    queue_reason: str = ""
    complaints: tuple[str, ...] = ()
    members: tuple[MemberSummary, ...] = ()


def gang_summaries(objects: Iterable[KubeObject], defaults: GangDefaults) -> list[GangSummary]:
    """Return all gangs among pods and PodGroups, by name."""
    book = GangBook(defaults)
    pods: dict[str, Pod] = {}
    groups: dict[str, PodGroup] = {}
    for obj in objects:
        if isinstance(obj, PodGroup):
            book.put_group(obj)
            groups[obj.key] = obj
        elif isinstance(obj, Pod):
            book.put_pod(obj)
            pods[obj.key] = obj
    return [_summary(book, book.gangs[name], pods, groups) for name in sorted(book.gangs)]


def _summary(
    book: GangBook, gang: Gang, pods: dict[str, Pod], groups: dict[str, PodGroup]
) -> GangSummary:
    terms = gang.terms
    own = [pods[key] for key in sorted(gang.members)]
    said = [why for pod in own if (why := _why(gang, pod))]
    short = book.shortage(own[0]) if own else "it has no members"
    stored = groups.get(gang.id)
    noted = stored.metadata.annotations if stored else {}
    complaints = dict.fromkeys(terms.complaints if terms else ())
    for pod in own:
        complaints |= dict.fromkeys(f"pod {pod.key}: {text}" for text in contradictions(pod))
    return GangSummary(
        gang=gang.id,
        phase=stored.status.phase if stored else "",
        min_member=terms.min_member if terms else 0,
        total=terms.total if terms else 0,
        present=gang.present,
        bound=gang.bound,
        running=gang.phases["Running"],
        mode=terms.mode if terms else "",
        match_policy=terms.match_policy if terms else "",
        wait_seconds=terms.wait_s if terms else 0.0,
        group=terms.group if terms else (),
        why=short or next(iter(said), ""),
        queue_position=parse_int32(noted.get(QUEUE_POSITION, "")),
        queue_reason=noted.get(QUEUE_REASON, ""),
        complaints=tuple(complaints),
        members=tuple(
            MemberSummary(
                pod.key,
                gang.members[pod.key].state,
                pod.status.phase,
                pod.spec.node_name,
                _why(gang, pod),
            )
            for pod in own
        ),
    )


def _why(gang: Gang, pod: Pod) -> str:
    """Return what the pod's condition says, unless it has a node."""
    if gang.members[pod.key].state is MemberState.BOUND:
        return ""
    conditions = (c for c in pod.status.conditions if c.type == _SCHEDULED and c.status == "False")
    return next((condition.message for condition in conditions), "")
