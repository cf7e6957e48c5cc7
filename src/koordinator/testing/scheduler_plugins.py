"""Contract suite for scheduler plugins, in and out of tree.

Usage::

    @plugin_contract(MY_PLUGIN)
    def test_my_plugin_keeps_the_contract(check):
        check()

Each check is a function of a ``PluginCase``: a random cluster with some dead rows, pending pods,
and a plugin built for it.  The ``example`` of the plugin's spec has the arguments, labels and
objects that the plugin needs to have an effect, and is merged into these clusters.  A plugin
without an effect in all of them fails.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from koordinator.api.codec import apply_merge_patch, decode_object, to_manifest
from koordinator.api.defaults import with_defaults
from koordinator.api.kubescheduler import decode_args
from koordinator.api.meta import JsonObject, KubeObject
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.foundation.arrays import IntArray
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.contract import (
    REFUSED,
    UNKNOWN,
    ActivePlugin,
    NodeStates,
    PluginExample,
    PluginSpec,
    Reads,
    Refusal,
    Shortlist,
)
from koordinator.scheduler.diagnosis import reasons_of
from koordinator.scheduler.ingest import Ingest
from koordinator.scheduler.queue.hints import HintTable, Wake
from koordinator.scheduler.queue.queued_pod import QueuedPod
from koordinator.scheduler.rules.usage_kernels import judgements
from koordinator.scheduler.snapshot import ClusterState, PodClass, Snapshot
from koordinator.testing.changes import apply, changes_of
from koordinator.testing.strategies import clusters, pods
from koordinator.testing.worlds import placed_on, world

Args = Mapping[str, Any]
Worlds = tuple[st.SearchStrategy[list[KubeObject]], st.SearchStrategy[Pod]]

#: Parts of a pod's spec that are exchanged between pods to find pods of equal ``key``.
PARTS = (
    "containers",
    "volumes",
    "priority",
    "affinity",
    "node_selector",
    "tolerations",
    "topology_spread_constraints",
)
EXAMPLES = 12
MAX_EXAMPLES = 60  # drawn until the plugin has an effect

#: Namespace of the additional placed pods ``0``, ``1`` …; an example may refer to these names.
COPIES = "more"

NEVER_REJECTS, NEVER_PREFERS = "never rejects a node or pod", "gives all nodes the same score"


@dataclass(frozen=True)
class PluginCase:
    """Plugin with a cluster and pods to check it on."""

    spec: PluginSpec[Any]
    args: Args
    objects: Sequence[KubeObject]
    removed: frozenset[str]  # deleted nodes
    order: Sequence[int]  # of the nodes, for a second cluster
    pods: Sequence[Pod]
    rows: Sequence[int]  # some rows, repeats allowed

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        """Print only names when Hypothesis shows a failing case."""
        named = ", ".join(f"{obj.KIND} {obj.metadata.name}" for obj in self.objects)
        printer.text(f"PluginCase({self.spec.name} on {named})")

    def state(self, objects: Sequence[KubeObject] | None = None) -> ClusterState:
        """Build the cluster; removed nodes leave a dead row."""
        state = world(*(self.objects if objects is None else objects))
        for name in self.removed & state.nodes.rows.keys():
            state.drop_node(name)
        state.advance(self.spec.example.now_s)
        return state

    def plugin(self, state: ClusterState) -> Any:
        args = decode_args(self.spec.args, dict(self.args), "args", "test")
        return self.spec.build(args, state.axis)

    def build(
        self, objects: Sequence[KubeObject] | None = None
    ) -> tuple[ClusterState, Any, list[PodClass]]:
        """Return a new cluster, a new plugin, and the pods as the plugin sees them."""
        state = self.state(objects)
        return state, self.plugin(state), [state.classes.of(pod) for pod in self.pods]

    @functools.cached_property
    def shared(self) -> tuple[ClusterState, Any, list[PodClass]]:
        """Plugin that ``build`` returned once, for checks that change nothing in it.

        ``check_pure`` proves that asking changes nothing.
        """
        return self.build()

    @property
    def filters(self) -> bool:
        return hasattr(self.spec.plugin_type, "filter")

    @property
    def scores(self) -> bool:
        return any(hasattr(self.spec.plugin_type, m) for m in ("score", "score_among"))

    @property
    def reads(self) -> Reads:
        """Scope of the plugin's reads, as declared by its class."""
        reads: Reads = vars(self.spec.plugin_type).get("reads") or self.spec.plugin_type.reads  # type: ignore[attr-defined] # of every plugin
        return reads

    @property
    def is_local(self) -> bool:
        """Whether the plugin evaluates each row independently."""
        return self.reads is not Reads.CLUSTER


PluginCheck = Callable[[PluginCase], None]


# -- evaluation ------------------------------------------------------------------------------


def seen_by(plugin: Any, state: ClusterState, pod: PodClass) -> Snapshot:
    """Return the snapshot for a pod, with the reservations that the plugin may restore."""
    snapshot = Snapshot(state)
    return (
        snapshot.with_restorable(plugin.restorable(snapshot, pod))
        if hasattr(plugin, "restorable")
        else snapshot
    )


def verdicts(plugin: Any, state: ClusterState, pod: PodClass) -> dict[str, tuple[list[str], bool]]:
    """Return ``{node: (reasons in alphabetical order, unresolvable)}`` of the rejected nodes."""
    snapshot = seen_by(plugin, state, pod)
    rejections = plugin.filter(snapshot, pod)
    never = np.broadcast_to(rejections.unresolvable, len(snapshot))
    return {
        name: (sorted(reasons_of(rejections, row)), bool(never[row]))
        for name, row in state.nodes.rows.items()
        if rejections.codes[row]
    }


def accepted(plugin: Any, state: ClusterState, pod: PodClass) -> set[str]:
    """Return the nodes that the plugin, which filters, accepts for a pod."""
    snapshot, active = seen_by(plugin, state, pod), ActivePlugin.of("", plugin)
    nodes = set(state.nodes.rows)
    if not active.applies(pod):
        return nodes
    if "prefilter" in active.has and active.hints.prefilters(snapshot, pod):
        answer = plugin.prefilter(snapshot, pod)
        if isinstance(answer, Refusal):
            return set()
        nodes &= answer.nodes if isinstance(answer, Shortlist) else nodes
    if not active.hints.filters(snapshot, pod):
        return nodes
    return nodes - verdicts(plugin, state, pod).keys()


def final_scores(plugin: Any, state: ClusterState, pod: PodClass) -> IntArray:
    """Return the normalized scores, with all living nodes feasible."""
    snapshot = seen_by(plugin, state, pod)
    rows = np.flatnonzero(snapshot.alive)
    if hasattr(plugin, "score_among"):
        raw = plugin.score_among(snapshot, pod, rows)
    else:
        raw = plugin.score(snapshot, pod)[rows]
    final: IntArray = plugin.normalize(raw) if hasattr(plugin, "normalize") and len(rows) else raw
    return final


def evaluate(plugin: Any, state: ClusterState, pod: PodClass) -> list[Any]:
    """Return all results of the plugin for a pod, by node name."""
    snapshot, active = seen_by(plugin, state, pod), ActivePlugin.of("", plugin)
    results: list[Any] = []
    if hasattr(plugin, "prefilter"):
        results.append(plugin.prefilter(snapshot, pod))
    if hasattr(plugin, "filter") and active.hints.filters(snapshot, pod):
        results.append(verdicts(plugin, state, pod))
    scores = hasattr(plugin, "score") or hasattr(plugin, "score_among")
    if scores and active.hints.scores(snapshot, pod):
        names = np.array(snapshot.node_names)[snapshot.alive].tolist()
        results.append(dict(zip(names, final_scores(plugin, state, pod).tolist(), strict=True)))
    return results


def fingerprint(state: ClusterState) -> tuple[Any, ...]:
    """Return a fingerprint of the data that a plugin must not change."""
    nodes, counters = state.nodes, state.pods
    arrays: tuple[npt.NDArray[Any], ...] = (
        nodes.allocatable,
        nodes.requested,
        nodes.nonzero,
        nodes.alive,
        nodes.rank,
        nodes.unschedulable,
        nodes.taint_set,
        nodes.gpus.total,
        nodes.gpus.used,
        nodes.devices.model,
        nodes.numa.policy,
        nodes.numa.bind_policy,
    )
    return (
        [array.tobytes() for array in arrays],
        dict(nodes.rows),
        {port: counts.tobytes() for port, counts in nodes.ports.items()},
        {name: image.present.tobytes() for name, image in nodes.images.items()},
        [(placed.key, placed.row) for placed in counters.by_key.values()],
        (state.usage_log.position, state.node_log.position, state.layout, state.cluster),
        state.objects.total_version,
        {row: dict(nodes.numa.ledger(row).allocations) for row in nodes.rows.values()},
    )


# -- checks ----------------------------------------------------------------------------------


def check_pure(case: PluginCase) -> None:
    """Check that a plugin returns equal results twice and does not change the cluster."""
    state, plugin, classes = case.build()
    before = fingerprint(state)
    for pod in classes:
        results = evaluate(plugin, state, pod)

        assert evaluate(plugin, state, pod) == results
        if case.filters:
            verdicts(plugin, state, pod)  # also where a hint skips it
        if case.scores:
            final_scores(plugin, state, pod)
    assert fingerprint(state) == before
    state.validate()


def check_bounded(case: PluginCase) -> None:
    """One answer per row; only codes with a reason; scores in 0..max_score."""
    state, plugin, classes = case.shared
    for pod in classes:
        snapshot = seen_by(plugin, state, pod)
        if case.filters:
            rejections = plugin.filter(snapshot, pod)
            assert rejections.codes.shape == (len(snapshot),)
            assert (rejections.codes >> len(rejections.reasons) == 0).all()
            assert len(set(rejections.reasons)) == len(rejections.reasons)
        if case.scores:
            scores = final_scores(plugin, state, pod)
            assert ((scores >= 0) & (scores <= case.spec.max_score)).all()


def check_node_order_invariant(case: PluginCase) -> None:
    """Check that the order of nodes and dead rows do not change the results."""
    nodes = [obj for obj in case.objects if isinstance(obj, Node)]
    others = [obj for obj in case.objects if not isinstance(obj, Node)]
    left = [nodes[index] for index in case.order if nodes[index].metadata.name not in case.removed]
    state, plugin, classes = case.shared
    again, other, same = case.build([*left, *others])
    for pod, reordered_pod in zip(classes, same, strict=True):
        assert evaluate(other, again, reordered_pod) == evaluate(plugin, state, pod)


def check_subset_invariant(case: PluginCase) -> None:
    """Check that results for a subset of rows equal the results among all rows."""
    state, plugin, classes = case.shared
    rows = np.array(case.rows, np.int64) % len(state.nodes)
    for pod in classes:
        whole = seen_by(plugin, state, pod)
        if case.filters:
            all_of, some = plugin.filter(whole, pod), plugin.filter(whole[rows], pod)
            never = np.broadcast_to(all_of.unresolvable, len(whole))[rows]
            unresolvable = np.broadcast_to(some.unresolvable, len(rows))
            rejected = some.codes != 0

            assert [reasons_of(some, i) for i in range(len(rows))] == [
                reasons_of(all_of, row) for row in rows
            ]
            assert np.array_equal(unresolvable[rejected], never[rejected])
        if case.scores and case.is_local:
            assert hasattr(plugin, "score"), "only a plugin with Reads.CLUSTER has score_among"
            assert np.array_equal(plugin.score(whole[rows], pod), plugin.score(whole, pod)[rows])


def check_key_covers_inputs(case: PluginCase) -> None:
    """Check that pods with an equal key get equal results."""
    if not case.is_local:
        return
    state, plugin, classes = case.shared
    active = ActivePlugin.of("", plugin)
    seen: dict[object, list[Any]] = {}
    for pod in (*classes, *map(state.classes.of, _mixed(case.pods))):
        snapshot = seen_by(plugin, state, pod)
        key = active.hints.key(pod)
        if case.filters and active.hints.filters(snapshot, pod):
            results = plugin.filter(snapshot, pod).codes.tolist()
            assert seen.setdefault(("filter", key), results) == results
        if case.scores and active.hints.scores(snapshot, pod):
            results = plugin.score(snapshot, pod).tolist()
            assert seen.setdefault(("score", key), results) == results


def check_reads_as_declared(case: PluginCase) -> None:
    """Check that placed pods (``Reads.NODE``) and other nodes (all but CLUSTER) do not matter.

    Other nodes may matter to a plugin whose ``hints`` has a ``version``.
    """
    state, plugin, classes = case.shared
    free = ActivePlugin.of("", plugin).hints.version is not None
    if not case.is_local or (free and case.reads is not Reads.NODE):
        return
    living = list(state.nodes.rows)
    kept = set(living) if free else {living[case.order[0] % len(living)]}
    left = [obj for obj in case.objects if _is_kept(obj, kept, pods=case.reads is not Reads.NODE)]
    again, other, same = case.build(left)
    for pod, other_pod in zip(classes, same, strict=True):
        wants = _wants(plugin, seen_by(plugin, state, pod), pod)
        results, alone = (
            _answers(plugin, state, pod, wants),
            _answers(other, again, other_pod, wants),
        )
        for name in kept:
            assert alone[name] == results[name]


def _is_kept(obj: KubeObject, nodes: set[str], *, pods: bool) -> bool:
    if isinstance(obj, Pod):
        return pods and obj.spec.node_name in nodes
    return not isinstance(obj, Node) or obj.metadata.name in nodes


def _wants(plugin: Any, snapshot: Snapshot, pod: PodClass) -> tuple[bool, bool]:
    """Return whether the plugin filters nodes for a pod, and whether it scores them."""
    active = ActivePlugin.of("", plugin)
    return (
        hasattr(plugin, "filter") and active.hints.filters(snapshot, pod),
        hasattr(plugin, "score") and active.hints.scores(snapshot, pod),
    )


def _answers(
    plugin: Any, state: ClusterState, pod: PodClass, wants: tuple[bool, bool]
) -> dict[str, tuple[Any, ...]]:
    """Return reasons and raw scores by node, for the selected results."""
    snapshot, (filters, scores) = seen_by(plugin, state, pod), wants
    rejected = verdicts(plugin, state, pod) if filters else {}
    raw = plugin.score(snapshot, pod) if scores else np.zeros(len(snapshot), np.int64)
    return {
        name: (rejected.get(name, ([], False))[0], int(raw[row]))
        for name, row in state.nodes.rows.items()
    }


def check_skipping_depends_on_the_pod(case: PluginCase) -> None:
    """Check that the hints of a local plugin are the same on an empty cluster."""
    if not case.is_local:
        return
    state, plugin, classes = case.shared
    active, present, absent = (
        ActivePlugin.of("", plugin),
        Snapshot(state),
        Snapshot(ClusterState(state.axis)),
    )
    for pod in classes:
        assert active.hints.filters(present, pod) == active.hints.filters(absent, pod)
        assert active.hints.scores(present, pod) == active.hints.scores(absent, pod)


def check_skipped_prefilter_rejects_nothing(case: PluginCase) -> None:
    """Check that ``prefilter`` rejects no pod for which the hint ``prefilters`` is False."""
    state, plugin, classes = case.shared
    active = ActivePlugin.of("", plugin)
    for pod in classes if hasattr(plugin, "prefilter") else ():
        snapshot = seen_by(plugin, state, pod)
        if not active.hints.prefilters(snapshot, pod):
            assert not isinstance(plugin.prefilter(snapshot, pod), Refusal)


def check_skipped_filter_rejects_nothing(case: PluginCase) -> None:
    """With ``filters`` or ``concerns`` False: it is a short cut, not another rule."""
    state, plugin, classes = case.shared
    hints = ActivePlugin.of("", plugin).hints
    for pod in classes if case.filters else ():
        snapshot = seen_by(plugin, state, pod)
        if not (hints.filters(snapshot, pod) and hints.concerns(snapshot, pod)):
            assert verdicts(plugin, state, pod) == {}


def check_ignored_pods_are_unaffected(case: PluginCase) -> None:
    """Check that pods to which the plugin does not apply are not refused, filtered or scored."""
    state, plugin, classes = case.shared
    active = ActivePlugin.of("", plugin)
    for pod in classes if hasattr(plugin, "applies") else ():
        if plugin.applies(pod):
            continue
        snapshot = seen_by(plugin, state, pod)
        assert not hasattr(plugin, "prefilter") or plugin.prefilter(snapshot, pod) is None
        results = active.hints.overrides()
        assert "filters" not in results or not active.hints.filters(snapshot, pod)
        assert "scores" not in results or not active.hints.scores(snapshot, pod)
        assert not hasattr(plugin, "prefer_nodes") or not plugin.prefer_nodes(snapshot, pod)


def check_skipped_score_is_constant(case: PluginCase) -> None:
    """Check that all nodes have equal scores where the hint ``scores`` or ``concerns`` is False."""
    state, plugin, classes = case.shared
    hints = ActivePlugin.of("", plugin).hints
    for pod in classes if case.scores else ():
        snapshot = seen_by(plugin, state, pod)
        if not (hints.scores(snapshot, pod) and hints.concerns(snapshot, pod)):
            assert len(set(final_scores(plugin, state, pod).tolist())) <= 1


def check_reserve_accepts_feasible_nodes(case: PluginCase) -> None:
    """``reserve`` accepts a pod on every node that the filter accepts.

    Preemption and explanations do not see a refusal by ``reserve`` alone.  Pods that may use
    reservations are exempt, as their result depends on the nominated reservation.
    """
    if not hasattr(case.spec.plugin_type, "reserve"):
        return
    state, plugin, classes = case.build()
    active = ActivePlugin.of("", plugin)
    for pod in classes:
        snapshot = seen_by(plugin, state, pod)
        if snapshot.restorable is not None or not active.hints.filters(snapshot, pod):
            continue
        if hasattr(plugin, "prefilter") and plugin.prefilter(snapshot, pod) is not None:
            continue
        rejected = plugin.filter(snapshot, pod).codes if case.filters else np.zeros(len(snapshot))
        for row in np.flatnonzero(snapshot.alive & (rejected == 0)):
            taken = plugin.reserve(snapshot[np.array([row])], pod, None)
            assert not isinstance(taken, Refusal), (snapshot.node_names[row], taken.reason)


def check_usage_follows_sums(case: PluginCase) -> None:
    """``Reads.USAGE``: pods added to a view give the results of placed pods.

    Pods that the plugin distinguishes from others of their class are exempt.
    """
    if case.reads is not Reads.USAGE:
        return
    state, plugin, classes = case.shared
    row = np.flatnonzero(state.nodes.alive)[:1]
    for index, pod in enumerate(classes):
        later, other, same = case.build()
        keys: list[str] = []
        for times in range(3):
            if times:
                keys.append(f"{COPIES}/{len(keys)}")
                later.place(keys[-1], case.pods[index], same[index], int(row[0]))
            if hasattr(plugin, "distinguishes") and plugin.distinguishes(Snapshot(state), keys):
                continue
            view, later_view = (
                Snapshot(state)[row].after(pod, np.array([times])),
                Snapshot(later)[row],
            )
            if case.filters:
                assert plugin.filter(view, pod).codes == other.filter(later_view, same[index]).codes
            if case.scores:
                assert plugin.score(view, pod) == other.score(later_view, same[index])


def check_arithmetic_matches_plugin(case: PluginCase) -> None:
    """Check that hints for bulk evaluation equal the methods that they replace."""
    state, plugin, classes = case.shared
    active, snapshot = ActivePlugin.of("", plugin), Snapshot(state)
    for pod in classes:
        if active.hints.compares is not None:
            fits, comparisons = (
                np.ones(len(snapshot), bool),
                judgements([active.hints.compares(pod)], ()),
            )
            snapshot.judge(comparisons, fits, np.zeros(len(snapshot), np.int64))
            accepted, more = plugin.filter(snapshot, pod).codes == 0, active.hints.rejects_otherwise
            both = fits & accepted if more is not None and more(pod) else fits
            assert np.array_equal(both, accepted)
        formula = active.formula(snapshot, pod)
        if formula is not None and active.hints.scores(snapshot, pod):
            assert np.array_equal(snapshot.score(formula), plugin.score(snapshot, pod))
        if active.hints.judge is not None and active.hints.filters(snapshot, pod):
            fits, total = np.arange(len(snapshot)) % 3 > 0, np.arange(len(snapshot))
            accepted = fits & (plugin.filter(snapshot, pod).codes == 0)
            expected = total + 2 * plugin.score(snapshot, pod)
            active.hints.judge(snapshot, pod, 2, fits, total)
            assert np.array_equal(fits, accepted)
            assert np.array_equal(total[fits], expected[fits])
        if active.hints.rate is not None and active.hints.filters(snapshot, pod):
            fits = np.arange(len(snapshot)) % 3 > 0
            accepted = fits & (plugin.filter(snapshot, pod).codes == 0)
            raw = active.hints.rate(snapshot, pod, fits)
            assert np.array_equal(fits, accepted)
            assert np.array_equal(raw[fits], plugin.score(snapshot, pod)[fits])
        if active.hints.states is not None and active.hints.filters(snapshot, pod):
            _check_states(active.hints.states(snapshot), plugin, snapshot, pod)


def _check_states(states: NodeStates, plugin: Any, snapshot: Snapshot, pod: PodClass) -> None:
    """Check ratings against filter and score, and allocations against reserve."""
    numbers, column = states.refresh(snapshot), states.column(snapshot, pod)
    if column is None:
        return
    states.rate(column)
    ratings = states.ratings[numbers, column]
    accepted = plugin.filter(snapshot, pod).codes == 0
    assert np.array_equal(ratings >= 0, accepted)
    assert np.array_equal(ratings[accepted], plugin.score(snapshot, pod)[accepted])
    for row in np.flatnonzero(accepted).tolist():
        at, row_array = numbers[row : row + 1], np.array([row])
        if states.following[at[0], column] == UNKNOWN:
            states.follow(int(at[0]), column)
        expected = plugin.reserve(snapshot[row_array], pod, None)
        if states.following[at[0], column] == REFUSED:
            assert isinstance(expected, Refusal)
        else:
            assert states.results(row_array, at, np.array([column])) == [expected]


def check_helpful_events_wake_pods(case: PluginCase) -> None:
    """Check that an event after which a node is accepted requeues pods that it was rejected for."""
    if not case.filters:
        return
    state, plugin, classes = case.build()
    spec, ingest = case.spec, Ingest(state)
    hints = HintTable({spec.name: [*spec.events, *(event for _, event in spec.gated_events)]})
    remaining = [obj for obj in case.objects if obj.metadata.name not in case.removed]
    for change in changes_of(remaining):
        before = [accepted(plugin, state, pod) for pod in classes]
        event = apply(ingest, state, change)
        for pod, pod_class, known in zip(case.pods, classes, before, strict=True):
            queued = QueuedPod(pod.key, pod, None, 0, 0.0, 0, rejected_by=frozenset((spec.name,)))
            if not accepted(plugin, state, pod_class) <= known:
                assert event is not None, change
                assert hints.wake_for(queued, event) is not Wake.NO, event


CHECKS: tuple[PluginCheck, ...] = (
    check_pure,
    check_bounded,
    check_node_order_invariant,
    check_subset_invariant,
    check_key_covers_inputs,
    check_reads_as_declared,
    check_skipping_depends_on_the_pod,
    check_skipped_prefilter_rejects_nothing,
    check_skipped_filter_rejects_nothing,
    check_ignored_pods_are_unaffected,
    check_skipped_score_is_constant,
    check_reserve_accepts_feasible_nodes,
    check_usage_follows_sums,
    check_arithmetic_matches_plugin,
    check_helpful_events_wake_pods,
)


def plugin_contract(
    *specs: PluginSpec[Any],
    args: Mapping[str, Args] | None = None,
    without: Mapping[str, Sequence[PluginCheck]] | None = None,
    worlds: Worlds | None = None,
) -> pytest.MarkDecorator:
    """Parametrize a test by ``check``: call it to run all checks on a plugin.

    ``args`` has arguments by plugin name that replace the example's, ``without`` the checks to
    skip by plugin name.  ``worlds`` are strategies for clusters and pods that replace the
    example's; with them the suite does not require that the plugin has an effect.
    """
    return pytest.mark.parametrize(
        "check",
        [
            pytest.param(
                _check(
                    spec,
                    (args or {}).get(spec.name, spec.example.args),
                    [c for c in CHECKS if c not in (without or {}).get(spec.name, ())],
                    worlds or (_example_clusters(spec.example), _example_pods(spec.example)),
                    needs_effect=worlds is None and not spec.example.silent,
                ),
                id=spec.name,
            )
            for spec in specs
        ],
    )


def _drawn(count: int) -> settings:
    return settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        phases=(Phase.generate,),  # shrinking a whole cluster takes minutes and is little shorter
        report_multiple_bugs=False,
        suppress_health_check=[HealthCheck.too_slow],
    )


def _check(
    spec: PluginSpec[Any],
    args: Args,
    checks: Sequence[PluginCheck],
    worlds: Worlds,
    *,
    needs_effect: bool,
) -> Callable[[], None]:
    effects: set[str] = set()

    def collect(case: PluginCase) -> None:
        if len(effects) < len(_points(spec)):
            effects.update(_effects(case))

    @_drawn(EXAMPLES)
    @given(case=_cases(spec, args, worlds))
    def draw(case: PluginCase) -> None:
        for one in checks:
            try:
                one(case)
            except Exception as error:
                error.add_note(f"{spec.name} breaks {one.__name__}: {one.__doc__}")
                raise
        collect(case)

    @_drawn(MAX_EXAMPLES)
    @given(case=_cases(spec, args, worlds))
    def draw_more(case: PluginCase) -> None:
        collect(case)

    def check() -> None:
        effects.clear()
        draw()
        if needs_effect and len(effects) < len(_points(spec)):
            draw_more()
        silent = [point for point in _points(spec) if point not in effects]
        assert not needs_effect or not silent, (
            f"{spec.name} {' and '.join(silent)} in random clusters, which "
            "prove nothing: give its PluginSpec an example (arguments, nodes, pods …) where it does"
        )

    return check if _points(spec) else lambda: None


def _points(spec: PluginSpec[Any]) -> list[str]:
    """Return the messages for the effects that a plugin must show."""
    has = spec.plugin_type
    scores = hasattr(has, "score") or hasattr(has, "score_among")
    return [NEVER_REJECTS] * hasattr(has, "filter") + [NEVER_PREFERS] * scores


def _effects(case: PluginCase) -> set[str]:
    state, plugin, classes = case.shared
    active, effects = ActivePlugin.of("", plugin), set()
    for pod in classes:
        snapshot = seen_by(plugin, state, pod)
        if not active.applies(pod):
            continue
        refused = "prefilter" in active.has and plugin.prefilter(snapshot, pod)
        filters = case.filters and active.hints.filters(snapshot, pod)
        if isinstance(refused, Refusal) or (filters and verdicts(plugin, state, pod)):
            effects.add(NEVER_REJECTS)
        scores = case.scores and active.hints.scores(snapshot, pod)
        if scores and len(set(final_scores(plugin, state, pod).tolist())) > 1:
            effects.add(NEVER_PREFERS)
    return effects


# -- worlds ----------------------------------------------------------------------------------


@st.composite
def _example_clusters(draw: st.DrawFn, example: PluginExample) -> list[KubeObject]:
    objects: list[KubeObject] = []
    for obj in draw(clusters()):
        parts = {Node: example.nodes, Pod: example.pods}.get(type(obj), ())
        if not parts:
            objects.append(obj)
            continue
        part = draw(st.sampled_from(parts))
        merged = _merged(obj, part)
        on = obj.spec.node_name if isinstance(obj, Pod) else ""
        objects.append(placed_on(merged, on) if isinstance(merged, Pod) else merged)
    names = [obj.metadata.name for obj in objects if isinstance(obj, Node)]
    for name in names if example.node_objects else ():
        own = draw(st.sampled_from(example.node_objects))
        objects.append(
            with_defaults(decode_object(apply_merge_patch(own, {"metadata": {"name": name}})))
        )
    return objects + [with_defaults(decode_object(dict(one))) for one in example.objects]


@st.composite
def _example_pods(draw: st.DrawFn, example: PluginExample) -> Pod:
    drawn = draw(pods())
    merged = _merged(drawn, draw(st.sampled_from(example.pods))) if example.pods else drawn
    assert isinstance(merged, Pod)
    return merged


def _merged(obj: KubeObject, part: JsonObject) -> KubeObject:
    return with_defaults(decode_object(apply_merge_patch(to_manifest(obj), part)))


@st.composite
def _cases(draw: st.DrawFn, spec: PluginSpec[Any], args: Args, worlds: Worlds) -> PluginCase:
    some_clusters, some_pods = worlds
    objects = draw(some_clusters)
    names = [obj.metadata.name for obj in objects if isinstance(obj, Node)]
    return PluginCase(
        spec=spec,
        args=args,
        objects=objects,
        removed=frozenset(draw(st.sets(st.sampled_from(names), max_size=len(names) - 1))),
        order=draw(st.permutations(range(len(names)))),
        pods=draw(st.lists(some_pods, min_size=2, max_size=3)),
        rows=draw(st.lists(st.integers(0, len(names) - 1), max_size=6)),
    )


def _mixed(given_pods: Sequence[Pod]) -> list[Pod]:
    """Return pods with one part of another pod each, so that some are alike to some plugin."""
    mixed = []
    for first in given_pods:
        for second in given_pods:
            if first is second:
                continue
            for part in PARTS:
                spec = msgspec.structs.replace(first.spec, **{part: getattr(second.spec, part)})
                mixed.append(msgspec.structs.replace(first, spec=spec))
            for part in ("labels", "annotations"):
                other = getattr(second.metadata, part)
                metadata = msgspec.structs.replace(first.metadata, **{part: other})
                mixed.append(msgspec.structs.replace(first, metadata=metadata))
    return mixed
