"""Comparison of the decisions of two runs over the same events."""

from collections.abc import Mapping
from statistics import fmean

import msgspec

PLACED, WAITED, EVICTED = "placed", "waited", "evicted"


class PodOutcome(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Outcome of a pod in one run."""

    came_s: float
    node: str = ""  # empty if it was never bound
    bound_s: float | None = None
    evicted: bool = False  # preempted by others
    why: str = ""  # reason of the last failed attempt, in a replay only

    @property
    def waited_s(self) -> float | None:
        """Seconds from its arrival to its bind; None if it was never bound."""
        return None if self.bound_s is None else self.bound_s - self.came_s


class PodDifference(msgspec.Struct, frozen=True, rename="camel"):
    """Pod with different outcomes."""

    pod: str
    before: PodOutcome
    after: PodOutcome


class Totals(msgspec.Struct, frozen=True, rename="camel"):
    """Totals of a run."""

    pods: int
    placed: int
    evicted: int
    nodes: int  # with a pod
    mean_wait_s: float  # of the pods placed
    longest_wait_s: float


class Comparison(msgspec.Struct, frozen=True, rename="camel"):
    """Comparison of two runs; ``differences`` are in order of arrival."""

    before: Totals
    after: Totals
    same: int
    moved: int  # to another node
    gained: int  # placed only after
    lost: int  # placed only before
    differences: tuple[PodDifference, ...]


def compare(before: Mapping[str, PodOutcome], after: Mapping[str, PodOutcome]) -> Comparison:
    """Compare the pods that both runs have.

    Pods differ in their node or eviction; waiting times count in the totals only.
    """
    both = [name for name in before if name in after]
    differences = tuple(
        PodDifference(name, before[name], after[name])
        for name in both
        if (before[name].node, before[name].evicted) != (after[name].node, after[name].evicted)
    )
    pairs = [(it.before.node, it.after.node) for it in differences]
    return Comparison(
        before=_totals({name: before[name] for name in both}),
        after=_totals({name: after[name] for name in both}),
        same=len(both) - len(differences),
        moved=sum(bool(old and new and old != new) for old, new in pairs),
        gained=sum(bool(new and not old) for old, new in pairs),
        lost=sum(bool(old and not new) for old, new in pairs),
        differences=differences,
    )


def _totals(pod_outcomes: Mapping[str, PodOutcome]) -> Totals:
    waits = [
        pod_outcome.waited_s
        for pod_outcome in pod_outcomes.values()
        if pod_outcome.waited_s is not None
    ]
    return Totals(
        pods=len(pod_outcomes),
        placed=len(waits),
        evicted=sum(pod_outcome.evicted for pod_outcome in pod_outcomes.values()),
        nodes=len({pod_outcome.node for pod_outcome in pod_outcomes.values() if pod_outcome.node}),
        mean_wait_s=fmean(waits) if waits else 0.0,
        longest_wait_s=max(waits, default=0.0),
    )
