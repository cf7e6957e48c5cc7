"""Plugins by extension point, in running order, with their weights.

Works on names only: the caller passes the extension points that a plugin implements.
Source: kubernetes pkg/scheduler/apis/config/v1/default_plugins.go, ``mergePlugins``;
framework/runtime/framework.go, ``updatePluginList``, ``expandMultiPointPlugins``,
``getValidScoreWeights``; pkg/scheduler/apis/config/validation/validation.go,
``validateCommonQueueSort``; koordinator pkg/scheduler/frameworkext/defaultprofile/profile.go.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from koordinator.api.kube_version import DEFAULT_LEVEL, V1_37, KubeVersion
from koordinator.api.kubescheduler import (
    ADDED_POINTS,
    EXTENSION_POINTS,
    FeatureGates,
    KubeSchedulerConfiguration,
    KubeSchedulerProfile,
    Plugin,
    Plugins,
    PluginSet,
    did_you_mean,
)
from koordinator.api.kubescheduler.gates import (
    GANG_SCHEDULING,
    NODE_DECLARED_FEATURES,
    RESIZE_PREEMPTION,
    TOPOLOGY_PLACEMENTS,
)
from koordinator.foundation.errors import BugError, InputError

PluginList = list[
    tuple[str, int]
]  # (name, weight) in running order; the weight is 1 but for scores

#: What kube-scheduler runs up to 1.36, name and weight, in the order of its ``multiPoint``, but for
#: plugins that are there with their gates only.
STOCK_PLUGINS = (
    ("SchedulingGates", 1),
    ("PrioritySort", 1),
    ("NodeUnschedulable", 1),
    ("NodeName", 1),
    ("TaintToleration", 3),
    ("NodeAffinity", 2),
    ("NodePorts", 1),
    ("NodeResourcesFit", 1),
    ("VolumeRestrictions", 1),
    ("NodeVolumeLimits", 1),
    ("VolumeBinding", 1),
    ("VolumeZone", 1),
    ("PodTopologySpread", 2),
    ("InterPodAffinity", 2),
    ("DynamicResources", 2),  # frees an idle claim before the next one evicts a pod
    ("DefaultPreemption", 1),
    ("NodeResourcesBalancedAllocation", 1),
    ("ImageLocality", 1),
    ("DefaultBinder", 1),
)

DEFAULT_PRE_BIND = "DefaultPreBind"
DEFERRED_PODS = "DeferredPodScheduling"
PLACEMENT_GENERATOR, PODS_COUNT = "TopologyPlacementGenerator", "PodGroupPodsCount"
_WEIGHTED = ("score", "placementScore")  # points at which weights count

_ALL = "*"


def stock_plugins(gates: FeatureGates) -> tuple[tuple[str, int], ...]:
    """Return what kube-scheduler runs with these gates, at their level."""
    plugins = list(STOCK_PLUGINS)
    if gates.level >= V1_37:
        name, unschedulable = ("NodeName", 1), ("NodeUnschedulable", 1)
        plugins.remove(name)
        plugins.insert(plugins.index(unschedulable), name)
    if RESIZE_PREEMPTION in gates:
        plugins.insert(plugins.index(("NodeResourcesFit", 1)), (DEFERRED_PODS, 1))
    gated = (NODE_DECLARED_FEATURES, GANG_SCHEDULING)  # plugins have the names of their gates
    plugins += ((gate, 1) for gate in gated if gate in gates)
    if TOPOLOGY_PLACEMENTS in gates:
        plugins += ((PLACEMENT_GENERATOR, 1), (PODS_COUNT, 1))
    return tuple(plugins)


def merge_profiles(
    configuration: KubeSchedulerConfiguration,
    defaults: Sequence[tuple[str, int]],
    points_of: Mapping[str, frozenset[str]],
    level: KubeVersion = DEFAULT_LEVEL,
) -> tuple[dict[str, PluginList], ...]:
    """Return the lists of every profile: see ``merge``.

    Raises InputError, also when not all profiles sort the queue alike: they share it.
    """
    merged: list[dict[str, PluginList]] = []
    for index, profile in enumerate(configuration.profiles):
        try:
            _check_points(profile.plugins or Plugins(), level)
            merged.append(merge(profile.plugins, defaults, points_of))
        except InputError as error:
            raise error.within(path=f"profiles[{index}]") from None
    first = _queue_sort(configuration.profiles[0], merged[0])
    for index, (profile, lists) in enumerate(zip(configuration.profiles, merged, strict=True)):
        queue_sort = _queue_sort(profile, lists)
        if queue_sort != first:
            raise InputError(
                f"must be the same as in profiles[0]: {first[0]} with arguments {first[1]}, "
                f"got {queue_sort[0]} with arguments {queue_sort[1]}",
                path=f"profiles[{index}].plugins.queueSort",
            )
    return tuple(merged)


def _check_points(plugins: Plugins, level: KubeVersion) -> None:
    """Raise InputError for an extension point that kube-scheduler of a release does not know."""
    for point, added in ADDED_POINTS.items():
        if level < added and plugins.at(point) != PluginSet():
            raise InputError(
                f"unknown field: Kubernetes {level} has no such extension point, {added} has",
                path=f"plugins.{point}",
            )


def merge(
    plugins: Plugins | None,
    defaults: Sequence[tuple[str, int]],
    points_of: Mapping[str, frozenset[str]],
) -> dict[str, PluginList]:
    """Return extension point to the plugins that run there, for every extension point.

    ``defaults`` are (name, weight) in order; ``points_of`` has every plugin that exists.  Order of
    a point: first the plugins that are enabled there and in ``multiPoint``, as they stand there;
    then the other ones of ``multiPoint``, which starts with the defaults; then the other ones that
    are enabled there.  A disabled name that does not exist is allowed: other versions have it.
    Raises InputError for unknown plugins, plugins that don't implement the point or stand twice,
    for lists without exactly one queueSort or without a bind plugin, and for a second
    placementGenerate plugin.
    """
    if unknown := [name for name, _ in defaults if name not in points_of]:
        raise BugError(f"default plugins that don't exist: {', '.join(unknown)}")
    changes = plugins or Plugins()
    for point in (*EXTENSION_POINTS, "multiPoint"):
        _check_enabled(changes.at(point).enabled, point, points_of)
    everywhere = _merge_defaults(defaults, changes.multi_point)
    lists = {
        point: _at_point(point, _enabled_at(point, plugins, points_of), everywhere, points_of)
        for point in EXTENSION_POINTS
    }
    _check_lists(lists, points_of)
    return lists


def _check_enabled(
    enabled: Sequence[Plugin], point: str, points_of: Mapping[str, frozenset[str]]
) -> None:
    seen: set[str] = set()
    for index, plugin in enumerate(enabled):
        path = f"plugins.{point}.enabled[{index}].name"
        if plugin.name not in points_of:
            hint = did_you_mean(plugin.name, points_of)
            accepted = _named(points_of if point == "multiPoint" else _at(point, points_of))
            raise InputError(
                f"must be one of {accepted}, got {plugin.name}{hint}",
                path=path,
            )
        if point != "multiPoint" and point not in points_of[plugin.name]:
            accepted = _named(points_of[plugin.name])
            raise InputError(
                f"plugin {plugin.name} does not implement {point}; must be one of {accepted}",
                path=path,
            )
        if plugin.name in seen:
            raise InputError(
                f"each plugin must be listed only once, got {plugin.name} twice", path=path
            )
        seen.add(plugin.name)


def _merge_defaults(defaults: Sequence[tuple[str, int]], changes: PluginSet) -> dict[str, int]:
    """Return name to weight in order; a default that is enabled again keeps its place."""
    disabled = {plugin.name for plugin in changes.disabled}
    kept = {
        name: weight for name, weight in defaults if name not in disabled and _ALL not in disabled
    }
    return kept | {plugin.name: plugin.weight or 1 for plugin in changes.enabled}


def _enabled_at(
    point: str, plugins: Plugins | None, points_of: Mapping[str, frozenset[str]]
) -> PluginSet:
    """Return the changes at a point, with the plugin that koord-scheduler adds to preBind."""
    if plugins is None:
        return PluginSet()
    changes = plugins.at(point)
    listed = {plugin.name for plugin in (*changes.enabled, *changes.disabled)}
    if point != "preBind" or DEFAULT_PRE_BIND not in points_of or listed & {DEFAULT_PRE_BIND, _ALL}:
        return changes
    return PluginSet(
        enabled=(*changes.enabled, Plugin(name=DEFAULT_PRE_BIND)), disabled=changes.disabled
    )


def _at_point(
    point: str,
    changes: PluginSet,
    everywhere: Mapping[str, int],
    points_of: Mapping[str, frozenset[str]],
) -> PluginList:
    enabled = {plugin.name: plugin.weight or 1 for plugin in changes.enabled}
    disabled = {plugin.name for plugin in changes.disabled}
    expanded = {
        name: weight
        for name, weight in everywhere.items()
        if point in points_of[name] and disabled.isdisjoint((name, _ALL))
    }
    overriding = {name: weight for name, weight in enabled.items() if name in expanded}
    ordered = overriding | {**expanded, **overriding} | enabled
    return [(name, weight if point in _WEIGHTED else 1) for name, weight in ordered.items()]


def _check_lists(lists: Mapping[str, PluginList], points_of: Mapping[str, frozenset[str]]) -> None:
    if len(lists["queueSort"]) != 1:
        enabled = _named(name for name, _ in lists["queueSort"]) or "none"
        raise InputError(
            f"must enable exactly one of {_named(_at('queueSort', points_of))}, got {enabled}",
            path="plugins.queueSort",
        )
    if not lists["bind"]:
        raise InputError(
            f"must enable at least one of {_named(_at('bind', points_of))}",
            path="plugins.bind",
        )
    if len(lists["placementGenerate"]) > 1:
        enabled = _named(name for name, _ in lists["placementGenerate"])
        raise InputError(
            f"must enable at most one plugin, got {enabled}",
            path="plugins.placementGenerate",
        )


def _queue_sort(
    profile: KubeSchedulerProfile, lists: Mapping[str, PluginList]
) -> tuple[str, dict[str, Any]]:
    ((name, _),) = lists["queueSort"]
    return name, next((each.args for each in profile.plugin_config if each.name == name), {})


def _at(point: str, points_of: Mapping[str, frozenset[str]]) -> list[str]:
    return [name for name, points in points_of.items() if point in points]


def _named(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
