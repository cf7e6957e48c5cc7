"""FragmentationAware: moves the pod whose eviction evens the requests of its node most.

Source: koordinator pkg/descheduler/framework/plugins/fragmentationaware;
pkg/descheduler/apis/config/validation/validation_fragmentationaware.go.
"""

import logging
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

from koordinator.api.kubescheduler.structs import ConfigStruct, fill
from koordinator.api.meta import LabelSelector
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.descheduler.candidates import CandidateFilter, candidates_of, selected_nodes
from koordinator.descheduler.configuration import (
    DeschedulerPluginArgs,
    NamedPodSelector,
    NamespaceLists,
    check_namespaces,
    check_pod_selectors,
    check_selector,
    field_error,
)
from koordinator.descheduler.contract import (
    ClusterView,
    DeschedulerPluginSpec,
    Handle,
    MoveGain,
    Relocation,
)
from koordinator.descheduler.node_fit import fits_elsewhere
from koordinator.domain.amounts import canonical
from koordinator.domain.pod_requests import pod_requests
from koordinator.foundation.lazy_dataclass import dataclass

_DEFAULT = ("cpu", "memory")
_MILLIS = 1000
_LEAST_GAIN = 1e-9  # smaller gains may be rounding errors

log = logging.getLogger(__name__)


class FragmentationAwarePodSelector(ConfigStruct, frozen=True, kw_only=True):
    """Selector of pods."""

    selector: LabelSelector | None = None


class FragmentationAwareArgs(DeschedulerPluginArgs, frozen=True, kw_only=True):
    """Thresholds of imbalance and improvement, as standard deviations of requested shares."""

    paused: bool = False
    dry_run: bool = False
    node_selector: LabelSelector | None = None
    evictable_namespaces: NamespaceLists | None = None
    pod_selectors: tuple[FragmentationAwarePodSelector, ...] = ()
    node_fit: bool = True
    resources: tuple[str, ...] = _DEFAULT  # resources whose requested shares are compared
    #: standard deviation of the shares from which a node is imbalanced
    imbalance_threshold: float = 0.15
    min_improvement_threshold: float = 0.02  # least improvement of the standard deviation by a move

    def __post_init__(self) -> None:
        fill(self, resources=self.resources or _DEFAULT)

    def named_selectors(self) -> tuple[NamedPodSelector, ...]:
        """Return the selectors in the type of the other plugins."""
        return tuple(NamedPodSelector(selector=each.selector) for each in self.pod_selectors)

    def validate(self) -> None:
        for index, name in enumerate(self.resources):
            if name in self.resources[:index]:
                raise field_error(f"resources[{index}]", name, "Duplicate value")
        for path, value in (
            ("imbalanceThreshold", self.imbalance_threshold),
            ("minImprovementThreshold", self.min_improvement_threshold),
        ):
            if not (math.isfinite(value) and value >= 0):
                raise field_error(path, value, "must be greater than or equal to 0")
        check_selector(self.node_selector, "nodeSelector")
        check_pod_selectors(self.named_selectors())
        check_namespaces(self.evictable_namespaces, "evictableNamespaces")


@dataclass(frozen=True, slots=True)
class FragmentationAware:
    """Plugin that moves at most one pod per node and cycle."""

    args: FragmentationAwareArgs
    handle: Handle
    candidates: CandidateFilter

    def balance(self, nodes: Sequence[Node]) -> None:
        if self.args.paused:
            log.info("FragmentationAware is paused")
            return
        chosen = selected_nodes(nodes, self.args.node_selector)
        goal = EvennessGoal(
            {node.metadata.name: node for node in nodes}, self.handle.view, self._imbalance
        )
        for node in chosen:
            before = self._imbalance(node, self.handle.view.requested_on(node.metadata.name))
            if before <= self.args.imbalance_threshold:
                continue
            best = self._best(node, chosen, before)
            if best is None:
                continue
            pod, after = best
            if self.handle.evictor.pre_eviction_filter(pod):
                self._evict(pod, before, after, goal)

    def _best(self, node: Node, nodes: Sequence[Node], before: float) -> tuple[Pod, float] | None:
        """Return the pod whose eviction improves most, and the imbalance of the node after it."""
        name, best, best_gain = node.metadata.name, None, self.args.min_improvement_threshold
        requested = self.handle.view.requested_on(name)
        for pod in self.handle.view.active_pods_on(name):
            if not self.candidates.is_candidate(pod):
                continue
            if self.args.node_fit and not fits_elsewhere(nodes, pod, self.handle.view):
                continue
            own = {**self.handle.view.allocation_of(pod), "pods": 1}
            left = {each: amount - own.get(each, 0) for each, amount in requested.items()}
            after = self._imbalance(node, left)
            if before - after > best_gain:
                best, best_gain = (pod, after), before - after
        return best

    def _evict(self, pod: Pod, before: float, after: float, goal: "EvennessGoal") -> None:
        reason = (
            f"fragmentation reduction: stdBefore={before:.4f} stdAfter={after:.4f} "
            f"gain={before - after:.4f}"
        )
        if self.args.dry_run:
            extra = {"pod": pod.key, "reason": reason}
            log.info("dry run: pod would be evicted", extra=extra)
        else:
            self.handle.evictor.evict(pod, reason, goal=goal)

    def _imbalance(self, node: Node, requested: Mapping[str, int]) -> float:
        """Return the population standard deviation of the requested shares."""
        shares = []
        for name in self.args.resources:
            quantity = node.status.allocatable.get(name)
            has = canonical(name, quantity) if quantity is not None else 0
            if has:
                unit = 1 if name == "cpu" else _MILLIS
                shares.append(float(requested.get(name, 0) * unit) / float(has * unit))
        if not shares:
            return 0.0
        mean = sum(shares) / len(shares)
        return math.sqrt(sum((share - mean) * (share - mean) for share in shares) / len(shares))


@dataclass(frozen=True, slots=True)
class EvennessGoal:
    """Goal that source and target together are more evenly requested than before."""

    nodes: Mapping[str, Node]
    view: ClusterView
    imbalance: Callable[[Node, Mapping[str, int]], float]
    _more: dict[str, Counter[str]] = field(default_factory=dict)  # by node: requests added by moves

    def gain(self, moves: Sequence[Relocation]) -> MoveGain:
        """Return the decrease of the standard deviations of the shares, summed over nodes."""
        moves = [move for move in moves if move.source != move.target]
        changes = self._changes(moves)
        total, parts = 0.0, []
        for name, change in changes.items():
            if name not in self.nodes:
                return MoveGain(0.0, f"{name} is not a node of the plugin")
            known = self._requested(name)
            after = {each: known.get(each, 0) + change[each] for each in {*known, *change}}
            was, is_now = (self.imbalance(self.nodes[name], each) for each in (known, after))
            total += was - is_now
            parts.append(f"{name} {was:.4f} -> {is_now:.4f}")
        text = f"standard deviation of shares: {', '.join(parts)}"
        return MoveGain(total if total > _LEAST_GAIN else 0.0, text)

    def made(self, moves: Sequence[Relocation]) -> None:
        """Add the requests of the moves."""
        for name, change in self._changes(moves).items():
            self._more.setdefault(name, Counter()).update(change)

    def _changes(self, moves: Sequence[Relocation]) -> dict[str, Counter[str]]:
        changes: dict[str, Counter[str]] = {}
        for move in moves:
            own = {**pod_requests(move.pod.spec), "pods": 1}
            changes.setdefault(move.source, Counter()).subtract(own)
            changes.setdefault(move.target, Counter()).update(own)
        return changes

    def _requested(self, node: str) -> Mapping[str, int]:
        known, more = self.view.requested_on(node), self._more.get(node)
        if more is None:
            return known
        return {name: known.get(name, 0) + more[name] for name in {*known, *more}}


def build_fragmentation_aware(args: FragmentationAwareArgs, handle: Handle) -> FragmentationAware:
    """Build the plugin."""
    candidates = candidates_of(handle, args.evictable_namespaces, args.named_selectors())
    return FragmentationAware(args, handle, candidates)


FRAGMENTATION_AWARE = DeschedulerPluginSpec(
    "FragmentationAware", FragmentationAwareArgs, build_fragmentation_aware, proves_moves=True
)
