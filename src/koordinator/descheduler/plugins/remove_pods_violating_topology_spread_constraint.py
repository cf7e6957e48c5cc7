"""RemovePodsViolatingTopologySpreadConstraint: evicts pods of domains that exceed the skew.

Source: kubernetes-sigs/descheduler
pkg/framework/plugins/removepodsviolatingtopologyspreadconstraint.
"""

import math
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from koordinator.api.core import TopologySpreadConstraint
from koordinator.api.kubescheduler.structs import fill
from koordinator.api.meta import LabelSelector
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.selectors import matches
from koordinator.descheduler.candidates import (
    CandidateFilter,
    ScopedPluginArgs,
    is_terminating,
    scoped_candidates,
)
from koordinator.descheduler.configuration import field_error
from koordinator.descheduler.contract import DeschedulerPluginSpec, Handle
from koordinator.descheduler.node_fit import fits_beside
from koordinator.domain.node_selection import FORBIDDING, admits_pod, untolerated
from koordinator.domain.pod_affinity import narrowed
from koordinator.foundation.lazy_dataclass import dataclass

_HARD: Final = ("DoNotSchedule",)
_KINDS: Final = ("DoNotSchedule", "ScheduleAnyway")


class RemovePodsViolatingTopologySpreadConstraintArgs(ScopedPluginArgs, frozen=True, kw_only=True):
    """Considered constraints, and the node fit check."""

    #: types of constraints to check: DoNotSchedule, ScheduleAnyway
    constraints: tuple[str, ...] = _HARD
    #: whether a pod moves only if it fits a node of the other domain
    topology_balance_node_fit: bool = True

    def __post_init__(self) -> None:
        fill(self, constraints=self.constraints or _HARD)

    def validate(self) -> None:
        super().validate()
        for index, kind in enumerate(self.constraints):
            if kind not in _KINDS:
                message = f"is not one of {', '.join(_KINDS)}"
                raise field_error(f"constraints[{index}]", kind, message)


@dataclass(frozen=True, slots=True)
class _Constraint:
    """Topology spread constraint of equal pods."""

    max_skew: int
    key: str
    selector: LabelSelector | None
    honours_affinity: bool
    honours_taints: bool
    example: Pod  # representative for affinity and tolerations

    def counts(self, node: Node) -> bool:
        """Return whether the constraint includes a node."""
        spec = self.example.spec
        if self.honours_affinity and not admits_pod(node, spec):
            return False
        return not (
            self.honours_taints and untolerated(node.spec.taints, spec.tolerations, FORBIDDING)
        )

    def identity(self) -> bytes:
        """Return a key that is equal for equal constraints."""
        spec = self.example.spec
        required = spec.required_node_affinity
        return msgspec.msgpack.encode(
            (
                self.max_skew,
                self.key,
                self.selector,
                (sorted(spec.node_selector.items()), required) if self.honours_affinity else None,
                spec.tolerations if self.honours_taints else None,
                self.honours_affinity,
                self.honours_taints,
            )
        )


@dataclass(slots=True)
class _Domain:
    value: str
    pods: list[Pod]


@dataclass(frozen=True, slots=True)
class RemovePodsViolatingTopologySpreadConstraint:
    """Plugin that balances each constraint of each namespace."""

    args: RemovePodsViolatingTopologySpreadConstraintArgs
    handle: Handle
    candidates: CandidateFilter

    def balance(self, nodes: Sequence[Node]) -> None:
        by_namespace: dict[str, list[Pod]] = {}
        for node in nodes:
            for pod in self.handle.view.active_pods_on(node.metadata.name):
                if self.candidates.is_candidate(pod):
                    by_namespace.setdefault(pod.metadata.namespace, []).append(pod)
        surplus: dict[str, Pod] = {}
        for _, pods in sorted(by_namespace.items()):
            for constraint in self._constraints(pods):
                domains = _domains(constraint, pods, nodes)
                sizes = [len(domain.pods) for domain in domains]
                if sizes and max(sizes) - min(sizes) > constraint.max_skew:
                    self._balance_domains(constraint, domains, nodes, surplus)
        for pod in surplus.values():
            if self.candidates.is_candidate(pod):
                self.handle.evictor.evict(pod)

    def _constraints(self, pods: Sequence[Pod]) -> list[_Constraint]:
        """Return the distinct considered constraints of pods."""
        constraints: dict[bytes, _Constraint] = {}
        for pod in pods:
            for given in pod.spec.topology_spread_constraints:
                if given.when_unsatisfiable in self.args.constraints:
                    constraint = _constraint_of(given, pod)
                    constraints.setdefault(constraint.identity(), constraint)
        return list(constraints.values())

    def _balance_domains(
        self,
        constraint: _Constraint,
        domains: list[_Domain],
        nodes: Sequence[Node],
        surplus: dict[str, Pod],
    ) -> None:
        """Add the pods to evict from the largest domains to ``surplus``."""
        mean = sum(len(domain.pods) for domain in domains) / len(domains)
        for domain in domains:
            domain.pods = _movable_last(domain.pods, self.handle.evictor.filter)
        domains.sort(key=lambda domain: len(domain.pods))
        small = {domain.value for domain in domains if len(domain.pods) < mean}
        receiving = [
            node
            for domain in domains
            if domain.value in small
            for node in nodes
            if constraint.counts(node) and node.metadata.labels.get(constraint.key) == domain.value
        ]
        low, high = 0, len(domains) - 1
        while low < high:
            if len(domains[high].pods) <= mean:
                high -= 1
            above, below = len(domains[high].pods), len(domains[low].pods)
            skew = above - below
            excess = min(
                math.ceil(above - mean),
                math.ceil(mean - below),
                math.ceil((skew - constraint.max_skew) / 2),
            )
            if skew <= constraint.max_skew or excess <= 0:
                low += 1
                continue
            giving = sorted(domains[high].pods, key=lambda pod: self._fits_other(pod, receiving))
            moved = giving[-excess:]
            for pod in moved:
                if not self.args.topology_balance_node_fit or self._fits_other(pod, receiving):
                    surplus.setdefault(pod.key, pod)
            domains[high].pods = giving[:-excess]
            domains[low].pods += moved

    def _fits_other(self, pod: Pod, nodes: Sequence[Node]) -> bool:
        return any(
            node.metadata.name != pod.spec.node_name and fits_beside(node, pod, self.handle.view)
            for node in nodes
        )


def build_remove_pods_violating_topology_spread_constraint(
    args: RemovePodsViolatingTopologySpreadConstraintArgs, handle: Handle
) -> RemovePodsViolatingTopologySpreadConstraint:
    """Build the plugin."""
    candidates = scoped_candidates(handle, args)
    return RemovePodsViolatingTopologySpreadConstraint(args, handle, candidates)


def _constraint_of(given: TopologySpreadConstraint, pod: Pod) -> _Constraint:
    return _Constraint(
        max_skew=given.max_skew,
        key=given.topology_key,
        selector=narrowed(given.label_selector, pod.metadata.labels, given.match_label_keys),
        honours_affinity=given.node_affinity_policy != "Ignore",
        honours_taints=given.node_taints_policy == "Honor",
        example=pod,
    )


def _domains(constraint: _Constraint, pods: Sequence[Pod], nodes: Sequence[Node]) -> list[_Domain]:
    """Return the pods that a constraint selects, by domain, sorted by the value of the domain.

    Domains without pods are included if the constraint includes a node of them.
    """
    labels = {node.metadata.name: node.metadata.labels.get(constraint.key) for node in nodes}
    counted = (labels[node.metadata.name] for node in nodes if constraint.counts(node))
    domains: dict[str, list[Pod]] = {value: [] for value in counted if value is not None}
    for pod in pods:
        value = labels[pod.spec.node_name]
        if (
            value is not None
            and not is_terminating(pod)
            and matches(constraint.selector, pod.metadata.labels)
        ):
            domains.setdefault(value, []).append(pod)
    return [_Domain(value, members) for value, members in sorted(domains.items())]


def _movable_last(pods: Sequence[Pod], may_go: Callable[[Pod], bool]) -> list[Pod]:
    """Return pods with the most movable ones last.

    Protected pods come first, then pods with node selectors or affinity, then by priority.
    """

    def key(pod: Pod) -> tuple[bool, bool, bool, int]:
        affinity = pod.spec.node_affinity
        is_bound = bool(pod.spec.node_selector) or affinity is not None
        priority = pod.spec.priority
        return may_go(pod), not is_bound, priority is not None, priority or 0

    backwards = list(pods)[::-1]
    return sorted(backwards, key=key)


REMOVE_PODS_VIOLATING_TOPOLOGY_SPREAD_CONSTRAINT = DeschedulerPluginSpec(
    "RemovePodsViolatingTopologySpreadConstraint",
    RemovePodsViolatingTopologySpreadConstraintArgs,
    build_remove_pods_violating_topology_spread_constraint,
)
