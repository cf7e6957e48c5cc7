"""Pages of commands: usage, arguments, flags with defaults, environment variables."""

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from docs.generate.dated import ABOUT_SINCE, SINCE, Row, dated_table
from docs.generate.markdown import cell, code, page, table

from koordinator.cli.commands import COMMANDS

_WITH_CLUSTER: Final = "every command that connects to a cluster"


class _Variable(NamedTuple):
    """Environment variables that no flag declares."""

    names: tuple[str, ...]
    command: str
    meaning: str


_WITHOUT_FLAG: Final = (
    _Variable(
        ("agent_mode",),
        "`koord koordlet`, `koord doctor`",
        "`hostMode` or `dsMode`: whether paths of the machine are those of the host, or those that "
        "the DaemonSet mounts; default of koordlet: `hostMode` with `--kubeconfig`, otherwise "
        "`dsMode`; of doctor: `hostMode`",
    ),
    _Variable(
        ("DISPLAY", "WAYLAND_DISPLAY"),
        "`koord dashboard`",
        "on Linux, opens a browser if one of them is set",
    ),
    _Variable(
        ("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy"),
        _WITH_CLUSTER,
        "proxy for connections to the API server; upper case goes first",
    ),
    _Variable(("NO_PROXY", "no_proxy"), _WITH_CLUSTER, "hosts that are connected without a proxy"),
    _Variable(
        ("KOORD_TRACEBACK",),
        "every command",
        "shows the traceback of an internal error if it is set",
    ),
    _Variable(
        ("KUBECONFIG",),
        _WITH_CLUSTER,
        "files, separated by `:`, in place of `--kubeconfig`; default: `~/.kube/config`, otherwise "
        "the service account of the pod",
    ),
    _Variable(("HOME",), _WITH_CLUSTER, "folder of `.kube/config`"),
    _Variable(
        ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"),
        _WITH_CLUSTER,
        "address of the API server for pods; the kubelet sets it",
    ),
    _Variable(("NODE_NAME",), "`koord koordlet`", "name of the node, in place of `--node-name`"),
)


def commands() -> Iterator[tuple[str, str]]:
    """Yield name and page of every command of ``koord``."""
    for name, source in COMMANDS.items():
        usage = f"koord {name}"
        yield name, page(usage, *_parts(source.load(), usage), ABOUT_SINCE)


def environment_variables() -> str:
    """Return the page of environment variables, with and without flags."""
    rows = []
    for name, source in COMMANDS.items():
        for parameter in getattr(source.load(), "params", ()):
            for variable in _variables(parameter):
                flag = code(max(parameter.opts, key=len))
                rows.append(Row(variable, (code(variable), code(f"koord {name}"), flag)))
    return page(
        "Environment variables",
        f"A flag that is given wins over its environment variable. {ABOUT_SINCE}",
        dated_table("environment variable", ("variable", "command", "flag"), sorted(rows)),
        "## Variables without a flag",
        table(
            ("variable", "command", "meaning"),
            (
                (", ".join(map(code, each.names)), each.command, each.meaning)
                for each in _WITHOUT_FLAG
            ),
        ),
    )


def _parts(command: Any, usage: str) -> Iterator[str]:
    context = command.make_context(usage, [], resilient_parsing=True)
    yield _prose(command.help or "")
    usage_line = " ".join((usage, *command.collect_usage_pieces(context)))
    yield f"```text\n{usage_line}\n```\n\nSince: {SINCE.release('command', usage)}."
    sections: dict[str, list[Row]] = {}
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None:
            section = getattr(parameter, "rich_help_panel", None) or "Options"
            name = max(parameter.opts, key=len).lstrip("-")
            row = Row(name, (code(record[0]), cell(record[1])))
            sections.setdefault(section, []).append(row)
    for title, rows in sections.items():
        yield f"**{title}**\n\n{dated_table(f'flag {usage}', ('flag', 'meaning'), rows)}"
    for name, inner in getattr(command, "commands", {}).items():
        yield f"## {usage} {name}"
        yield from _parts(inner, f"{usage} {name}")


def _variables(parameter: Any) -> tuple[str, ...]:
    variables = parameter.envvar or ()
    return (variables,) if isinstance(variables, str) else tuple(variables)


def _prose(text: str) -> str:
    return re.sub(r"[ \t]*\n[ \t]*\n[ \t]*", "\n\n", text.replace("\b", "").strip())
