"""Commands of ``koord`` by name; the module of a command is loaded when the command runs.

The summaries of ``koord --help`` and of shell completion are here, so that neither has to load
NumPy, a scheduler or a client of the API server.
"""

import gc
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final

import typer

from koordinator.cli.help_pages import HelpCommand, HelpGroup, write_commands
from koordinator.foundation.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class CommandSource:
    """Location of a command, a function or a ``Typer`` of a module, and its summary."""

    module: str
    attribute: str
    summary: str  # the first line of its help
    original_flags: str = ""  # class in ``original_flags`` that parses flags as Go programs do

    def load(self) -> Any:
        """Import the module and return its click command."""
        target = getattr(import_module(f"koordinator.cli.{self.module}"), self.attribute)
        if isinstance(target, typer.Typer):
            for inner in target.registered_commands:
                inner.cls = HelpCommand
            return typer.main.get_group(target)
        single = typer.Typer(add_completion=False)
        command_class: Any = HelpCommand
        if self.original_flags:
            flags = import_module("koordinator.cli.component.original_flags")
            command_class = getattr(flags, self.original_flags)
        single.command(cls=command_class)(target)
        return typer.main.get_command(single)


COMMANDS: Final[Mapping[str, CommandSource]] = MappingProxyType(
    {
        "schedule": CommandSource(
            "schedule",
            "schedule",
            "Schedule the pending pods of manifests or a cluster, and print the decisions.",
        ),
        "simulate": CommandSource(
            "simulate.command",
            "simulate",
            "Simulate a workload, manifests, a trace or a recording, "
            "and report the outcome of its pods.",
        ),
        "experiment": CommandSource(
            "experiment",
            "run_experiment",
            "Simulate a grid of sources, policies, seeds and parameters, and compare the policies.",
        ),
        "explain": CommandSource(
            "explain.command", "explain", "Explain why pods wait, and what would help."
        ),
        "gang": CommandSource(
            "gang", "gang", "Show gangs: pods that start together or not at all."
        ),
        "quota": CommandSource("quota", "app", "Show elastic quotas."),
        "node": CommandSource("node", "nodes", "Show nodes."),
        "scheduler": CommandSource(
            "scheduler.command",
            "scheduler",
            "Run the scheduler on a cluster until a signal stops it.",
            "SchedulerCommand",
        ),
        "manager": CommandSource(
            "manager.command",
            "manager",
            "Run the manager on a cluster until a signal stops it.",
            "ManagerCommand",
        ),
        "descheduler": CommandSource(
            "descheduler.command",
            "descheduler",
            "Run the descheduler on a cluster until a signal stops it, or plan its moves.",
        ),
        "yarn-operator": CommandSource(
            "yarn.operator",
            "yarn_operator",
            "Run the YARN operator on a cluster until a signal stops it.",
            "YarnOperatorCommand",
        ),
        "yarn-copilot": CommandSource(
            "yarn.copilot",
            "yarn_copilot",
            "Run the YARN agent of this node until a signal stops it.",
            "YarnCopilotCommand",
        ),
        "koordlet": CommandSource(
            "koordlet.command", "koordlet", "Run the node agent, or show its audit log."
        ),
        "device-daemon": CommandSource(
            "device_daemon",
            "device_daemon",
            "Describe NPUs, MLUs, XPUs and MetaX GPUs for the node agent, by their vendors' tools.",
            "DeviceDaemonCommand",
        ),
        "vgpu-monitor": CommandSource(
            "vgpu_monitor.command",
            "vgpu_monitor",
            "Monitor GPU slices: serve metrics of their usage and of containers that wait.",
            "VgpuMonitorCommand",
        ),
        "audit": CommandSource(
            "audit",
            "audit",
            "Summarize scheduling decisions: slow plugins, rejected jobs and flapping nodes.",
        ),
        "record": CommandSource(
            "recording",
            "record",
            "Record what a scheduler reads from a cluster: all objects, and every change with its "
            "time.",
        ),
        "replay": CommandSource(
            "recording",
            "replay",
            "Replay a recording, and compare the decisions pod by pod and in totals.",
        ),
        "demo": CommandSource(
            "demo",
            "demo",
            "Simulate a day of an AI and services cluster and write an HTML report.",
        ),
        "dashboard": CommandSource(
            "dashboard.command",
            "dashboard",
            "Show a cluster live in the browser: waiting pods with reasons, nodes, shares and "
            "time.",
        ),
        "doctor": CommandSource(
            "doctor.command",
            "doctor",
            "Check an installation or a node, with a remedy for each problem.",
        ),
        "migrate": CommandSource(
            "migrate.command",
            "app",
            "Check and convert settings and objects of the original Koordinator.",
        ),
        "crds": CommandSource(
            "crds",
            "crds",
            "Print the CustomResourceDefinitions, ready for kubectl apply.",
        ),
        "completion": CommandSource(
            "completion", "completion", "Print the script that completes commands in a shell."
        ),
        "version": CommandSource("main", "version", "Print the version."),
    }
)


#: The commands as ``koord --help`` groups them.
SECTIONS: Final[Mapping[str, Sequence[str]]] = MappingProxyType(
    {
        "Inspect pods": ("schedule", "explain", "gang", "quota", "node"),
        "Inspect a cluster": ("dashboard", "audit", "record", "replay"),
        "Simulate": ("simulate", "experiment", "demo"),
        "Run a component": (
            "scheduler",
            "manager",
            "descheduler",
            "koordlet",
            "device-daemon",
            "vgpu-monitor",
            "yarn-operator",
            "yarn-copilot",
        ),
        "Set up": ("migrate", "doctor", "crds", "completion", "version"),
    }
)


class CommandTable(HelpGroup):
    """Group ``koord`` with names and summaries of its commands; it loads the one that runs."""

    def __init__(self, **attrs: Any) -> None:
        attrs["commands"] = {
            name: HelpCommand(name, help=source.summary) for name, source in COMMANDS.items()
        }
        super().__init__(**attrs)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 -- of click
        """Write the commands by section."""
        for title, names in SECTIONS.items():
            write_commands(formatter, title, [(name, COMMANDS[name].summary) for name in names])

    def resolve_command(self, ctx: Any, args: Sequence[str]) -> Any:
        """Return name and command, and the arguments for it.  Raises UsageError."""
        name, placeholder, rest = super().resolve_command(ctx, list(args))
        if name is None or placeholder is None:
            return name, None, rest
        if ctx.obj is not None:  # of ``main``: what a command needs and ``--help`` does not
            ctx.obj()
        command = COMMANDS[name].load()
        if not gc.isenabled():  # ``main`` leaves collecting to the command
            gc.freeze()
            gc.enable()
        return name, command, rest
