"""Dry runs of the descheduler: ``koord descheduler plan``, and ``--once`` on manifests."""

import sys
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace
from rich.console import Console

from koordinator.api.codec import to_manifest
from koordinator.api.core import Namespace
from koordinator.api.meta import KubeObject
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import PodMigrationJob
from koordinator.api.policy import PriorityClass
from koordinator.cli.descheduler.flags import (
    SCHEDULER_GATES,
    DeschedulerFlags,
    PlanFlags,
    parse_gates,
    read_descheduler_configuration,
)
from koordinator.cli.descheduler.plugins import descheduler_plugins_for
from koordinator.cli.input.configuration import plugins_for, read_configuration
from koordinator.cli.input.live import read_gates, with_cluster
from koordinator.cli.input.scope import parse_time
from koordinator.cli.output import (
    Output,
    check_writable,
    console,
    print_data,
    print_items,
    print_with_reasons,
    warn,
)
from koordinator.descheduler.configuration import DeschedulerConfiguration
from koordinator.descheduler.contract import DeschedulerPluginSpec
from koordinator.descheduler.profile import choose_profiles
from koordinator.foundation.clock import SystemClock
from koordinator.foundation.errors import AlreadyExistsError, ClusterError, InputError
from koordinator.scheduler.fork import FOLLOWED
from koordinator.simulator.descheduled import deschedule_once
from koordinator.simulator.manifests.input_objects import InputObjects
from koordinator.simulator.manifests.reader import read_input_objects
from koordinator.simulator.move_plan import MovePlan
from koordinator.simulator.move_plans import plan_moves
from koordinator.simulator.plan_page import format_cost, plan_page, share_text


def plan(flags: PlanFlags) -> None:
    """Print the plan; write the page; create the jobs.

    Raises InputError for invalid arguments, ClusterError if the cluster can't be read or a
    job can't be created, BugError for what broke.
    """
    if flags.config is None:
        raise InputError("is required and must be a file", source="--config")
    live = bool(flags.kubeconfig or flags.context)
    if flags.apply and not live:
        raise InputError("requires --kubeconfig", source="--apply")
    if flags.html is not None:
        check_writable(flags.html)
    configuration = read_descheduler_configuration(flags.config)
    prover = read_configuration(flags.scheduler_config)
    made = plan_moves(
        _objects(flags, configuration, live=live),
        configuration,
        now_s=parse_time(flags.now) if flags.now else SystemClock().now_s(),
        prover=prover,
        most_cycles=flags.cycles,
        out_of_tree=descheduler_plugins_for(configuration),
        scheduler_plugins=plugins_for(prover),
        source=str(flags.config),
        gates=parse_gates(flags.feature_gates),
        scheduler_gates=read_gates(
            flags.scheduler_feature_gates,
            flags.kube_version,
            kubeconfig=flags.kubeconfig,
            context=flags.context,
            source=SCHEDULER_GATES,
        ),
    )
    for problem in made.problems:
        warn(f"the cycle ended early: {problem}")
    if flags.html is not None:
        from koordinator.dashboard.offline import offline_page  # noqa: PLC0415 -- an optional part

        flags.html.write_text(offline_page(plan_page(made)), encoding="utf-8")
    if flags.output is Output.TABLE:
        _print(console(), made)
    else:
        print_data(_as_data(made), flags.output)
    if flags.apply:
        _apply(flags, made)


def _objects(
    flags: PlanFlags, configuration: DeschedulerConfiguration, *, live: bool
) -> Sequence[KubeObject]:
    given = read_input_objects(flags.files, strict=flags.strict) if flags.files else InputObjects()
    objects: Sequence[KubeObject] = given.objects
    if live:
        kinds = _kinds(configuration, descheduler_plugins_for(configuration), str(flags.config))
        objects = with_cluster(objects, flags.kubeconfig, flags.context, kinds)
    elif not flags.files:
        raise InputError("is required: set -f or --kubeconfig", source="-f")
    return given.completed(warn, objects)


def _kinds(
    configuration: DeschedulerConfiguration,
    out_of_tree: Sequence[DeschedulerPluginSpec[Any]],
    source: str,
) -> Sequence[type[KubeObject]]:
    """Return the objects that the policy and the scheduler read, pods last."""
    chosen = choose_profiles(configuration, out_of_tree, source)
    watched = [kind for profile in chosen for kind in profile.watches]
    first: list[type[KubeObject]] = [Namespace, PriorityClass, Node, *FOLLOWED, *watched]
    return (*(kind for kind in dict.fromkeys(first) if kind is not Pod), Pod)


def _as_data(made: MovePlan) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.to_builtins(replace(made, jobs=()))
    data["jobs"] = [to_manifest(job) for job in made.jobs]
    return data


def _print(out: Console, made: MovePlan) -> None:
    print_with_reasons(
        out,
        ("#", "POD", "FROM", "TO", "COST", "GAIN AND REASON"),
        [
            (
                str(each.order),
                each.pod,
                each.source,
                each.target or "not proven",
                format_cost(each.cost),
                "; ".join(
                    filter(
                        None,
                        (
                            each.gain_text,
                            f"after {', '.join(each.after)}" if each.after else "",
                            f"{each.plugin}: {each.reason}" if each.reason else each.plugin,
                        ),
                    )
                ),
            )
            for each in made.moves
        ],
        "nothing moves",
    )
    if made.stays:
        out.print("\nWhat stays although a plugin wants it to go:")
        rows = [
            (each.pod, each.node, each.plugin, f"{each.why}: {each.detail}".rstrip(": "))
            for each in made.stays
        ]
        print_with_reasons(out, ("POD", "ON", "PLUGIN", "WHY"), rows, "")
    if made.nodes:
        out.print("\nNodes before and after:")
        shares = [
            (
                each.node,
                f"{each.pods[0]} → {each.pods[1]}",
                f"requested {share_text(each.requested)}"
                + (f"; used {share_text(each.used)}" if each.used else ""),
            )
            for each in made.nodes
        ]
        print_with_reasons(out, ("NODE", "PODS", "SHARES"), shares, "")


def _apply(flags: PlanFlags, made: MovePlan) -> None:
    """Create the jobs; one that is there already is left as it is."""
    from koordinator.cluster.kubernetes.cluster import KubernetesCluster  # noqa: PLC0415
    from koordinator.cluster.kubernetes.connection import find_connection  # noqa: PLC0415
    from koordinator.cluster.kubernetes.credentials import Credentials  # noqa: PLC0415

    clock = SystemClock()
    credentials = Credentials(find_connection(flags.kubeconfig, flags.context), clock)
    created, failed = 0, list[str]()
    with KubernetesCluster(credentials, clock) as cluster:
        for job in made.jobs:
            try:
                cluster.create(job)
            except AlreadyExistsError:
                continue
            except ClusterError as error:
                failed.append(f"{PodMigrationJob.KIND} {job.metadata.name}: {error}")
                continue
            created += 1
    sys.stderr.write(f"{created} of {len(made.jobs)} PodMigrationJobs created\n")
    if failed:
        raise ClusterError("; ".join(failed))


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
        scheduler_gates=read_gates(
            flags.scheduler_feature_gates, flags.kube_version, source=SCHEDULER_GATES
        ),
    )
    for number, cycle in enumerate(report.cycles, 1):
        for problem in cycle.problems:
            warn(f"cycle {number} ended early: {problem}")
    print_items(report.as_data(), flags.output)
    report.changes.faults.check()
