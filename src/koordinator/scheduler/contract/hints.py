"""What a plugin may say about itself so that it has to be asked less, or less slowly."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, fields
from enum import Enum, auto

from koordinator.foundation.arrays import BoolArray, IntArray
from koordinator.scheduler.rules.usage_kernels import Formula
from koordinator.scheduler.snapshot import PodClass, Snapshot


class Spread(Enum):
    """Which raw score becomes the highest one."""

    HIGHEST = auto()
    LOWEST = auto()  # 0, which must be the lowest that there can be


def _all_of_it(pod: PodClass) -> Hashable:
    return pod.id


def _always(_snapshot: Snapshot, _pod: PodClass) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class PluginHints:
    """What exists for throughput alone: without it the outcome is the same, and comes later.

    For ``Reads.NODE``, ``USAGE`` and ``PLACED`` each row is independent of the others
    (``filter(s[rows]) == filter(s)[rows]``).  ``filters`` and ``scores`` depend only on the pod, on
    the traits of the cluster (``Snapshot.traits``) and on whether the pod has restorable holds.
    Both rules make results cacheable row by row.
    """

    #: the part of the pod class that a node-local plugin reads; by default all of it
    key: Callable[[PodClass], Hashable] = _all_of_it
    #: what changes whenever everything that was kept of the plugin is stale
    version: Callable[[Snapshot], Hashable] | None = None
    #: False skips ``prefilter``: it would not refuse the pod; looks at what ``filters`` looks at
    prefilters: Callable[[Snapshot, PodClass], bool] = _always
    #: False passes every node unseen (kube: PreFilter returns Skip)
    filters: Callable[[Snapshot, PodClass], bool] = _always
    #: False leaves the plugin's score out (kube: PreScore returns Skip)
    scores: Callable[[Snapshot, PodClass], bool] = _always
    #: columns and amounts: ``filter`` rejects where one is more than is free
    compares: Callable[[PodClass], tuple[IntArray, IntArray]] | None = None
    #: whether ``filter`` rejects such pods elsewhere, too; by default it does not
    rejects_otherwise: Callable[[PodClass], bool] | None = None
    #: what ``score`` computes, if that is arithmetic on amounts and no more; may look at what
    #: ``scores`` may look at
    formula: Callable[[Snapshot, PodClass], Formula | None] | None = None
    #: filter and score at once: makes ``fits``, ``(n,)``, False where the one rejects, and adds the
    #: weight times the other to ``total``, ``(n,)``, at least elsewhere
    judge: Callable[[Snapshot, PodClass, int, BoolArray, IntArray], None] | None = None
    #: whether placing such a pod changes nothing but amounts and pod counts here; by default where
    #: the plugin does not read ``PLACED`` and reserves nothing for the pod
    changes_amounts_only: Callable[[Snapshot, PodClass], bool] | None = None
    #: which raw score ``normalize`` makes the highest, if it does what ``spread_of`` does
    spread: Spread | None = None

    def overrides(self) -> dict[str, object]:
        """Return the hints that differ from their defaults, by name."""
        hints = {field.name: (getattr(self, field.name), field.default) for field in fields(self)}
        return {name: value for name, (value, default) in hints.items() if value is not default}
