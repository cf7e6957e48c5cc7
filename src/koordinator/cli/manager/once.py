"""``koord manager --once``: what admission and controllers make of manifests."""

from collections.abc import Iterable

from koordinator.api.core import ConfigMap
from koordinator.api.meta import KubeObject
from koordinator.cli.input.scope import parse_time
from koordinator.cli.output import Output, print_data, warn
from koordinator.foundation.clock import SystemClock
from koordinator.foundation.errors import InputError
from koordinator.manager.admission.gates import ManagerFeature
from koordinator.manager.app import ManagerOptions
from koordinator.simulator.managed_cluster import manage_once
from koordinator.simulator.manifests.reader import read_input_objects


def run_once(
    options: ManagerOptions,
    gates: Iterable[ManagerFeature],
    *,
    files: list[str],
    config: str,
    now: str,
    output: Output,
) -> None:
    """Print the differences once no controller has more to change.

    Raises InputError for invalid arguments, InvalidError for refusals of admission, and,
    after everything else is done and printed, BugError for unexpected errors.
    """
    if not files:
        raise InputError("required with --once, but missing", source="--filename")
    if output is Output.TABLE:
        raise InputError("must be json or yaml with --once, got 'table'", source="--output")
    given = read_input_objects(files)
    for notice in given.notices():
        warn(notice)
    objects: list[KubeObject] = given.objects
    if config:
        objects += _config_map(config, options)
    now_s = parse_time(now) if now else SystemClock().now_s()
    changes = manage_once(objects, options, gates, now_s=now_s)
    print_data(changes.as_data(), output)
    changes.faults.check()


def _config_map(file: str, options: ManagerOptions) -> list[ConfigMap]:
    wanted = f"{options.config_namespace}/{options.config_name}"
    objects = read_input_objects([file]).objects
    if len(objects) != 1 or not isinstance(objects[0], ConfigMap) or objects[0].key != wanted:
        kinds = ", ".join(f"{obj.KIND} {obj.key}" for obj in objects) or "nothing"
        raise InputError(f"must be the ConfigMap {wanted}, got {kinds}", source=file)
    return [objects[0]]
