"""Command ``koord node show``: the hardware of a node, and the pods that hold it."""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from koordinator.api.meta import KubeObject
from koordinator.api.node import Node
from koordinator.api.pod import Pod, is_terminal
from koordinator.cli.component.flags import KUBECONFIG_CONTEXT, READ_CLUSTER, Files
from koordinator.cli.help_pages import HelpGroup
from koordinator.cli.input.live import is_live, with_cluster
from koordinator.cli.node.diagram import diagram
from koordinator.cli.output import console, warn
from koordinator.foundation.errors import InputError
from koordinator.scheduler.ingest import Ingest
from koordinator.scheduler.snapshot import ClusterState
from koordinator.simulator.manifests.reader import read_manifests

nodes = typer.Typer(cls=HelpGroup, help="Show nodes.", no_args_is_help=True)


@nodes.callback()
def _nodes() -> None:
    """Keep ``show`` a command of its own while it is the only one."""


@nodes.command()
def show(
    name: Annotated[str, typer.Argument(metavar="NODE", help="Name of the node.")],
    *,
    files: Files = None,
    kubeconfig: Annotated[str, typer.Option(help=READ_CLUSTER)] = "",
    context: Annotated[str, typer.Option(help=KUBECONFIG_CONTEXT)] = "",
) -> None:
    """Draw the sockets, NUMA nodes, CPUs, GPUs and NICs of a node, and the pods that hold them."""
    given: Sequence[KubeObject] = (
        read_manifests(files, sys.stdin.buffer, on_notice=warn) if files else []
    )
    if is_live(files, kubeconfig, context):
        given = with_cluster(given, kubeconfig, context)
    known = sorted(obj.metadata.name for obj in given if isinstance(obj, Node))
    if name not in known:
        raise InputError(f"must be one of {', '.join(known)}, got {name!r}", source="NODE")
    state, warnings = state_of(given)
    console().print(diagram(state, name))
    for warning in warnings:
        warn(warning)


def state_of(objects: Sequence[KubeObject]) -> tuple[ClusterState, list[str]]:
    """Return the cluster as the scheduler reads it, and the warnings of its ingest."""
    state = ClusterState()
    ingest = Ingest(state)
    for obj in objects:
        if not isinstance(obj, Pod):
            ingest.put(obj)
    for obj in objects:
        if isinstance(obj, Pod) and obj.spec.node_name and not is_terminal(obj):
            ingest.put_placed(obj, None)
    return state, list(map(str, ingest.warnings))
