"""Pods of a quota that make room for a more important pod of the same quota.

Source: koordinator pkg/scheduler/plugins/elasticquota/preempt.go, ``canPreempt``,
``SelectVictimsOnNode``.  Unlike there, nobody is a victim unless the quota, and its ancestors if
they are checked, has room for the pod afterwards.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from koordinator.api.elastic_quota import DEFAULT_QUOTA
from koordinator.domain.quota.admission import AdmissionRules, limit_of
from koordinator.domain.quota.amounts import Amounts, add, exceeded, multiple, plus
from koordinator.domain.quota.pods import QuotaPod, by_importance
from koordinator.domain.quota.tree import QuotaTree


@dataclass(frozen=True, slots=True)
class QuotaRoom:
    """What would be left for a pod if others of its quota went."""

    request: Amounts
    levels: tuple[tuple[Amounts, Amounts], ...]  # used and limit: of the quota, of its ancestors
    fits_protected: bool  # false: no room within the minimum, which evictions don't change

    def fits_without(self, victims: Iterable[QuotaPod]) -> bool:
        """Return whether there is room for the pod, in each resource that it requests."""
        freed: dict[str, int] = {}
        for victim in victims:
            add(freed, victim.requests)
        missing = plus(self.request, multiple(freed, -1))
        return self.fits_protected and not any(
            exceeded({name: used.get(name, 0) + missing[name] for name in self.request}, limit)
            for used, limit in self.levels
        )


@dataclass(frozen=True, slots=True)
class Victims:
    """Pods to evict from one node, most important first."""

    pods: tuple[QuotaPod, ...]
    violations: int  # how many of them a disruption budget protects


def room_for(tree: QuotaTree, name: str, pod: QuotaPod, rules: AdmissionRules) -> QuotaRoom:
    """Return the room for a pod that is not assigned in its quota; KeyError if there is none."""
    node = tree.node(name)
    request = node.counted(pod)
    names = tree.path(name) if rules.checks_parents else (name,)
    protected = plus(node.non_preemptible_used, request)
    return QuotaRoom(
        request=request,
        levels=tuple((tree.node(level).used, limit_of(tree, level, rules)) for level in names),
        fits_protected=pod.is_preemptible or not exceeded(protected, node.min),
    )


def is_allowed_victim(
    victim: QuotaPod,
    victim_quota: str | None,
    preemptor: QuotaPod,
    preemptor_quota: str | None,
    *,
    spares_default_quota: bool = True,
) -> bool:
    """Return whether a pod may be evicted for another one.

    Only one of lower priority in the same quota, not of the default quota if that is spared
    (``disableDefaultQuotaPreemption``), and never one that is not preemptible.
    """
    return (
        victim.is_preemptible
        and victim.priority < preemptor.priority
        and victim_quota == preemptor_quota
        and not (spares_default_quota and victim_quota == DEFAULT_QUOTA)
    )


def minimal_victims(
    protected: Sequence[QuotaPod],
    others: Sequence[QuotaPod],
    fits_without: Callable[[Sequence[QuotaPod]], bool],
) -> Victims | None:
    """Return as few and as unimportant victims as possible, None if all together don't help.

    Pods are put back one by one if the pod still fits (``fits_without`` the rest of them): first
    those that a disruption budget protects, the most important first.
    """
    victims = sorted((*protected, *others), key=by_importance)
    if not victims or not fits_without(victims):
        return None
    violations = 0
    for is_violation, pods in ((True, protected), (False, others)):
        for pod in sorted(pods, key=by_importance):
            rest = [victim for victim in victims if victim is not pod]
            if fits_without(rest):
                victims = rest
            else:
                violations += is_violation
    return Victims(tuple(victims), violations)
