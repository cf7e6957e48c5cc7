"""Question about a pending pod: the pod, the cluster and its obstacles."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from koordinator.api.pod import Pod
from koordinator.foundation.arrays import IntArray
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.contract import (
    AllocationResult,
    ObjectRemedy,
    Profile,
    Reads,
    Refusal,
    SizeRemedies,
    plugins_with,
)
from koordinator.scheduler.cycle.evaluation import NominatedPods, view_for
from koordinator.scheduler.cycle.reserve import reserve
from koordinator.scheduler.cycle.what_if import StateWhatIf
from koordinator.scheduler.explanations.obstacles import Cause, Obstacles, obstacles
from koordinator.scheduler.snapshot import ClusterState, PlacedPod, PodClass, Snapshot
from koordinator.scheduler.transaction import Transaction

MEASURING = "LoadAwareScheduling"  # cannot predict usage without the pods of a node


@dataclass(frozen=True, slots=True)
class Shortages:
    """Shortages of nodes: ``amounts[i, d]`` of the pod's d-th request."""

    amounts: IntArray  # (n, n_requests)
    requested: IntArray  # (n_requests,)
    names: tuple[str, ...]  # (n_requests,)

    def of(self, index: int) -> dict[str, int]:
        """Return the shortages of one node."""
        amounts = zip(self.names, self.amounts[index].tolist(), strict=True)
        return {name: amount for name, amount in amounts if amount > 0}


@dataclass(frozen=True, slots=True)
class Question:
    """Pending pod with its obstacles; rows and indices refer to ``obstacles``."""

    profile: Profile
    state: ClusterState
    pod: Pod
    pod_class: PodClass
    obstacles: Obstacles
    shortages: Shortages  # with all reservations of the pod combined
    order: IntArray  # indices of nodes, nearest first
    _nominated: NominatedPods
    active_profile: Profile  # without plugins that refuse the pod anyway
    _what_if: StateWhatIf  # of those plugins

    def assuming(self, plugins: Collection[str]) -> "Question":
        """Return the question with some filters disabled."""
        active_profile = _without(self.active_profile, plugins)
        what_if = StateWhatIf(active_profile, self.state, self._nominated)
        return replace(self, active_profile=active_profile, _what_if=what_if)

    def takes(self, pod: Pod, row: int, changed: Collection[str]) -> bool:
        """Return whether a node takes another pod in its place.

        Plugins that refuse the pod as a whole are skipped unless it was ``changed`` for them.
        """
        pod_class = self.state.classes.of(pod)
        snapshot = view_for(self.profile, self.state, pod_class)
        passed = self.obstacles.silent - frozenset(changed)
        for active in self.profile.pre_filter:
            if active.name not in passed and isinstance(
                active.plugin.prefilter(snapshot, pod_class), Refusal
            ):
                return False
        active_profile = _without(self.profile, passed)
        what_if = StateWhatIf(active_profile, self.state, self._nominated)
        other = replace(
            self, pod=pod, pod_class=pod_class, active_profile=active_profile, _what_if=what_if
        )
        return other.takes_without(row, ())

    def starts(self, pod: Pod, row: int, removed: Sequence[str] = ()) -> bool:
        """Return whether every plugin accepts a pod on a node without some pods, by key."""
        on_row = self.state.pods.on_row[row]
        with Transaction(self.state) as transaction:
            for key in removed:
                transaction.displace(on_row[key])
            return self.takes(pod, row, self.obstacles.silent)

    def pod_remedies(self, plugin: str, row: int, pod: Pod) -> list[tuple[str, Pod]]:
        """Return changes of a pod with which a plugin accepts a node."""
        answer = self._ask("pod_remedies", plugin, row, pod)
        return answer if isinstance(answer, list) else []

    def hold_remedies(self, row: int) -> list[tuple[str, Pod]]:
        """Return changes of the pod with which it may use a hold on a node."""
        return [
            change
            for active in plugins_with(self.profile.filter, "hold_remedies")
            for change in active.plugin.hold_remedies(
                view_for(self.profile, self.state, self.pod_class)[np.array([row])],
                self.pod_class,
                self.pod,
            )
        ]

    def unusable_holds(self) -> dict[str, str]:
        """Return why the pod may not use the holds that it owns, by name."""
        reasons: dict[str, str] = {}
        for active in plugins_with(self.profile.filter, "unusable_holds"):
            reasons |= active.plugin.unusable_holds(Snapshot(self.state), self.pod_class)
        return reasons

    def reduced_requests(self, plugin: str, row: int) -> list[Mapping[str, int]]:
        """Return requests with which a plugin may accept a node, largest first."""
        return [*self._size_remedies(plugin, row).requests]

    def required_size(self, plugin: str, row: int) -> str:
        """Return the amounts that a node like this one needs for a plugin to accept it."""
        return self._size_remedies(plugin, row).node

    def _size_remedies(self, plugin: str, row: int) -> SizeRemedies:
        answer = self._ask("size_remedies", plugin, row)
        return answer if isinstance(answer, SizeRemedies) else SizeRemedies()

    def nearest(self, rows: IntArray, most: int) -> list[int]:
        """Return the given rows with the least against the pod."""
        ordered: IntArray = self.obstacles.rows[self.order]
        nearest: list[int] = ordered[np.isin(ordered, rows)][:most].tolist()
        return nearest

    def about(self, pod: Pod, pod_class: PodClass) -> "Question":
        """Return the question for another pod with the same refusals."""
        return replace(self, pod=pod, pod_class=pod_class)

    def without_nominated_pods(self) -> "Question":
        """Return the question without nominated pods."""
        return replace(
            self, _nominated={}, _what_if=StateWhatIf(self.active_profile, self.state, {})
        )

    def takes_without(self, row: int, removed: Sequence[str]) -> bool:
        """Return whether a node takes the pod without those pods, by key."""
        on_row = self.state.pods.on_row[row]
        return not self._left(row, [on_row[key] for key in removed])

    def object_remedies(self, plugin: str, row: int) -> Sequence[ObjectRemedy]:
        """Return changes of objects with which a plugin may accept a node."""
        answer = self._ask("object_remedies", plugin, row)
        return answer if isinstance(answer, list) else ()

    def takes_after(self, row: int, remedy: ObjectRemedy) -> bool:
        """Return whether a node takes the pod after a change of objects and the end of pods."""
        with Transaction(self.state) as transaction:
            for key in remedy.pods:
                if key in self.state.pods.by_key:
                    transaction.displace(self.state.pods.by_key[key])
            for item in remedy.objects:
                transaction.put_object(item)
            return not self._left(row, ())

    def detail(self, plugin: str, row: int) -> str:
        """Return a plugin's details about a node; empty without any."""
        return self._ask_text("detail", plugin, row)

    @property
    def has_required_pod_affinity(self) -> bool:
        """Whether the pod has required pod affinity."""
        return bool(self.pod.spec.required_pod_affinity)

    def shortfall_of(self, index: int) -> dict[str, int]:
        """Return the missing amounts of the pod's requests on a node, by resource.

        Resources that no node has are left out.
        """
        for active in self.profile.filter:
            answer = self._ask("node_shortfall", active.name, int(self.obstacles.rows[index]))
            if isinstance(answer, dict):
                return {name: n for name, n in answer.items() if name in self.shortages.names}
        return self.shortages.of(index)

    def node_remedy(self, plugin: str, row: int) -> str:
        """Return the change of a node with which a plugin accepts it; empty without one."""
        return self._ask_text("node_remedy", plugin, row)

    def is_blocked_cluster_wide(self, row: int) -> bool:
        """Return whether pods on other nodes would also reject a new node like this one."""
        return any(
            bool(self._ask("is_blocked_cluster_wide", cause.plugin, row))
            for cause in self.obstacles.against(int(np.flatnonzero(self.obstacles.rows == row)[0]))
        )

    def depends_on_others(self, causes: Collection[Cause]) -> bool:
        """Return whether some causes depend on more than the pods of a node.

        These are pods on other nodes, and measured usage to which its pods contribute.
        """
        wide = {a.name for a in self.profile.filter if a.plugin.reads is Reads.CLUSTER}
        return any(cause.plugin in {MEASURING, *wide} for cause in causes)

    def _ask_text(self, hook: str, plugin: str, row: int) -> str:
        return str(self._ask(hook, plugin, row) or "")

    def _ask(self, hook: str, plugin: str, row: int, *more: object) -> object:
        """Call a filter's method for a node with the pod's holds restored; None without it."""
        for active in self.profile.filter:
            if active.name == plugin and hook in active.has:
                method = getattr(active.plugin, hook)
                view = view_for(self.profile, self.state, self.pod_class)[np.array([row])]
                with view.restoring():
                    answer: object = method(view, self.pod_class, *more)
                return answer
        return None

    def refusal_detail(self, plugins: Collection[str]) -> str:
        """Return the details of plugins that refuse the pod independent of nodes."""
        for active in self.profile.pre_filter:
            if active.name in plugins and "refusal_detail" in active.has:
                return active.plugin.refusal_detail(Snapshot(self.state), self.pod_class)
        return ""

    def admitted_with_node(self, row: int) -> bool | None:
        """Return whether a node like this one, large enough, ends all refusals; None: unknown."""
        nodes, axis = self.state.nodes, self.state.axis
        amounts = dict(zip(axis.names, nodes.allocatable[:, row].tolist(), strict=False))
        for column, amount in self.pod_class.demand:
            amounts[axis.names[column]] = max(amounts.get(axis.names[column], 0), amount)
        refusing = {name for cause in self.obstacles.refusals for name in cause.plugins}
        answers = [
            active.plugin.admits_with_node(Snapshot(self.state), self.pod_class, amounts)
            if "admits_with_node" in active.has
            else None
            for active in self.profile.pre_filter
            if active.name in refusing
        ]
        if False in answers:
            return False
        return None if None in answers else True

    def left_when_empty(self, row: int) -> tuple[str, ...]:
        """Return why a node rejects the pod even when empty; nothing if it fits."""
        return self._left(row, list(self.state.pods.on_row[row].values()))

    def left_without_others(self, row: int) -> tuple[str, ...]:
        """Return why a node with only the pod's reservations rejects it."""
        reasons = self.left_when_empty(row)
        for kept in sorted(self.reserved(row)):
            if not reasons:
                break
            pods = [p for key, p in self.state.pods.on_row[row].items() if key != kept]
            reasons = self._left(row, pods)
        return reasons

    def _left(self, row: int, removed: Sequence[PlacedPod]) -> tuple[str, ...]:
        """Return why a node rejects the pod without some of its pods, including Reserve."""
        reasons = self._what_if.why_not(self.pod_class, row, removed)
        if reasons:
            return reasons
        with Transaction(self.state) as transaction:
            for placed in removed:
                transaction.displace(placed)
            snapshot = view_for(self.active_profile, self.state, self.pod_class)
            reserved = reserve(self.active_profile, snapshot, self.pod_class, row)
        return () if isinstance(reserved, AllocationResult) else (reserved[1].reason,)

    def reserved(self, row: int) -> frozenset[str]:
        """Return the keys of holds on a node that the pod may use."""
        restorable = view_for(self.profile, self.state, self.pod_class).restorable
        return (
            frozenset(hold.placed.key for hold in restorable.at(row)) if restorable else frozenset()
        )

    def resolvable_rows(self, most: int) -> list[int]:
        """Return the nearest nodes on which evictions could help."""
        order = self.order
        rows: list[int] = self.obstacles.rows[order[~self.obstacles.never[order]][:most]].tolist()
        return rows

    def first_row_when_empty(self, most: int) -> int | None:
        """Return the first of the nearest nodes that takes the pod without other pods."""
        for row in self.resolvable_rows(most):
            if not self.left_without_others(row):
                return row
        return None


def question_about(
    profile: Profile, state: ClusterState, pod: Pod, pod_class: PodClass, nominated: NominatedPods
) -> Question:
    """Return the question about a pod; ``nominated`` are the nominated pods to respect."""
    known_obstacles = obstacles(profile, state, pod_class, nominated)
    with view_for(profile, state, pod_class).restoring():
        shortages = _shortages(state, pod_class, known_obstacles.rows)
    order = _by_nearness(known_obstacles, shortages)
    active_profile = _without(profile, known_obstacles.silent)
    what_if = StateWhatIf(active_profile, state, nominated)
    return Question(
        profile,
        state,
        pod,
        pod_class,
        known_obstacles,
        shortages,
        order,
        nominated,
        active_profile,
        what_if,
    )


def _without(profile: Profile, plugins: Collection[str]) -> Profile:
    """Return the profile without some plugins in Filter and Reserve."""
    filters, reserves = (
        tuple(active for active in point if active.name not in plugins)
        for point in (profile.filter, profile.reserve)
    )
    return replace(profile, filter=filters, reserve=reserves)


def _shortages(state: ClusterState, pod: PodClass, rows: IntArray) -> Shortages:
    nodes, names = state.nodes, state.axis.names
    demand = [(c, amount) for c, amount in pod.demand if nodes.allocatable[c].any()]
    columns = np.array([c for c, _ in demand], np.int64)
    requested = np.array([amount for _, amount in demand], np.int64)
    free = nodes.allocatable[columns][:, rows] - nodes.requested[columns][:, rows]
    missing = np.maximum(requested[:, None] - free, 0).T
    for column, _ in pod.served:  # claims report shortages on nodes without the resource
        missing[np.ix_(nodes.allocatable[column, rows] == 0, columns == column)] = 0
    return Shortages(missing, requested, tuple(names[c] for c in columns.tolist()))


def _by_nearness(against: Obstacles, shortages: Shortages) -> IntArray:
    """Return the order of the nodes, nearest first.

    Causes that evictions cannot remove count most, then the number of causes, then the shortage as
    a share of the requests.
    """
    part = (shortages.amounts / np.maximum(shortages.requested, 1)).sum(axis=1)
    order: IntArray = np.lexsort((against.rows, part, against.blocked.sum(axis=0), against.never))
    return order
