"""Conversion of a KubeSchedulerConfiguration of v1beta2 or v1beta3 to v1.

Kubernetes 1.28 and 1.29 removed these versions; Koordinator's charts 1.4 and 1.5 contain them.  The
result schedules as the file did: default weights of v1beta2 that v1 has changed become explicit.
Source: kube-scheduler's configuration API of Kubernetes 1.24, v1beta2 and v1beta3, with their
default plugins; changelogs of Kubernetes 1.25 to 1.31.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from koordinator.api.kubescheduler.structs import API_VERSION
from koordinator.api.meta import JsonObject

V1BETA2: Final = "kubescheduler.config.k8s.io/v1beta2"
FORMER_VERSIONS: Final = (V1BETA2, "kubescheduler.config.k8s.io/v1beta3")

#: Score weights that v1beta2 has by default and later versions have raised.
_WEIGHTS_OF_V1BETA2: Final = ("TaintToleration", "NodeAffinity", "InterPodAffinity")
_VOLUME_LIMITS: Final = "NodeVolumeLimits counts the volumes of CSI drivers"
#: Plugins that v1beta2 or v1beta3 had and v1 has not, with what replaces them.
_REMOVED_PLUGINS: Final[Mapping[str, str]] = {
    "SelectorSpread": "PodTopologySpread spreads pods by default",
    "NodePreferAvoidPods": "use taints",
    "NodeLabel": "use node affinity",
    "ServiceAffinity": "use pod affinity",
    "EBSLimits": _VOLUME_LIMITS,
    "GCEPDLimits": _VOLUME_LIMITS,
    "AzureDiskLimits": _VOLUME_LIMITS,
    "CinderLimits": _VOLUME_LIMITS,
}
_REMOVED_FIELDS: Final = ("healthzBindAddress", "metricsBindAddress")


@dataclass(frozen=True, slots=True)
class Conversion:
    """One change of the conversion to v1; ``path`` is the field in the original file."""

    path: str
    text: str


def as_v1(fields: JsonObject) -> tuple[JsonObject, tuple[Conversion, ...]]:
    """Return a configuration of a former version as v1, and the changes of the conversion.

    Parts of a wrong type remain as they are, for the decoder to reject.
    """
    changes = [
        Conversion("apiVersion", f"{fields['apiVersion']} is read as {API_VERSION}"),
        *(
            Conversion(name, "removed from the API; flags set the addresses")
            for name in _REMOVED_FIELDS
            if fields.get(name)
        ),
    ]
    converted = {name: value for name, value in fields.items() if name not in _REMOVED_FIELDS} | {
        "apiVersion": API_VERSION
    }
    profiles = converted.get("profiles") or [{}]
    if isinstance(profiles, list):
        converted["profiles"] = [
            _profile(profile, fields["apiVersion"] == V1BETA2, f"profiles[{index}]", changes)
            for index, profile in enumerate(profiles)
        ]
    return converted, tuple(changes)


def _profile(profile: Any, has_former_weights: bool, path: str, changes: list[Conversion]) -> Any:
    if not isinstance(profile, dict):
        return profile
    converted = dict(profile)
    arguments = converted.get("pluginConfig")
    if isinstance(arguments, list):
        converted["pluginConfig"] = [_arguments(each) for each in arguments]
    plugins = converted.get("plugins") or {}
    if isinstance(plugins, dict):
        plugins = {
            point: _without_removed(plugin_set, f"{path}.plugins.{point}", changes)
            for point, plugin_set in plugins.items()
        }
        if has_former_weights:
            plugins["score"] = _with_weights(plugins.get("score"), f"{path}.plugins.score", changes)
        converted["plugins"] = plugins
    return converted


def _arguments(config: Any) -> Any:
    arguments = config.get("args") if isinstance(config, dict) else None
    if isinstance(arguments, dict) and arguments.get("apiVersion") in FORMER_VERSIONS:
        return {**config, "args": {**arguments, "apiVersion": API_VERSION}}
    return config


def _without_removed(plugin_set: Any, path: str, changes: list[Conversion]) -> Any:
    enabled = plugin_set.get("enabled") if isinstance(plugin_set, dict) else None
    if not isinstance(enabled, list):
        return plugin_set
    kept = []
    for index, plugin in enumerate(enabled):
        name = plugin.get("name") if isinstance(plugin, dict) else None
        if isinstance(name, str) and name in _REMOVED_PLUGINS:
            text = f"plugin {name} is removed: {_REMOVED_PLUGINS[name]}"
            changes.append(Conversion(f"{path}.enabled[{index}]", text))
        else:
            kept.append(plugin)
    return {**plugin_set, "enabled": kept}


def _with_weights(plugin_set: Any, path: str, changes: list[Conversion]) -> Any:
    """Return the score plugins with the weights of v1beta2 where the file has none."""
    plugin_set = {} if plugin_set is None else plugin_set
    enabled = plugin_set.get("enabled", []) if isinstance(plugin_set, dict) else None
    if not isinstance(enabled, list):
        return plugin_set
    weighted = [
        {**plugin, "weight": plugin.get("weight") or 1}
        if isinstance(plugin, dict) and plugin.get("name") in _WEIGHTS_OF_V1BETA2
        else plugin
        for plugin in enabled
    ]
    named = {each.get("name") for each in enabled if isinstance(each, dict)}
    disabled = plugin_set.get("disabled")
    off = {each.get("name") for each in disabled or () if isinstance(each, dict)}
    defaults = [name for name in _WEIGHTS_OF_V1BETA2 if name not in named and not off & {"*", name}]
    if defaults:
        text = f"weight 1 of {', '.join(defaults)}, the default of v1beta2, is kept"
        changes.append(Conversion(path, text))
    return {**plugin_set, "enabled": [*weighted, *({"name": n, "weight": 1} for n in defaults)]}
