"""Command ``koord scheduler``: the scheduler on a cluster, or once on manifests."""

from koordinator.api.kubescheduler import KubeSchedulerConfiguration, check_gate_names
from koordinator.cli.component.dataclass_flags import with_flags
from koordinator.cli.input.configuration import plugins_for, read_configuration, write_configuration
from koordinator.cli.input.live import read_gates
from koordinator.cli.input.scope import parse_time
from koordinator.cli.input.unused_objects import unused_objects
from koordinator.cli.output import Output, print_data, warn
from koordinator.cli.scheduler.flags import SchedulerFlags
from koordinator.foundation.clock import SystemClock
from koordinator.foundation.errors import InputError
from koordinator.simulator.embedded import STOCK
from koordinator.simulator.manifests.reader import read_manifests
from koordinator.simulator.once import schedule_once


@with_flags
def scheduler(flags: SchedulerFlags) -> None:
    """Run the scheduler on a cluster until a signal stops it."""
    configuration = read_configuration(flags.config, None if flags.once else STOCK, flags.plugin)
    if flags.once:
        _run_once(configuration, flags)
        return
    check_gate_names(flags.feature_gates)
    flags.level.check()
    if flags.files or flags.now:
        raise InputError("requires --once", source="--filename, --now")
    if flags.controller_plugins != "*":
        raise InputError(
            f"must be *, got {flags.controller_plugins!r}: the enabled plugins decide what is "
            "written, and leader election decides which replica writes",
            source="--controller-plugins",
        )
    flags.serving.check()
    configuration = flags.election.over(configuration)
    if flags.write_config_to is not None:
        write_configuration(configuration, flags.write_config_to)
        return
    from koordinator.cli.scheduler.process import run  # noqa: PLC0415 -- servers and clients take
    # half a second to load, which no other command should pay

    run(configuration, flags)


def _run_once(configuration: KubeSchedulerConfiguration, flags: SchedulerFlags) -> None:
    gates = read_gates(
        flags.feature_gates,
        flags.level.kube_version,
        emulated_version=flags.level.emulated_version,
    )
    if not flags.files:
        raise InputError("is required with --once", source="--filename")
    if flags.output is Output.TABLE:
        raise InputError("must be json or yaml with --once, got 'table'", source="--output")
    objects = read_manifests(flags.files, strict=flags.strict, on_notice=warn)
    out_of_tree = plugins_for(configuration, flags.plugin)
    for sentence in unused_objects(
        objects, configuration, out_of_tree=out_of_tree, source=flags.config, gates=gates
    ):
        warn(sentence)
    changes = schedule_once(
        objects,
        configuration,
        now_s=parse_time(flags.now) if flags.now else SystemClock().now_s(),
        out_of_tree=out_of_tree,
        source=flags.config,
        gates=gates,
    )
    print_data(changes.as_data(), flags.output)
    changes.faults.check()
