"""Decoding of a KubeSchedulerConfiguration from YAML or JSON, with unknown fields refused.

The file is walked beside the types before msgspec builds them: that way a message can name the
whole path, show the invalid value and list the accepted ones.  A null means that the field is
absent.

Files of v1beta2 and v1beta3 are converted to v1.  Kubernetes 1.28 and 1.29 removed these versions;
Koordinator's charts 1.4 and 1.5 contain them.  The result schedules as the file did: default
weights of v1beta2 that v1 has changed become explicit.

Source: kubernetes cmd/kube-scheduler/app/options/configfile.go (strict decoding);
k8s.io/kube-scheduler config/v1/types.go, ``decodeNestedObjects``; kube-scheduler's configuration
API of Kubernetes 1.24, v1beta2 and v1beta3, with their default plugins; changelogs of Kubernetes
1.25 to 1.31.
"""

import functools
import json
import logging
from base64 import b64decode
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from types import UnionType
from typing import Any, Final, TypeVar

import msgspec
from msgspec import inspect

from koordinator.api.codec import without_nulls
from koordinator.api.kubescheduler.config import KubeSchedulerConfiguration
from koordinator.api.kubescheduler.structs import API_VERSION, PluginArgs
from koordinator.api.meta import JsonObject
from koordinator.api.syntax import join_path
from koordinator.foundation.clock import Duration
from koordinator.foundation.decoders import convert
from koordinator.foundation.errors import BugError, InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.quantity import Quantity
from koordinator.foundation.text import cut

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

log = logging.getLogger(__name__)

ArgsType = TypeVar("ArgsType", bound=PluginArgs)
_T = TypeVar("_T")

_PARSERS: Mapping[type, Callable[[Any], object]] = {
    Duration: Duration.parse,
    Quantity: Quantity.parse,
}
_SCALARS: Mapping[type[inspect.Type], tuple[type | UnionType, str]] = {
    inspect.StrType: (str, "a string"),
    inspect.BoolType: (bool, "true or false"),
    inspect.FloatType: (int | float, "a number"),
}
_HIGHEST_NAMED = 2**16  # a higher bound is one of the machine, of no interest to a reader
_SHOWN = 80  # characters of a wrong value that a message shows


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
    # v1 has other default weights, so the conversion states the older ones where none is given.
    named = {each.get("name") for each in enabled if isinstance(each, dict)}
    disabled = plugin_set.get("disabled")
    off = {each.get("name") for each in disabled or () if isinstance(each, dict)}
    defaults = [name for name in _WEIGHTS_OF_V1BETA2 if name not in named and not off & {"*", name}]
    if defaults:
        text = f"weight 1 of {', '.join(defaults)}, the default of v1beta2, is kept"
        changes.append(Conversion(path, text))
    return {**plugin_set, "enabled": [*weighted, *({"name": n, "weight": 1} for n in defaults)]}


def decode_configuration(data: object, source: str) -> KubeSchedulerConfiguration:
    """Return the configuration that a file holds, with defaults; ``source`` names the file.

    The arguments of plugins stay untyped: each plugin declares their type.  A file of
    v1beta2 or v1beta3 is converted, with a warning.
    Raises InputError with source and path.
    """
    try:
        fields = _object(data)
        if fields.get("apiVersion") in FORMER_VERSIONS:
            fields, changes = as_v1(fields)
            for change in changes:
                log_fields = {"file": source, "field": change.path}
                log.warning("configuration converted: %s", change.text, extra=log_fields)
        _check_equal(fields.get("apiVersion"), API_VERSION, "apiVersion")
        _check_equal(fields.get("kind"), KubeSchedulerConfiguration.__name__, "kind")
        configuration = _decode(fields, KubeSchedulerConfiguration)
        configuration.validate()
    except InputError as error:
        raise error.within(source=source) from None
    return configuration


def decode_args(args_type: type[ArgsType], data: object, path: str, source: str) -> ArgsType:
    """Return the arguments of a plugin, with defaults; ``path`` is where they stand in the file.

    ``apiVersion`` and ``kind`` may be left out.
    Raises InputError with source and path.
    """
    try:
        if data is None or data == {}:
            defaults: ArgsType = _default_args(args_type)
            return defaults
        fields = _object(data)
        version = fields.pop("apiVersion", API_VERSION)
        if version not in FORMER_VERSIONS:
            _check_equal(version, API_VERSION, "apiVersion")
        kind = fields.pop("kind", args_type.__name__)
        if _has_fields(args_type):
            _check_equal(kind, args_type.__name__, "kind")
        args = _decode(fields, args_type)
        args.validate()
    except InputError as error:
        raise error.within(source=source, path=path) from None
    return args


@functools.lru_cache(maxsize=256)
def _default_args(args_type: type[ArgsType]) -> ArgsType:
    """Return the arguments of a plugin without configuration, which all its instances share."""
    defaults = args_type.__struct_defaults__
    is_complete = len(defaults) == len(args_type.__struct_fields__)
    if not is_complete or any(default is msgspec.NODEFAULT for default in defaults):
        args = _decode({}, args_type)  # reports the fields that are required
    else:
        args = args_type()
    args.validate()
    return args


def decode_struct(data: object, wanted: type[_T], source: str) -> _T:
    """Return any other configuration struct, refusing what is unknown just the same.

    Bounds of numbers other than integers, and what fields mean together, are for the caller.
    Raises InputError with source and path.
    """
    try:
        return _decode(_object(data), wanted)
    except InputError as error:
        raise error.within(source=source) from None


def did_you_mean(word: str, accepted: Iterable[str]) -> str:
    """Return the part of a message that names the most similar of the accepted names, if any is."""
    by_lower_case = {name.lower(): name for name in accepted}
    matches = get_close_matches(word.lower(), by_lower_case, n=1)
    return f'; did you mean "{by_lower_case[matches[0]]}"?' if matches else ""


@functools.lru_cache(maxsize=256)
def _type_of(wanted: Hashable) -> inspect.Type:
    return inspect.type_info(wanted)


@functools.lru_cache(maxsize=256)
def _has_fields(args_type: type[PluginArgs]) -> bool:
    """Return whether the plugin has arguments; a type without fields has no kind of its own."""
    return msgspec.structs.fields(args_type) != msgspec.structs.fields(PluginArgs)


def _decode(data: Mapping[str, Any], wanted: type[_T]) -> _T:
    _check(data, _type_of(wanted), "")  # type: ignore[arg-type] # a class is hashable
    try:
        return convert(data, wanted, dec_hook=_parse)
    except msgspec.ValidationError as error:
        raise BugError(f"{wanted.__name__} passed the check, but: {error}") from error


def _parse(wanted: type, value: object) -> Any:
    return _PARSERS[wanted](value)


def _object(data: object) -> dict[str, Any]:
    """Return a copy of the object that the data is, without nulls."""
    present = without_nulls(data)
    if not isinstance(present, dict):
        raise _wrong(present, "an object", "")
    return present


def _check_equal(value: object, accepted: str, path: str) -> None:
    if value is None:
        raise InputError(f"is required and must be {accepted}", path=path)
    if value != accepted:
        raise _wrong(value, accepted, path)


def _check(tree: object, wanted: inspect.Type, path: str) -> None:
    """Raise InputError unless msgspec would take the value, and for unknown fields at any depth."""
    match wanted:
        case inspect.UnionType(types):
            _check_alternatives(
                tree, [each for each in types if not isinstance(each, inspect.NoneType)], path
            )
        case inspect.StructType():
            _check_struct(tree, wanted, path)
        case inspect.DictType():
            for key, value in _pairs(tree, path):
                _check(value, wanted.value_type, join_path(path, key))
        case inspect.VarTupleType():
            if not isinstance(tree, list):
                raise _wrong(tree, "a list", path)
            for index, item in enumerate(tree):
                _check(item, wanted.item_type, f"{path}[{index}]")
        case _:
            _check_scalar(tree, wanted, path)


def _check_alternatives(value: object, wanted: Sequence[inspect.Type], path: str) -> None:
    """Raise InputError unless one of the types takes the value, such as a number or a text."""
    if len(wanted) == 1:
        _check(value, wanted[0], path)
        return
    for each in wanted:
        try:
            _check(value, each, path)
        except InputError:
            continue
        return
    accepted = " or ".join(_name_of(each) for each in wanted)
    raise _wrong(value, accepted, path)


def _name_of(wanted: inspect.Type) -> str:
    if isinstance(wanted, inspect.IntType):
        return "an integer"
    return _SCALARS[type(wanted)][1]


def _check_struct(tree: object, wanted: inspect.StructType, path: str) -> None:
    fields = {field.encode_name: field for field in wanted.fields}
    present = dict(_pairs(tree, path))
    for key, value in present.items():
        if key not in fields:
            hint = did_you_mean(key, fields) or f"; must be one of {', '.join(fields)}"
            raise InputError(f"unknown field{hint}", path=join_path(path, key))
        _check(value, fields[key].type, join_path(path, key))
    for key, field in fields.items():
        if field.required and key not in present:
            raise InputError("is required", path=join_path(path, key))


def _pairs(tree: object, path: str) -> Iterable[tuple[str, object]]:
    if not isinstance(tree, dict):
        raise _wrong(tree, "an object", path)
    for key, value in tree.items():
        if not isinstance(key, str):
            raise _wrong(key, "an object whose keys are strings", path)
        yield key, value


def _check_scalar(scalar: object, wanted: inspect.Type, path: str) -> None:
    match wanted:
        case inspect.CustomType():
            _check_parsed(scalar, wanted.cls, path)
        case inspect.LiteralType(values):
            _check_choice(scalar, [str(value) for value in values], path)
        case inspect.IntType():
            _check_integer(scalar, wanted, path)
        case inspect.BytesType():
            _check_base64(scalar, path)
        case inspect.AnyType():
            return
        case _:
            python_type, accepted = _SCALARS[type(wanted)]
            is_flag = isinstance(scalar, bool) and not isinstance(wanted, inspect.BoolType)
            if is_flag or not isinstance(scalar, python_type):
                raise _wrong(scalar, accepted, path)


def _check_parsed(value: object, wanted: type, path: str) -> None:
    try:
        _parse(wanted, value)
    except InputError as error:
        raise InputError(error.problem, path=path) from None


def _check_choice(value: object, choices: list[str], path: str) -> None:
    if value in choices:
        return
    accepted = ", ".join(choice or '""' for choice in choices)
    hint = did_you_mean(value, choices) if isinstance(value, str) else ""
    raise InputError(f"must be one of {accepted}, got {_show(value)}{hint}", path=path)


def _check_integer(value: object, wanted: inspect.IntType, path: str) -> None:
    low, high = wanted.ge, wanted.le
    if (
        isinstance(value, int)
        and not isinstance(value, bool)
        and (low is None or low <= value)
        and (high is None or value <= high)
    ):
        return
    if low is None:
        raise _wrong(value, "an integer", path)
    accepted = f"at least {low}" if high is None or high > _HIGHEST_NAMED else f"{low}..{high}"
    raise _wrong(value, f"an integer of {accepted}", path)


def _check_base64(value: object, path: str) -> None:
    try:
        b64decode(value if isinstance(value, str) else "?", validate=True)
    except ValueError:
        raise _wrong(value, "a string in base64", path) from None


def _wrong(value: object, accepted: str, path: str) -> InputError:
    return InputError(f"must be {accepted}, got {_show(value)}", path=path)


def _show(value: object) -> str:
    return cut(json.dumps(value, default=str, skipkeys=True, ensure_ascii=False), _SHOWN)
