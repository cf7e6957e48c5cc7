"""Configuration files of koord-queue: plugins that admit jobs, and timeouts by kind of jobs.

Both files of the original are read: the KoordQueueConfiguration of its controller, and the
arguments of its job extensions, a mapping by kind of jobs.
Source: koord-queue 1.8, pkg/apis/config/v1, cmd/controllers/main.go, pkg/jobext/handles.
"""

from collections.abc import Mapping
from dataclasses import field, replace
from enum import StrEnum
from typing import Any, Final

import msgspec

from koordinator.api.codec import without_nulls
from koordinator.api.kubescheduler import decode_struct
from koordinator.api.kubescheduler.decoder import did_you_mean
from koordinator.api.kubescheduler.structs import ConfigStruct
from koordinator.api.syntax import invalid_value
from koordinator.foundation.clock import Duration
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.manager.queue_units.kinds import BY_NAME

API_VERSION: Final = "scheduling.k8s.io/v1"
KINDS: Final = ("KoordQueueConfiguration", "KubeQueueConfiguration")  # the latter before 1.8


class UnitPlugin(StrEnum):
    """A plugin of koord-queue."""

    PRIORITY = "Priority"  # the order of units; always on
    ELASTIC_QUOTA_V2 = "ElasticQuotaV2"
    ELASTIC_QUOTA = "ElasticQuota"
    RESOURCE_QUOTA = "ResourceQuota"
    DEFAULT_GROUP = "DefaultGroup"


#: Plugins that map a unit to a queue and a quota; exactly one must be enabled.
MAPPING: Final = (
    UnitPlugin.ELASTIC_QUOTA_V2,
    UnitPlugin.ELASTIC_QUOTA,
    UnitPlugin.DEFAULT_GROUP,
)
DEFAULT_PLUGINS: Final = frozenset((UnitPlugin.PRIORITY, UnitPlugin.ELASTIC_QUOTA_V2))


@dataclass(frozen=True, slots=True)
class JobTimes:
    """Timeouts of a kind of jobs; with ``running_s`` None, the queue's setting applies."""

    running_s: float | None = None
    backoff_s: float | None = None  # before each further attempt; None: exponential


@dataclass(frozen=True, slots=True)
class QueueConfiguration:
    """Merged configuration of all files."""

    plugins: frozenset[UnitPlugin] = DEFAULT_PLUGINS
    checks_oversold: bool = False  # quotas above their minimum wait for quotas below theirs
    times: Mapping[str, JobTimes] = field(default_factory=dict)  # by kind of jobs


def read_queue_configuration(
    known: QueueConfiguration, data: object, source: str
) -> QueueConfiguration:
    """Return the known configuration merged with a file.

    A file with a ``kind`` configures plugins, one without configures job extensions.
    Raises InputError with source and path.
    """
    try:
        fields = without_nulls(data)
        if not isinstance(fields, dict):
            raise invalid_value("", fields, f"a {KINDS[0]}, or arguments of job extensions")
        if "kind" in fields or "apiVersion" in fields:
            return _with_plugins(known, fields)
        return replace(known, times={**known.times, **_job_times(fields)})
    except InputError as error:
        raise error.within(source=source) from None


class _Plugin(ConfigStruct, frozen=True, kw_only=True):
    name: str = ""


class _Plugins(ConfigStruct, frozen=True, kw_only=True):
    plugins: tuple[_Plugin, ...] = ()
    plugin_configs: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)


class _ElasticQuotaArgs(ConfigStruct, frozen=True, kw_only=True):
    check_quota_oversold: bool = False


class _JobArguments(ConfigStruct, frozen=True, kw_only=True):
    running_timeout: Duration | None = None
    backoff_timeout: Duration | None = None


def _with_plugins(known: QueueConfiguration, fields: dict[str, Any]) -> QueueConfiguration:
    _take_header(fields, KINDS)
    stated = decode_struct(fields, _Plugins, "")
    names = {
        _plugin(each.name, f"plugins[{index}].name") for index, each in enumerate(stated.plugins)
    }
    plugins = frozenset(names) or DEFAULT_PLUGINS
    mapping = [each for each in MAPPING if each in plugins]
    if len(mapping) != 1:
        raise invalid_value(
            "plugins", ", ".join(sorted(plugins)), f"exactly one of {', '.join(MAPPING)}"
        )
    checks_oversold = False
    for name, args in stated.plugin_configs.items():
        path = f"pluginConfigs.{name}"
        plugin = _plugin(name, path)
        left = dict(args)
        _take_header(left, (f"{plugin}Args",), path)
        try:
            if plugin is UnitPlugin.ELASTIC_QUOTA:
                checks_oversold = decode_struct(left, _ElasticQuotaArgs, "").check_quota_oversold
            else:
                decode_struct(left, ConfigStruct, "")
        except InputError as error:
            raise error.within(path=path) from None
    return replace(known, plugins=plugins, checks_oversold=checks_oversold)


def _plugin(name: str, path: str) -> UnitPlugin:
    by_name = {each.lower(): each for each in UnitPlugin}  # the original's is defaultgroup
    plugin = by_name.get(name.lower())
    if plugin is None or (plugin is not UnitPlugin.DEFAULT_GROUP and plugin != name):
        hint = did_you_mean(name, UnitPlugin)
        problem = f"must be one of {', '.join(UnitPlugin)}, got {name!r}{hint}"
        raise InputError(problem, path=path)
    return plugin


def _take_header(fields: dict[str, Any], kinds: tuple[str, ...], path: str = "") -> None:
    """Check and remove ``apiVersion`` and ``kind``, which plugin arguments may omit."""
    prefix = f"{path}." if path else ""
    for name, accepted in (("apiVersion", (API_VERSION,)), ("kind", kinds)):
        value = fields.pop(name, None)
        if value is None and not path:
            requirement = f"is required and must be {accepted[0]}"
            raise InputError(requirement, path=f"{prefix}{name}")
        if value is not None and value not in accepted:
            raise invalid_value(f"{prefix}{name}", value, " or ".join(accepted))


def _job_times(fields: Mapping[str, Any]) -> dict[str, JobTimes]:
    times: dict[str, JobTimes] = {}
    for name, args in fields.items():
        if name not in BY_NAME:
            hint = did_you_mean(name, BY_NAME) or f"; must be one of {', '.join(BY_NAME)}"
            raise InputError(f"unknown field{hint}", path=name)
        try:
            stated = decode_struct(args, _JobArguments, "")
        except InputError as error:
            raise error.within(path=name) from None
        times[name] = JobTimes(
            _seconds(stated.running_timeout, f"{name}.runningTimeout"),
            _seconds(stated.backoff_timeout, f"{name}.backoffTimeout"),
        )
    return times


def _seconds(duration: Duration | None, path: str) -> float | None:
    """Return the seconds; None, as in the original, for 0."""
    if duration is None:
        return None
    seconds = duration.total_seconds()
    if seconds < 0:
        raise invalid_value(path, str(duration), "at least 0s")
    return seconds or None
