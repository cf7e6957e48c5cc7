"""What every scheduler plugin must keep to, whoever wrote it.

A plugin of your own runs through the same suite::

    @plugin_contract(MY_PLUGIN)
    def test_my_plugin_keeps_the_contract(check):
        check()

Each check is a function of an ``Exam``: a random cluster (some rows of it dead), pods that want a
place on it, and a plugin built for it.  What a plugin needs before it says anything (arguments,
labels, objects) stands in the ``example`` of its spec and is laid over these clusters; a plugin
that stays silent in all of them fails.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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
from koordinator.scheduler.contract import ActivePlugin, PluginExample, PluginSpec, Reads, Refusal
from koordinator.scheduler.diagnosis import reasons_of
from koordinator.scheduler.rules.usage_kernels import judgements
from koordinator.scheduler.snapshot import ClusterState, PodClass, Snapshot
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
MOST_EXAMPLES = 60  # until it speaks


@dataclass(frozen=True)
class Exam:
    """A plugin and what it is asked about."""

    spec: PluginSpec[Any]
    args: Args
    objects: Sequence[KubeObject]
    gone: frozenset[str]  # nodes that were there before
    order: Sequence[int]  # of the nodes, for a second cluster
    pods: Sequence[Pod]
    rows: Sequence[int]  # some rows, repeats allowed

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        """Print names alone, as Hypothesis shows an exam that a plugin fails."""
        named = ", ".join(f"{obj.KIND} {obj.metadata.name}" for obj in self.objects)
        printer.text(f"Exam({self.spec.name} on {named})")

    def state(self, objects: Sequence[KubeObject] | None = None) -> ClusterState:
        """Build the cluster; nodes that are gone leave a dead row."""
        state = world(*(self.objects if objects is None else objects))
        for name in self.gone & state.nodes.rows.keys():
            state.drop_node(name)
        state.advance(self.spec.example.now_s)
        return state

    def plugin(self, state: ClusterState) -> Any:
        args = decode_args(self.spec.args, dict(self.args), "args", "test")
        return self.spec.build(args, state.axis)

    def sit(
        self, objects: Sequence[KubeObject] | None = None
    ) -> tuple[ClusterState, Any, list[PodClass]]:
        """Return a new cluster, a new plugin, and the pods as the plugin sees them."""
        state = self.state(objects)
        return state, self.plugin(state), [state.classes.of(pod) for pod in self.pods]

    @property
    def filters(self) -> bool:
        return hasattr(self.spec.plugin_type, "filter")

    @property
    def scores(self) -> bool:
        return any(hasattr(self.spec.plugin_type, m) for m in ("score", "score_among"))

    @property
    def reads(self) -> Reads:
        """What the plugin looks at, as its class says."""
        found: Reads = vars(self.spec.plugin_type).get("reads") or self.spec.plugin_type.reads  # type: ignore[attr-defined] # of every plugin
        return found

    @property
    def is_local(self) -> bool:
        """Whether every row stands alone."""
        return self.reads is not Reads.CLUSTER


Check = Callable[[Exam], None]

#: Namespace of the pods ``0``, ``1`` … that are placed on top of those of an example, which may
#: say something of them by these names.
COPIES = "more"


# -- asking ----------------------------------------------------------------------------------


def seen_by(plugin: Any, state: ClusterState, pod: PodClass) -> Snapshot:
    """Return the cluster as the plugin sees it for a pod, with the holds that it may restore."""
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


def final_scores(plugin: Any, state: ClusterState, pod: PodClass) -> IntArray:
    """Return the scores as they count, with all living nodes feasible."""
    snapshot = seen_by(plugin, state, pod)
    rows = np.flatnonzero(snapshot.alive)
    if hasattr(plugin, "score_among"):
        raw = plugin.score_among(snapshot, pod, rows)
    else:
        raw = plugin.score(snapshot, pod)[rows]
    final: IntArray = plugin.normalize(raw) if hasattr(plugin, "normalize") and len(rows) else raw
    return final


def says(plugin: Any, state: ClusterState, pod: PodClass) -> list[Any]:
    """Return everything that the plugin says about a pod, by node name."""
    snapshot, active = seen_by(plugin, state, pod), ActivePlugin.of("", plugin)
    said: list[Any] = []
    if hasattr(plugin, "prefilter"):
        said.append(plugin.prefilter(snapshot, pod))
    if hasattr(plugin, "filter") and active.hints.filters(snapshot, pod):
        said.append(verdicts(plugin, state, pod))
    scores = hasattr(plugin, "score") or hasattr(plugin, "score_among")
    if scores and active.hints.scores(snapshot, pod):
        names = np.array(snapshot.node_names)[snapshot.alive].tolist()
        said.append(dict(zip(names, final_scores(plugin, state, pod).tolist(), strict=True)))
    return said


def fingerprint(state: ClusterState) -> tuple[Any, ...]:
    """Return what a plugin must not change."""
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


def check_pure(exam: Exam) -> None:
    """Asked twice, a plugin says the same twice, and the cluster is as before."""
    state, plugin, classes = exam.sit()
    before = fingerprint(state)
    for pod in classes:
        said = says(plugin, state, pod)

        assert says(plugin, state, pod) == said
        if exam.filters:
            verdicts(plugin, state, pod)  # also where it is left out
        if exam.scores:
            final_scores(plugin, state, pod)
    assert fingerprint(state) == before
    state.validate()


def check_bounded(exam: Exam) -> None:
    """One answer per row; only codes with a reason; scores in 0..max_score."""
    state, plugin, classes = exam.sit()
    for pod in classes:
        snapshot = seen_by(plugin, state, pod)
        if exam.filters:
            rejections = plugin.filter(snapshot, pod)
            assert rejections.codes.shape == (len(snapshot),)
            assert (rejections.codes >> len(rejections.reasons) == 0).all()
            assert len(set(rejections.reasons)) == len(rejections.reasons)
        if exam.scores:
            scores = final_scores(plugin, state, pod)
            assert ((scores >= 0) & (scores <= exam.spec.max_score)).all()


def check_blind_to_node_order(exam: Exam) -> None:
    """Give the nodes the same when they are listed in another order, without dead rows."""
    nodes = [obj for obj in exam.objects if isinstance(obj, Node)]
    others = [obj for obj in exam.objects if not isinstance(obj, Node)]
    left = [nodes[index] for index in exam.order if nodes[index].metadata.name not in exam.gone]
    state, plugin, classes = exam.sit()
    again, other, same = exam.sit([*left, *others])
    for pod, there in zip(classes, same, strict=True):
        assert says(other, again, there) == says(plugin, state, pod)


def check_subset_invariant(exam: Exam) -> None:
    """Asked about some rows, it says what it says about them among all."""
    state, plugin, classes = exam.sit()
    rows = np.array(exam.rows, np.int64) % len(state.nodes)
    for pod in classes:
        whole = seen_by(plugin, state, pod)
        if exam.filters:
            all_of, some = plugin.filter(whole, pod), plugin.filter(whole[rows], pod)
            never = np.broadcast_to(all_of.unresolvable, len(whole))[rows]
            found = np.broadcast_to(some.unresolvable, len(rows))
            rejected = some.codes != 0

            assert [reasons_of(some, i) for i in range(len(rows))] == [
                reasons_of(all_of, row) for row in rows
            ]
            assert np.array_equal(found[rejected], never[rejected])
        if exam.scores and exam.is_local:
            assert hasattr(plugin, "score"), "only a plugin with Reads.CLUSTER has score_among"
            assert np.array_equal(plugin.score(whole[rows], pod), plugin.score(whole, pod)[rows])


def check_key_is_honest(exam: Exam) -> None:
    """Pods of equal key get equal results: the key has all that the plugin reads."""
    if not exam.is_local:
        return
    state, plugin, classes = exam.sit()
    classes += [state.classes.of(pod) for pod in _mixed(exam.pods)]
    active = ActivePlugin.of("", plugin)
    seen: dict[object, list[Any]] = {}
    for pod in classes:
        snapshot = seen_by(plugin, state, pod)
        key = active.hints.key(pod)
        if exam.filters and active.hints.filters(snapshot, pod):
            said = plugin.filter(snapshot, pod).codes.tolist()
            assert seen.setdefault(("filter", key), said) == said
        if exam.scores and active.hints.scores(snapshot, pod):
            said = plugin.score(snapshot, pod).tolist()
            assert seen.setdefault(("score", key), said) == said


def check_reads_no_more_than_it_says(exam: Exam) -> None:
    """``Reads.NODE``: pods on nodes don't matter.  All but CLUSTER: other nodes don't.

    Other nodes may matter to a plugin whose ``hints`` has a ``version``.
    """
    state, plugin, classes = exam.sit()
    free = ActivePlugin.of("", plugin).hints.version is not None
    if not exam.is_local or (free and exam.reads is not Reads.NODE):
        return
    living = list(state.nodes.rows)
    kept = set(living) if free else {living[exam.order[0] % len(living)]}
    left = [obj for obj in exam.objects if _is_kept(obj, kept, pods=exam.reads is not Reads.NODE)]
    again, other, same = exam.sit(left)
    for pod, there in zip(classes, same, strict=True):
        wants = _wants(plugin, seen_by(plugin, state, pod), pod)
        said, alone = _answers(plugin, state, pod, wants), _answers(other, again, there, wants)
        for name in kept:
            assert alone[name] == said[name]


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
    """Return reasons and raw score by node, of what is wanted."""
    snapshot, (filters, scores) = seen_by(plugin, state, pod), wants
    rejected = verdicts(plugin, state, pod) if filters else {}
    raw = plugin.score(snapshot, pod) if scores else np.zeros(len(snapshot), np.int64)
    return {
        name: (rejected.get(name, ([], False))[0], int(raw[row]))
        for name, row in state.nodes.rows.items()
    }


def check_what_is_left_out_depends_on_the_pod(exam: Exam) -> None:
    """On an empty cluster ``filters`` and ``scores`` of a local plugin are the same."""
    if not exam.is_local:
        return
    state, plugin, classes = exam.sit()
    active, here, nowhere = (
        ActivePlugin.of("", plugin),
        Snapshot(state),
        Snapshot(ClusterState(state.axis)),
    )
    for pod in classes:
        assert active.hints.filters(here, pod) == active.hints.filters(nowhere, pod)
        assert active.hints.scores(here, pod) == active.hints.scores(nowhere, pod)


def check_a_skipped_prefilter_refuses_nothing(exam: Exam) -> None:
    """Where ``prefilters`` is False, ``prefilter`` does not refuse the pod."""
    state, plugin, classes = exam.sit()
    active = ActivePlugin.of("", plugin)
    for pod in classes if hasattr(plugin, "prefilter") else ():
        snapshot = seen_by(plugin, state, pod)
        if not active.hints.prefilters(snapshot, pod):
            assert not isinstance(plugin.prefilter(snapshot, pod), Refusal)


def check_a_filter_left_out_rejects_nothing(exam: Exam) -> None:
    """With ``filters`` False: it is a short cut, not another rule."""
    state, plugin, classes = exam.sit()
    for pod in classes if exam.filters else ():
        if not ActivePlugin.of("", plugin).hints.filters(seen_by(plugin, state, pod), pod):
            assert verdicts(plugin, state, pod) == {}


def check_ignored_pods_are_let_alone(exam: Exam) -> None:
    """To whom the plugin does not apply it neither refuses, nor filters, nor scores."""
    state, plugin, classes = exam.sit()
    active = ActivePlugin.of("", plugin)
    for pod in classes if hasattr(plugin, "applies") else ():
        if plugin.applies(pod):
            continue
        snapshot = seen_by(plugin, state, pod)
        assert not hasattr(plugin, "prefilter") or plugin.prefilter(snapshot, pod) is None
        said = active.hints.overrides()
        assert "filters" not in said or not active.hints.filters(snapshot, pod)
        assert "scores" not in said or not active.hints.scores(snapshot, pod)
        assert not hasattr(plugin, "prefer_nodes") or not plugin.prefer_nodes(snapshot, pod)


def check_a_score_left_out_says_nothing(exam: Exam) -> None:
    """With ``scores`` False: all nodes would get the same."""
    state, plugin, classes = exam.sit()
    for pod in classes if exam.scores else ():
        if not ActivePlugin.of("", plugin).hints.scores(seen_by(plugin, state, pod), pod):
            assert len(set(final_scores(plugin, state, pod).tolist())) <= 1


def check_reserves_where_it_accepts(exam: Exam) -> None:
    """On a node that its filter accepts, ``reserve`` refuses no pod that it does not refuse as one.

    A refusal that comes only then is no verdict on a node: neither preemption nor explanations see
    it.  Pods that may use reservations are left out: what they get depends on the one nominated.
    """
    state, plugin, classes = exam.sit()
    active = ActivePlugin.of("", plugin)
    for pod in classes if hasattr(plugin, "reserve") else ():
        snapshot = seen_by(plugin, state, pod)
        if snapshot.restorable is not None or not active.hints.filters(snapshot, pod):
            continue
        if hasattr(plugin, "prefilter") and plugin.prefilter(snapshot, pod) is not None:
            continue
        rejected = plugin.filter(snapshot, pod).codes if exam.filters else np.zeros(len(snapshot))
        for row in np.flatnonzero(snapshot.alive & (rejected == 0)):
            taken = plugin.reserve(snapshot[np.array([row])], pod, None)
            assert not isinstance(taken, Refusal), (snapshot.node_names[row], taken.reason)


def check_follows_sums(exam: Exam) -> None:
    """``Reads.USAGE``: with pods added to a view it says what it says once they are placed.

    Unless it distinguishes them from others of their class.
    """
    if exam.reads is not Reads.USAGE:
        return
    state, plugin, classes = exam.sit()
    row = np.flatnonzero(state.nodes.alive)[:1]
    for index, times in itertools.product(range(len(classes)), range(3)):
        pod, view = classes[index], Snapshot(state)[row].after(classes[index], np.array([times]))
        later, other, same = exam.sit()
        keys = [f"{COPIES}/{number}" for number in range(times)]
        if hasattr(plugin, "distinguishes") and plugin.distinguishes(Snapshot(state), keys):
            continue
        for key in keys:
            later.place(key, exam.pods[index], same[index], int(row[0]))
        there = Snapshot(later)[row]
        if exam.filters:
            assert plugin.filter(view, pod).codes == other.filter(there, same[index]).codes
        if exam.scores:
            assert plugin.score(view, pod) == other.score(there, same[index])


def check_arithmetic_says_the_same(exam: Exam) -> None:
    """Filter and score do what ``compares``, ``formula`` and ``judge`` tell, and no more."""
    state, plugin, classes = exam.sit()
    active, snapshot = ActivePlugin.of("", plugin), Snapshot(state)
    for pod in classes:
        if active.hints.compares is not None:
            fits, asked = np.ones(len(snapshot), bool), judgements([active.hints.compares(pod)], ())
            snapshot.judge(asked, fits, np.zeros(len(snapshot), np.int64))
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


CHECKS: tuple[Check, ...] = (
    check_pure,
    check_bounded,
    check_blind_to_node_order,
    check_subset_invariant,
    check_key_is_honest,
    check_reads_no_more_than_it_says,
    check_what_is_left_out_depends_on_the_pod,
    check_a_skipped_prefilter_refuses_nothing,
    check_a_filter_left_out_rejects_nothing,
    check_ignored_pods_are_let_alone,
    check_a_score_left_out_says_nothing,
    check_reserves_where_it_accepts,
    check_follows_sums,
    check_arithmetic_says_the_same,
)


def plugin_contract(
    *specs: PluginSpec[Any],
    args: Mapping[str, Args] | None = None,
    without: Mapping[str, Sequence[Check]] | None = None,
    worlds: Worlds | None = None,
) -> pytest.MarkDecorator:
    """Parametrize a test by ``check``: call it to run all checks on a plugin.

    ``args`` has arguments by plugin name, in place of those of the example; ``without`` the
    checks that a plugin is excused from;
    ``worlds`` the strategies for clusters and for pods, in place of the example's: there nobody
    asks whether the plugin speaks.
    """
    return pytest.mark.parametrize(
        "check",
        [
            pytest.param(
                _check(
                    spec,
                    (args or {}).get(spec.name, spec.example.args),
                    [c for c in CHECKS if c not in (without or {}).get(spec.name, ())],
                    worlds or _worlds(spec.example),
                    must_speak=worlds is None and not spec.example.silent,
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
    checks: Sequence[Check],
    worlds: Worlds,
    *,
    must_speak: bool,
) -> Callable[[], None]:
    spoken: set[str] = set()

    def listen(exam: Exam) -> None:
        if len(spoken) < len(_points(spec)):
            spoken.update(_spoken(exam))

    @_drawn(EXAMPLES)
    @given(exam=_exams(spec, args, worlds))
    def draw(exam: Exam) -> None:
        for one in checks:
            try:
                one(exam)
            except Exception as error:
                error.add_note(f"{spec.name} breaks {one.__name__}: {one.__doc__}")
                raise
        listen(exam)

    @_drawn(MOST_EXAMPLES)
    @given(exam=_exams(spec, args, worlds))
    def draw_more(exam: Exam) -> None:
        listen(exam)

    def check() -> None:
        spoken.clear()
        draw()
        if must_speak and len(spoken) < len(_points(spec)):
            draw_more()
        silent = [told for told in _points(spec) if told not in spoken]
        assert not must_speak or not silent, (
            f"{spec.name} {' and '.join(silent)} in random clusters, which "
            "prove nothing: give its PluginSpec an example (arguments, nodes, pods …) where it does"
        )

    return check if _points(spec) else lambda: None


NEVER_REJECTS, NEVER_PREFERS = "never rejects a node or pod", "gives all nodes the same score"


def _points(spec: PluginSpec[Any]) -> list[str]:
    """Return what a plugin is told that never does what it is there for."""
    has = spec.plugin_type
    scores = hasattr(has, "score") or hasattr(has, "score_among")
    return [NEVER_REJECTS] * hasattr(has, "filter") + [NEVER_PREFERS] * scores


def _spoken(exam: Exam) -> set[str]:
    state, plugin, classes = exam.sit()
    active, found = ActivePlugin.of("", plugin), set()
    for pod in classes:
        snapshot = seen_by(plugin, state, pod)
        if not active.applies(pod):
            continue
        refused = "prefilter" in active.has and plugin.prefilter(snapshot, pod)
        filters = exam.filters and active.hints.filters(snapshot, pod)
        if isinstance(refused, Refusal) or (filters and verdicts(plugin, state, pod)):
            found.add(NEVER_REJECTS)
        scores = exam.scores and active.hints.scores(snapshot, pod)
        if scores and len(set(final_scores(plugin, state, pod).tolist())) > 1:
            found.add(NEVER_PREFERS)
    return found


# -- worlds ----------------------------------------------------------------------------------


def _worlds(example: PluginExample) -> Worlds:
    """Return random clusters and pods with the example laid over them."""
    return _example_clusters(example), _example_pods(example)


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
        objects.append(with_defaults(decode_object(apply_merge_patch(own, _named(name)))))
    return objects + [with_defaults(decode_object(dict(one))) for one in example.objects]


@st.composite
def _example_pods(draw: st.DrawFn, example: PluginExample) -> Pod:
    drawn = draw(pods())
    merged = _merged(drawn, draw(st.sampled_from(example.pods))) if example.pods else drawn
    assert isinstance(merged, Pod)
    return merged


def _merged(obj: KubeObject, part: JsonObject) -> KubeObject:
    return with_defaults(decode_object(apply_merge_patch(to_manifest(obj), part)))


def _named(name: str) -> JsonObject:
    return {"metadata": {"name": name}}


@st.composite
def _exams(draw: st.DrawFn, spec: PluginSpec[Any], args: Args, worlds: Worlds) -> Exam:
    some_clusters, some_pods = worlds
    objects = draw(some_clusters)
    names = [obj.metadata.name for obj in objects if isinstance(obj, Node)]
    return Exam(
        spec=spec,
        args=args,
        objects=objects,
        gone=frozenset(draw(st.sets(st.sampled_from(names), max_size=len(names) - 1))),
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
