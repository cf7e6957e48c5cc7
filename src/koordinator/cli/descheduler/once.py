"""Command ``koord descheduler --once``: descheduling cycles on manifests."""

from koordinator.cli.descheduler.flags import DeschedulerFlags
from koordinator.cli.descheduler.plugins import descheduler_plugins_for
from koordinator.cli.input.configuration import plugins_for, read_configuration
from koordinator.cli.input.live import read_gates
from koordinator.cli.input.times import parse_time
from koordinator.cli.output import Output, print_items, warn
from koordinator.descheduler.configuration import DeschedulerConfiguration
from koordinator.foundation.clock import SystemClock
from koordinator.foundation.errors import InputError
from koordinator.simulator.descheduled import deschedule_once
from koordinator.simulator.manifests.reader import read_input_objects


def run_once(configuration: DeschedulerConfiguration, flags: DeschedulerFlags) -> None:
    """Print every object that was created, changed or deleted.

    Raises InputError for wrong flags or manifests and, after the result is printed, BugError for a
    plugin that failed.
    """
    if not flags.files:
        raise InputError("is required with --once", source="--filename")
    if flags.output is Output.TABLE:
        raise InputError("must be json or yaml with --once, got 'table'", source="--output")
    given = read_input_objects(flags.files)
    for notice in given.notices():
        warn(notice)
    stated = read_configuration(flags.scheduler_config) if flags.scheduler_config else None
    prover = stated or read_configuration(None)
    report = deschedule_once(
        given.objects,
        configuration,
        now_s=parse_time(flags.now) if flags.now else SystemClock().now_s(),
        n_cycles=flags.cycles,
        out_of_tree=descheduler_plugins_for(configuration),
        source=flags.source,
        gates=flags.gates,
        scheduler_plugins=plugins_for(prover),
        scheduler=stated,
        prover=prover,
        scheduler_gates=read_gates("", flags.kube_version),
    )
    for number, cycle in enumerate(report.cycles, 1):
        for problem in cycle.problems:
            warn(f"cycle {number} ended early: {problem}")
    print_items(report.as_data(), flags.output)
    report.changes.faults.check()
