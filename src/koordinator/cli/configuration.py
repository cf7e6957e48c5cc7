"""Read a KubeSchedulerConfiguration from a file."""

from pathlib import Path

import yaml

from koordinator.api.codec import spelt_out
from koordinator.api.kubescheduler import KubeSchedulerConfiguration, decode_configuration
from koordinator.foundation.errors import InputError
from koordinator.simulator.embedded import STOCK


def read_configuration(path: Path | None) -> KubeSchedulerConfiguration:
    """Return the configuration of the file, or kube-scheduler's own defaults without one.

    Raises InputError naming the file, the field path, what was found and what is accepted.
    """
    if path is None:
        return STOCK
    try:
        data = yaml.load(path.read_bytes(), yaml.CSafeLoader)
    except OSError as error:
        raise InputError(str(error.strerror), source=str(path)) from None
    except yaml.YAMLError as error:
        raise InputError(f"no YAML: {error}", source=str(path)) from None
    return decode_configuration(data, str(path))


def write_configuration(configuration: KubeSchedulerConfiguration, path: Path) -> None:
    """Write the configuration with all its defaults.  Raises InputError if that is impossible."""
    data = spelt_out(configuration)
    try:
        path.write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
    except OSError as error:
        raise InputError(f"can't be written: {error.strerror}", source=str(path)) from None
