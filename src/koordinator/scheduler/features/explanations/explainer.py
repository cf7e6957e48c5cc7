"""Explanation of a pending pod of a running scheduler, without side effects."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import chain

import numpy as np
from msgspec.structs import replace

from koordinator.api.pod import Pod
from koordinator.api.reservation import Reservation
from koordinator.domain.gangs import Gang, GangAttempt, GangCache, gang_id, group_reference
from koordinator.domain.gangs.gang import MemberState
from koordinator.domain.reserve_pod import display_name, is_reserve_pod, reserve_pod
from koordinator.foundation.errors import ExtenderError, NotFoundError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.contract import EXTENDER
from koordinator.scheduler.cycle import NodeChoice, ReserveRefusal, SchedulingCycle
from koordinator.scheduler.cycle.evaluation import NominatedPods, nominated_pods_with_priority
from koordinator.scheduler.explanations import (
    Cause,
    CauseReport,
    Explanation,
    Question,
    QueueStatus,
    Remedy,
    causes,
    empty_cluster,
    limited_together,
    nearest_nodes,
    pending_resize,
    question_about,
    queue_status,
    remedies,
    short_gang,
    smaller_gang,
)
from koordinator.scheduler.loop.feature_kinds import GateReport
from koordinator.scheduler.loop.handle import SchedulerHandle
from koordinator.scheduler.queue import QueuedPod, QueueState
from koordinator.scheduler.snapshot import PodClass
from koordinator.scheduler.transaction import Transaction

MOST_MEMBERS = 64  # most missing members that are tried as copies, and members tried in many orders
MOST_KINDS = 8  # kinds of members that are tried first
PLACED, FITS, WAITS = "placed", "fits", "waits"


def explain(handle: SchedulerHandle, key: str) -> Explanation:
    """Return why a pod, ``namespace/name``, is pending.

    Raises NotFoundError for a pod unknown to the scheduler.
    """
    key = key_of(handle, key)
    placed = handle.state.pods.by_key.get(key)
    queued = handle.queue.get(key)
    if placed is not None and (queued is None or queued.state is QueueState.IN_FLIGHT):
        node = handle.state.nodes.names[placed.row]
        if handle.bindings.is_waiting(key):
            return _waiting_for_permit(handle, placed.pod, node)
        summary = "; ".join(filter(None, (_where(placed.pod, node), pending_resize(placed.pod))))
        return Explanation(pod=display_name(placed.pod), verdict=PLACED, summary=summary, node=node)
    unbound = handle.state.unbound.get(key)
    if unbound is None:
        raise NotFoundError(f"no pod {key} is pending or has a node")
    pod, pod_class = unbound
    if queued is None:
        return _not_queued(pod, handle.cycles)
    return _Explainer(handle, queued).explain(pod_class)


def _waiting_for_permit(handle: SchedulerHandle, pod: Pod, node: str) -> Explanation:
    """Explain a pod that has a node: by the first member of its gang that has none."""
    text = f"it has a node, {node}, and waits for its permit"
    for active in handle.cycles[pod.spec.scheduler_name].profile.gangs:
        own = active.plugin.gangs.gang_of(pod)
        for key in own.pending if own is not None else ():
            queued, unbound = handle.queue.get(key), handle.state.unbound.get(key)
            if queued is None or unbound is None or queued.state is QueueState.IN_FLIGHT:
                continue
            one = _Explainer(handle, queued).explain(unbound[1])
            if one.verdict == WAITS:
                text += f"; pod {key} of its gang is the next one"
                summary = f"{text}; {one.summary}"
                return replace(
                    one,
                    pod=display_name(pod),
                    node=node,
                    summary=summary,
                    gang=text,
                    queue=None,
                )
            break  # one explanation holds for all pending members
    reports = (CauseReport(plugin="", reason=text),)
    return Explanation(
        pod=display_name(pod), verdict=WAITS, summary=text, node=node, causes=reports
    )


def _where(pod: Pod, node: str) -> str:
    """Return the state of a pod that has a node."""
    if is_reserve_pod(pod.metadata):
        return f"it reserves resources on {node}"
    if pod.spec.node_name and pod.status.phase == "Pending":
        return f"it is bound to {node}, where its containers have not all started"
    return f"it runs on {node}"


def key_of(handle: SchedulerHandle, name: str) -> str:
    """Return the key of the reserve pod for ``reservation/NAME``; other names as they are."""
    kind, _, reservation = name.partition("/")
    if kind == "reservation" and name not in handle.state.unbound:
        stored = handle.state.objects.get(Reservation, reservation)
        if stored is not None:
            return reserve_pod(stored).key
    return name


def kind_of(handle: SchedulerHandle, key: str) -> Hashable:
    """Return a key that pods have in common if one explanation holds for all of them.

    These are the members of a gang, apart from gated ones, or pods that no plugin distinguishes.
    """
    pod, pod_class = handle.state.unbound[key]
    queued = handle.queue.get(key)
    gang = gang_id(pod.metadata, group_reference(pod.spec))
    if gang:
        is_lost = queued is None and not handle.bindings.is_waiting(key)
        return gang, is_lost, bool(pod.spec.scheduling_gates)
    if queued is None:
        return pod_class.id, None, ""
    return pod_class.id, queued.state, handle.nominator.node_of(key)


def _not_queued(pod: Pod, cycles: Mapping[str, object]) -> Explanation:
    helping: tuple[Remedy, ...] = ()
    if pod.metadata.deletion_timestamp is not None:
        reason = "it is being deleted and is not scheduled any more"
        if pod.metadata.finalizers:
            reason += (
                f"; its finalizers [{' '.join(pod.metadata.finalizers)}] have not been removed yet"
            )
    else:
        template = "template.spec." if is_reserve_pod(pod.metadata) else ""
        reason = (
            f"no profile schedules it: spec.{template}schedulerName is "
            f"{pod.spec.scheduler_name!r}, the profiles are {', '.join(sorted(cycles))}"
        )
        text = (
            f"set spec.{template}schedulerName to {' or '.join(sorted(cycles))}, or run the "
            "scheduler that it names"
        )
        helping = (Remedy(kind="change-pod", text=text, tried=False),)
    reports = (CauseReport(plugin="", reason=reason),)
    name = display_name(pod)
    return Explanation(pod=name, verdict=WAITS, summary=reason, causes=reports, remedies=helping)


class _Explainer:
    def __init__(self, handle: SchedulerHandle, queued: QueuedPod) -> None:
        self._handle = handle
        self._queued = queued
        self._cycle: SchedulingCycle = handle.cycles[queued.pod.spec.scheduler_name]
        self._profile = self._cycle.profile

    def explain(self, pod_class: PodClass) -> Explanation:
        queued, state = self._queued, self._handle.state
        answers = (try_group(self._queued) for try_group in self._handle.hooks.try_group)
        together = next((one for one in answers if one is not None), None)
        group_refusal = together if together is not None and together.reason else None
        with Transaction(state) as transaction:
            gang = self._place_gang(transaction)
            left = gang.left if gang is not None else ((queued.pod, pod_class),)
            who, who_class = left[0]
            nominated = nominated_pods_with_priority(who, self._nominations())
            question = question_about(self._profile, self._handle.state, who, who_class, nominated)
            if gang is not None and gang.is_short:
                question = limited_together(question, gang.left)
            whole = gang.text if gang is not None else ""
            if gang is not None and group_refusal is not None and not gang.is_short:
                whole += ", but not together"
            gates = self._gates(gang is not None and gang.is_complete)
            gates = [gate for gate in gates if not _is_repeated(gate, question.obstacles.refusals)]
            line = self._line()
            if line is not None:
                gates.append(Cause(line[0], line[1].reason))
            if together is not None and queued.key in together.nodes and not gates:
                return self._fitting(together.nodes[queued.key])
            choice = None
            if question.obstacles.fits:
                choice = self._choose(who, who_class)
            refused = choice if isinstance(choice, ReserveRefusal) else None
            refused_by = group_refusal or refused
            refusals = [] if refused_by is None else [Cause(refused_by.plugin, refused_by.reason)]
            reports = tuple(causes(question, [*gates, *refusals]))
            if line is not None:
                reports = tuple(
                    replace(c, detail=line[1].detail) if c.plugin == line[0] else c for c in reports
                )
            fits = isinstance(choice, NodeChoice) and not gates and not refusals
            node = choice.node if isinstance(choice, NodeChoice) and fits else ""
            given = () if group_refusal is None else group_refusal.remedies
            helping = tuple(
                Remedy(kind=kind, text=text, sufficient=not gates) for kind, text in given
            )
            headroom = empty_cluster(question)
            if gang is not None and headroom is not None and headroom.fits:
                headroom = (
                    None  # for this member only; the whole gang was not tried on an empty cluster
                )
            return Explanation(
                pod=display_name(queued.pod),
                verdict=FITS if fits else WAITS,
                summary=_summary(question, reports, node, whole),
                node=node,
                causes=reports,
                gang=whole,
                nearest=tuple(nearest_nodes(question)) if not fits else (),
                empty_cluster=headroom,
                remedies=()
                if fits
                else (*helping, *self._remedies(question, gates, refusals, gang, line)),
                queue=self._queue_status(line),
                last_message=queued.message,
            )

    def _fitting(self, node: str) -> Explanation:
        """Return that the pod has its place in the dry run of its group."""
        return Explanation(
            pod=display_name(self._queued.pod),
            verdict=FITS,
            summary=f"{node} takes it now",
            node=node,
            queue=self._queue_status(None),
            last_message=self._queued.message,
        )

    def _choose(self, pod: Pod, pod_class: PodClass) -> NodeChoice | ReserveRefusal | None:
        """Return the node of a pod that passes all filters somewhere; extenders may refuse it."""
        try:
            choice = self._cycle.choose(pod, pod_class, self._nominations(), first_attempt=False)
        except ExtenderError as error:
            return ReserveRefusal(EXTENDER, str(error))
        refusal = self._cycle.extenders.refusal(pod) if choice is None else ""
        return ReserveRefusal(EXTENDER, refusal) if refusal else choice

    def _line(self) -> tuple[str, GateReport] | None:
        """Return the feature gate that holds the pod, with its position there."""
        answers = (
            (gate, report(self._queued.pod)) for gate, report in self._handle.hooks.gate_report
        )
        return next(((gate, answer) for gate, answer in answers if answer is not None), None)

    def _queue_status(self, line: tuple[str, GateReport] | None) -> QueueStatus:
        status = queue_status(self._handle.queue, self._queued, self._profile)
        if line is None or not line[1].position:
            return status
        return replace(status, position=line[1].position, ahead=line[1].ahead)

    def _remedies(
        self,
        question: Question,
        gates: Sequence[Cause],
        refusals: Sequence[Cause],
        gang: "_GangDryRun | None",
        line: tuple[str, GateReport] | None,
    ) -> tuple[Remedy, ...]:
        """Return the remedies; ``refusals`` are causes without a known remedy."""
        suggestions = tuple(
            remedies(question, gang.left if gang is not None and gang.is_short else ())
        )
        if gang is not None and not gates and not refusals:
            suggestions += tuple(smaller_gang(gang.group, gang.count))
        if gang is not None and not gang.in_first_order:
            suggestions = tuple(replace(one, sufficient=False) for one in suggestions)
        if line is not None:
            enough = question.obstacles.fits and len(gates) == 1 and not refusals
            suggestions = (
                *(
                    Remedy(kind=kind, text=text, sufficient=enough)
                    for kind, text in line[1].remedies
                ),
                *suggestions,
            )
            if enough:
                return suggestions
        if not gates and not refusals:
            return suggestions
        rest = tuple(replace(one, sufficient=False) for one in suggestions)
        opening = tuple(self._openings(question, gates, refusals))
        if opening and any(one.sufficient for one in opening):
            return (*opening, *rest)
        first = next((one for one in suggestions if one.sufficient), None)
        gangs = {active.name for active in self._profile.gangs}
        is_whole = gang is not None and not gang.is_complete  # tried with its missing members
        waits_for_others = bool(refusals) or (
            not is_whole and any(gate.plugin in gangs for gate in gates)
        )
        if first is None or waits_for_others or len(gates) != 1 or not opening:
            return (*opening, *rest)
        text = f"together: {opening[0].text}; and {first.text.removeprefix('together: ')}"
        both = Remedy(kind="together", text=text, nodes=first.nodes, pods=first.pods)
        return (*opening, *rest, both)

    def _openings(
        self, question: Question, gates: Sequence[Cause], refusals: Sequence[Cause]
    ) -> Iterator[Remedy]:
        """Yield the remedies that admit the pod to the queue."""
        closed = " ".join(gate.name for gate in self._queued.pod.spec.scheduling_gates)
        alone = len(gates) == 1 and not refusals
        if closed:
            text = f"remove the scheduling gates [{closed}]: a task of their controller"
            yield Remedy(kind="open-gates", text=text, sufficient=alone and question.obstacles.fits)
        for active in self._profile.gangs:
            cache: GangCache = active.plugin.gangs
            if any(gate.plugin == active.name for gate in gates):
                for one in short_gang(cache, self._queued.pod, self._start_together):
                    yield replace(one, sufficient=one.sufficient and alone)

    def _start_together(self, keys: Sequence[str], more: Mapping[str, int]) -> bool:
        """Return whether these pods, and numbers of copies of pods by key, find nodes."""
        state = self._handle.state
        members = [(key, *state.unbound[key]) for key in keys if key in state.unbound]
        members += [
            (f"{key}+{n}", *state.unbound[key])
            for key, count in more.items()
            for n in range(count)
            if key in state.unbound
        ]
        with Transaction(state) as transaction:
            copies = [key for key in state.unbound if "+" in key]  # no name of a pod has one
            pending = (key for key, *_ in members)  # members with a node keep it
            for key in (*pending, *copies):  # where the gang was tried as if it were complete
                if (placed := state.pods.by_key.get(key)) is not None:
                    transaction.displace(placed)
            return all(self._place(transaction, *member) for member in members)

    def _place(self, transaction: Transaction, key: str, pod: Pod, pod_class: PodClass) -> bool:
        """Place a pod in the transaction if a node fits."""
        choice = self._choose(pod, pod_class)
        if not isinstance(choice, NodeChoice):
            return False
        transaction.assume(key, pod, pod_class, choice.row, choice.allocation)
        return True

    def _nominations(self) -> NominatedPods:
        nominator, classes = self._handle.nominator, self._handle.state.classes
        return {
            node: [(pod, classes.of(pod)) for pod in nominator.on_node(node)]
            for node in nominator.nodes()
        }

    def _gates(self, is_tried_as_gang: bool) -> list[Cause]:
        """Return the causes that gate the pod; another member as representative is none."""
        gangs = {active.name for active in self._profile.gangs} if is_tried_as_gang else set()
        gates = []
        for active in self._profile.pre_enqueue:
            refusal = active.plugin.pre_enqueue(self._queued.pod, self._handle.state.objects)
            if refusal is not None and active.name not in gangs:
                gates.append(Cause(active.name, refusal.reason))
        return gates

    def _place_gang(self, transaction: Transaction) -> "_GangDryRun | None":
        """Place as many members of the pod's gang as fit; return the members left.

        Return None if the pod is scheduled individually, or its incomplete gang would fit once
        complete.  The result does not depend on the explained member: members have their own order,
        and an unplaced one takes no place from others.  If all fit, the pod itself is left.
        """
        active = next(iter(self._profile.gangs), None)
        pod, state = self._queued.pod, self._handle.state
        if active is None or active.plugin.gangs.starts_alone(pod):
            return None
        cache: GangCache = active.plugin.gangs
        if cache.shortage(pod):
            return self._place_short_gang(transaction, cache)
        attempt = cache.attempt(pod)
        keys = [key for key in attempt.members if key in state.unbound]
        keys += [pod.key] if pod.key not in keys else []
        left, in_first_order = self._place_members(transaction, keys, attempt)
        count = len(keys) - len(left)
        verb = "finds" if count == 1 else "find"
        text = f"gang group {attempt.group_id}: {count} of {len(keys)} members {verb} a place"
        if attempt.waiting:
            wait = "waits" if attempt.waiting == 1 else "wait"
            text += f" beside {attempt.waiting} that {wait} for a permit"
        if left:
            text += f"; pod {left[0]} is the next one"
        group = cache.gang_of(pod) if len(attempt.group_id.split(",")) == 1 else None
        members = tuple(state.unbound[key] for key in left or (pod.key,))
        return _GangDryRun(
            members, text, count, group, is_short=bool(left), in_first_order=in_first_order
        )

    def _place_short_gang(self, transaction: Transaction, cache: GangCache) -> "_GangDryRun | None":
        """Place the members of an incomplete gang as if it were complete.

        Members that do not exist yet are copies of the first one.  Return None if all find a
        place or their number is unknown.
        """
        state, own = self._handle.state, cache.gang_of(self._queued.pod)
        missing = _missing_members(cache, own)
        if own is None or own.terms is None or missing is None:
            return None
        feasible = {
            name: sorted(
                key
                for key in cache.gangs[name].members
                if key in state.unbound and key not in state.pods.by_key
            )
            for name in missing
        }
        total = sum(missing.values())
        if total > MOST_MEMBERS or any(
            count and not feasible[name] for name, count in missing.items()
        ):
            return None
        # Members that do not exist have no spec; copies of an existing one are the best guess.
        mark = transaction.mark()
        copies = [
            self._put_copy(transaction, feasible[name][0], number)
            for name, count in missing.items()
            for number in range(count)
        ]
        keys = [*chain.from_iterable(feasible.values()), *copies]
        left, in_first_order = self._place_members(transaction, keys)
        if not left:
            transaction.rollback(mark)
            return None
        outcome = (
            f"{total} more exist{'s' if total == 1 else ''}"
            if total
            else "all scheduling gates are removed"
        )
        count = len(keys) - len(left)
        place = "finds" if count == 1 else "find"
        group_id = own.terms.group_id
        text = (
            f"gang group {group_id}: {count} of {len(keys)} members {place} a place once {outcome}"
        )
        members = tuple(state.unbound[key] for key in left)
        return _GangDryRun(
            members,
            text,
            count,
            None,
            is_short=True,
            in_first_order=in_first_order,
            is_complete=False,
        )

    def _put_copy(self, transaction: Transaction, like: str, number: int) -> str:
        """Add a pending copy of a pod within the transaction; return its key."""
        state = self._handle.state
        pod, pod_class = state.unbound[like]
        meta = pod.metadata
        copy = replace(
            pod, metadata=replace(meta, name=f"{meta.name}+{number}", uid=f"{meta.uid}+{number}")
        )
        state.put_unbound(copy.key, copy, pod_class)
        transaction.note(lambda: state.drop_unbound(copy.key))
        return copy.key

    def _place_members(
        self, transaction: Transaction, keys: Sequence[str], attempt: GangAttempt | None = None
    ) -> tuple[list[str], bool]:
        """Place members; if all fit, those before the explained one.

        ``keys`` are in the order of the attempt, or of the names of an incomplete gang.  Return
        those without a place, and whether as many find one in this order.
        """
        own = self._queued.key
        order, left, in_first_order = self._best_order(keys, attempt)
        for key in (key for key in order if key not in left):
            if not left and key == own:
                break  # it gets the place that it has in this order
            self._place(transaction, key, *self._handle.state.unbound[key])
        return sorted(left), in_first_order

    def _best_order(
        self, keys: Sequence[str], attempt: GangAttempt | None
    ) -> tuple[Sequence[str], list[str], bool]:
        """Return the best of several orders, and the members without a place in it.

        Return as well whether as many find a place in the given order, which the scheduler tries
        first if the gang is complete.  Small members first places many of them, and each kind first
        those that fit few nodes: the scheduler does not try all these orders, so they are no proof
        that the gang starts.
        """
        state = self._handle.state

        def left_over(order: Sequence[str]) -> list[str]:
            with Transaction(state) as trial:
                return [key for key in order if not self._place(trial, key, *state.unbound[key])]

        natural = left_over(keys)
        if not natural:
            return keys, [], True
        best, least = keys, natural
        largest = np.maximum(state.nodes.allocatable.max(axis=1, initial=0), 1)
        classes = {key: state.unbound[key][1] for key in keys}
        size = {
            key: max((amount / float(largest[column]) for column, amount in one.demand), default=0)
            for key, one in classes.items()
        }
        # Packing is order-dependent: small members first place many, and the members of a kind
        # that fits few nodes must come before others take those nodes.
        smallest_first = sorted(keys, key=lambda key: (size[key], key))
        left = left_over(smallest_first)
        if len(left) < len(least):
            best, least = smallest_first, left
        kinds = list(dict.fromkeys(classes[key].id for key in smallest_first))
        for kind in kinds[: MOST_KINDS if len(kinds) > 1 and len(keys) <= MOST_MEMBERS else 0]:
            order = sorted(smallest_first, key=lambda key: classes[key].id != kind)
            left = left_over(order)
            is_lost = attempt is None or attempt.is_lost(k for k in left if k in attempt.members)
            if is_lost and len(left) < len(least):
                best, least = order, left
        return best, least, len(least) == len(natural)


@dataclass(frozen=True, slots=True)
class _GangDryRun:
    """Result of placing the members of a gang in a transaction."""

    left: tuple[tuple[Pod, PodClass], ...]  # unplaced members; the pod itself if all fit
    text: str
    count: int  # placed members
    group: Gang | None  # None: several gangs start together
    is_short: bool  # some members are unplaced
    in_first_order: bool  # the order that the scheduler tries first places as many
    is_complete: bool = True  # False: tried as if missing members existed


def _missing_members(cache: GangCache, own: Gang | None) -> dict[str, int] | None:
    """Return how many members each gang of an incomplete group lacks, gated ones apart.

    None if that is unknown, as in a tree that starts with some of its groups.
    """
    if own is None or own.terms is None:
        return None
    tree = own.terms.tree
    if tree is not None and not tree.required.issuperset(tree.leaf_ids):
        return None
    missing, is_short = dict[str, int](), False
    for name in own.terms.group if tree is None else tree.leaf_ids:
        gang = cache.gangs.get(name)
        if gang is None or gang.terms is None:
            return None
        shortage = gang.terms.min_member - gang.present
        is_short |= shortage > 0
        missing[name] = max(shortage - gang.states[MemberState.BLOCKED], 0)
    return missing if is_short else None


def _is_repeated(gate: Cause, refusals: Sequence[Cause]) -> bool:
    """Return whether a plugin that gates the pod also refuses it for the same reason."""
    return any(
        gate.reason == one.reason and set(gate.plugins) <= set(one.plugins) for one in refusals
    )


def _summary(question: Question, reports: tuple[CauseReport, ...], node: str, gang: str) -> str:
    """Return a one-line summary."""
    if node:
        return f"{node} takes it now"
    everywhere = [cause.reason for cause in reports if not cause.nodes]
    decisive = [c for c in reports if c.nodes and c.decisive]
    parts = list(everywhere)
    if question.obstacles.rejected.all() and len(question.obstacles.rows):
        listed = ", ".join(f"{c.nodes} {c.reason}" for c in decisive)
        parts.append(f"none of {len(question.obstacles.rows)} nodes takes it: {listed}")
    return "; ".join(filter(None, (gang, *parts)))
