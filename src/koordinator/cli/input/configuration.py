"""Scheduler configuration of ``--config``, and the out-of-tree plugins that it may enable."""

from pathlib import Path
from typing import Annotated, Any

import typer

from koordinator.api.codec import spelt_out
from koordinator.api.kubescheduler import KubeSchedulerConfiguration, decode_configuration
from koordinator.cli.output import warn, write_text
from koordinator.foundation.errors import InputError
from koordinator.foundation.files import LARGEST_CONFIGURATION_BYTES, read_file
from koordinator.foundation.yaml_documents import to_yaml, yaml_document
from koordinator.scheduler.contract import PluginSpec
from koordinator.scheduler.profile import BUILTIN_PLUGINS, installed_plugins
from koordinator.simulator.configurations import BY_NAME, default_configuration

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


def read_configuration(
    named: str | Path | None,
    default: KubeSchedulerConfiguration | None = None,
) -> KubeSchedulerConfiguration:
    """Return the configuration of a file or of one of the names in ``BY_NAME``.

    Without a name it is ``default``, or kube-scheduler's profile beside the shipped one.
    Raises InputError with the file, the field path, and the expected and the actual value.
    """
    if not named:
        return default or default_configuration()
    if isinstance(named, str) and named in BY_NAME:
        return BY_NAME[named]()
    path = Path(named)
    return decode_configuration(read_data(path), str(path))


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


def plugins_for(configuration: KubeSchedulerConfiguration) -> tuple[PluginSpec[Any], ...]:
    """Return the out-of-tree plugins of this Python environment.

    A package that can't be loaded is skipped with a warning.  Raises InputError with the name of
    the package if the configuration enables a plugin that no other package provides.
    """
    installed = installed_plugins()
    if not installed.broken:
        return installed.specs
    known = {spec.name for spec in (*BUILTIN_PLUGINS, *installed.specs)}
    unknown = sorted(configuration.plugin_names() - known)
    if unknown:
        raise InputError(f"{'; '.join(installed.broken)}; is {', '.join(unknown)} in it?")
    for sentence in installed.broken:
        warn(f"{sentence}; the package is skipped")
    return installed.specs


def write_configuration(configuration: KubeSchedulerConfiguration, path: Path) -> None:
    """Write the configuration with all its defaults, for ``-`` to standard output.

    Raises InputError if writing fails.
    """
    write_text(to_yaml(spelt_out(configuration)), path)
