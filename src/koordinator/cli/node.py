"""``koord node``: diagrams of nodes.

Command ``koord node show``: the hardware of a node, and the pods that use it, as a diagram.

Sockets, NUMA nodes, cores and devices have a letter per pod that uses some of them.

A CPU is a letter, ``·`` if it is free, ``#`` if no pod may be bound to it; the CPUs of a core are
adjacent.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from string import ascii_letters
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from koordinator.api.device import DeviceType
from koordinator.api.meta import KubeObject
from koordinator.api.node import Node
from koordinator.api.pod import Pod, is_terminal
from koordinator.api.resource_names import CPU, MEMORY
from koordinator.cli.component.flags import KUBECONFIG_CONTEXT, READ_CLUSTER, ManifestFiles
from koordinator.cli.help_pages import HelpGroup
from koordinator.cli.input.live import is_live, with_cluster
from koordinator.cli.output import console, warn
from koordinator.domain.devices.allocation import RATIO
from koordinator.domain.devices.model import DeviceGroup
from koordinator.foundation.cpu_list import format_cpu_list
from koordinator.foundation.errors import InputError
from koordinator.foundation.masks import bits_of
from koordinator.foundation.quantity import Quantity
from koordinator.scheduler.ingest import Ingest
from koordinator.scheduler.rules.cpus.layout import CpuLayout
from koordinator.scheduler.rules.numa.node import NumaNode
from koordinator.scheduler.snapshot import ClusterState, PlacedPod
from koordinator.simulator.manifests.reader import read_manifests

FREE, UNUSABLE = "·", "#"
COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "red")
BAR = 20  # characters
CORES_PER_LINE = 32
nodes = typer.Typer(cls=HelpGroup, help="Show nodes.", no_args_is_help=True)


@nodes.callback()
def _nodes() -> None:
    """Keep ``show`` a command of its own while it is the only one."""


@nodes.command()
def show(
    name: Annotated[str, typer.Argument(metavar="NODE", help="Name of the node.")],
    *,
    files: ManifestFiles = None,
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


def diagram(state: ClusterState, name: str) -> RenderableType:
    """Return the diagram of a node that the state knows."""
    row = state.nodes.rows[name]
    letters = _letters(state.pods.on_row[row].values())
    numa = state.nodes.numa.node(row, pack=False)
    parts: list[RenderableType] = list(_sockets(numa, letters))
    parts += _devices(state, row, letters)
    if not parts:
        parts.append(Text("its CPUs, NUMA nodes and devices are not reported"))
    parts.append(_legend(letters))
    return Panel(Group(*parts), title=name, title_align="left", expand=False)


Letters = Mapping[str, tuple[PlacedPod, str, str]]  # by key of the pod: it, its letter, its colour


def _letters(pods: Iterable[PlacedPod]) -> Letters:
    """Give a letter to every pod that holds something, in the order of their names."""
    holders = sorted(
        (p for p in pods if p.pod_allocation.devices or p.pod_allocation.numa), key=_key
    )
    names = (*ascii_letters, *map("".join, product(ascii_letters, repeat=2)))
    return {
        placed.key: (placed, letter, COLOURS[index % len(COLOURS)])
        for index, (placed, letter) in enumerate(zip(holders, names, strict=False))
    }


def _key(placed: PlacedPod) -> str:
    return placed.key


# -- CPUs and NUMA nodes -----------------------------------------------------------------------


def _sockets(numa: NumaNode, letters: Letters) -> Iterator[RenderableType]:
    layout = numa.layout
    if layout is None:
        if numa.zones:
            yield Group(*(_amounts(numa, zone) for zone in numa.zones))
        return
    for number, socket in enumerate(layout.sockets):
        zones = [zone for zone, cpus in layout.numa_nodes.items() if cpus & socket]
        inside = [part for zone in zones for part in _zone(numa, layout, zone, letters)]
        title = f"socket {number}"
        yield Panel(Group(*inside), title=title, title_align="left", expand=False)
    yield from (_amounts(numa, zone) for zone in numa.zones if zone not in layout.numa_nodes)


def _zone(
    numa: NumaNode, layout: CpuLayout, zone: int, letters: Letters
) -> Iterator[RenderableType]:
    yield _amounts(numa, zone)
    cpus = layout.numa_nodes[zone]
    cores = list(bits_of(layout.cores_of(cpus)))
    for start in range(0, len(cores), CORES_PER_LINE):
        line = Text("  CPUs ")
        for core in cores[start : start + CORES_PER_LINE]:
            for cpu in bits_of(layout.cpus_of(1 << core)):
                line.append(*_cpu(numa, cpu, letters))
            line.append(" ")
        yield line


def _cpu(numa: NumaNode, cpu: int, letters: Letters) -> tuple[str, str]:
    for placed, letter, colour in letters.values():
        allocation = placed.pod_allocation.numa
        if allocation is not None and allocation.cpus >> cpu & 1:
            return letter, colour
    return (UNUSABLE, "dim") if numa.unusable >> cpu & 1 else (FREE, "dim")


def _amounts(numa: NumaNode, zone: int) -> Text:
    """Return a line such as ``NUMA node 0  cpu 4 of 8, memory 3Gi of 16Gi``."""
    used = numa.used({}).get(zone, {})
    parts = [
        f"{name} {_amount(name, used.get(name, 0))} of {_amount(name, amount)}"
        for name, amount in numa.zones.get(zone, {}).items()
    ]
    return Text(f"NUMA node {zone}  {', '.join(parts)}")


def _amount(name: str, amount: int) -> str:
    if name == CPU:
        return Quantity.from_milli(amount).canonical()
    is_binary = name.endswith(MEMORY) or name.startswith("hugepages-")
    return Quantity.from_int(amount, binary=is_binary).canonical()


# -- devices ---------------------------------------------------------------------------------


def _devices(state: ClusterState, row: int, letters: Letters) -> Iterator[RenderableType]:
    report = state.nodes.devices.reports.get(row)
    for group in report.model.groups if report else ():
        healthy = report.healthy.get(group.kind, 0) if report else 0
        yield _group(group, healthy, letters)


def _group(group: DeviceGroup, healthy: int, letters: Letters) -> Table:
    place = RATIO if group.kind is DeviceType.GPU else 0
    table = Table(f"{group.kind}", "NUMA", "PCIe", "taken", "", box=None, header_style="bold")
    for device in group.devices:
        holders = [
            (taken, letter, colour)
            for placed, letter, colour in letters.values()
            for taken in placed.pod_allocation.devices.get(group.kind, ())
            if taken.minor == device.minor
        ]
        bar, details = Text(), Text()
        for taken, letter, colour in holders:
            amount = taken.amounts[place]
            bar.append("█" * round(BAR * min(amount, 100) / 100), colour)
            details.append(f"{letter} {amount}", colour)
            for function in taken.functions:
                details.append(f" {function.bus_id}", colour)
            details.append("  ")
        bar.append("░" * (BAR - len(bar)), "dim")
        if not healthy >> device.minor & 1:
            bar = Text("unhealthy", "red")
        numa = "" if device.numa is None else str(device.numa)
        table.add_row(str(device.minor), numa, device.pcie or "", bar, details)
    return table


# -- names of components ---------------------------------------------------------------------


def _legend(letters: Letters) -> RenderableType:
    if not letters:
        return Text("no pod has devices, its own CPUs or parts of NUMA nodes", "dim")
    table = Table("pod", "", "holds", box=None, header_style="bold")
    for placed, letter, colour in letters.values():
        table.add_row(Text(letter, colour), placed.key, ", ".join(_allocation_texts(placed)))
    return table


def _allocation_texts(placed: PlacedPod) -> Sequence[str]:
    allocation = placed.pod_allocation
    texts = []
    if allocation.numa is not None and allocation.numa.cpus:
        texts.append(f"CPUs {format_cpu_list(allocation.numa.cpus)}")
    for zone, amounts in allocation.numa.zones.items() if allocation.numa is not None else ():
        parts = " ".join(f"{name} {_amount(name, much)}" for name, much in amounts.items())
        texts.append(f"NUMA node {zone}: {parts}")
    for kind, devices in allocation.devices.items():
        texts.append(f"{kind} {','.join(str(taken.minor) for taken in devices)}")
    return texts
