"""Arguments of the plugins of kube-scheduler.

An empty list of resources means the default one, as does no list.
Source: k8s.io/kube-scheduler config/v1/types_pluginargs.go; kubernetes pkg/scheduler/apis/config
v1/defaults.go and validation/validation_pluginargs.go.
"""

from typing import Annotated, Literal

from msgspec import Meta

from koordinator.api.core import NodeAffinity, TopologySpreadConstraint
from koordinator.api.kube_version import V1_36
from koordinator.api.kubescheduler.gates import (
    DRA_BINDING_CONDITIONS,
    DRA_FILTER_TIMEOUT,
    STORAGE_CAPACITY_SCORING,
    FeatureGates,
)
from koordinator.api.kubescheduler.structs import (
    ConfigPercent,
    ConfigStruct,
    Count,
    PluginArgs,
    Seconds,
    fill,
)
from koordinator.api.selectors import check_node_selector, check_node_selector_term
from koordinator.api.syntax import check_label_key, check_one_of, invalid_value
from koordinator.foundation.clock import Duration
from koordinator.foundation.errors import InputError

_ONE_SECOND = Duration(seconds=1)
_RATIO = "RequestedToCapacityRatio"


class ResourceSpec(ConfigStruct, frozen=True, kw_only=True):
    """A resource that is scored; a weight of 0 becomes 1."""

    name: str  # name of the resource
    weight: ConfigPercent = 1  # weight of the resource in the score; 0 becomes 1

    def __post_init__(self) -> None:
        if self.weight == 0:
            fill(self, weight=1)


CPU_AND_MEMORY = (ResourceSpec(name="cpu"), ResourceSpec(name="memory"))


class UtilizationShapePoint(ConfigStruct, frozen=True, kw_only=True):
    """A point of a curve that is straight between its points."""

    utilization: ConfigPercent  # utilization in percent
    score: Annotated[int, Meta(ge=0, le=10)]  # score from 0 to 10 at that utilization


class RequestedToCapacityRatioParam(ConfigStruct, frozen=True, kw_only=True):
    """Utilization of a resource to its score."""

    shape: tuple[UtilizationShapePoint, ...] = ()  # points of the curve from utilization to score


class ScoringStrategy(ConfigStruct, frozen=True, kw_only=True):
    """Preferred utilization of nodes."""

    #: LeastAllocated prefers free nodes, MostAllocated full ones
    type: Literal["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"]
    resources: tuple[ResourceSpec, ...] = CPU_AND_MEMORY  # resources that are scored
    #: curve of type RequestedToCapacityRatio
    requested_to_capacity_ratio: RequestedToCapacityRatioParam | None = None

    def __post_init__(self) -> None:
        fill(self, resources=self.resources or CPU_AND_MEMORY)


class NodeResourcesFitArgs(PluginArgs, frozen=True, kw_only=True):
    """Resources that the filter (but not the score) ignores, and the preferred utilization."""

    ignored_resources: tuple[str, ...] = ()  # extended resources that are not checked
    ignored_resource_groups: tuple[str, ...] = ()  # example.com means example.com/*
    scoring_strategy: ScoringStrategy = ScoringStrategy(type="LeastAllocated")  # score of nodes

    def validate(self) -> None:
        for index, name in enumerate(self.ignored_resources):
            check_label_key(name, f"ignoredResources[{index}]")
        for index, group in enumerate(self.ignored_resource_groups):
            path = f"ignoredResourceGroups[{index}]"
            if "/" in group:
                raise invalid_value(path, group, "the part of resource names before '/'")
            check_label_key(group, path)
        strategy, path = self.scoring_strategy, "scoringStrategy.requestedToCapacityRatio"
        ratio = strategy.requested_to_capacity_ratio
        if ratio is not None:
            _check_shape(ratio.shape, f"{path}.shape")
        elif strategy.type == _RATIO:
            raise InputError("required with this type, but missing", path=path)

    def check_gates(self, gates: FeatureGates) -> None:
        strategy = self.scoring_strategy
        is_unused = strategy.requested_to_capacity_ratio is not None
        if is_unused and strategy.type != _RATIO and gates.level >= V1_36:
            raise InputError(
                f"must not be set when type is not {_RATIO}, got type {strategy.type}",
                path="scoringStrategy.requestedToCapacityRatio",
            )


class NodeResourcesBalancedAllocationArgs(PluginArgs, frozen=True, kw_only=True):
    """The resources that should be used to the same degree; all weigh 1."""

    #: resources that should be used to the same degree
    resources: tuple[ResourceSpec, ...] = CPU_AND_MEMORY

    def __post_init__(self) -> None:
        fill(self, resources=self.resources or CPU_AND_MEMORY)

    def validate(self) -> None:
        names: set[str] = set()
        for index, resource in enumerate(self.resources):
            if resource.name in names:
                raise invalid_value(f"resources[{index}].name", resource.name, "unique")
            names.add(resource.name)
            if resource.weight != 1:
                raise invalid_value(f"resources[{index}].weight", resource.weight, "1")


class NodeAffinityArgs(PluginArgs, frozen=True, kw_only=True):
    """``added_affinity`` holds for every pod, on top of the pod's own."""

    added_affinity: NodeAffinity | None = None  # node affinity of every pod, besides its own

    def validate(self) -> None:
        if self.added_affinity is None:
            return
        required = self.added_affinity.required_during_scheduling_ignored_during_execution
        preferred = self.added_affinity.preferred_during_scheduling_ignored_during_execution
        if required is not None:
            path = "addedAffinity.requiredDuringSchedulingIgnoredDuringExecution"
            check_node_selector(required, path)
        for index, term in enumerate(preferred):
            path = f"addedAffinity.preferredDuringSchedulingIgnoredDuringExecution[{index}]"
            check_node_selector_term(term.preference, f"{path}.preference")


class InterPodAffinityArgs(PluginArgs, frozen=True, kw_only=True):
    """The weight is of required affinity of pods that run already, when scoring."""

    hard_pod_affinity_weight: ConfigPercent = 1  # weight of the required affinity of pods that run
    #: whether preferred terms of pods that run are not scored
    ignore_preferred_terms_of_existing_pods: bool = False


class PodTopologySpreadArgs(PluginArgs, frozen=True, kw_only=True):
    """Constraints of pods that have none; the selector comes from the pod's workload.

    System means hosts (maxSkew 3) and zones (maxSkew 5), ScheduleAnyway.
    """

    #: constraints of pods that have none
    default_constraints: tuple[TopologySpreadConstraint, ...] = ()
    #: System has constraints of its own, List takes defaultConstraints
    defaulting_type: Literal["System", "List"] = "System"

    def validate(self) -> None:
        if self.default_constraints and self.defaulting_type != "List":
            raise invalid_value(
                "defaultingType", self.defaulting_type, "List when defaultConstraints are set"
            )
        seen: set[tuple[str, str]] = set()
        for index, constraint in enumerate(self.default_constraints):
            path = f"defaultConstraints[{index}]"
            _check_constraint(constraint, path)
            pair = constraint.topology_key, constraint.when_unsatisfiable
            if pair in seen:
                value = " and ".join(pair)
                raise invalid_value(
                    path, value, "a unique pair of topologyKey and whenUnsatisfiable"
                )
            seen.add(pair)


class VolumeBindingArgs(PluginArgs, frozen=True, kw_only=True):
    """``shape`` scores nodes by how full the volumes would be.

    Without one, nodes with the most free capacity score best if StorageCapacityScoring is on.
    """

    bind_timeout_seconds: Seconds = 600  # 0 doesn't wait
    #: points of the curve from the utilization of storage to the score
    shape: tuple[UtilizationShapePoint, ...] = ()

    def validate(self) -> None:
        if self.shape:
            _check_shape(self.shape, "shape")

    def check_gates(self, gates: FeatureGates) -> None:
        if self.shape and STORAGE_CAPACITY_SCORING not in gates:
            raise InputError(
                f"must not be set: the feature gate {STORAGE_CAPACITY_SCORING} is disabled",
                path="shape",
            )


class DefaultPreemptionArgs(PluginArgs, frozen=True, kw_only=True):
    """Number of nodes on which preemption is tried: the larger of the two."""

    min_candidate_nodes_percentage: ConfigPercent = 10
    min_candidate_nodes_absolute: Count = 100

    def validate(self) -> None:
        if self.min_candidate_nodes_percentage == 0 == self.min_candidate_nodes_absolute:
            raise invalid_value(
                "minCandidateNodesPercentage", 0, "above 0 when minCandidateNodesAbsolute is 0"
            )


class DynamicResourcesArgs(PluginArgs, frozen=True, kw_only=True):
    """Limits of one search on a node (0 is none), and of the wait for prepared devices."""

    filter_timeout: Duration | None = None  # None: 10s
    binding_timeout: Duration | None = None  # None: 10m

    def validate(self) -> None:
        if self.filter_timeout is not None and self.filter_timeout < Duration():
            raise invalid_value("filterTimeout", str(self.filter_timeout), "at least 0s")
        if self.binding_timeout is not None and self.binding_timeout < _ONE_SECOND:
            raise invalid_value("bindingTimeout", str(self.binding_timeout), "at least 1s")

    def check_gates(self, gates: FeatureGates) -> None:
        for value, path, gate in (
            (self.filter_timeout, "filterTimeout", DRA_FILTER_TIMEOUT),
            (self.binding_timeout, "bindingTimeout", DRA_BINDING_CONDITIONS),
        ):
            if value is not None and gate not in gates:
                raise InputError(f"must not be set: the feature gate {gate} is disabled", path=path)


def _check_shape(shape: tuple[UtilizationShapePoint, ...], path: str) -> None:
    if not shape:
        raise invalid_value(path, [], "at least one point")
    for index in range(1, len(shape)):
        before, utilization = shape[index - 1].utilization, shape[index].utilization
        if utilization <= before:
            field_path = f"{path}[{index}].utilization"
            raise invalid_value(
                field_path, utilization, f"more than the {before} of the point before"
            )


def _check_constraint(constraint: TopologySpreadConstraint, path: str) -> None:
    if constraint.max_skew <= 0:
        raise invalid_value(f"{path}.maxSkew", constraint.max_skew, "at least 1")
    check_label_key(constraint.topology_key, f"{path}.topologyKey")
    check_one_of(
        constraint.when_unsatisfiable,
        ("DoNotSchedule", "ScheduleAnyway"),
        f"{path}.whenUnsatisfiable",
    )
    if constraint.label_selector is not None:
        raise InputError(
            "must not be set: the selector is taken from the pod's workload",
            path=f"{path}.labelSelector",
        )
