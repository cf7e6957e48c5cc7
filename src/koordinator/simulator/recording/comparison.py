"""The decisions of two runs over the same events."""

from collections.abc import Mapping
from statistics import fmean

import msgspec

PLACED, WAITED, EVICTED = "placed", "waited", "evicted"


class PodOutcome(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What became of a pod in one run: where it went, after how long, and whether it had to go."""

    came_s: float
    node: str = ""  # empty: it had no place until it went, or the run ended
    bound_s: float | None = None
    evicted: bool = False  # to make room for others
    why: str = ""  # it waits, as of the last attempt; only of a replay

    @property
    def waited_s(self) -> float | None:
        """Seconds from its coming to its place; None without one."""
        return None if self.bound_s is None else self.bound_s - self.came_s


class PodDifference(msgspec.Struct, frozen=True, rename="camel"):
    """A pod that fared differently."""

    pod: str
    before: PodOutcome
    after: PodOutcome


class Totals(msgspec.Struct, frozen=True, rename="camel"):
    """A run in figures."""

    pods: int
    placed: int
    evicted: int
    nodes: int  # that got a pod
    mean_wait_s: float  # of the pods placed
    longest_wait_s: float


class Comparison(msgspec.Struct, frozen=True, rename="camel"):
    """Pods of both runs; ``differences`` in the order in which the pods came."""

    before: Totals
    after: Totals
    same: int
    moved: int  # to another node
    gained: int  # placed only after
    lost: int  # placed only before
    differences: tuple[PodDifference, ...]


def compare(before: Mapping[str, PodOutcome], after: Mapping[str, PodOutcome]) -> Comparison:
    """Compare by pod; one that only one run knows is left out.

    Pods differ if their nodes do or just one was evicted; waiting longer is shown in the totals.
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
