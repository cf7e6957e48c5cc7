"""The suite for plugins fails for plugins that break its rules."""

from typing import Any, ClassVar

import numpy as np
import pytest

from koordinator.foundation.arrays import IntArray
from koordinator.scheduler.contract import (
    Action,
    EventHint,
    NoArgs,
    PluginExample,
    PluginHints,
    PluginSpec,
    Reads,
    Refusal,
    Rejections,
)
from koordinator.scheduler.rules.usage_kernels import Balance
from koordinator.scheduler.snapshot import PodClass, ResourceAxis, Snapshot
from koordinator.testing.scheduler_plugins import plugin_contract


class WritesToTheSnapshot:
    reads: ClassVar = Reads.USAGE

    def score(self, snapshot: Snapshot, _pod: PodClass) -> IntArray:
        snapshot.requested[:] += 1
        return np.zeros(len(snapshot), np.int64)


class ScoresByRow:
    reads: ClassVar = Reads.NODE

    def score(self, snapshot: Snapshot, _pod: PodClass) -> IntArray:
        return np.arange(len(snapshot))


class LeavesTheRange:
    reads: ClassVar = Reads.NODE

    def score(self, snapshot: Snapshot, _pod: PodClass) -> IntArray:
        return np.full(len(snapshot), 101)


class ComparesNodes:
    reads: ClassVar = Reads.USAGE

    def score(self, snapshot: Snapshot, _pod: PodClass) -> IntArray:
        used = snapshot.requested[:, 0]
        return np.where(used == used.max(initial=0), 100, 0)


class HasNoReason:
    reads: ClassVar = Reads.NODE

    def filter(self, snapshot: Snapshot, _pod: PodClass) -> Rejections:
        return Rejections(np.ones(len(snapshot), np.int64))


class ReadsMoreThanItsKey:
    reads: ClassVar = Reads.USAGE
    hints: ClassVar = PluginHints(key=lambda _pod: "")

    def score(self, snapshot: Snapshot, pod: PodClass) -> IntArray:
        return np.full(len(snapshot), pod.amount(0) // 100)


class RemembersPods:
    reads: ClassVar = Reads.NODE

    def __init__(self) -> None:
        self.calls = 0

    def score(self, snapshot: Snapshot, _pod: PodClass) -> IntArray:
        self.calls += 1
        return np.full(len(snapshot), self.calls % 100)


class SkipsWhatItRejects:
    reads: ClassVar = Reads.NODE
    hints: ClassVar = PluginHints(filters=lambda _snapshot, _pod: False)

    def filter(self, snapshot: Snapshot, _pod: PodClass) -> Rejections:
        return Rejections.where(np.ones(len(snapshot), bool), "no")


class SkipsWhatItRefuses:
    reads: ClassVar = Reads.NODE
    hints: ClassVar = PluginHints(prefilters=lambda _snapshot, _pod: False)

    def prefilter(self, _snapshot: Snapshot, _pod: PodClass) -> Refusal:
        return Refusal("no")

    def filter(self, snapshot: Snapshot, _pod: PodClass) -> Rejections:
        return Rejections.where(np.ones(len(snapshot), bool), "no")


class ScoresAnotherFormula:
    reads: ClassVar = Reads.USAGE
    hints: ClassVar = PluginHints(
        formula=lambda _snapshot, _pod: Balance(np.array([0, 1]), np.array([100, 0]))
    )

    def score(self, snapshot: Snapshot, _pod: PodClass) -> IntArray:
        return np.full(len(snapshot), 7)


class ComparesLessThanItFilters:
    reads: ClassVar = Reads.USAGE
    hints: ClassVar = PluginHints(
        compares=lambda _pod: (np.zeros(0, np.int64), np.zeros(0, np.int64))
    )

    def filter(self, snapshot: Snapshot, _pod: PodClass) -> Rejections:
        return Rejections.where(np.ones(len(snapshot), bool), "no")


class ListensToNothing:
    reads: ClassVar = Reads.NODE

    def filter(self, snapshot: Snapshot, _pod: PodClass) -> Rejections:
        return Rejections.where(snapshot.unschedulable, "no")


@pytest.mark.slow
@pytest.mark.parametrize(
    "plugin_type",
    [
        ListensToNothing,
        WritesToTheSnapshot,
        ScoresByRow,
        LeavesTheRange,
        ComparesNodes,
        HasNoReason,
        ReadsMoreThanItsKey,
        RemembersPods,
        SkipsWhatItRejects,
        SkipsWhatItRefuses,
        ScoresAnotherFormula,
        ComparesLessThanItFilters,
    ],
)
def test_a_plugin_that_breaks_a_rule_is_caught(plugin_type: type) -> None:
    """Each example breaks one rule of the contract."""

    def build(_args: NoArgs, _axis: ResourceAxis) -> Any:
        return plugin_type()

    build.__annotations__["return"] = plugin_type
    mark = plugin_contract(PluginSpec(plugin_type.__name__, NoArgs, build))
    (case,) = mark.args[1]

    with pytest.raises((AssertionError, ValueError)):
        case.values[0]()


class JudgesByRowWhereALabelIs:
    reads: ClassVar = Reads.NODE

    def filter(self, snapshot: Snapshot, _pod: PodClass) -> Rejections:
        labelled = snapshot.label("example.com/rare")[0] >= 0
        return Rejections.where(labelled & (snapshot.row_numbers % 2 == 1), "no")


def _build_rare(_args: NoArgs, _axis: ResourceAxis) -> JudgesByRowWhereALabelIs:
    return JudgesByRowWhereALabelIs()


@pytest.mark.slow
def test_silent_plugin_requires_an_example() -> None:
    """Without an example, a fault of the plugin would pass unnoticed."""
    with pytest.raises(AssertionError, match="give its PluginSpec an example"):
        _run_on_rare(PluginExample())


@pytest.mark.slow
def test_an_example_brings_the_fault_out() -> None:
    """Laid over every cluster that is drawn."""
    with pytest.raises(AssertionError) as caught:
        _run_on_rare(PluginExample(nodes=({"metadata": {"labels": {"example.com/rare": "1"}}},)))

    assert "Rare breaks check_" in caught.value.__notes__[0]


def _run_on_rare(example: PluginExample) -> None:
    added = (EventHint("Node", Action.ADD),)
    mark = plugin_contract(PluginSpec("Rare", NoArgs, _build_rare, added, example=example))
    (case,) = mark.args[1]
    case.values[0]()
