"""All plugins in their running order, and how a configuration becomes profiles.

Out-of-tree plugins are ``PluginSpec`` objects behind the entry point group
``koordinator.scheduler.plugins``; a configuration switches them on by name like any other.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType
from typing import Any

from koordinator.api.cluster_network_topology import ClusterNetworkTopology
from koordinator.api.core import ConfigMap, Service
from koordinator.api.device import Device
from koordinator.api.dynamic_resources import (
    TAINT_RULE_KINDS,
    DeviceClass,
    DeviceTaintRule,
    DeviceTaintRuleV1Alpha3,
    DeviceTaintRuleV1Beta2,
    ResourceClaim,
    ResourceSlice,
)
from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.kube_version import V1_36, V1_37, KubeVersion
from koordinator.api.kubescheduler import (
    NO_GATES,
    FeatureGates,
    KubeSchedulerConfiguration,
    PluginArgs,
    decode_args,
)
from koordinator.api.kubescheduler.gates import (
    COMPOSITE_POD_GROUPS,
    DRA_DEVICE_TAINT_RULES,
    GANG_SCHEDULING,
    GENERIC_WORKLOAD,
    PREEMPTION_POLICY_TRANSFORMER,
)
from koordinator.api.meta import KubeObject
from koordinator.api.node import NodeResourceTopology
from koordinator.api.node_metric import NodeMetric
from koordinator.api.pod_groups import (
    CompositePodGroup,
    PodGroup,
    SchedulingPodGroup,
    SchedulingPodGroupV1Alpha2,
    SchedulingPodGroupV1Alpha3,
    SchedulingWorkload,
)
from koordinator.api.policy import PodDisruptionBudget
from koordinator.api.reservation import Reservation
from koordinator.api.schedule_explanation import ScheduleExplanation
from koordinator.api.volume import (
    CsiDriver,
    CsiNode,
    CsiStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from koordinator.api.workload import ReplicaSet, ReplicationController, StatefulSet
from koordinator.domain.gangs import GROUP_KINDS, GangDefaults, WorkloadRefs
from koordinator.foundation.entry_points import load_entry_points
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.contract import (
    ActivePlugin,
    PluginSpec,
    Profile,
    plugins_with,
    points_of,
)
from koordinator.scheduler.plugin_lists import (
    DEFAULT_PRE_BIND,
    DEFERRED_PODS,
    PluginList,
    merge_profiles,
    stock_plugins,
)
from koordinator.scheduler.plugins import (
    coscheduling,
    default_binder,
    default_pre_bind,
    default_preemption,
    deferred_pod_scheduling,
    device_share,
    dynamic_resources,
    elastic_quota,
    image_locality,
    inter_pod_affinity,
    load_aware,
    node_affinity,
    node_declared_features,
    node_name,
    node_numa_resource,
    node_ports,
    node_resources_balanced_allocation,
    node_resources_fit,
    node_resources_fit_plus,
    node_unschedulable,
    node_volume_limits,
    pod_group_placements,
    pod_topology_spread,
    priority_sort,
    reservation,
    scarce_resource_avoidance,
    scheduling_gates,
    scheduling_hint,
    taint_toleration,
    volume_binding,
    volume_restrictions,
    volume_zone,
)
from koordinator.scheduler.preemption.single_node import PolicyOfLabel
from koordinator.scheduler.snapshot import ResourceAxis

ENTRY_POINTS = "koordinator.scheduler.plugins"

#: Plugins that are always loaded; ``builtin_plugins`` has more.  The order has no meaning:
#: ``stock_plugins`` has the one of the defaults.
BUILTIN_PLUGINS: tuple[PluginSpec[Any], ...] = (
    scheduling_gates.PLUGIN,
    priority_sort.PLUGIN,
    node_unschedulable.PLUGIN,
    node_name.PLUGIN,
    taint_toleration.PLUGIN,
    node_affinity.PLUGIN,
    node_ports.PLUGIN,
    node_resources_fit.PLUGIN,
    volume_restrictions.PLUGIN,
    node_volume_limits.PLUGIN,
    volume_binding.PLUGIN,
    volume_zone.PLUGIN,
    pod_topology_spread.PLUGIN,
    inter_pod_affinity.PLUGIN,
    dynamic_resources.PLUGIN,
    default_preemption.PLUGIN,
    node_resources_balanced_allocation.PLUGIN,
    node_declared_features.PLUGIN,
    image_locality.PLUGIN,
    default_binder.PLUGIN,
    default_pre_bind.PLUGIN,
    node_resources_fit_plus.PLUGIN,
    scarce_resource_avoidance.PLUGIN,
    load_aware.PLUGIN,
    node_numa_resource.PLUGIN,
    device_share.PLUGIN,
    reservation.PLUGIN,
    elastic_quota.PLUGIN,
    coscheduling.PLUGIN,
    coscheduling.GANG_SCHEDULING_PLUGIN,
    pod_group_placements.GENERATOR,
    pod_group_placements.COUNT,
    deferred_pod_scheduling.PLUGIN,
    scheduling_hint.PLUGIN,
)


def builtin_plugins() -> tuple[PluginSpec[Any], ...]:
    """Return every plugin of this package; it loads the policies of research on GPU placement."""
    from koordinator.scheduler.plugins import (  # noqa: PLC0415 -- profiles seldom name them
        gpu_best_fit,
        gpu_clusters,
        gpu_dot_product,
        gpu_fragmentation,
        gpu_packing,
        gpu_price,
        gpu_random,
    )

    return (
        *BUILTIN_PLUGINS,
        gpu_best_fit.PLUGIN,
        gpu_packing.PLUGIN,
        gpu_fragmentation.PLUGIN,
        gpu_price.PLUGIN,
        gpu_random.PLUGIN,
        gpu_dot_product.PLUGIN,
        gpu_clusters.PLUGIN,
    )


def _specs_for(
    configuration: KubeSchedulerConfiguration, out_of_tree: Iterable[PluginSpec[Any]]
) -> dict[str, PluginSpec[Any]]:
    """Return the plugins by name; all of them if the configuration names other than the usual."""
    specs = {spec.name: spec for spec in (*BUILTIN_PLUGINS, *out_of_tree)}
    if configuration.plugin_names() <= specs.keys():
        return specs
    return {spec.name: spec for spec in builtin_plugins()} | specs


#: Points at which kube-scheduler's plugins run and ours have nothing to do: a configuration may
#: name them there.
UPSTREAM_POINTS: Mapping[str, frozenset[str]] = {
    name: frozenset(points.split())
    for name, points in {
        "NodePorts": "preFilter filter",
        "NodeDeclaredFeatures": "preFilter filter",
        "NodeResourcesFit": "preFilter filter preScore score placementScore",
        "VolumeRestrictions": "preFilter filter",
        "NodeVolumeLimits": "preFilter filter",
        "VolumeBinding": "preFilter filter reserve preBind preScore score",
        "VolumeZone": "preFilter filter",
        "PodTopologySpread": "preFilter filter preScore score",
        "InterPodAffinity": "preFilter filter preScore score",
        "DynamicResources": (
            "preEnqueue preFilter filter postFilter score reserve preBind podGroupPostFilter"
        ),
        "DefaultPreemption": "preEnqueue postFilter podGroupPostFilter",
        DEFAULT_PRE_BIND: "preBind",
        "DeviceShare": "preFilter filter preScore score reserve preBind",
        "LoadAwareScheduling": "preFilter filter score reserve",
        "NodeNUMAResource": "preFilter filter preScore score reserve preBind",
        "Reservation": "preFilter filter postFilter preScore score reserve preBind bind",
        "ElasticQuota": "preFilter postFilter reserve",
        GANG_SCHEDULING: "preEnqueue reserve permit",
        DEFERRED_PODS: "preFilter filter permit",
        "Coscheduling": (
            "preEnqueue queueSort preFilter postFilter preScore score reserve permit preBind "
            "postBind"
        ),
    }.items()
}

FIT = "NodeResourcesFit"
TEMPLATES = "gpu-shared-resource-templates"  # the ConfigMap, unless arguments say otherwise

#: Kinds besides nodes, pods and namespaces that some plugin reads.
WATCHED: tuple[type[KubeObject], ...] = (
    Device,
    NodeMetric,
    NodeResourceTopology,
    Reservation,
    ConfigMap,
    ElasticQuota,
    Service,
    ReplicationController,
    ReplicaSet,
    StatefulSet,
    PodDisruptionBudget,
    PodGroup,
    SchedulingWorkload,
    SchedulingPodGroup,
    SchedulingPodGroupV1Alpha3,
    SchedulingPodGroupV1Alpha2,
    CompositePodGroup,
    ScheduleExplanation,
    ClusterNetworkTopology,
    StorageClass,
    CsiNode,
    CsiDriver,
    CsiStorageCapacity,
    VolumeAttachment,
    PersistentVolume,
    PersistentVolumeClaim,
    DeviceClass,
    *TAINT_RULE_KINDS,
    ResourceSlice,
    ResourceClaim,
)


#: Of these the ones that count only with a gate, which is off by default.
_GATED: Mapping[type[KubeObject], str] = MappingProxyType(
    {
        **dict.fromkeys(TAINT_RULE_KINDS, DRA_DEVICE_TAINT_RULES),
        SchedulingWorkload: GENERIC_WORKLOAD,
        SchedulingPodGroup: GENERIC_WORKLOAD,
        SchedulingPodGroupV1Alpha2: GENERIC_WORKLOAD,
        CompositePodGroup: COMPOSITE_POD_GROUPS,
    }
)


def watched_kinds(gates: FeatureGates = NO_GATES) -> tuple[type[KubeObject], ...]:
    """Return the kinds of ``WATCHED`` that count with these gates.

    Other kinds are not listed: without the right to list them the scheduler could not start.
    """
    trees = COMPOSITE_POD_GROUPS in gates
    groups = GangDefaults(refs=WorkloadRefs.FIRST, level=gates.level, trees=trees)
    return tuple(
        kind
        for kind in WATCHED
        if (kind not in _GATED or _GATED[kind] in gates)
        and kind is not SchedulingPodGroupV1Alpha3  # the same objects under another version
        and (not issubclass(kind, GROUP_KINDS) or groups.reads(kind))
        and (not issubclass(kind, DeviceTaintRule) or kind is _taint_rules(gates.level))
    )


def _taint_rules(level: KubeVersion) -> type[DeviceTaintRule]:
    """Return the version of DeviceTaintRules that the API servers of a release have."""
    if level >= V1_37:
        return DeviceTaintRule
    return DeviceTaintRuleV1Beta2 if level >= V1_36 else DeviceTaintRuleV1Alpha3


@dataclass(frozen=True, slots=True)
class Profiles:
    """Profiles and watched kinds of a configuration."""

    profiles: tuple[Profile, ...]
    #: selectors of ``WATCHED`` kinds whose plugins read some objects only
    selectors: Mapping[type[KubeObject], str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class InstalledPlugins:
    """The out-of-tree plugins of a Python environment, and a sentence per one that is broken."""

    specs: tuple[PluginSpec[Any], ...]
    broken: tuple[str, ...] = ()


def installed_plugins() -> InstalledPlugins:
    """Return the out-of-tree plugins of this Python environment, by the names of entry points."""
    specs, broken = load_entry_points(
        ENTRY_POINTS, PluginSpec, "koordinator.scheduler.contract.PluginSpec"
    )
    return InstalledPlugins(tuple(specs), tuple(broken))


def build_profiles(
    configuration: KubeSchedulerConfiguration,
    axis: ResourceAxis,
    *,
    out_of_tree: Iterable[PluginSpec[Any]] = (),
    source: str = "",
    gates: FeatureGates = NO_GATES,
) -> Profiles:
    """Return the configuration's profiles with their plugins built; ``gates`` are those on.

    Raises InputError for unknown plugins, points that a plugin doesn't implement, and bad
    arguments.
    """
    specs = _specs_for(configuration, out_of_tree)
    merged = _merged(configuration, specs, source, gates)
    profiles = []
    for index, (profile, lists) in enumerate(zip(configuration.profiles, merged, strict=True)):
        args: dict[str, PluginArgs] = {}
        for number, config in enumerate(profile.plugin_config):
            path = f"profiles[{index}].pluginConfig[{number}]"
            if config.name not in specs:
                accepted = ", ".join(sorted(specs))
                raise InputError(
                    f"must be one of {accepted}, got {config.name}",
                    source=source,
                    path=f"{path}.name",
                )
            given = decode_args(specs[config.name].args, dict(config.args), f"{path}.args", source)
            try:
                given.check_gates(gates)
            except InputError as error:
                raise error.within(source=source, path=f"{path}.args") from None
            args[config.name] = given
        if ignored := configuration.ignored_resources():
            fit = {config.name: config.args for config in profile.plugin_config}.get(FIT, {})
            data = {**fit, "ignoredResources": [*fit.get("ignoredResources", ()), *ignored]}
            args[FIT] = decode_args(specs[FIT].args, data, f"profiles[{index}].{FIT}", source)
        built = _Built(specs, args, axis, gates, (f"profiles[{index}]", source))
        profiles.append(built.profile(profile.scheduler_name, lists))
    return Profiles(tuple(profiles), _selectors(profiles))


def plugin_names(
    configuration: KubeSchedulerConfiguration,
    *,
    out_of_tree: Iterable[PluginSpec[Any]] = (),
    source: str = "",
    gates: FeatureGates = NO_GATES,
) -> dict[str, frozenset[str]]:
    """Return the names of the plugins of each profile, by the name of its scheduler.

    Raises InputError as ``build_profiles``, but for arguments of plugins.
    """
    specs = _specs_for(configuration, out_of_tree)
    merged = _merged(configuration, specs, source, gates)
    return {
        profile.scheduler_name: frozenset(name for plugins in lists.values() for name, _ in plugins)
        for profile, lists in zip(configuration.profiles, merged, strict=True)
    }


def _merged(
    configuration: KubeSchedulerConfiguration,
    specs: Mapping[str, PluginSpec[Any]],
    source: str,
    gates: FeatureGates,
) -> tuple[dict[str, PluginList], ...]:
    """Return the plugins of every profile by extension point."""
    points = {
        name: points_of(spec) | UPSTREAM_POINTS.get(name, frozenset())
        for name, spec in specs.items()
    }
    try:
        merged = merge_profiles(configuration, stock_plugins(gates), points, gates.level)
        for index, lists in enumerate(merged):
            _choose_gang_plugin(lists, gates, f"profiles[{index}].plugins")
    except InputError as error:
        raise error.within(source=source) from None
    return merged


def _choose_gang_plugin(
    lists: Mapping[str, list[tuple[str, int]]], gates: FeatureGates, path: str
) -> None:
    """Leave one plugin of a profile to keep the gangs of Workloads.

    Raises InputError if a profile names the one whose gate is off.
    """
    named = {name for plugins in lists.values() for name, _ in plugins}
    if GANG_SCHEDULING not in named:
        return
    if GANG_SCHEDULING not in gates:
        raise InputError(
            f"{GANG_SCHEDULING} is disabled by its feature gate; enable it with --feature-gates "
            f"{GENERIC_WORKLOAD}=true,{GANG_SCHEDULING}=true",
            path=path,
        )
    if coscheduling.PLUGIN.name in named:
        for plugins in lists.values():
            plugins[:] = [(name, weight) for name, weight in plugins if name != GANG_SCHEDULING]


def _selectors(profiles: Iterable[Profile]) -> dict[type[KubeObject], str]:
    """Return which ConfigMaps are read: of one name, if all profiles mean the same one."""
    plugins: list[object] = [a.plugin for profile in profiles for a in profile.filter]
    names = sorted(
        {
            plugin.templates.config_map.partition("/")[2]
            for plugin in plugins
            if isinstance(plugin, device_share.DeviceShare)
        }
    ) or [TEMPLATES]
    return {ConfigMap: _named(names[0])} if len(names) == 1 else {}


def _named(name: str) -> str:
    return f"metadata.name={name}"


#: Selectors for a configuration that names no ConfigMap.
SELECTORS: Mapping[type[KubeObject], str] = {ConfigMap: _named(TEMPLATES)}


class _Built:
    """The plugins of one profile: each is built once, however many points it runs at."""

    def __init__(
        self,
        specs: Mapping[str, PluginSpec[Any]],
        args: Mapping[str, PluginArgs],
        axis: ResourceAxis,
        gates: FeatureGates,
        location: tuple[str, str],
    ) -> None:
        self._specs, self._args, self._axis, self._gates = specs, args, axis, gates
        self._path, self._source = location
        self._plugins: dict[str, ActivePlugin] = {}

    def profile(self, name: str, lists: Mapping[str, Sequence[tuple[str, int]]]) -> Profile:
        at = {point: self._active(plugins) for point, plugins in lists.items()}
        used = dict.fromkeys(name for plugins in lists.values() for name, _ in plugins)
        by_name = {active.name: active for active in (*at["preFilter"], *at["filter"])}
        before = tuple(by_name.values())
        every = tuple(active.plugin for active in self._plugins.values())
        for active in plugins_with(self._plugins.values(), "setup"):
            active.plugin.setup(every)
        # Their gate is closed also where it is not listed.
        gangs = plugins_with(at["permit"], "gangs")
        gates = {active.name: active for active in (*at["preEnqueue"], *gangs)}
        gate = PREEMPTION_POLICY_TRANSFORMER
        policies = [ActivePlugin.of(gate, PolicyOfLabel())] if gate in self._gates else []
        return Profile(
            scheduler_name=name,
            pre_enqueue=plugins_with(gates.values(), "pre_enqueue"),
            pre_filter=plugins_with(before, "prefilter"),
            prefer_nodes=plugins_with(before, "prefer_nodes"),
            find_one_node=plugins_with(before, "find_one_node"),
            next_pod=plugins_with(before, "next_pod"),
            transform=plugins_with((*before, *policies), "transform"),
            reservation_plugins=plugins_with(before, "restorable"),
            filter=plugins_with(at["filter"], "filter"),
            post_filter=plugins_with(at["postFilter"], "postfilter"),
            score=plugins_with(at["score"], "score", "score_among"),
            reserve=plugins_with(at["reserve"], "reserve"),
            permit=plugins_with(at["permit"], "permit"),
            gangs=gangs,
            pre_bind=plugins_with(at["preBind"], "pre_bind"),
            post_bind=plugins_with(at["postBind"], "post_bind"),
            placement_generate=at["placementGenerate"],
            placement_score=at["placementScore"],
            pod_group_post_filter=at["podGroupPostFilter"],
            events={n: self._specs[n].events_with(self._gates) for n in used},
        )

    def _active(self, plugins: Sequence[tuple[str, int]]) -> tuple[ActivePlugin, ...]:
        active = []
        for name, weight in plugins:
            spec = self._specs[name]
            if name not in self._plugins:
                args = self._args.get(name)
                if args is None:
                    args = decode_args(spec.args, {}, f"{self._path}.{name}", self._source)
                plugin = spec.build(args, self._axis)
                if hasattr(plugin, "with_gates"):
                    plugin = plugin.with_gates(self._gates)
                self._plugins[name] = ActivePlugin.of(name, plugin, 1, spec.max_score)
            known = self._plugins[name]
            active.append(known if weight == known.weight else known.with_weight(weight))
        return tuple(active)
