"""Profiles: the registry of plugins, and their selection and construction by configuration.

Source: koordinator pkg/descheduler/framework/runtime/framework.go, ``NewFramework``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from koordinator.api.kubescheduler import did_you_mean
from koordinator.api.meta import KubeObject, LabelSelector
from koordinator.descheduler.configuration import (
    POINTS,
    DeschedulerConfiguration,
    DeschedulerPluginArgs,
    DeschedulerProfile,
    decode_plugin_args,
)
from koordinator.descheduler.contract import (
    BalancePlugin,
    DeschedulePlugin,
    DeschedulerPluginSpec,
    EvictPlugin,
    FilterPlugin,
    Handle,
    PluginController,
)
from koordinator.descheduler.migration.controller import MIGRATION_CONTROLLER
from koordinator.descheduler.plugins.custom_priority import CUSTOM_PRIORITY
from koordinator.descheduler.plugins.default_evictor import DEFAULT_EVICTOR
from koordinator.descheduler.plugins.fragmentation_aware import FRAGMENTATION_AWARE
from koordinator.descheduler.plugins.gpu_defragmentation import GPU_DEFRAGMENTATION
from koordinator.descheduler.plugins.low_node_load import LOW_NODE_LOAD
from koordinator.descheduler.plugins.node_utilization import (
    HIGH_NODE_UTILIZATION,
    LOW_NODE_UTILIZATION,
)
from koordinator.descheduler.plugins.pod_life_time import POD_LIFE_TIME
from koordinator.descheduler.plugins.remove_duplicates import REMOVE_DUPLICATES
from koordinator.descheduler.plugins.remove_failed_pods import REMOVE_FAILED_PODS
from koordinator.descheduler.plugins.remove_pods_having_too_many_restarts import (
    REMOVE_PODS_HAVING_TOO_MANY_RESTARTS,
)
from koordinator.descheduler.plugins.remove_pods_violating_inter_pod_anti_affinity import (
    REMOVE_PODS_VIOLATING_INTER_POD_ANTI_AFFINITY,
)
from koordinator.descheduler.plugins.remove_pods_violating_node_affinity import (
    REMOVE_PODS_VIOLATING_NODE_AFFINITY,
)
from koordinator.descheduler.plugins.remove_pods_violating_node_taints import (
    REMOVE_PODS_VIOLATING_NODE_TAINTS,
)
from koordinator.descheduler.plugins.remove_pods_violating_topology_spread_constraint import (
    REMOVE_PODS_VIOLATING_TOPOLOGY_SPREAD_CONSTRAINT,
)
from koordinator.descheduler.plugins.scale_down_bin_pack import SCALE_DOWN_BIN_PACK
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass

Spec = DeschedulerPluginSpec[Any]

#: In the order of ``koord descheduler --help`` and of messages.
DESCHEDULER_PLUGINS: tuple[Spec, ...] = (
    MIGRATION_CONTROLLER,
    LOW_NODE_LOAD,
    CUSTOM_PRIORITY,
    FRAGMENTATION_AWARE,
    SCALE_DOWN_BIN_PACK,
    GPU_DEFRAGMENTATION,
    DEFAULT_EVICTOR,
    HIGH_NODE_UTILIZATION,
    LOW_NODE_UTILIZATION,
    POD_LIFE_TIME,
    REMOVE_DUPLICATES,
    REMOVE_FAILED_PODS,
    REMOVE_PODS_HAVING_TOO_MANY_RESTARTS,
    REMOVE_PODS_VIOLATING_INTER_POD_ANTI_AFFINITY,
    REMOVE_PODS_VIOLATING_NODE_AFFINITY,
    REMOVE_PODS_VIOLATING_NODE_TAINTS,
    REMOVE_PODS_VIOLATING_TOPOLOGY_SPREAD_CONSTRAINT,
)


@dataclass(frozen=True, slots=True)
class ChosenPlugin:
    """Plugin of a profile with its arguments, before it is built."""

    spec: Spec
    args: DeschedulerPluginArgs


@dataclass(frozen=True, slots=True)
class ChosenProfile:
    """Validated configuration of a profile."""

    name: str
    node_selector: LabelSelector | None
    plugins: Mapping[str, ChosenPlugin]
    names_at: Mapping[str, Sequence[str]]  # extension point -> plugins in running order
    prove_moves: bool | None = None  # None: not set for the profile

    @property
    def watches(self) -> Iterable[type[KubeObject]]:
        """Kinds that the plugins read besides nodes and pods."""
        for chosen in self.plugins.values():
            yield from chosen.spec.watches


@dataclass(frozen=True, slots=True)
class RunningProfile:
    """Built plugins of a profile by extension point, in running order."""

    name: str
    node_selector: LabelSelector | None
    deschedule: tuple[tuple[str, DeschedulePlugin], ...]
    balance: tuple[tuple[str, BalancePlugin], ...]
    evict: EvictPlugin
    filters: tuple[FilterPlugin, ...]
    controllers: tuple[PluginController, ...]


def choose_profiles(
    configuration: DeschedulerConfiguration,
    out_of_tree: Iterable[Spec] = (),
    source: str = "",
) -> tuple[ChosenProfile, ...]:
    """Return the plugins of each profile.

    Raises InputError with the path in ``source`` for an unknown plugin, a plugin at an extension
    point that it does not implement, invalid arguments, and a profile without exactly one evict
    plugin.
    """
    specs = {spec.name: spec for spec in (*DESCHEDULER_PLUGINS, *out_of_tree)}
    return tuple(
        _choose(profile, f"profiles[{index}]", specs, source)
        for index, profile in enumerate(configuration.profiles)
    )


def build_profile(
    chosen: ChosenProfile, handle_for: Callable[[ChosenProfile, str], Handle]
) -> RunningProfile:
    """Build the plugins of a profile, each with its own handle."""
    built = {
        name: each.spec.build(each.args, handle_for(chosen, name))
        for name, each in chosen.plugins.items()
    }
    at = {
        point: [(name, built[name]) for name in names] for point, names in chosen.names_at.items()
    }
    return RunningProfile(
        name=chosen.name,
        node_selector=chosen.node_selector,
        deschedule=tuple(at["deschedule"]),
        balance=tuple(at["balance"]),
        evict=at["evict"][0][1],
        filters=tuple(plugin for _, plugin in at["filter"]),
        controllers=tuple(each for each in built.values() if isinstance(each, PluginController)),
    )


def _choose(
    profile: DeschedulerProfile, path: str, specs: Mapping[str, Spec], source: str
) -> ChosenProfile:
    names_at = {point: profile.plugins.names_at(point) for point in POINTS}
    for point, names in names_at.items():
        for name in names:
            _check_point(name, point, specs, f"{path}.plugins.{point}", source)
    if len(names_at["evict"]) != 1:
        problem = (
            f"only one evict plugin can be enabled, found {', '.join(names_at['evict'])}"
            if names_at["evict"]
            else "no evict plugin is enabled"
        )
        raise InputError(problem, path=f"{path}.plugins.evict", source=source)
    needed = tuple(dict.fromkeys(name for names in names_at.values() for name in names))
    given = {config.name: index for index, config in enumerate(profile.plugin_config)}
    plugins = {}
    for name in needed:
        data = profile.plugin_config[given[name]].args if name in given else None
        field_path = f"{path}.pluginConfig[{given[name]}].args" if name in given else f"{name}Args"
        plugins[name] = ChosenPlugin(
            specs[name], decode_plugin_args(specs[name].args, data, field_path, source)
        )
    for (
        name,
        index,
    ) in given.items():  # arguments of plugins that are not enabled are validated as well
        field_path = f"{path}.pluginConfig[{index}]"
        _check_known(name, specs, f"{field_path}.name", source)
        if name not in plugins:
            data = profile.plugin_config[index].args
            decode_plugin_args(specs[name].args, data, f"{field_path}.args", source)
    return ChosenProfile(
        profile.name, profile.node_selector, plugins, names_at, profile.prove_moves
    )


def _check_point(name: str, point: str, specs: Mapping[str, Spec], path: str, source: str) -> None:
    _check_known(name, specs, path, source)
    if point not in specs[name].points:
        supporting = ", ".join(each.name for each in specs.values() if point in each.points)
        problem = f"plugin {name} does not extend {point}; must be one of {supporting}"
        raise InputError(problem, path=path, source=source)


def _check_known(name: str, specs: Mapping[str, Spec], path: str, source: str) -> None:
    if name not in specs:
        hint = did_you_mean(name, specs) or f"; must be one of {', '.join(specs)}"
        raise InputError(f"plugin {name} does not exist{hint}", path=path, source=source)
