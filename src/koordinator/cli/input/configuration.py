"""Configuration file of the scheduler, and connections to its extenders."""

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from koordinator.api.codec import with_all_fields
from koordinator.api.kubescheduler import Extender, KubeSchedulerConfiguration, decode_configuration
from koordinator.cli.output import warn, write_text
from koordinator.foundation.errors import ExtenderError, InputError, SilentExtenderError
from koordinator.foundation.files import LARGEST_CONFIGURATION_BYTES, read_file
from koordinator.foundation.yaml_documents import to_yaml, yaml_document
from koordinator.scheduler.contract import PluginSpec
from koordinator.scheduler.extenders import Connect, ExtenderTransport
from koordinator.scheduler.profile import builtin_plugins, installed_plugins
from koordinator.simulator.plugin_files import load_plugins
from koordinator.simulator.policies import BY_NAME, default_configuration, with_plugins

if TYPE_CHECKING:  # metrics and HTTP are only loaded where they are used
    from prometheus_client import CollectorRegistry

NAMED_CONFIGURATION = f"FILE|{'|'.join(BY_NAME)}"
CONFIGURATION_HELP = (
    "File of a KubeSchedulerConfiguration, or koordinator for the chart's configuration, or "
    "kubernetes for the defaults of kube-scheduler; ./koordinator is a file."
)

Config = Annotated[
    str,
    typer.Option(
        "--config",
        metavar=NAMED_CONFIGURATION,
        help=f"{CONFIGURATION_HELP} Default: both, each for its schedulerName.",
    ),
]


PluginFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--plugin",
        metavar="FILE.py[:NAME]",
        help="Scheduler plugins of a Python file: all, or the one with this name (of the plugin or "
        "its variable). Plugins that the configuration does not name run in every profile. Can be "
        "given several times. The file's code is executed.",
    ),
]


def read_configuration(
    named: str | Path | None,
    default: KubeSchedulerConfiguration | None = None,
    plugins: Sequence[str] | None = None,
) -> KubeSchedulerConfiguration:
    """Return the configuration of a file or of one of the names in ``BY_NAME``.

    Without a name it is ``default``, or kube-scheduler's profile beside the shipped one.
    ``plugins`` are files of plugins, which run in every profile unless the configuration names
    them.
    Raises InputError with the file, the field path, and the expected and the actual value.
    """
    if not named:
        configuration = default or default_configuration()
    elif isinstance(named, str) and named in BY_NAME:
        configuration = BY_NAME[named]()
    else:
        path = Path(named)
        configuration = decode_configuration(read_data(path), str(path))
    return with_plugins(configuration, _loaded(tuple(plugins or ())))


@cache
def _loaded(files: tuple[str, ...]) -> tuple[PluginSpec[Any], ...]:
    """Return the plugins of files, which are executed once."""
    return load_plugins(files)


def read_data(path: Path) -> Any:
    """Return the content of a file with one YAML document.  Raises InputError."""
    try:
        text = read_file(path, LARGEST_CONFIGURATION_BYTES)
    except FileNotFoundError as error:
        raise InputError(
            f"{error.strerror}; must be a file, {' or '.join(BY_NAME)}", source=str(path)
        ) from None
    except OSError as error:
        raise InputError(str(error.strerror), source=str(path)) from None
    return yaml_document(text, str(path))


def plugins_for(
    configuration: KubeSchedulerConfiguration, files: Sequence[str] | None = None
) -> tuple[PluginSpec[Any], ...]:
    """Return the out-of-tree plugins of files and of this Python environment.

    A package that can't be loaded is skipped with a warning.  Raises InputError with the name of
    the package if the configuration enables a plugin that no other package provides.
    """
    installed, own = installed_plugins(), _loaded(tuple(files or ()))
    names = {spec.name for spec in own}
    specs = (*own, *(spec for spec in installed.specs if spec.name not in names))
    if not installed.broken:
        return specs
    known = {spec.name for spec in (*builtin_plugins(), *specs)}
    unknown = sorted(configuration.plugin_names() - known)
    if unknown:
        raise InputError(f"{'; '.join(installed.broken)}; is {', '.join(unknown)} in it?")
    for sentence in installed.broken:
        warn(f"{sentence}; the package is skipped")
    return specs


def write_configuration(configuration: KubeSchedulerConfiguration, path: Path) -> None:
    """Write the configuration with all its defaults, for ``-`` to standard output.

    Raises InputError if writing fails.
    """
    write_text(to_yaml(with_all_fields(configuration)), path)


log = logging.getLogger(__name__)

_SUCCESS: Final = "success"


class ExtenderRequests:
    """Counts questions to extenders by how they ended."""

    def __init__(self, registry: "CollectorRegistry | None" = None) -> None:
        from prometheus_client import Counter  # noqa: PLC0415

        self._requests = Counter(
            "koord_scheduler_extender_requests",
            "Questions to scheduler extenders, by extender, verb and result.",
            ["extender", "verb", "result"],
            registry=registry,
        )
        self._ignored = Counter(
            "koord_scheduler_extender_failures_ignored",
            "Failures of extenders that no pod had to wait for.",
            ["extender"],
            registry=registry,
        )

    def count(self, extender: str, verb: str, result: str) -> None:
        self._requests.labels(extender, verb, result).inc()

    def ignored(self, extender: str, problem: str) -> None:
        """Count and log the failure of an ignorable extender."""
        self._ignored.labels(extender).inc()
        log.warning("extender ignored", extra={"extender": extender, "error": problem})


class _CountedTransport:
    def __init__(self, name: str, transport: ExtenderTransport, requests: ExtenderRequests) -> None:
        self._name, self._transport, self._requests = name, transport, requests

    def post(self, verb: str, body: bytes) -> bytes:
        result = _SUCCESS
        try:
            return self._transport.post(verb, body)
        except SilentExtenderError:
            result = "silent"
            raise
        except ExtenderError:
            result = "refused"
            raise
        finally:
            self._requests.count(self._name, verb, result)


def extender_connector(
    cleanup: ExitStack,
    requests: ExtenderRequests | None = None,
    on_answer: Callable[[], None] = lambda: None,
) -> Connect:
    """Return a connector to extenders; ``cleanup`` closes the connections.

    ``on_answer`` is called after every response of an extender.
    """

    def connect(config: Extender) -> ExtenderTransport:
        from koordinator.process.extender_transport import (  # noqa: PLC0415
            HttpExtenderTransport,
            unverified,
        )

        transport = HttpExtenderTransport(config, on_answer)
        cleanup.callback(transport.close)
        if config.url_prefix.startswith("https:") and unverified(config):
            warn(f"extender {config.url_prefix}: its certificate is not verified, for want of a CA")
        if requests is None:
            return transport
        return _CountedTransport(config.url_prefix, transport, requests)

    return connect
