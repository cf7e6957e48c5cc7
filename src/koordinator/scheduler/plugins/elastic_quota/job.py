"""Quota shortfall of a whole job, and the victims that reduce it.

Victims are of the same quota and less important than every member, as for a single pod.
"""

from collections.abc import Iterable, Mapping

from koordinator.domain.amounts import add, exceeded
from koordinator.domain.quota import (
    AdmissionRules,
    QuotaPod,
    QuotaTrees,
    is_allowed_victim,
    limit_of,
)
from koordinator.scheduler.contract import Refusal
from koordinator.scheduler.plugins.elastic_quota.ledger import as_quota_pod
from koordinator.scheduler.post_filter import Shortfall
from koordinator.scheduler.snapshot import PlacedPod, PodClass

PROTECTED = "Insufficient non-preemptible quotas even without victims"


class JobInQuotas:
    """Pods that must be admitted together."""

    def __init__(
        self,
        trees: QuotaTrees,
        pods: Iterable[PodClass],
        rules: AdmissionRules,
        *,
        spares_default_quota: bool,
    ) -> None:
        self._trees, self._rules = trees, rules
        self._spares_default_quota = spares_default_quota
        self._requested: dict[str, dict[str, int]] = {}  # by quota
        self._protected: dict[str, dict[str, int]] = {}  # requests of non-preemptible members
        self._least: dict[str, QuotaPod] = {}  # least important member by quota
        for pod_class in pods:
            self._add_member(as_quota_pod(pod_class))

    def _add_member(self, member: QuotaPod) -> None:
        name = self._trees.quota_for(member)
        if name is None:
            return
        request = self._trees.tree_of(name).node(name).counted(member)
        add(self._requested.setdefault(name, {}), request)
        if not member.is_preemptible:
            add(self._protected.setdefault(name, {}), request)
        least = self._least.get(name)
        if least is None or member.priority < least.priority:
            self._least[name] = member

    @property
    def names(self) -> frozenset[str]:
        """Quotas of the members."""
        return frozenset(self._requested)

    def shortfall(self) -> Shortfall | Refusal | None:
        """Return the shortfall of the quotas and, if checked, of their ancestors."""
        missing: dict[str, int] = {}
        lacking: set[str] = set()
        for name in self._requested:
            node = self._trees.tree_of(name).node(name)
            protected = dict(node.non_preemptible_used)
            add(protected, self._protected.get(name, {}))
            if name in self._protected and exceeded(protected, node.min):
                return Refusal(PROTECTED)
            found = self._missing(name)
            if found:
                lacking.add(name)
                missing |= found
        if not missing:
            return None

        def allows(placed: PlacedPod) -> bool:
            return self._trees.quota_of(placed.key) in lacking and self.allows(placed)

        return Shortfall(missing, allows, self._frees)

    def allows(self, placed: PlacedPod) -> bool:
        """Return whether a pod may be evicted for the members of its quota."""
        name = self._trees.quota_of(placed.key)
        if name is None or name not in self._least:
            return False
        return is_allowed_victim(
            self._trees.tree_of(name).node(name).pods[placed.key],
            name,
            self._least[name],
            name,
            spares_default_quota=self._spares_default_quota,
        )

    def _missing(self, name: str) -> dict[str, int]:
        """Return the shortfall by level and resource, counting all members under a level."""
        tree, missing = self._trees.tree_of(name), {}
        for level in self._levels(name):
            wanted: dict[str, int] = {}
            for other, request in self._requested.items():
                if level in self._levels(other):
                    add(wanted, request)
            used = tree.node(level).used
            total = {
                resource: used.get(resource, 0) + wanted.get(resource, 0)
                for resource in (used.keys() | wanted.keys() if level == name else wanted)
            }
            limit = limit_of(tree, level, self._rules)
            for resource in exceeded(total, limit):
                missing[_key(level, resource)] = total[resource] - limit[resource]
        return missing

    def _frees(self, placed: PlacedPod) -> Mapping[str, int]:
        name = self._trees.quota_of(placed.key)
        if name is None:
            return {}
        requests = self._trees.tree_of(name).node(name).pods[placed.key].requests
        return {
            _key(level, resource): amount
            for level in self._levels(name)
            for resource, amount in requests.items()
        }

    def _levels(self, name: str) -> tuple[str, ...]:
        tree = self._trees.tree_of(name)
        return tuple(tree.path(name)) if self._rules.checks_parents else (name,)


def _key(level: str, resource: str) -> str:
    return f"{level}: {resource}"
