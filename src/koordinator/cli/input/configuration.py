"""The scheduler's configuration as ``--config`` names it, and the plugins that it may name."""

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
WHAT_NAMES_MEAN = (
    "KubeSchedulerConfiguration; koordinator: the chart's; kubernetes: kube-scheduler's own; "
    "./koordinator is a file."
)

Config = Annotated[
    str,
    typer.Option(
        "--config",
        metavar=NAMED_CONFIGURATION,
        help=f"{WHAT_NAMES_MEAN} Default: both, each for its schedulerName.",
    ),
]


def read_configuration(
    named: str | Path | None,
    default: KubeSchedulerConfiguration | None = None,
) -> KubeSchedulerConfiguration:
    """Return the configuration of a file or of one of the names in ``BY_NAME``.

    Without either it is ``default``, or kube-scheduler's profile beside the shipped one.
    Raises InputError naming the file, the field path, what was found and what is accepted.
    """
    if not named:
        return default or default_configuration()
    if isinstance(named, str) and named in BY_NAME:
        return BY_NAME[named]()
    path = Path(named)
    return decode_configuration(read_data(path), str(path))


def read_data(path: Path) -> Any:
    """Return what the YAML document of a file holds.  Raises InputError with file and path."""
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

    A package that can't be loaded is left out with a warning, unless the configuration names a
    plugin that nobody else has.  Raises InputError then, naming the package.
    """
    installed = installed_plugins()
    if not installed.broken:
        return installed.specs
    known = {spec.name for spec in (*BUILTIN_PLUGINS, *installed.specs)}
    unknown = sorted(configuration.plugin_names() - known)
    if unknown:
        raise InputError(f"{'; '.join(installed.broken)}; is {', '.join(unknown)} in it?")
    for sentence in installed.broken:
        warn(f"{sentence}; it is left out")
    return installed.specs


def write_configuration(configuration: KubeSchedulerConfiguration, path: Path) -> None:
    """Write the configuration with all its defaults, for ``-`` to standard output.

    Raises InputError if that is impossible.
    """
    write_text(to_yaml(spelt_out(configuration)), path)
