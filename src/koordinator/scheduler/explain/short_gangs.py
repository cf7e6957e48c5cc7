"""What would let a gang start that is short of members, or of places for all of them."""

from collections.abc import Callable, Iterator, Sequence

from koordinator.api.pod import Pod
from koordinator.domain.gangs import Gang, GangCache
from koordinator.domain.gangs.gang import MemberState
from koordinator.scheduler.explain.explanation import Remedy

NAMED = 5  # members

#: Whether pods, by key, and so many more like the one that is explained find places together.
StartTogether = Callable[[Sequence[str], int], bool]


def short_gang(cache: GangCache, pod: Pod, start_together: StartTogether) -> Iterator[Remedy]:
    """Yield how the gang of a pod that waits before the queue could become whole."""
    own = cache.gang_of(pod)
    if own is None or own.terms is None:
        text = "say how many members its gang needs"
        if own is not None:
            what = f"Workload {own.workload}" if own.workload else f"PodGroup {own.id}"
            if own.pod_group:
                what = f"PodGroup {own.pod_group} of scheduling.k8s.io"
            text += f": make the {what}"
        ref = pod.spec.workload_ref
        if own is not None and own.workload and ref is not None:
            text += f", with a podGroup {ref.pod_group}"
        yield Remedy(kind="gang", text=text, sufficient=False, tried=False)
        return
    group = own.terms.group
    for name in group:
        gang = cache.gangs.get(name)
        if gang is None or gang.terms is None:
            text = f"make the gang {name}, with which it starts"
            yield Remedy(kind="gang", text=text, sufficient=False, tried=False)
        elif gang.present < gang.terms.min_member:
            yield from _more_members(gang, start_together, alone=group == (own.id,))


def smaller_gang(gang: Gang | None, count: int) -> Iterator[Remedy]:
    """Yield that a gang of which ``count`` members find places could start with those."""
    if gang is None or gang.terms is None or not gang.bound < count < gang.terms.min_member:
        return
    text = f"let {_how_said(gang)} be {count}: so many find a place"
    yield Remedy(kind="gang", text=text)


def _more_members(gang: Gang, start_together: StartTogether, *, alone: bool) -> Iterator[Remedy]:
    assert gang.terms is not None  # noqa: S101 -- the caller looked
    blocked = sorted(k for k, one in gang.members.items() if one.state is MemberState.BLOCKED)
    there = sorted(set(gang.members) - set(blocked))
    lacking = gang.terms.min_member - gang.present
    listed = ", ".join(there[:NAMED]) or "nobody"
    listed += f" and {len(there) - NAMED} more" if len(there) > NAMED else ""
    many = "member" if lacking == 1 else "members"
    if blocked:
        text = f"open the scheduling gates of {', '.join(blocked[:NAMED])}, members of {gang.id}"
        enough = alone and len(blocked) >= lacking and start_together([*there, *blocked], 0)
        yield Remedy(kind="open-gates", text=text, sufficient=enough)
    verb = "is" if len(there) == 1 else "are"
    text = f"make {lacking} more {many} of gang {gang.id}: there {verb} {listed}"
    yield Remedy(kind="gang", text=text, sufficient=alone and start_together(there, lacking))
    if alone and gang.present and start_together(there, 0):
        text = f"let {_how_said(gang)} be {gang.present}: so many members are there"
        yield Remedy(kind="gang", text=text)


def _how_said(gang: Gang) -> str:
    """Return where it says how many members the gang needs."""
    if gang.workload:
        return f"minCount of gang {gang.id} in a new Workload {gang.workload}"
    if gang.pod_group:
        return f"minCount of PodGroup {gang.pod_group}"
    if gang.terms is not None and gang.terms.has_object:
        return f"minMember of PodGroup {gang.id}"
    return f"gang.scheduling.koordinator.sh/min-available of all members of gang {gang.id}"
