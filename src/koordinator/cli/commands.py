"""The commands of ``koord`` by name; a command's module is loaded when the command is run.

What ``koord --help`` and the completion of a shell show is said here, so that they need not load
NumPy, a scheduler or a client of the API server.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final

import typer

from koordinator.cli.help_pages import HelpCommand, HelpGroup, write_commands


@dataclass(frozen=True, slots=True)
class CommandSource:
    """Where a command is: a function or a ``Typer`` of a module, and what it is for."""

    module: str
    attribute: str
    summary: str  # the first line of its help
    original_flags: str = ""  # class in ``original_flags`` that reads flags as Go programs do

    def load(self) -> Any:
        """Import the module and return the command as click runs it."""
        found = getattr(import_module(f"koordinator.cli.{self.module}"), self.attribute)
        if isinstance(found, typer.Typer):
            for inner in found.registered_commands:
                inner.cls = HelpCommand
            return typer.main.get_group(found)
        alone = typer.Typer(add_completion=False)
        reads_flags: Any = HelpCommand
        if self.original_flags:
            flags = import_module("koordinator.cli.component.original_flags")
            reads_flags = getattr(flags, self.original_flags)
        alone.command(cls=reads_flags)(found)
        return typer.main.get_command(alone)


COMMANDS: Final[Mapping[str, CommandSource]] = MappingProxyType(
    {
        "schedule": CommandSource(
            "schedule",
            "schedule",
            "Decide where the pending pods among the given objects go.",
        ),
        "simulate": CommandSource(
            "simulate.command",
            "simulate",
            "Run a described workload, or replay a trace, and report what became of the pods.",
        ),
        "explain": CommandSource(
            "explain.command", "explain", "Why pods wait, and what would help."
        ),
        "gang": CommandSource("gang", "gang", "Gangs: pods that start together or not at all."),
        "quota": CommandSource("quota", "app", "Elastic quotas."),
        "node": CommandSource("node.command", "nodes", "Look at nodes."),
        "scheduler": CommandSource(
            "scheduler.command",
            "scheduler",
            "Run the scheduler on a cluster until it is told to stop.",
            "SchedulerCommand",
        ),
        "manager": CommandSource(
            "manager.command",
            "manager",
            "Run the manager on a cluster until it is told to stop.",
            "ManagerCommand",
        ),
        "descheduler": CommandSource(
            "descheduler.command",
            "descheduler",
            "Run the descheduler on a cluster until it is told to stop, or see what it would do.",
        ),
        "yarn-operator": CommandSource(
            "yarn.operator",
            "yarn_operator",
            "Run the YARN operator on a cluster until it is told to stop.",
            "YarnOperatorCommand",
        ),
        "yarn-copilot": CommandSource(
            "yarn.copilot",
            "yarn_copilot",
            "Run the agent of YARN on this node until it is told to stop.",
            "YarnCopilotCommand",
        ),
        "koordlet": CommandSource(
            "koordlet.command", "koordlet", "Run the node agent, or read what it did."
        ),
        "device-daemon": CommandSource(
            "device_daemon.command",
            "device_daemon",
            "Describe NPUs, MLUs, XPUs and GPUs of MetaX for the node agent, by their vendors' "
            "tools.",
            "DeviceDaemonCommand",
        ),
        "vgpu-monitor": CommandSource(
            "vgpu_monitor.command",
            "vgpu_monitor",
            "Watch slices of GPUs: show what containers use of them, and who waits for whom.",
            "VgpuMonitorCommand",
        ),
        "audit": CommandSource(
            "audit",
            "audit",
            "Tell what was decided: which plugins are slow, which jobs rejected, which nodes flap.",
        ),
        "record": CommandSource(
            "recording",
            "record",
            "Write what a scheduler sees of a cluster: what exists, and every change with its "
            "time.",
        ),
        "replay": CommandSource(
            "recording",
            "replay",
            "Decide anew what was recorded, and show what is different, pod by pod and in totals.",
        ),
        "demo": CommandSource(
            "demo",
            "demo",
            "Simulate a day of an AI and services cluster and write an HTML report.",
        ),
        "dashboard": CommandSource(
            "dashboard.command",
            "dashboard",
            "Show a cluster in the browser, live: who waits and why, every node, shares, and time.",
        ),
        "crds": CommandSource(
            "crds",
            "crds",
            "Print the CustomResourceDefinitions, ready for kubectl apply.",
        ),
        "completion": CommandSource(
            "completion", "completion", "Print the script that completes commands in a shell."
        ),
        "version": CommandSource("version", "version", "Print the version."),
    }
)


#: The commands as ``koord --help`` groups them.
SECTIONS: Final[Mapping[str, Sequence[str]]] = MappingProxyType(
    {
        "Ask about pods": ("schedule", "explain", "gang", "quota", "node"),
        "Look at a cluster": ("dashboard", "audit", "record", "replay"),
        "Simulate": ("simulate", "demo"),
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
        "Set up": ("crds", "completion", "version"),
    }
)


class CommandTable(HelpGroup):
    """``koord``: knows names and summaries of its commands, and loads the one that is run."""

    def __init__(self, **attrs: Any) -> None:
        attrs["commands"] = {
            name: HelpCommand(name, help=source.summary) for name, source in COMMANDS.items()
        }
        super().__init__(**attrs)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 -- of click
        """Write the commands, each section apart."""
        for title, names in SECTIONS.items():
            write_commands(formatter, title, [(name, COMMANDS[name].summary) for name in names])

    def resolve_command(self, ctx: Any, args: Sequence[str]) -> Any:
        """Return name, command and the arguments left for it.  Raises UsageError."""
        name, stand_in, left = super().resolve_command(ctx, list(args))
        found = COMMANDS[name].load() if name is not None and stand_in is not None else None
        return name, found, left
