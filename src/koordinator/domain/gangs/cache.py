"""Cache of all gangs: members, queue representatives, and permission to start.

A complete gang group has one *representative* in the scheduling queue. The other members stay
outside the queue until the representative is scheduled. So a waiting gang costs as much as one pod,
and a gang that is short of members costs nothing.

Source: koordinator pkg/scheduler/plugins/coscheduling/core (gang_cache.go, gang_group_info.go,
core.go).  Different here: a group counts as once satisfied while a member is bound, not forever,
which a restarted scheduler would conclude too; members with scheduling gates don't count.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from koordinator.api.annotations.gang import GangMatchPolicy, NetworkTopologySpec, gang_name
from koordinator.api.pod import TERMINAL_PHASES, Pod, SchedulingGroup
from koordinator.api.pod_groups import (
    CompositePodGroup,
    PodGroup,
    SchedulingPodGroup,
    SchedulingWorkload,
)
from koordinator.domain.gangs.gang import Gang, GangAttempt, Member, MemberState
from koordinator.domain.gangs.terms import (
    GangDefaults,
    GangTerms,
    GroupReference,
    WorkloadRefs,
    gang_id,
    gang_texts_of,
    needs_object,
    pod_group_key,
    terms_of_object,
    terms_of_pod_group,
    terms_of_texts,
    terms_of_workload,
    with_tree,
    workload_key,
)
from koordinator.domain.gangs.trees import (
    GroupForest,
    GroupTree,
    id_of_pod_group,
    quorum_problem,
)
from koordinator.foundation.errors import BugError

#: Messages of ``why_gated``, and the original's message for a gang that is short of members.
_GATE_REASON = re.compile(
    r"gang \S+ (needs|is not known)|gang group \S+ is represented|gang child pod not collect enough"
    r"|(PodGroup|Workload) \S+ (of scheduling\.k8s\.io )?does not exist"
    r"|Workload \S+ has no podGroup|CompositePodGroup \S+ (of scheduling\.k8s\.io|needs|must)"
)

Keys = list[str]


class GangCache:
    """Gangs by id.  Methods that change it return the pods that may enter the queue now.

    Changes of trees are applied together, when the gangs are read; ``take_enqueueable`` returns the
    pods.
    """

    def __init__(self, defaults: GangDefaults) -> None:
        self.defaults = defaults
        self._by_id: dict[str, Gang] = {}
        self.changed: dict[str, None] = {}  # ids of gangs whose status may be outdated
        self._representative: dict[str, str] = {}  # group id -> pod key
        self._home: dict[str, str] = {}  # pod key -> gang id
        self._workloads: dict[str, SchedulingWorkload] = {}
        self._of_workload: dict[str, dict[str, str]] = {}  # key -> gang id -> pod group
        self._pod_groups: dict[str, SchedulingPodGroup] = {}  # of scheduling.k8s.io, by key
        self.forest = GroupForest()
        self._ready: Keys = []  # pods that may enter the queue since trees changed
        self._edits = 0  # changes of gangs
        self._quorums: tuple[int, dict[str, str]] = (0, {})  # shortages of trees at an edit

    @property
    def gangs(self) -> dict[str, Gang]:
        """The gangs by id, with the terms of their trees."""
        if self.forest.is_changed:
            self._ready += self._replant(self.forest.take_changed())
        return self._by_id

    def take_enqueueable(self) -> Keys:
        """Return the pods that may enter the queue since trees changed."""
        ready, self._ready = self._ready, []
        if self.forest.is_changed:
            ready += self._replant(self.forest.take_changed())
        return ready

    @property
    def gathers(self) -> bool:
        """Whether network topology requirements of gangs are honoured."""
        return self.defaults.gathers

    @property
    def refs(self) -> WorkloadRefs:
        """The meaning of group references in pods."""
        return self.defaults.refs

    def waiting_groups(self) -> set[str]:
        """Return the ids of the groups with members that have a node and are not bound.

        Any thread may ask: changes of trees are left to the thread that makes them.
        """
        return {
            terms.group_id
            for gang in list(self._by_id.values())
            if (terms := gang.terms) is not None and gang.waiting
        }

    # -- events ------------------------------------------------------------------------------

    def put_pod(self, pod: Pod) -> Keys:
        """Add or update a pod, bound or not."""
        own_id = self.id_of(pod)
        if not (own_id or self._home):
            return []
        home = self._home.get(pod.key)
        if home is None and not own_id:
            return []
        moved = self.drop_pod(pod) if home is not None and home != own_id else []
        member = self._member(pod) if own_id else None
        return moved + (self.drop_pod(pod) if member is None else self._put(own_id, member, pod))

    def _put(self, own_id: str, member: Member, pod: Pod) -> Keys:
        gang = self.gangs.setdefault(own_id, Gang(own_id))
        known = gang.members.get(member.key)
        if known is not None and member.state is MemberState.PENDING:
            member.state = _kept(known.state)
        if known is not None and known == member:
            gang.version += 1
            return []
        self._note(own_id)
        had_started = member.state is MemberState.BOUND and self._has_started(gang)
        self._home[member.key] = own_id
        gang.put(member)
        ref = self._ref(pod)
        if isinstance(ref, SchedulingGroup):
            gang.pod_group = pod_group_key(pod.metadata, ref)
            stated = self._pod_groups.get(gang.pod_group)
            if gang.terms is None and stated is not None:
                gang.terms = self._terms_of_pod_group(stated)
                return list(gang.pending)
        elif ref is not None and gang.terms is None:
            gang.workload = workload_key(pod.metadata, ref)
            self._of_workload.setdefault(gang.workload, {})[own_id] = ref.pod_group
            workload = self._workloads.get(gang.workload)
            gang.terms = terms_of_workload(workload, own_id, ref.pod_group, self.defaults)
            if gang.terms is not None:
                return list(gang.pending)
        elif member.texts or (known is not None and known.texts):
            ready = self._set_terms(gang, self._terms_of_members(gang))
            if ready:
                return ready
        if member.state is MemberState.BOUND:
            return self._after_bound(gang, member.key, had_started=had_started)
        return []

    def drop_pod(self, pod: Pod) -> Keys:
        """Remove a deleted pod."""
        gang = self.gangs.get(self._home.pop(pod.key, ""))
        if gang is None:
            return []
        left = gang.drop(pod.key)
        self._note(gang.id)
        if left is not None and left.texts and gang.members:
            ready = self._set_terms(gang, self._terms_of_members(gang))
            if ready:
                return ready
        if not gang.members and (gang.terms is None or not gang.terms.has_object):
            del self.gangs[gang.id]
            self._forget_of_workload(gang)
        return self._next_representative(gang, pod.key)

    def put_group(self, pod_group: PodGroup) -> Keys:
        """Add or update a PodGroup."""
        if self.refs is WorkloadRefs.ONLY:
            return []
        gang = self.gangs.setdefault(pod_group.key, Gang(pod_group.key))
        self._note(gang.id)
        terms = terms_of_object(pod_group, self.defaults)
        return self._set_terms(gang, terms)

    def drop_group(self, pod_group: PodGroup) -> Keys:
        """Remove a PodGroup; the terms in members' annotations apply then."""
        gang = self.gangs.get(pod_group.key)
        if gang is None:
            return []
        if not gang.members:
            del self.gangs[gang.id]
        return self._set_terms(gang, self._lowest_terms(gang))

    def put_workload(self, workload: SchedulingWorkload) -> Keys:
        """Add a Workload, or replace one of the same name; Workloads are immutable."""
        if not self.defaults.reads(SchedulingWorkload):
            return []
        self._workloads[workload.key] = workload
        return self._update_gangs_of(workload.key)

    def drop_workload(self, workload: SchedulingWorkload) -> Keys:
        """Remove a Workload; pods that reference it wait for another one."""
        self._workloads.pop(workload.key, None)
        return self._update_gangs_of(workload.key)

    def put_pod_group(self, pod_group: SchedulingPodGroup) -> Keys:
        """Add or update a PodGroup of scheduling.k8s.io."""
        if not self.defaults.reads(type(pod_group)):
            return []
        self._pod_groups[pod_group.key] = pod_group
        if self.defaults.trees and self.forest.put_group(pod_group):
            return []
        gang = self._by_id.get(id_of_pod_group(pod_group))
        if gang is None:
            return []
        self._note(gang.id)
        return self._set_terms(gang, self._terms_of_pod_group(pod_group))

    def drop_pod_group(self, pod_group: SchedulingPodGroup) -> Keys:
        """Remove a PodGroup of scheduling.k8s.io; pods that reference it wait for another one."""
        self._pod_groups.pop(pod_group.key, None)
        self.forest.drop_group(pod_group)
        gang = self._by_id.get(id_of_pod_group(pod_group))
        return [] if gang is None else self._set_terms(gang, None)

    def put_composite(self, composite: CompositePodGroup) -> None:
        """Add or update a CompositePodGroup."""
        if self.defaults.reads(CompositePodGroup):
            self.forest.put_composite(composite)

    def drop_composite(self, composite: CompositePodGroup) -> None:
        """Remove a CompositePodGroup; pods below it wait for another one."""
        self.forest.drop_composite(composite)

    def pod_group(self, key: str) -> SchedulingPodGroup | None:
        """Return a PodGroup of scheduling.k8s.io; None if it is unknown."""
        return self._pod_groups.get(key)

    def hold(self, pod: Pod) -> None:
        """Record that a member was placed."""
        self._move(pod, MemberState.WAITING)

    def release(self, pod: Pod) -> None:
        """Record that a member lost its place before it was bound."""
        gang = self.gang_of(pod)
        member = None if gang is None else gang.members.get(pod.key)
        if member is not None and member.state is MemberState.WAITING:
            self._move(pod, MemberState.PENDING)

    # -- queries -----------------------------------------------------------------------------

    def id_of(self, pod: Pod) -> str:
        """Return the id of the pod's gang; empty if it has none."""
        refs = self.defaults.refs
        ref = None if refs is WorkloadRefs.IGNORED else self._ref(pod)
        if ref is None and (refs is WorkloadRefs.ONLY or not gang_name(pod.metadata)):
            return ""
        return gang_id(pod.metadata, ref, refs)

    def gang_of(self, pod: Pod) -> Gang | None:
        """Return the gang of a pod; None if it has none or the gang is unknown."""
        return self.gangs.get(self._home.get(pod.key) or self.id_of(pod))

    def gang_of_key(self, key: str) -> Gang | None:
        """Return the gang of the member ``namespace/name``."""
        home = self._home.get(key)
        return None if home is None else self.gangs.get(home)

    def is_member(self, pod: Pod) -> bool:
        """Return whether the pod is a tracked member of a gang."""
        return pod.key in self._home

    def shortage(self, pod: Pod) -> str:
        """Return the reason why the pod's gang can't be tried yet; empty if it can."""
        gang = self.gang_of(pod)
        if gang is None or gang.terms is None:
            return self._missing_terms(pod)
        if gang.terms.problem:
            return gang.terms.problem
        if self._starts_alone(gang):
            return ""
        if gang.terms.tree is not None:
            return self._quorum_problem(gang.terms.tree)
        missing = []
        for member_id in gang.terms.group:
            one = self.gangs.get(member_id)
            if one is None or one.terms is None:
                missing.append(f"gang {member_id} is not known")
            elif one.present < one.terms.min_member:
                blocked = one.states[MemberState.BLOCKED]
                missing.append(
                    f"gang {member_id} needs {one.terms.min_member} members; "
                    f"there were {one.present} when this was written"
                    + (f", and {blocked} with closed scheduling gates" if blocked else "")
                )
            elif foreign := one.foreign(pod.spec.scheduler_name):
                own = one.present - sum(foreign.values())
                if own < one.terms.min_member:
                    others = ", ".join(f"{count} for {name}" for name, count in foreign.items())
                    missing.append(
                        f"gang {member_id} needs {one.terms.min_member} members of one "
                        f"schedulerName; there were {own} for {pod.spec.scheduler_name} and "
                        f"{others} when this was written"
                    )
        return "; ".join(missing)

    @staticmethod
    def is_gate_reason(text: str) -> bool:
        """Return whether a condition's message was written by ``why_gated``."""
        return _GATE_REASON.match(text) is not None

    def why_gated(self, pod: Pod) -> str:
        """Return the reason why a pod may not enter the queue; empty if it may.

        The first admitted pod becomes the representative of its group.
        """
        gang, key = self.gang_of(pod), pod.key
        if gang is not None and gang.terms is not None and self._starts_alone(gang):
            return ""
        short = self.shortage(pod)
        if gang is None or gang.terms is None or short:
            return short
        group_id = gang.terms.group_id
        other = self.representative(group_id)
        if other in ("", key):
            self._representative[group_id] = key
            return ""
        return f"gang group {group_id} is represented in the queue by pod {other}"

    def representative(self, group_id: str) -> str:
        """Return the member that represents its group in the queue; empty if there is none."""
        key = self._representative.get(group_id, "")
        if not key:
            return ""
        gang = self.gang_of_key(key)
        terms = gang.terms if gang is not None and key in gang.pending else None
        if terms is None or terms.group_id != group_id:
            self._representative.pop(group_id, None)
            return ""
        return key

    def representatives_for(self, pod: Pod) -> Keys:
        """Return the representative of the pod's group if it is another pod."""
        gang = self.gang_of(pod)
        key = "" if gang is None or gang.terms is None else self.representative(gang.terms.group_id)
        return [key] if key and key != pod.key else []

    def set_representative(self, pod: Pod) -> None:
        """Make this member the representative of its group, as when it was unschedulable."""
        gang = self.gang_of(pod)
        if gang is not None and gang.terms is not None and pod.key in gang.pending:
            self._representative[gang.terms.group_id] = pod.key

    def starts_alone(self, pod: Pod) -> bool:
        """Return whether a pod need not wait for others: no gang, or one that has started."""
        gang = self.gang_of(pod)
        return self._starts_alone(gang) if gang is not None else not self.id_of(pod)

    def has_begun(self, pod: Pod) -> bool:
        """Return whether a member of the pod's gang group is placed, bound or not."""
        gang = self.gang_of(pod)
        if gang is None or gang.terms is None:
            return False
        return any(one.bound or one.waiting for one in self._gangs(gang.terms.group))

    def attempt(self, pod: Pod) -> GangAttempt:
        """Return the members to place together with a member of a complete gang."""
        gang = self.gang_of(pod)
        if gang is None or gang.terms is None:
            raise BugError(f"{pod.key} is in no gang that could be tried.")
        scheduler = pod.spec.scheduler_name
        members: dict[str, str] = {}
        spare, waiting, tree = dict[str, int](), 0, gang.terms.tree
        for one in self._gangs(gang.terms.group):
            own = [key for key, m in one.pending.items() if m.scheduler == scheduler]
            members |= dict.fromkeys(own, one.id)
            waiting += one.waiting
            if tree is None and one.is_strict:
                spare[one.id] = len(own) - one.needed(once_satisfied=self._has_started(one))
        members.setdefault(pod.key, gang.id)
        if tree is not None:
            placed = self._placed(gang)
            present = Counter(members.values())
            spare = {
                leaf.id: present[leaf.id]
                - (max(leaf.least - placed[leaf.id], 0) if leaf.id in tree.required else 0)
                for leaf in tree.leaves
            }
            group_id = gang.terms.group_id
            return GangAttempt(group_id, members, spare, waiting, tree=tree, placed=placed)
        return GangAttempt(gang.terms.group_id, members, spare, waiting)

    def attempt_alone(self, pod: Pod) -> GangAttempt:
        """Return an attempt of one member whose gang has started, for a place near the others."""
        gang = self.gang_of(pod)
        if gang is None or gang.terms is None:
            raise BugError(f"{pod.key} is in no gang that could be tried.")
        return GangAttempt(gang.terms.group_id, {pod.key: gang.id}, {gang.id: 0}, is_alone=True)

    def networks(self, pod: Pod) -> dict[str, NetworkTopologySpec]:
        """Return the network requirements of the pod's gang group, by gang id.

        A spec without rules requests best-effort gathering.
        """
        gang = self.gang_of(pod)
        if not self.gathers or gang is None or gang.terms is None:
            return {}
        terms = [one.terms for one in self._gangs(gang.terms.group) if one.terms is not None]
        return {one.id: one.network for one in terms if one.network is not None}

    def with_places(self, pod: Pod) -> dict[str, str]:
        """Return the gang id of every placed member of the pod's group, by key."""
        gang = self.gang_of(pod)
        if gang is None or gang.terms is None:
            return {}
        return self._members_with_places(gang.terms.group)

    def places_of(self, group: GroupTree) -> dict[str, str]:
        """Return the gang id of every placed member below a group of a tree, by key."""
        return self._members_with_places(group.leaf_ids)

    def _members_with_places(self, ids: Iterable[str]) -> dict[str, str]:
        placed = (MemberState.WAITING, MemberState.BOUND)
        return {
            key: one.id
            for one in self._gangs(ids)
            for key, member in one.members.items()
            if member.state in placed and member.phase not in TERMINAL_PHASES
        }

    def version(self, pod: Pod) -> tuple[int, ...]:
        """Return a value that changes with every change of the pod's gang group."""
        gang = self.gang_of(pod)
        if gang is None or gang.terms is None:
            return ()
        return tuple(one.version for one in self._gangs(gang.terms.group))

    def may_start(self, pod: Pod) -> bool:
        """Return whether enough members of every gang of the group are placed."""
        gang = self.gang_of(pod)
        if gang is None or gang.terms is None:
            return False
        if gang.terms.tree is not None:
            placed = self._placed(gang)
            return gang.terms.tree.is_met(lambda leaf: placed[leaf.id] >= leaf.least)
        gangs = list(self._gangs(gang.terms.group))
        return len(gangs) == len(gang.terms.group) and all(
            one.needed(once_satisfied=self._has_started(one)) <= 0 for one in gangs
        )

    def bound_together(self, pod: Pod) -> int:
        """Return the number of members of the pod's group that are placed but not bound."""
        gang = self.gang_of(pod)
        if gang is None or gang.terms is None:
            return 0
        return sum(one.waiting for one in self._gangs(gang.terms.group))

    def companions(self, pod: Pod) -> Keys:
        """Return the members that must be released because this member lost its place."""
        gang = self.gang_of(pod)
        if gang is None or gang.terms is None or not gang.is_strict or self._starts_alone(gang):
            return []
        return [
            key
            for one in self._gangs(gang.terms.group)
            for key, member in one.members.items()
            if member.state is MemberState.WAITING and key != pod.key
        ]

    def unplaced_members(self, pod: Pod) -> Keys:
        """Return the unplaced members of the pod's gang group, including the pod."""
        gang = self.gang_of(pod)
        if gang is None or gang.terms is None:
            return []
        return [key for one in self._gangs(gang.terms.group) for key in one.pending]

    def validate(self) -> None:
        """Recompute all derived state and raise BugError where it differs."""
        for gang in self.gangs.values():
            gang.validate()
            if not gang.members and (gang.terms is None or not gang.terms.has_object):
                raise BugError(f"gang {gang.id} is kept although it has no members.")
        for workload, ids in self._of_workload.items():
            if not ids or not ids.keys() <= self.gangs.keys():
                raise BugError(f"gangs {sorted(ids)} of Workload {workload} are not all known.")
        self.forest.validate()

    # -- internals ---------------------------------------------------------------------------

    def _gangs(self, ids: Iterable[str]) -> Iterator[Gang]:
        """Yield the known gangs among ``ids``."""
        return (self.gangs[one] for one in ids if one in self.gangs)

    def _quorum_problem(self, tree: GroupTree) -> str:
        """Return which groups of a tree lack members, found once for all of them."""
        if self._quorums[0] != self._edits:
            self._quorums = (self._edits, {})
        known = self._quorums[1]
        if tree.id not in known:
            present = {one.id: one.present for one in self._gangs(tree.leaf_ids)}
            known[tree.id] = quorum_problem(tree, present)
        return known[tree.id]

    def _note(self, own_id: str) -> None:
        """Note that a gang has changed."""
        self.changed[own_id] = None
        self._edits += 1

    def _placed(self, gang: Gang) -> Counter[str]:
        """Return the number of placed members of each gang of a group."""
        group = gang.terms.group if gang.terms is not None else ()
        return Counter({one.id: one.waiting + one.bound for one in self._gangs(group)})

    def _terms_of_pod_group(self, pod_group: SchedulingPodGroup) -> GangTerms:
        tree = self.forest.tree_of(pod_group.key)
        return with_tree(terms_of_pod_group(pod_group, self.defaults), tree)

    def _replant(self, pod_groups: Iterable[str]) -> Keys:
        """Give PodGroups, by key, the terms of their trees; return the members to try."""
        ready: Keys = []
        for key in pod_groups:
            group = self._pod_groups.get(key)
            gang = None if group is None else self._by_id.get(id_of_pod_group(group))
            if group is None or gang is None:
                continue
            if gang.terms is not None:
                self._representative.pop(gang.terms.group_id, None)
            gang.terms = self._terms_of_pod_group(group)
            gang.version += 1
            self._note(gang.id)
            ready += gang.pending
        return ready

    def _has_started(self, gang: Gang) -> bool:
        if gang.terms is None:
            return False
        for one in gang.terms.group:
            known = self.gangs.get(one)
            if known is not None and known.bound:
                return True
        return False

    def _starts_alone(self, gang: Gang) -> bool:
        """Return whether members don't wait for each other any more."""
        terms = gang.terms
        if terms is not None and (terms.tree is not None or terms.problem):
            return False
        if terms is None or not terms.min_member:
            return terms is not None
        together = (GangMatchPolicy.ONLY_WAITING, GangMatchPolicy.WAITING_AND_RUNNING)
        return terms.match_policy not in together and self._has_started(gang)

    def _member(self, pod: Pod) -> Member | None:
        """Return the member of a pod; None if it ended or is being deleted without a node.

        Members of a Workload or a PodGroup of scheduling.k8s.io don't count once they have ended.
        """
        meta, spec, ref = pod.metadata, pod.spec, self._ref(pod)
        if ref is not None and pod.status.phase in TERMINAL_PHASES:
            return None
        if spec.node_name:
            state = MemberState.BOUND
        elif pod.status.phase in TERMINAL_PHASES or meta.deletion_timestamp is not None:
            return None
        else:
            state = MemberState.BLOCKED if spec.scheduling_gates else MemberState.PENDING
        names = sorted(f"{meta.namespace}/{owner.name}" for owner in meta.owner_references)
        texts = () if ref is not None or needs_object(meta) else gang_texts_of(meta)
        scheduler, phase = spec.scheduler_name, pod.status.phase
        return Member(pod.key, scheduler, ",".join(names), state, phase, texts)

    def _ref(self, pod: Pod) -> GroupReference | None:
        return self.defaults.group_named_by(pod.spec)

    def _update_gangs_of(self, workload: str) -> Keys:
        """Give the gangs of a Workload their terms, or take them away; return who waits."""
        ready: Keys = []
        for own_id, group in list(self._of_workload.get(workload, {}).items()):
            self._note(own_id)
            terms = terms_of_workload(self._workloads.get(workload), own_id, group, self.defaults)
            ready += self._set_terms(self.gangs[own_id], terms)
        return ready

    def _forget_of_workload(self, gang: Gang) -> None:
        """Remove a deleted gang from the index of its Workload."""
        ids = self._of_workload.get(gang.workload, {})
        ids.pop(gang.id, None)
        if not ids:
            self._of_workload.pop(gang.workload, None)

    def _missing_terms(self, pod: Pod) -> str:
        ref = self._ref(pod)
        if isinstance(ref, SchedulingGroup):
            return (
                f"PodGroup {pod_group_key(pod.metadata, ref)} of scheduling.k8s.io does not exist"
            )
        if ref is not None:
            workload = workload_key(pod.metadata, ref)
            if workload in self._workloads:
                return f"Workload {workload} has no podGroup {ref.pod_group}"
            return f"Workload {workload} does not exist"
        own_id = self.id_of(pod)
        if needs_object(pod.metadata):
            return f"PodGroup {own_id} does not exist"
        return (
            f"gang {own_id} needs members, but none of them says how many in a way that can be read"
        )

    def _move(self, pod: Pod, state: MemberState) -> None:
        gang = self.gang_of(pod)
        if gang is not None and gang.move(pod.key, state):
            self._note(gang.id)

    def _after_bound(self, gang: Gang, key: str, *, had_started: bool) -> Keys:
        if not had_started and self._starts_alone(gang) and gang.terms is not None:
            return [k for one in self._gangs(gang.terms.group) for k in one.pending]
        return self._next_representative(gang, key)

    def _next_representative(self, gang: Gang, removed: str) -> Keys:
        """Return a replacement if the removed pod was the representative."""
        terms = gang.terms
        if terms is None or self._representative.get(terms.group_id) != removed:
            return []
        del self._representative[terms.group_id]
        return [key for one in self._gangs(terms.group) for key in list(one.pending)[:1]][:1]

    def _terms_of_members(self, gang: Gang) -> GangTerms | None:
        """Return the terms of a gang after the annotations of its members changed."""
        terms = gang.terms
        if terms is not None and (terms.has_object or terms.workload):
            return terms
        return self._lowest_terms(gang)

    def _lowest_terms(self, gang: Gang) -> GangTerms | None:
        """Return the terms in the annotations of members; None if there are none.

        If members disagree, the lowest minimum applies, regardless of the order of events.
        """
        candidates = (terms_of_texts(gang.id, one, self.defaults) for one in gang.texts_count)
        declared = [terms for terms in candidates if terms is not None]
        return min(declared, key=lambda terms: (terms.min_member, repr(terms)), default=None)

    def _set_terms(self, gang: Gang, terms: GangTerms | None) -> Keys:
        """Change the terms; return the pending members of the affected groups."""
        if terms == gang.terms:
            return []
        groups = {gang.id}
        for known in (gang.terms, terms):
            if known is not None:
                groups.update(known.group)
        if gang.terms is not None:
            self._representative.pop(gang.terms.group_id, None)
        gang.terms = terms
        gang.version += 1
        self._edits += 1
        return [key for one in self._gangs(sorted(groups)) for key in one.pending]


def _kept(known: MemberState) -> MemberState:
    """Return the state of a member whose pod is still pending in the API server's view.

    The scheduler may already have placed or bound it.
    """
    return known if known in (MemberState.WAITING, MemberState.BOUND) else MemberState.PENDING
