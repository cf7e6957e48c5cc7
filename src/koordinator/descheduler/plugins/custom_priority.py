"""CustomPriority: moves pods from nodes of a level to nodes of later levels in a given order.

Source: koordinator pkg/descheduler/framework/plugins/custompriority/custom_priority.go;
pkg/descheduler/apis/config/validation/validation_custom_priority.go.
"""

import logging
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Final

from koordinator.api.kubescheduler.structs import ConfigStruct
from koordinator.api.meta import LabelSelector
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.selectors import matches
from koordinator.api.syntax import check_dns_subdomain
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
from koordinator.descheduler.contract import DeschedulerPluginSpec, Handle, MoveGain, Relocation
from koordinator.descheduler.node_fit import fits, free_on
from koordinator.domain.amounts import canonical
from koordinator.foundation.errors import ClusterError
from koordinator.foundation.lazy_dataclass import dataclass

_MISSES = 5  # consecutive pods without a fitting node after which a node is skipped
_LEAST = 2  # levels; moves need a source and a target
_MODES = ("", "BestEffort", "DrainNode")
_ALL = 100
_PACKED: Final = ("cpu", "memory")

log = logging.getLogger(__name__)


class ResourcePriority(ConfigStruct, frozen=True, kw_only=True):
    """Nodes of a level; the thresholds have no effect, as in the original."""

    name: str = ""  # name of the level
    node_selector: LabelSelector | None = None
    keep_threshold: dict[str, float] | None = None  # has no effect
    reject_threshold: dict[str, float] | None = None  # has no effect


class CustomPriorityArgs(DeschedulerPluginArgs, frozen=True, kw_only=True):
    """Levels of nodes in the order of eviction, and the mode of moves."""

    paused: bool = False
    dry_run: bool = False
    evictable_namespaces: NamespaceLists | None = None
    node_selector: LabelSelector | None = None
    pod_selectors: tuple[NamedPodSelector, ...] = ()
    node_fit: bool = True
    #: levels of nodes; pods leave the first ones first
    eviction_order: tuple[ResourcePriority, ...] = ()
    mode: str = ""  # BestEffort (default), or DrainNode: all pods of a node or none
    auto_cordon: bool = False  # cordon drained nodes

    def validate(self) -> None:
        if len(self.eviction_order) < _LEAST:
            message = "CustomPriority requires at least 2 resource priority levels"
            raise field_error("evictionOrder", len(self.eviction_order), message)
        names: set[str] = set()
        for index, level in enumerate(self.eviction_order):
            path = f"evictionOrder[{index}]"
            check_dns_subdomain(level.name, f"{path}.name")
            if level.name in names:
                raise field_error(f"{path}.name", level.name, "duplicate priority name")
            names.add(level.name)
            if level.node_selector is None:
                message = f"priority {level.name} must have a nodeSelector"
                raise field_error(f"{path}.nodeSelector", None, message)
            check_selector(level.node_selector, f"{path}.nodeSelector")
            _check_percentages(level.keep_threshold, f"{path}.keepThreshold")
            _check_percentages(level.reject_threshold, f"{path}.rejectThreshold")
        for index, selector in enumerate(self.pod_selectors):
            check_dns_subdomain(selector.name, f"podSelectors[{index}].name")
        check_pod_selectors(self.pod_selectors)
        check_selector(self.node_selector, "nodeSelector")
        check_namespaces(self.evictable_namespaces, "evictableNamespaces")
        if self.mode not in _MODES:
            raise field_error("mode", self.mode, "supported: BestEffort, DrainNode")


@dataclass(frozen=True, slots=True)
class CustomPriority:
    """Plugin that empties nodes of earlier levels into later ones."""

    args: CustomPriorityArgs
    handle: Handle
    candidates: CandidateFilter

    def balance(self, nodes: Sequence[Node]) -> None:
        if self.args.paused:
            log.info("CustomPriority is paused")
            return
        levels = self._levels(selected_nodes(nodes, self.args.node_selector))
        goal = LaterLevelGoal(
            {
                node.metadata.name: (index, name)
                for index, (name, members) in enumerate(levels)
                for node in members
            }
        )
        for index, (name, sources) in enumerate(levels[:-1]):
            targets = [node for _, others in levels[index + 1 :] for node in others]
            if self.args.mode == "DrainNode":
                self._drain(name, sources, targets, goal)
            else:
                self._move(name, sources, targets, goal)

    def _levels(self, nodes: Sequence[Node]) -> list[tuple[str, list[Node]]]:
        """Return the levels with nodes, in order; a node is in the first level that matches it."""
        levels: dict[str, list[Node]] = {level.name: [] for level in self.args.eviction_order}
        for node in nodes:
            for level in self.args.eviction_order:
                if matches(level.node_selector, node.metadata.labels):
                    levels[level.name].append(node)
                    break
        return [(name, members) for name, members in levels.items() if members]

    def _move(
        self,
        level: str,
        sources: Sequence[Node],
        targets: Sequence[Node],
        goal: "LaterLevelGoal",
    ) -> None:
        reason = f"evicting from {level} priority resource to lower priority resource"
        for source in sources:
            movable, misses = [], 0
            for pod in self._candidates_on(source):
                if self.args.node_fit and not any(
                    fits(node, pod, self.handle.view) for node in targets
                ):
                    misses += 1
                    if misses >= _MISSES:
                        break
                    continue
                misses = 0
                movable.append(pod)
            for pod in movable:
                self._evict(pod, reason, goal)

    def _drain(
        self,
        level: str,
        sources: Sequence[Node],
        targets: Sequence[Node],
        goal: "LaterLevelGoal",
    ) -> None:
        """Drain the nodes whose pods all fit on targets, one after the other."""
        view = self.handle.view
        free = {node.metadata.name: free_on(node, view) for node in targets}
        for source in sources:
            pods = self._candidates_on(source)
            left = {name: dict(amounts) for name, amounts in free.items()}
            if not pods or not all(self._pack(pod, targets, left) for pod in pods):
                continue
            name = source.metadata.name
            closing = name if self.args.auto_cordon else ""
            if not self.handle.evictor.prove(pods, goal, cordoning=closing):
                continue
            cordoned = self._cordon(source)
            reason = f"drain node {name} (sourcePriority={level})"
            for pod in pods:
                if self.candidates.is_candidate(pod) and not self._evict(pod, reason, goal):
                    if cordoned:
                        self._set_unschedulable(source, wanted=False)
                    break
            free = left

    def _pack(self, pod: Pod, targets: Sequence[Node], left: dict[str, dict[str, int]]) -> bool:
        """Return whether the pod fits on a target; deduct its requests from that target."""
        requests = _container_requests(pod)
        for node in targets:
            if self.args.node_fit and not fits(node, pod, self.handle.view):
                continue
            amounts = left[node.metadata.name]
            if all(requests.get(name, 0) <= amounts.get(name, 0) for name in _PACKED):
                for name in _PACKED:
                    amounts[name] = amounts.get(name, 0) - requests.get(name, 0)
                return True
        return False

    def _candidates_on(self, node: Node) -> list[Pod]:
        """Return the candidates of a node, those with the smallest requests first.

        Finished pods need no place, and must not keep the others from leaving.
        """
        running = self.handle.view.active_pods_on(node.metadata.name)
        return sorted(filter(self.candidates.is_candidate, running), key=_size)

    def _evict(self, pod: Pod, reason: str, goal: "LaterLevelGoal") -> bool:
        if self.args.dry_run:
            log.info("dry run: pod would be evicted", extra={"pod": pod.key})
            return True
        return self.handle.evictor.evict(pod, reason, goal=goal)

    def _cordon(self, node: Node) -> bool:
        """Cordon a node; return whether this call cordoned it."""
        is_dry_run = self.args.dry_run or self.handle.is_dry_run
        if not self.args.auto_cordon or is_dry_run or node.spec.unschedulable:
            return False
        return self._set_unschedulable(node, wanted=True)

    def _set_unschedulable(self, node: Node, *, wanted: bool) -> bool:
        name = node.metadata.name
        try:
            self.handle.writer.patch(Node, name, "", {"spec": {"unschedulable": wanted or None}})
        except ClusterError as error:
            extra = {"node": name, "unschedulable": wanted, "error": str(error)}
            log.warning("node not changed", extra=extra)
            return False
        return True


@dataclass(frozen=True, slots=True)
class LaterLevelGoal:
    """Goal that pods run on nodes of a later level than before."""

    levels: Mapping[str, tuple[int, str]]  # by node: index and name of its level

    def gain(self, moves: Sequence[Relocation]) -> MoveGain:
        """Return the number of levels that all pods advance."""
        total, parts = 0, []
        for move in moves:
            if move.source == move.target:
                continue
            source, target = self.levels.get(move.source), self.levels.get(move.target)
            if source is None or target is None or target[0] <= source[0]:
                level_text = f"{move.target} of {target[1] if target else 'no level'}"
                left = source[1] if source else "no level"
                return MoveGain(
                    0.0, f"it would move to {level_text}, which does not come after {left}"
                )
            total += target[0] - source[0]
            parts.append(f"{source[1]} -> {target[1]}")
        return MoveGain(float(total), ", ".join(dict.fromkeys(parts)))

    def made(self, moves: Sequence[Relocation]) -> None:
        """Do nothing: levels don't depend on moves."""


def build_custom_priority(args: CustomPriorityArgs, handle: Handle) -> CustomPriority:
    """Build the plugin."""
    candidates = candidates_of(handle, args.evictable_namespaces, args.pod_selectors)
    return CustomPriority(args, handle, candidates)


def _container_requests(pod: Pod) -> dict[str, int]:
    """Return the requests of the containers, without init containers and overhead."""
    sums: dict[str, int] = {}
    for container in pod.spec.containers:
        for name, quantity in container.resources.requests.items():
            sums[name] = sums.get(name, 0) + canonical(name, quantity)
    return sums


def _size(pod: Pod) -> tuple[int, int]:
    requests = _container_requests(pod)
    return requests.get("cpu", 0), requests.get("memory", 0)


def _check_percentages(thresholds: dict[str, float] | None, path: str) -> None:
    for name, percentage in (thresholds or {}).items():
        if not (isfinite(percentage) and 0 <= percentage <= _ALL):
            raise field_error(f"{path}[{name}]", percentage, "must be between 0 and 100")


CUSTOM_PRIORITY = DeschedulerPluginSpec(
    "CustomPriority", CustomPriorityArgs, build_custom_priority, proves_moves=True
)
