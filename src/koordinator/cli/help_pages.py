"""Help pages of commands: a section per group of flags, with each flag on a line of its own.

Typer's own tables cut the names of flags on a narrow terminal, and parse brackets as markup.
"""

import textwrap
from collections.abc import Callable, Sequence
from enum import EnumMeta
from typing import Any, Final, get_args

from typer import BadParameter
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

_FLAG: Final = "  "
_HELP: Final = " " * 10
_OPTIONS: Final = "Options"
_ARGUMENTS: Final = "Arguments"
_LONGEST: Final = 500  # characters of a summary


class _Flag(TyperOption):
    """Option whose text is used as it is."""

    def process_value(self, ctx: Any, value: Any) -> Any:
        """Return the value for the command.  Raises BadParameter and MissingParameter."""
        return _processed(self, ctx, value, super().process_value)


class _Argument(TyperArgument):
    """Argument whose text is used as it is."""

    def process_value(self, ctx: Any, value: Any) -> Any:
        """Return the value for the command.  Raises BadParameter and MissingParameter."""
        return _processed(self, ctx, value, super().process_value)


def _processed(parameter: Any, ctx: Any, value: Any, by_typer: Callable[[Any, Any], Any]) -> Any:
    """Return the value of a parameter for the command; ``by_typer`` converts what is not text.

    Typer converts all values by pydantic, whose import would take a quarter of the time in which
    ``koord schedule`` schedules a few pods.
    """
    declared = parameter.type_descriptor.annotation
    value = _choice(value, declared, parameter, ctx)
    if (parameter.required and not value) or not _is_converted(value, declared):
        return by_typer(ctx, value)
    value = () if value is None and (parameter.multiple or parameter.nargs < 0) else value
    return value if parameter.callback is None else parameter.callback(ctx, parameter, value)


def _choice(value: Any, declared: Any, parameter: Any, ctx: Any) -> Any:
    """Return the choice with the stated text; other values unchanged.  Raises BadParameter."""
    if type(value) is not str or not isinstance(declared, EnumMeta):
        return value
    choices: list[Any] = list(declared)
    chosen = next((each for each in choices if each.value == value), None)
    if chosen is None:
        accepted = ", ".join(each.value for each in choices)
        problem = f"must be one of {accepted}, got {value!r}"
        raise BadParameter(problem, ctx=ctx, param=parameter)
    return chosen


def _is_converted(value: Any, declared: Any) -> bool:
    """Return whether a value is of the declared type, as text and defaults are."""
    if value is None or type(value) is declared:
        return True
    return get_args(declared) == (str,) and {type(each) for each in value} == {str}


class _HelpPage:
    """Parts of the page that commands and groups share."""

    def get_params(self: Any, ctx: Any) -> list[Any]:
        """Return the parameters, whose options take text as it is."""
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc] # of typer's class
        for parameter in parameters:
            if type(parameter) is TyperOption:
                parameter.__class__ = _Flag
            elif type(parameter) is TyperArgument:
                parameter.__class__ = _Argument
        return parameters

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
