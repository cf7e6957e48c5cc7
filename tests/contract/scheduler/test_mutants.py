"""The suite for plugins fails every plugin of the package once one fault is put into it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from koordinator.foundation.arrays import BoolArray, IntArray
from koordinator.scheduler.contract import (
    METHODS,
    PluginHints,
    PluginSpec,
    Reads,
    Refusal,
    Rejections,
)
from koordinator.scheduler.profile import builtin_plugins
from koordinator.scheduler.snapshot import PodClass, Snapshot
from koordinator.testing.scheduler_plugins import plugin_contract

JUDGING = tuple(
    spec
    for spec in builtin_plugins()
    if not spec.example.silent
    and any(hasattr(spec.plugin_type, name) for name in ("filter", "score", "score_among"))
)
LOCAL = tuple(spec for spec in JUDGING if spec.plugin_type.reads is not Reads.CLUSTER)  # type: ignore[attr-defined] # of every plugin
#: Without plugins that never reserve in these clusters, which have no CPUs and no owners.
RESERVING = tuple(
    spec
    for spec in JUDGING
    if hasattr(spec.plugin_type, "reserve") and spec.name not in {"NodeNUMAResource", "Reservation"}
)
Fault = Callable[[Snapshot, PodClass], IntArray]


class Around:
    """A plugin that has another one do its work."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner


def faulty(spec: PluginSpec[Any], fault: Fault, **more: Any) -> PluginSpec[Any]:
    """Return the plugin with ``fault``, ``(n,)`` of 0 or 1 by row, added to its answers.

    Where it is 1, an accepted node is rejected, and the score is another one.
    """
    inner_type = spec.plugin_type
    members: dict[str, Any] = {
        name: _passed_on(name, callable(getattr(inner_type, name, None)))
        for name in METHODS - {"reads", "hints"}
        if hasattr(inner_type, name)
    }
    members["reads"] = inner_type.reads  # type: ignore[attr-defined] # of every plugin
    members["hints"] = property(lambda self: without_short_cuts(self.inner))

    def judge(self: Any, snapshot: Snapshot, pod: PodClass) -> Rejections:
        rejections = self.inner.filter(snapshot, pod)
        wrong: BoolArray = (fault(snapshot, pod) > 0) & (rejections.codes == 0)
        bit = len(rejections.reasons)
        return Rejections(
            rejections.codes | (wrong.astype(np.int64) << bit),
            (*rejections.reasons, "faulty"),
            rejections.verdict,
            None if rejections.explain is None else _explained(rejections, bit),
        )

    def score(self: Any, snapshot: Snapshot, pod: PodClass) -> IntArray:
        return _moved(self.inner.score(snapshot, pod), fault(snapshot, pod))

    def score_among(self: Any, snapshot: Snapshot, pod: PodClass, rows: IntArray) -> IntArray:
        return _moved(self.inner.score_among(snapshot, pod, rows), fault(snapshot, pod)[rows])

    faults = {"filter": judge, "score": score, "score_among": score_among}
    members |= {name: method for name, method in faults.items() if hasattr(inner_type, name)}
    members |= more

    kind = type(f"Faulty{spec.name}", (Around,), members)

    def build(args: Any, axis: Any) -> Any:
        return kind(spec.build(args, axis))

    build.__annotations__["return"] = kind
    return replace(spec, build=build)


def without_short_cuts(plugin: Any) -> PluginHints:
    """Return a plugin's ``hints`` without shortcuts that would bypass the fault."""
    hints: PluginHints = getattr(plugin, "hints", PluginHints())
    return replace(hints, compares=None, formula=None, judge=None, rate=None, spread=None)


def _passed_on(name: str, is_method: bool) -> Any:
    if is_method:
        return lambda self, *args: getattr(self.inner, name)(*args)
    return property(lambda self: getattr(self.inner, name))


def _explained(rejections: Rejections, bit: int) -> Callable[[int], Any]:
    def explain(row: int) -> Any:
        assert rejections.explain is not None
        return rejections.explain(row) if not rejections.codes[row] >> bit & 1 else ["faulty"]

    return explain


def _moved(raw: IntArray, fault: IntArray) -> IntArray:
    """Return scores with the lowest one at each fault, or the next if it was the lowest."""
    return np.where(fault > 0, np.where(raw == 0, 1, 0), raw)


def broken_rule(spec: PluginSpec[Any]) -> str:
    """Run the suite on a plugin that must fail it; return the rule that the error names."""
    (case,) = plugin_contract(spec).args[1]
    with pytest.raises((AssertionError, ValueError, IndexError)) as caught:
        case.values[0]()
    notes = "\n".join(getattr(caught.value, "__notes__", ()))
    assert f"{spec.name} breaks " in notes, caught.value
    return notes.partition(" breaks ")[2].partition(":")[0]


def by_name(spec: PluginSpec[Any]) -> str:
    return spec.name


@pytest.mark.integration
@pytest.mark.parametrize("spec", JUDGING, ids=by_name)
def test_judging_by_row_number_fails(spec: PluginSpec[Any]) -> None:
    """A plugin fails even if a selection of rows keeps the row's number."""

    def odd(snapshot: Snapshot, _pod: PodClass) -> IntArray:
        return snapshot.row_numbers % 2

    assert broken_rule(faulty(spec, odd)) in {
        "check_helpful_events_wake_pods",
        "check_node_order_invariant",
        "check_reads_as_declared",
        "check_skipped_score_is_constant",
        "check_skipped_filter_rejects_nothing",
    }


@pytest.mark.integration
@pytest.mark.parametrize("spec", RESERVING, ids=by_name)
def test_refusing_a_node_only_when_it_is_chosen_fails(spec: PluginSpec[Any]) -> None:
    """The filter accepts what ``reserve`` then refuses, each time again."""

    def refuse(_self: Any, _node: Snapshot, _pod: PodClass, _wish: IntArray | None) -> Refusal:
        return Refusal("too late")

    def accept(snapshot: Snapshot, _pod: PodClass) -> IntArray:
        return np.zeros(len(snapshot), np.int64)

    assert (
        broken_rule(faulty(spec, accept, reserve=refuse)) == "check_reserve_accepts_feasible_nodes"
    )


@pytest.mark.integration
@pytest.mark.parametrize("spec", JUDGING, ids=by_name)
def test_a_forgotten_dependency_fails(spec: PluginSpec[Any]) -> None:
    """The plugin counts the pods on a node and declares that it reads nodes only."""

    def crowded(snapshot: Snapshot, _pod: PodClass) -> IntArray:
        on = [len(list(snapshot.pods_on(row))) for row in snapshot.row_numbers.tolist()]
        return (np.array(on, np.int64).reshape(-1) > 0).astype(np.int64)

    broken_rule(faulty(spec, crowded, reads=Reads.NODE))


@pytest.mark.integration
@pytest.mark.parametrize("spec", JUDGING, ids=by_name)
def test_writing_to_the_snapshot_fails(spec: PluginSpec[Any]) -> None:
    """A plugin fails even if it makes a read-only array writable first."""

    def writes(snapshot: Snapshot, _pod: PodClass) -> IntArray:
        requested = snapshot.cluster.requested
        base = requested if requested.base is None else requested.base
        base.flags.writeable = True
        base += 1
        return np.zeros(len(snapshot), np.int64)

    assert broken_rule(faulty(spec, writes)) == "check_pure"


@pytest.mark.integration
@pytest.mark.parametrize("spec", LOCAL, ids=by_name)
def test_a_key_that_forgets_something_fails(spec: PluginSpec[Any]) -> None:
    """The answer depends on a label of the pod, which the key lacks."""

    def front(snapshot: Snapshot, pod: PodClass) -> IntArray:
        return np.full(len(snapshot), int(dict(pod.labels).get("tier") == "front"), np.int64)

    def forgetful(self: Any) -> PluginHints:
        hints = without_short_cuts(self.inner)
        has_key = hints.key is not PluginHints().key
        return hints if has_key else replace(hints, key=lambda _pod: "")

    broken_rule(faulty(spec, front, hints=property(forgetful)))


@pytest.mark.integration
@pytest.mark.parametrize("spec", LOCAL, ids=by_name)
def test_reading_pods_where_sums_are_promised_fails(spec: PluginSpec[Any]) -> None:
    """The plugin reads the pods on a node and declares that it reads sums only."""

    def doubled(snapshot: Snapshot, _pod: PodClass) -> IntArray:
        on = [len(list(snapshot.pods_on(row))) for row in snapshot.row_numbers.tolist()]
        return (np.array(on, np.int64).reshape(-1) > 1).astype(np.int64)

    broken_rule(faulty(spec, doubled, reads=Reads.USAGE))
