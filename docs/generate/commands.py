"""Pages of commands: usage, arguments, flags with defaults, environment variables."""

import re
from collections.abc import Iterator
from typing import Any

from docs.generate.markdown import cell, code, page, table

from koordinator.cli.commands import COMMANDS


def commands() -> Iterator[tuple[str, str]]:
    """Yield name and page of every command of ``koord``."""
    for name, source in COMMANDS.items():
        yield name, page(f"koord {name}", *_parts(source.load(), f"koord {name}"))


def environment_variables() -> str:
    """Return the page of environment variables that set flags."""
    rows = []
    for name, source in COMMANDS.items():
        for parameter in getattr(source.load(), "params", ()):
            for variable in _variables(parameter):
                flag = code(max(parameter.opts, key=len))
                rows.append((code(variable), code(f"koord {name}"), flag))
    return page(
        "Environment variables",
        "A flag that is given wins over its environment variable.",
        table(("variable", "command", "flag"), sorted(rows)),
    )


def _parts(command: Any, usage: str) -> Iterator[str]:
    context = command.make_context(usage, [], resilient_parsing=True)
    yield _prose(command.help or "")
    usage_line = " ".join((usage, *command.collect_usage_pieces(context)))
    yield f"```text\n{usage_line}\n```"
    sections: dict[str, list[tuple[str, str]]] = {}
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None:
            section = getattr(parameter, "rich_help_panel", None) or "Options"
            sections.setdefault(section, []).append((code(record[0]), cell(record[1])))
    for title, rows in sections.items():
        yield f"**{title}**\n\n{table(('flag', 'meaning'), rows)}"
    for name, inner in getattr(command, "commands", {}).items():
        yield f"## {usage} {name}"
        yield from _parts(inner, f"{usage} {name}")


def _variables(parameter: Any) -> tuple[str, ...]:
    variables = parameter.envvar or ()
    return (variables,) if isinstance(variables, str) else tuple(variables)


def _prose(text: str) -> str:
    return re.sub(r"[ \t]*\n[ \t]*\n[ \t]*", "\n\n", text.replace("\b", "").strip())
