"""Named configurations: kube-scheduler's defaults, the chart's, and placement policies."""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from msgspec.structs import replace

from koordinator.api.kubescheduler import (
    DEFAULT_SCHEDULER_NAME,
    KubeSchedulerConfiguration,
    KubeSchedulerProfile,
    Plugin,
    PluginConfig,
    Plugins,
    PluginSet,
    decode_configuration,
)
from koordinator.foundation.errors import InputError
from koordinator.foundation.yaml_documents import yaml_document
from koordinator.scheduler.contract import PluginSpec
from koordinator.simulator.embedded import STOCK

_PACKAGE: Final = Path(__file__).parent
SHIPPED = "data/koordinator-scheduler.yaml"
PROFILE = "data/demo-profile.yaml"
#: Score plugins by name of the policy.
POLICIES: Mapping[str, str] = MappingProxyType(
    {
        "random": "GPURandom",
        "dotprod": "GPUDotProduct",
        "clustering": "GPUClustering",
        "packing": "GPUPacking",
        "bestfit": "GPUBestFit",
        "fgd": "GPUFragmentation",
        "price": "GPUPrice",
        "price-online": "GPUPrice",
    }
)
_KNOWS_MIX: Final = ("fgd", "price")
_DRAWS: Final = "random"
_DEVICES: Final = Plugin(name="DeviceShare")
_EVERY: Final = (Plugin(name="*"),)
#: Of traces: kube-scheduler's filters with devices, without preemption.
TRACE_CONFIGURATION: Final = KubeSchedulerConfiguration(
    profiles=(
        KubeSchedulerProfile(
            scheduler_name=DEFAULT_SCHEDULER_NAME,
            plugins=Plugins(
                filter=PluginSet(enabled=(_DEVICES,)),
                post_filter=PluginSet(disabled=_EVERY),
                reserve=PluginSet(enabled=(_DEVICES,)),
            ),
        ),
    )
)


def with_policy(
    configuration: KubeSchedulerConfiguration,
    policy: str,
    expected: Callable[[], list[dict[str, Any]]],
    out_of_tree: Iterable[PluginSpec[Any]] = (),
    *,
    seed: int = 0,
) -> KubeSchedulerConfiguration:
    """Return a configuration that scores nodes by a policy only.

    ``policy`` is one of ``POLICIES``, or the name of an out-of-tree plugin.  ``expected`` returns
    the mix of pods for policies that know it; ``seed`` is that of ``random``.  Raises InputError
    for an unknown policy.
    """
    own = [spec.name for spec in out_of_tree]
    name = POLICIES.get(policy, policy if policy in own else "")
    if not name:
        accepted = ", ".join((*POLICIES, *own))
        raise InputError(f"must be one of {accepted}, got {policy!r}", source="--policy")
    given: tuple[PluginConfig, ...] = ()
    if policy in POLICIES:
        args: dict[str, Any] = {"expected": expected()} if policy in _KNOWS_MIX else {}
        if policy == _DRAWS:
            args = {"seed": seed}
        given = (PluginConfig(name=name, args=args),) if args else ()
    profiles = [_scored_by(profile, name, given) for profile in configuration.profiles]
    return replace(configuration, profiles=tuple(profiles))


def with_plugins(
    configuration: KubeSchedulerConfiguration,
    plugins: Iterable[PluginSpec[Any]],
    policy: str = "",
) -> KubeSchedulerConfiguration:
    """Return a configuration in which every profile runs the plugins that it does not name yet.

    The plugin of the policy is left out: it only scores.
    """
    named = configuration.plugin_names()
    added = tuple(
        Plugin(name=spec.name) for spec in plugins if spec.name not in named and spec.name != policy
    )
    if not added:
        return configuration
    profiles = []
    for profile in configuration.profiles:
        lists = profile.plugins or Plugins()
        enabled = (*lists.multi_point.enabled, *added)
        lists = replace(lists, multi_point=replace(lists.multi_point, enabled=enabled))
        profiles.append(replace(profile, plugins=lists))
    return replace(configuration, profiles=tuple(profiles))


def _scored_by(
    profile: KubeSchedulerProfile, name: str, given: tuple[PluginConfig, ...]
) -> KubeSchedulerProfile:
    lists = profile.plugins or Plugins()
    lists = replace(
        lists,
        score=PluginSet(disabled=_EVERY, enabled=(Plugin(name=name),)),
        filter=_with_devices(lists, lists.filter),
        reserve=_with_devices(lists, lists.reserve),
    )
    kept = tuple(config for config in profile.plugin_config if config.name != name)
    return replace(profile, plugins=lists, plugin_config=(*kept, *given))


def _with_devices(lists: Plugins, at: PluginSet) -> PluginSet:
    """Return the plugins of a point with DeviceShare, which assigns GPUs to pods."""
    if any(plugin.name == _DEVICES.name for plugin in (*lists.multi_point.enabled, *at.enabled)):
        return at
    return replace(at, enabled=(*at.enabled, _DEVICES))


@cache
def shipped_configuration() -> KubeSchedulerConfiguration:
    """Return the chart's configuration: profile ``koord-scheduler`` with Koordinator's plugins."""
    text = (_PACKAGE / SHIPPED).read_bytes()
    return decode_configuration(yaml_document(text, SHIPPED), SHIPPED)


def default_configuration() -> KubeSchedulerConfiguration:
    """Return a configuration with kube-scheduler's default profile and the shipped one."""
    shipped = shipped_configuration()
    return replace(shipped, profiles=(*STOCK.profiles, *shipped.profiles))


def default_profile() -> KubeSchedulerConfiguration:
    """Return the configuration of ``koord demo``: ``data/demo-profile.yaml`` of this package."""
    text = (_PACKAGE / PROFILE).read_bytes()
    return decode_configuration(yaml_document(text, PROFILE), PROFILE)


#: Names that ``--config`` accepts besides files.
BY_NAME: Mapping[str, Callable[[], KubeSchedulerConfiguration]] = MappingProxyType(
    {"koordinator": shipped_configuration, "kubernetes": lambda: STOCK}
)
