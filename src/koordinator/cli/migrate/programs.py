"""Checks of command lines: flags, feature gates and variables of the original's programs."""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import PurePath
from types import MappingProxyType
from typing import Any, Final

import typer
from msgspec import Struct

from koordinator.api.codec import decode
from koordinator.api.kubescheduler import FeatureGates
from koordinator.cli.commands import COMMANDS
from koordinator.cli.component.original_flags import NO_RENAMES
from koordinator.cli.descheduler.flags import parse_gates as parse_descheduler_gates
from koordinator.cli.main import PROGRAMS
from koordinator.cli.migrate.documents import Document, FindingStatus, MigrationFinding
from koordinator.foundation.errors import InputError
from koordinator.koordlet.app.options import gates_of
from koordinator.koordlet.app.options import parse_gates as parse_agent_gates
from koordinator.manager.admission.gates import parse_gates as parse_manager_gates

KINDS: Final = ("Deployment", "DaemonSet", "Pod")
COMMAND: Final = "command line"
_AUTHORIZED: Final = "metrics require a bearer token that may get /metrics; health is open"
#: Flags that have another effect here, by program and name.
_DIFFERENT: Final[Mapping[tuple[str, str], str]] = MappingProxyType(
    {
        ("koordlet", "addr"): _AUTHORIZED,
        ("koord-manager", "metrics-addr"): _AUTHORIZED,
    }
)
_GATES: Final = "feature-gates"
_GATE_PARSERS: Final[Mapping[str, Callable[[str], object]]] = MappingProxyType(
    {
        "koord-scheduler": FeatureGates.parse,
        "koord-manager": parse_manager_gates,
        "koord-descheduler": parse_descheduler_gates,
        "koordlet": lambda text: gates_of(parse_agent_gates(text)),
    }
)
#: Variables that programs or their Deployments use, besides the ones that set flags.
_VARIABLES: Final = ("NODE_NAME", "POD_NAME", "POD_NAMESPACE", "agent_mode")


class _Variable(Struct, frozen=True):
    name: str = ""


class _Container(Struct, frozen=True):
    name: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[_Variable, ...] = ()


class _Spec(Struct, frozen=True):
    """Spec of a pod, or of a workload."""

    containers: tuple[_Container, ...] = ()
    template: "_Manifest | None" = None


class _Manifest(Struct, frozen=True):
    spec: _Spec = _Spec()


def check_workload(document: Document) -> Iterator[MigrationFinding]:
    """Yield the findings about the containers of a workload that run a program of the original.

    Raises InputError if the API server would reject the workload.
    """
    spec = decode(document.data, _Manifest).spec
    pod = spec.template.spec if spec.template is not None else spec
    for index, container in enumerate(pod.containers):
        line = [*container.command, *container.args]
        if not line or PurePath(line[0]).name not in PROGRAMS:
            continue
        place = f"containers[{container.name or index}]"
        head = (document.kind, document.name, document.source)
        yield from _check_line(line, head, place)
        yield from _check_variables(container, head, place, PurePath(line[0]).name)
        yield MigrationFinding(
            kind=document.kind,
            object=document.name,
            source=document.source,
            field=f"{place}.image",
            status=FindingStatus.DIFFERS,
            message="one image has all programs, under the original's names, too",
            action="build and push it: docs/how-to/install.md",
        )


def check_command(text: str) -> Iterator[MigrationFinding]:
    """Yield the findings about a command line such as ``koord-scheduler --v=4``.

    Raises InputError if it does not begin with a program of the original.
    """
    words = shlex.split(text)
    if not words or PurePath(words[0]).name not in PROGRAMS:
        accepted = ", ".join(PROGRAMS)
        raise InputError(f"must begin with one of {accepted}, got {text!r}", source="--command")
    yield from _check_line(words, (COMMAND, PurePath(words[0]).name, ""), "")


def _check_line(
    line: Sequence[str], head: tuple[str, str, str], place: str
) -> Iterator[MigrationFinding]:
    kind, name, source = head
    program = PurePath(line[0]).name
    command = _command(program)
    declared = {option: each for each in command.params for option in each.opts}
    rest = list(line[1:])
    while rest:
        word = rest.pop(0)
        flag, equals, value = word.removeprefix("-").removeprefix("-").partition("=")
        if not word.startswith("-") or not flag:
            continue
        if not equals and rest and not rest[0].startswith("-"):
            option = declared.get(f"--{_spelled(command, flag)}")
            value = rest.pop(0) if option is None or not option.is_flag else "true"
        status, message, action = _judge(program, command, declared, flag, value)
        yield MigrationFinding(
            kind=kind,
            object=name,
            source=source,
            field=".".join(filter(None, (place, f"--{flag}"))),
            status=status,
            message=message,
            action=action,
        )


@cache
def _command(program: str) -> Any:
    return COMMANDS[PROGRAMS[program]].load()


def _spelled(command: Any, flag: str) -> str:
    renamed: Mapping[str, str] = getattr(command, "spelled", NO_RENAMES)
    return renamed.get(flag, flag.replace("_", "-"))


def _judge(
    program: str, command: Any, declared: Mapping[str, Any], flag: str, value: str
) -> tuple[FindingStatus, str, str]:
    name = _spelled(command, flag)
    option = declared.get(f"--{name}")
    if option is None:
        if name in command.ignored:
            return FindingStatus.IGNORED, command.ignored[name], ""
        return (
            (FindingStatus.SAME, "", "")
            if name == "v"
            else (FindingStatus.ACTION, "unknown flag", "remove it")
        )
    if problem := _problem(program, name, command, declared, value):
        return FindingStatus.ACTION, problem, "correct the value"
    if text := _DIFFERENT.get((program, name)):
        return FindingStatus.DIFFERS, text, "grant the ClusterRole koord-metrics-reader"
    if name != flag.replace("_", "-"):
        return FindingStatus.CONVERTED, f"read as --{name}", ""
    return FindingStatus.SAME, "", ""


def _problem(program: str, name: str, command: Any, declared: Mapping[str, Any], value: str) -> str:
    """Return the reason why a value of a flag is rejected; empty if it is accepted."""
    try:
        is_bare = not value and declared[f"--{name}"].is_flag
        command.make_context(program, [f"--{name}" if is_bare else f"--{name}={value}"])
        if name == _GATES and program in _GATE_PARSERS:
            _GATE_PARSERS[program](value)
    except typer.BadParameter as error:
        return str(error.message)
    except InputError as error:
        return error.problem
    return ""


def _check_variables(
    container: _Container, head: tuple[str, str, str], place: str, program: str
) -> Iterator[MigrationFinding]:
    command = _command(program)
    read = {
        name
        for each in command.params
        for name in ([each.envvar] if isinstance(each.envvar, str) else each.envvar or ())
    }
    for name in [variable.name for variable in container.env]:
        if name not in read and name not in _VARIABLES:
            yield MigrationFinding(
                kind=head[0],
                object=head[1],
                source=head[2],
                field=f"{place}.env[{name}]",
                status=FindingStatus.IGNORED,
                message="no program reads this variable",
            )
