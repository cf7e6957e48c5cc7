"""Inter-pod affinity and anti-affinity.

Source: kubernetes pkg/scheduler/framework/plugins/interpodaffinity: filtering.go, scoring.go.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar

import numpy as np
from msgspec import structs

from koordinator.api.core import PodAffinity, PodAffinityTerm, WeightedPodAffinityTerm
from koordinator.api.kubescheduler import InterPodAffinityArgs
from koordinator.api.labels import HOSTNAME
from koordinator.api.pod import Pod
from koordinator.domain.pod_affinity import PodScope, scope_of
from koordinator.foundation.arrays import BoolArray, IntArray
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.memo import Memo
from koordinator.scheduler.contract import (
    MAX_SCORE,
    Action,
    EventHint,
    PluginHints,
    PluginSpec,
    Reads,
    Rejections,
)
from koordinator.scheduler.diagnosis import did_you_mean, missing_label
from koordinator.scheduler.rules.topology_domains import pods_around
from koordinator.scheduler.snapshot import PodClass, ResourceAxis, Snapshot
from koordinator.scheduler.snapshot.pods import PodCounter, TermKind

REASON_AFFINITY = "node(s) didn't match pod affinity rules"
REASON_ANTI = "node(s) didn't match pod anti-affinity rules"
REASON_EXISTING = "node(s) didn't satisfy existing pods anti-affinity rules"


@dataclass(frozen=True, slots=True)
class Term:
    """Affinity or anti-affinity term of the incoming pod.

    ``weight`` is negative for anti-affinity, 0 for a required term.
    """

    scope: PodScope
    topology_key: str
    weight: int = 0


@dataclass(frozen=True, slots=True)
class AffinityTerms:
    """Terms of a pod class by kind."""

    affinity: tuple[Term, ...]
    anti_affinity: tuple[Term, ...]
    preferred: tuple[Term, ...]


_TERMS: Memo[AffinityTerms] = Memo()


@dataclass(frozen=True, slots=True)
class InterPodAffinity:
    """Filter and score by the terms of the incoming pod and of placed pods."""

    hard_weight: int  # score of a placed pod's required affinity term
    ignore_existing: bool  # skip preferred terms of placed pods if the pod has none
    reads: ClassVar = Reads.CLUSTER

    @property
    def hints(self) -> PluginHints:
        return PluginHints(
            concerns=self._concerns,
            filters=self._filters,
            scores=lambda snapshot, pod: bool(
                _terms(pod).preferred or self._existing(snapshot, pod)
            ),
        )

    def _concerns(self, snapshot: Snapshot, pod: PodClass) -> bool:
        """Return whether the pod has terms, or some placed pod."""
        affinity = pod.spec.affinity
        has_own = affinity is not None and bool(affinity.pod_affinity or affinity.pod_anti_affinity)
        return has_own or snapshot.has_pod_terms

    def _filters(self, snapshot: Snapshot, pod: PodClass) -> bool:
        terms = _terms(pod)
        return bool(
            terms.affinity
            or terms.anti_affinity
            or snapshot.terms_about(pod, TermKind.ANTI_AFFINITY)
        )

    def filter(self, snapshot: Snapshot, pod: PodClass) -> Rejections:
        """Reject nodes that break a rule; the first broken rule is the reason."""
        cluster, terms = snapshot.cluster, _terms(pod)
        unmatched = ~self._near_all(cluster, pod, terms)
        conflicting = np.zeros(len(cluster), bool)
        for term in terms.anti_affinity:
            conflicting |= _around(cluster, cluster.count_pods(term.scope), term.topology_key) > 0
        excluded = np.zeros(len(cluster), bool)
        for placed_term in cluster.terms_about(pod, TermKind.ANTI_AFFINITY):
            excluded |= (
                _around(cluster, placed_term.counts[: len(cluster)], placed_term.topology_key) > 0
            )
        conflicting &= ~unmatched
        excluded &= ~unmatched & ~conflicting
        codes = (
            unmatched.astype(np.int64)
            | conflicting.astype(np.int64) << 1
            | excluded.astype(np.int64) << 2
        )
        reasons = (REASON_AFFINITY, REASON_ANTI, REASON_EXISTING)
        if snapshot.rows is None:
            return Rejections(codes, reasons, unmatched)
        return Rejections(codes[snapshot.rows], reasons, unmatched[snapshot.rows])

    def detail(self, view: Snapshot, pod: PodClass) -> str:
        """Describe every broken rule, not only the first."""
        cluster, terms, row = view.cluster, _terms(pod), int(view.row_numbers[0])
        parts = []
        if not self._near_all(cluster, pod, terms)[row]:
            parts.append(_in_words(view, pod, terms))
        for term in terms.anti_affinity:
            near = [(term.topology_key, cluster.count_pods(term.scope))]
            for key, count in _too_near(cluster, near, row):
                noun, verb = ("pod", "is") if count == 1 else ("pods", "are")
                named = term.scope.phrase(noun, pod.namespace)
                parts.append(
                    f"{count} {named}, which its podAntiAffinity excludes, {verb} in the same {key}"
                )
        for key, count in _too_near(cluster, self._excluding(cluster, pod), row):
            noun, verb = ("pod", "is") if count == 1 else ("pods", "are")
            parts.append(
                f"{count} {noun} whose podAntiAffinity excludes it {verb} in the same {key}"
            )
        return "; ".join(parts)

    def pod_remedies(self, view: Snapshot, pod: PodClass, it: Pod) -> list[tuple[str, Pod]]:
        """Return the pod with its required affinity made preferred, if no matching pod is near."""
        affinity = it.spec.affinity
        near = affinity.pod_affinity if affinity else None
        row = int(view.row_numbers[0])
        if affinity is None or near is None or self._near_all(view.cluster, pod, _terms(pod))[row]:
            return []
        preferred = tuple(
            WeightedPodAffinityTerm(weight=MAX_SCORE, pod_affinity_term=term)
            for term in near.required_during_scheduling_ignored_during_execution
        )
        softer = PodAffinity(
            preferred_during_scheduling_ignored_during_execution=(
                *near.preferred_during_scheduling_ignored_during_execution,
                *preferred,
            )
        )
        changed = structs.replace(affinity, pod_affinity=softer)
        spec = structs.replace(it.spec, affinity=changed)
        text = "make its podAffinity preferred (preferredDuringSchedulingIgnoredDuringExecution)"
        return [(text, structs.replace(it, spec=spec))]

    def is_blocked_cluster_wide(self, view: Snapshot, pod: PodClass) -> bool:
        cluster, row = view.cluster, int(view.row_numbers[0])
        own = [
            (term.topology_key, cluster.count_pods(term.scope))
            for term in _terms(pod).anti_affinity
        ]
        near = _too_near(cluster, [*own, *self._excluding(cluster, pod)], row)
        return any(key != HOSTNAME for key, _ in near)

    @staticmethod
    def _excluding(cluster: Snapshot, pod: PodClass) -> list[tuple[str, IntArray]]:
        """Return topology keys and pod counts, ``(n,)``, of placed terms that exclude the pod."""
        terms = cluster.terms_about(pod, TermKind.ANTI_AFFINITY)
        return [(one.topology_key, one.counts[: len(cluster)]) for one in terms]

    def score(self, snapshot: Snapshot, pod: PodClass) -> IntArray:
        """Return ``(n,)``: the summed weights of matching pairs of term and pod in its domains."""
        cluster = snapshot.cluster
        total = np.zeros(len(cluster), np.int64)
        for term in _terms(pod).preferred:
            total += term.weight * _around(
                cluster, cluster.count_pods(term.scope), term.topology_key
            )
        for placed_term in self._existing(cluster, pod):
            weight = self.hard_weight if placed_term.kind is TermKind.AFFINITY else 1
            total += weight * _around(
                cluster, placed_term.counts[: len(cluster)], placed_term.topology_key
            )
        return total if snapshot.rows is None else total[snapshot.rows]

    def normalize(self, raw: IntArray) -> IntArray:
        """Scale the observed range to 0..MAX_SCORE; return 0 everywhere if all are equal."""
        low, high = int(raw.min()), int(raw.max())
        if high == low:
            return np.zeros_like(raw)
        return (MAX_SCORE * ((raw - low) / (high - low))).astype(np.int64)

    def _existing(self, snapshot: Snapshot, pod: PodClass) -> list[PodCounter]:
        if self.ignore_existing and not _terms(pod).preferred:
            return []
        kinds = [TermKind.PREFERRED]
        if self.hard_weight:
            kinds.append(TermKind.AFFINITY)
        return snapshot.terms_about(pod, *kinds)

    @staticmethod
    def _near_all(cluster: Snapshot, pod: PodClass, terms: AffinityTerms) -> BoolArray:
        """Return ``(n,)``: for each required term a pod that matches all terms is near."""
        near = np.ones(len(cluster), bool)
        if not terms.affinity:
            return near
        pods = cluster.count_pods(_joint_scope(terms.affinity))  # that match every term
        keyed = np.ones(len(cluster), bool)
        for term in terms.affinity:
            keyed &= cluster.label(term.topology_key)[0] >= 0
            near &= _around(cluster, pods, term.topology_key) > 0
        anywhere = any(
            (pods[cluster.label(term.topology_key)[0] >= 0] > 0).any() for term in terms.affinity
        )
        if not anywhere and all(cluster.is_covered(pod, term.scope) for term in terms.affinity):
            return keyed  # the first pod of a group that matches its own terms needs a start
        return near & keyed


def _in_words(view: Snapshot, pod: PodClass, terms: AffinityTerms) -> str:
    """Describe why no pod that the terms require is in the domains of the first row of a view."""
    keys = dict.fromkeys(term.topology_key for term in terms.affinity)
    unlabelled = [key for key in keys if view.label(key)[0][0] < 0]
    if unlabelled:
        return "; ".join(missing_label(key, view.label_keys) for key in unlabelled)
    scope = _joint_scope(terms.affinity)
    named = scope.phrase("pod", pod.namespace)
    if view.cluster.count_pods(scope).any():
        return f"no {named}, which its podAffinity requires, is in the same {', '.join(keys)}"
    return f"no {named}, which its podAffinity requires, is on any node{_hint(view, scope)}"


def _hint(view: Snapshot, scope: PodScope) -> str:
    """Return a similar label of some pod if no pod has one that a scope requires."""
    required = dict(scope.selector.match_labels) if scope.selector else {}
    known = set(view.pod_labels) if required else set()
    for key, value in required.items():
        if (key, value) in known:
            continue
        alike = did_you_mean(value, {other for name, other in known if name == key})
        named = key if alike else did_you_mean(key, {name for name, _ in known} - {key})
        if named:
            return f" (did you mean {named}={alike or value}?)"
    return ""


def _too_near(
    cluster: Snapshot, rules: Iterable[tuple[str, IntArray]], row: int
) -> list[tuple[str, int]]:
    """Return topology keys and counts of the rules that count pods in the domain of a row."""
    totals = ((key, int(_around(cluster, counts, key)[row])) for key, counts in rules)
    return [(key, count) for key, count in totals if count]


def _joint_scope(terms: tuple[Term, ...]) -> PodScope:
    """Return the scope of the pods that match every term."""
    scopes = {term.scope.identity: term.scope for term in terms}
    first, *others = scopes.values()
    return replace(first, also=tuple(others))


def _around(snapshot: Snapshot, counts: IntArray, topology_key: str) -> IntArray:
    """Return ``(n,)``: counts summed over the node's domain; 0 where the node lacks the key."""
    domains, values = snapshot.label(topology_key)
    if not counts.any():
        return np.zeros(len(counts), np.int64)
    kernel = pods_around.compiled if snapshot.uses_kernels else pods_around.reference
    return kernel(domains, len(values), counts)


def _terms(pod: PodClass) -> AffinityTerms:
    return _TERMS.of(pod, _read, pod)


def _read(pod: PodClass) -> AffinityTerms:
    affinity = pod.spec.affinity
    near = affinity.pod_affinity if affinity else None
    apart = affinity.pod_anti_affinity if affinity else None

    def terms(listed: Iterable[tuple[PodAffinityTerm, int]]) -> tuple[Term, ...]:
        return tuple(
            Term(scope_of(term, pod.namespace, pod.labels), term.topology_key, weight)
            for term, weight in listed
        )

    required = terms((term, 0) for term in pod.spec.required_pod_affinity)
    forbidden = terms((term, 0) for term in pod.spec.required_pod_anti_affinity)
    preferred = terms(
        (weighted.pod_affinity_term, sign * weighted.weight)
        for side, sign in ((near, 1), (apart, -1))
        if side is not None
        for weighted in side.preferred_during_scheduling_ignored_during_execution
    )
    return AffinityTerms(required, forbidden, preferred)


def build(args: InterPodAffinityArgs, _axis: ResourceAxis) -> InterPodAffinity:
    return InterPodAffinity(
        args.hard_pod_affinity_weight, args.ignore_preferred_terms_of_existing_pods
    )


PLUGIN = PluginSpec(
    "InterPodAffinity",
    InterPodAffinityArgs,
    build,
    events=(
        EventHint("AssignedPod", Action.ADD | Action.UPDATE_LABELS | Action.DELETE),
        EventHint("Node", Action.ADD | Action.UPDATE_LABELS),
        EventHint("Pod", Action.UPDATE_LABELS),
        EventHint("Namespace", Action.ALL),  # terms may select namespaces by their labels
    ),
)
