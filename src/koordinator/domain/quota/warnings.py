"""Warnings about stored quotas that break the rules of admission.

The scheduler tolerates such quotas (``QuotaSpec.of``); this module reports them to users. The rules
are the same as in admission, except that a quota may name fewer resources than its parent.
"""

from collections.abc import Callable

from koordinator.api.annotations.quota import NAMESPACES, SHARED_WEIGHT
from koordinator.api.codec import subject_of
from koordinator.api.elastic_quota import ROOT_QUOTA, ElasticQuota
from koordinator.api.quota_validation import validate_elastic_quota
from koordinator.domain.quota.place_validation import PlaceRules, check_above, check_below
from koordinator.domain.quota.spec import QUEUE_KEYS, check_queue_terms
from koordinator.domain.quota.topology import QuotaTopology
from koordinator.foundation.errors import InputError

_READ = (NAMESPACES.key, SHARED_WEIGHT.key, *QUEUE_KEYS)
_RULES = PlaceRules(allows_fewer_resources=True)


class QuotaWarnings:
    """Warnings by key of the object; a quota is checked after it or its neighbours changed."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self._topology = QuotaTopology()
        self._unseen: dict[str, None] = {}  # names

    def put(self, quota: ElasticQuota) -> None:
        """Add or update a quota."""
        known = self._topology.get(quota.metadata.name)
        if known is not None and _as_read(known) == _as_read(quota):
            return  # only reported figures changed
        self._note_neighbours(quota.metadata.name)
        self._topology.put(quota)
        self._note_neighbours(quota.metadata.name)

    def remove(self, quota: ElasticQuota) -> list[str]:
        """Remove a quota; return the names of its children, which have no parent now."""
        name = quota.metadata.name
        self._note_neighbours(name)
        self._topology.remove(name)
        self._unseen.pop(name, None)
        self.texts.pop(quota.key, None)
        return [child.metadata.name for child in self._topology.children(name)]

    def check(self, limit: int) -> None:
        """Check at most ``limit`` quotas that changed since their last check."""
        for name in list(self._unseen)[:limit]:
            del self._unseen[name]
            quota = self._topology.get(name)
            if quota is None:
                continue
            text = warning_about(quota, self._topology)
            if text:
                self.texts[quota.key] = text
            else:
                self.texts.pop(quota.key, None)

    @property
    def is_behind(self) -> bool:
        """Whether quotas are waiting to be checked."""
        return bool(self._unseen)

    def _note_neighbours(self, name: str) -> None:
        """Schedule a check of a quota, its parent and its children."""
        quota = self._topology.get(name)
        if quota is None:
            return
        self._unseen[name] = None
        self._unseen[quota.parent] = None
        self._unseen.update({child.metadata.name: None for child in self._topology.children(name)})


def _as_read(quota: ElasticQuota) -> object:
    """Return all parts of a quota that the rules read."""
    annotations = quota.metadata.annotations
    return quota.key, quota.spec, quota.metadata.labels, [annotations.get(key) for key in _READ]


def warning_about(quota: ElasticQuota, topology: QuotaTopology) -> str:
    """Return what admission would reject about a quota; empty if nothing.

    Rules that compare a quota with its siblings are left out.
    """
    checks: list[Callable[[], object]] = [
        lambda: validate_elastic_quota(quota),
        lambda: check_queue_terms(quota),
        lambda: NAMESPACES.read(quota.metadata),
    ]
    if quota.metadata.name != ROOT_QUOTA:
        checks += [
            lambda: check_above(quota, topology, _RULES),
            lambda: check_below(quota, topology),
        ]
    problems = []
    for check in checks:
        try:
            check()
        except InputError as error:
            problems.append(str(error))
    return f"{subject_of(quota)}: {'; '.join(problems)}" if problems else ""
