"""Preemption within a quota.

Source: koordinator pkg/scheduler/plugins/elasticquota/preempt.go, ``canPreempt``,
``SelectVictimsOnNode``.  Unlike there, victims are selected only if the quota, and its ancestors if
they are checked, has room for the pod afterwards.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from koordinator.api.elastic_quota import DEFAULT_QUOTA
from koordinator.domain.amounts import Amounts, add, exceeded, multiple, named_by, plus
from koordinator.domain.quota.admission import AdmissionRules, limit_of
from koordinator.domain.quota.spec import QuotaPod
from koordinator.domain.quota.tree import QuotaTree


@dataclass(frozen=True, slots=True)
class QuotaHeadroom:
    """Room for a pod after other pods of its quota are removed."""

    request: Amounts
    levels: tuple[tuple[Amounts, Amounts], ...]  # (used, limit) of the quota, then of its ancestors
    fits_protected: bool  # False: the minimum is exceeded; evictions don't change that

    def fits_without(self, victims: Iterable[QuotaPod]) -> bool:
        """Return whether ``why_not`` would admit the pod without the victims."""
        change = dict(self.request)
        for victim in victims:
            add(change, multiple(victim.requests, -1))
        (used, limit), *above = self.levels
        return (
            self.fits_protected
            and not exceeded(_after(used, change), limit)
            and not any(
                exceeded(named_by(_after(used, change), self.request), limit)
                for used, limit in above
            )
        )


def headroom_for(tree: QuotaTree, name: str, pod: QuotaPod, rules: AdmissionRules) -> QuotaHeadroom:
    """Return the room for an unassigned pod in its quota; raise KeyError if there is none."""
    node = tree.node(name)
    request = node.counted(pod)
    names = tree.path(name) if rules.checks_parents else (name,)
    protected = plus(node.non_preemptible_used, request)
    return QuotaHeadroom(
        request=request,
        levels=tuple((tree.node(level).used, limit_of(tree, level, rules)) for level in names),
        fits_protected=pod.is_preemptible or not exceeded(protected, node.min),
    )


def _after(used: Amounts, change: Amounts) -> dict[str, int]:
    """Return the usage after a change, restricted to the resources that count."""
    counted = used.keys() | {name for name, amount in change.items() if amount > 0}
    return {name: used.get(name, 0) + change.get(name, 0) for name in counted}


def is_allowed_victim(
    victim: QuotaPod,
    victim_quota: str | None,
    preemptor: QuotaPod,
    preemptor_quota: str | None,
    *,
    spares_default_quota: bool = True,
) -> bool:
    """Return whether a pod may be evicted for another one.

    The victim must be preemptible, of lower priority and in the same quota, which must not be the
    default quota if that is spared (``disableDefaultQuotaPreemption``).
    """
    return (
        victim.is_preemptible
        and victim.priority < preemptor.priority
        and victim_quota == preemptor_quota
        and not (spares_default_quota and victim_quota == DEFAULT_QUOTA)
    )
