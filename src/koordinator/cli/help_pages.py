"""Help pages of commands: a section per group of flags, with each flag on a line of its own.

Typer's own tables cut the names of flags on a narrow terminal, and parse brackets as markup.
"""

import textwrap
from collections.abc import Sequence
from typing import Any, Final

from typer.core import TyperCommand, TyperGroup

_FLAG: Final = "  "
_HELP: Final = " " * 10
_OPTIONS: Final = "Options"
_ARGUMENTS: Final = "Arguments"
_LONGEST: Final = 500  # characters of a summary


class _HelpPage:
    """Parts of the page that commands and groups share."""

    def format_help(self: Any, ctx: Any, formatter: Any) -> None:
        """Write the whole page."""
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        self.format_options(ctx, formatter)
        self.format_epilog(ctx, formatter)

    def format_options(self: Any, ctx: Any, formatter: Any) -> None:
        """Write a section per group of flags, in the order of their first flags."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            usual = _ARGUMENTS if parameter.param_type_name == "argument" else _OPTIONS
            section = getattr(parameter, "rich_help_panel", None) or usual
            sections.setdefault(section, []).append(record)
        for title, records in sections.items():
            write_section(formatter, title, records)
        if isinstance(self, TyperGroup):
            self.format_commands(ctx, formatter)


def write_section(formatter: Any, title: str, records: list[tuple[str, str]]) -> None:
    """Write a section; each name is on a line of its own, with its help below."""
    formatter.write(f"\n{title}:\n")
    width = max(formatter.width - len(_HELP), 30)
    for name, text in records:
        formatter.write(f"{_FLAG}{name}\n")
        for line in textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False):
            formatter.write(f"{_HELP}{line}\n")


class HelpCommand(_HelpPage, TyperCommand):
    """Command with such a help page."""


class HelpGroup(_HelpPage, TyperGroup):
    """Group of commands with such a help page."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write every command with its summary."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        write_commands(
            formatter,
            "Commands",
            [(name, command.get_short_help_str(_LONGEST)) for name, command in commands if command],
        )


def write_commands(formatter: Any, title: str, commands: Sequence[tuple[str, str]]) -> None:
    """Write a section of commands, with the summary beside each name."""
    formatter.write(f"\n{title}:\n")
    indent = max(len(name) for name, _ in commands) + 4
    for name, summary in commands:
        lines = textwrap.wrap(summary, max(formatter.width - indent, 30)) or [""]
        formatter.write(f"  {name:<{indent - 2}}{lines[0]}\n")
        for line in lines[1:]:
            formatter.write(f"{' ' * indent}{line}\n")
