"""Remedies for gangs that lack members, or nodes for all of them."""

from collections.abc import Callable, Iterator, Sequence

from koordinator.api.pod import Pod
from koordinator.domain.gangs import Gang, GangCache
from koordinator.domain.gangs.gang import MemberState
from koordinator.scheduler.explain.explanation import Remedy

NAMED = 5  # members

#: Whether pods, by key, and a number of copies of the explained pod can start together.
StartTogether = Callable[[Sequence[str], int], bool]


def short_gang(cache: GangCache, pod: Pod, start_together: StartTogether) -> Iterator[Remedy]:
    """Yield remedies that complete the gang of a gated pod."""
    own = cache.gang_of(pod)
    if own is None or own.terms is None:
        text = "set the number of members that its gang needs"
        if own is not None:
            what = f"Workload {own.workload}" if own.workload else f"PodGroup {own.id}"
            if own.pod_group:
                what = f"PodGroup {own.pod_group} of scheduling.k8s.io"
            text += f": create the {what}"
        ref = pod.spec.workload_ref
        if own is not None and own.workload and ref is not None:
            text += f", with a podGroup {ref.pod_group}"
        yield Remedy(kind="gang", text=text, sufficient=False, tried=False)
        return
    group = own.terms.group
    for name in group:
        gang = cache.gangs.get(name)
        if gang is None or gang.terms is None:
            text = f"create the gang {name}, which must start with its own"
            yield Remedy(kind="gang", text=text, sufficient=False, tried=False)
        elif gang.present < gang.terms.min_member:
            yield from _more_members(gang, start_together, alone=group == (own.id,))


def smaller_gang(gang: Gang | None, count: int) -> Iterator[Remedy]:
    """Yield the lower minimum with which ``count`` placed members could start."""
    if gang is None or gang.terms is None or not gang.bound < count < gang.terms.min_member:
        return
    text = f"set {_setting_of(gang)} to {count}: that many members find a place"
    yield Remedy(kind="gang", text=text)


def _more_members(gang: Gang, start_together: StartTogether, *, alone: bool) -> Iterator[Remedy]:
    assert gang.terms is not None  # noqa: S101 -- checked by the caller
    blocked = sorted(k for k, one in gang.members.items() if one.state is MemberState.BLOCKED)
    there = sorted(set(gang.members) - set(blocked))
    lacking = gang.terms.min_member - gang.present
    listed = ", ".join(there[:NAMED]) or "none"
    listed += f" and {len(there) - NAMED} more" if len(there) > NAMED else ""
    many = "member" if lacking == 1 else "members"
    if blocked:
        text = f"remove the scheduling gates of {', '.join(blocked[:NAMED])}, members of {gang.id}"
        enough = alone and len(blocked) >= lacking and start_together([*there, *blocked], 0)
        yield Remedy(kind="open-gates", text=text, sufficient=enough)
    verb = "is" if len(there) == 1 else "are"
    text = f"create {lacking} more {many} of gang {gang.id}: there {verb} {listed}"
    yield Remedy(kind="gang", text=text, sufficient=alone and start_together(there, lacking))
    if alone and gang.present and start_together(there, 0):
        text = f"set {_setting_of(gang)} to {gang.present}: that many members exist"
        yield Remedy(kind="gang", text=text)


def _setting_of(gang: Gang) -> str:
    """Return the setting that holds the minimum of the gang."""
    if gang.workload:
        return f"minCount of gang {gang.id} in a new Workload {gang.workload}"
    if gang.pod_group:
        return f"minCount of PodGroup {gang.pod_group}"
    if gang.terms is not None and gang.terms.has_object:
        return f"minMember of PodGroup {gang.id}"
    return f"gang.scheduling.koordinator.sh/min-available of all members of gang {gang.id}"
