"""Command ``koord doctor``: checks of an installation (``cluster``) and of a machine (``node``)."""

import os
from collections.abc import Sequence
from dataclasses import field
from typing import Annotated

import typer

from koordinator.cli.component.dataclass_flags import with_flags
from koordinator.cli.component.flags import KUBECONFIG_CONTEXT, READ_CLUSTER, Print
from koordinator.cli.doctor.findings import CheckResult, print_report
from koordinator.cli.help_pages import HelpGroup
from koordinator.cli.koordlet.flags import MODE, RootFlags
from koordinator.cli.output import Output
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass

doctor = typer.Typer(
    cls=HelpGroup,
    help="Check an installation or a node, with a remedy for each problem.",
    no_args_is_help=True,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFlags:
    """Cluster, namespace of the installation, and output."""

    kubeconfig: Annotated[str, typer.Option(help=READ_CLUSTER)] = ""
    context: Annotated[str, typer.Option(help=KUBECONFIG_CONTEXT)] = ""
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="Namespace that the chart is installed in.")
    ] = "koordinator-system"
    as_component: Annotated[
        str,
        typer.Option(
            metavar="COMPONENT",
            help="Check whether the user of the kubeconfig has the rights of this component, such "
            "as koord-scheduler. Default: check the ServiceAccounts of all installed components.",
        ),
    ] = ""
    output: Print = Output.TABLE


@doctor.command("cluster")
@with_flags
def check_cluster(flags: ClusterFlags) -> None:
    """Check CRDs, rights, webhooks, leases, node metrics and feature gates of an installation.

    It changes nothing. The exit code is 0 without problems, 1 with problems, and 2 for wrong input.
    """
    from koordinator.cli.doctor.custom_resources import check_custom_resources  # noqa: PLC0415 -- the
    from koordinator.cli.doctor.gates import check_gates  # noqa: PLC0415 -- takes a
    from koordinator.cli.doctor.installation import (  # noqa: PLC0415 -- client  # noqa: PLC0415 -- quarter
        COMPONENTS,
        check_leases,
        check_node_metrics,
        read_installation,
    )
    from koordinator.cli.doctor.rights import check_rights, shipped_rights  # noqa: PLC0415 -- of a
    from koordinator.cli.doctor.webhooks import check_webhooks  # noqa: PLC0415 -- second
    from koordinator.cli.input.live import connected, find_cluster  # noqa: PLC0415 -- to load
    from koordinator.foundation.clock import WallClock  # noqa: PLC0415

    if flags.as_component and flags.as_component not in COMPONENTS:
        known = ", ".join(COMPONENTS)
        raise InputError(
            f"must be one of {known}, got {flags.as_component!r}", source="--as-component"
        )
    namespace, now_s = flags.namespace, WallClock().now_s()
    with connected(find_cluster(flags.kubeconfig, flags.context, or_files=False)) as cluster:
        installation, components = read_installation(cluster, namespace)
        accounts = {flags.as_component} if flags.as_component else set(installation.workloads)
        rights = [each for each in shipped_rights(namespace) if each.account in accounts]
        checks = [
            components,
            check_custom_resources(cluster),
            check_rights(cluster, rights, namespace, as_self=flags.as_component),
        ]
        if "koord-manager" in installation.workloads:
            checks.append(check_webhooks(cluster, namespace, now_s))
        checks += [
            check_leases(cluster, installation, now_s),
            check_node_metrics(cluster, installation, now_s),
            check_gates(cluster, installation),
        ]
    _finish("cluster", checks, flags.output)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFlags:
    """Flags of koordlet that a check of its node needs, and output."""

    roots: RootFlags = field(default_factory=RootFlags)
    feature_gates: Annotated[
        str,
        typer.Option(
            metavar="NAME=true|false,…",
            help="Feature gates of the agent: see koord koordlet --help.",
        ),
    ] = ""
    output: Print = Output.TABLE


@doctor.command("node")
@with_flags
def check_node(flags: NodeFlags) -> None:
    """Check cgroups, kernel and container runtime of this machine for the node agent.

    It changes nothing. Run it as root on the machine, or in a pod of koordlet. The exit code is 0
    without problems, 1 with problems, and 2 for wrong input.
    """
    from koordinator.cli.doctor.node import (  # noqa: PLC0415 -- the agent, not for --help
        CheckedMachine,
        check_cgroups,
        check_kernel,
        check_runtime,
    )
    from koordinator.host.linux.core_scheduling import LinuxCoreScheduling  # noqa: PLC0415 -- as above
    from koordinator.host.linux.host import LinuxHost  # noqa: PLC0415 -- as above
    from koordinator.host.port import CONTAINER, HOST  # noqa: PLC0415 -- as above
    from koordinator.koordlet.app.options import gates_of, parse_gates  # noqa: PLC0415 -- as above

    stated = parse_gates(flags.feature_gates)
    is_in_pod = os.environ.get(MODE) == "dsMode"
    host = LinuxHost(kept_open=0)
    machine = CheckedMachine(
        files=host,
        roots=flags.roots.roots(CONTAINER if is_in_pod else HOST),
        core_scheduling=LinuxCoreScheduling(),
        gates=gates_of(stated),
        stated=frozenset(name for name, is_on in stated.items() if is_on),
        kubelet_cgroup_root=flags.roots.kubelet_parts(),
    )
    cgroups, tree, layout = check_cgroups(machine)
    _finish(
        "node", [cgroups, check_kernel(machine, tree, layout), check_runtime(machine)], flags.output
    )


def _finish(target: str, checks: Sequence[CheckResult], output: Output) -> None:
    print_report(target, checks, output)
    if not all(each.is_healthy for each in checks):
        raise typer.Exit(1)
