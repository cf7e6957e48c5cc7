"""Flags of a command, declared as the fields of a frozen dataclass.

A field is a flag as typer declares it, with its type, its default and its help.  A field whose type
is such a dataclass is a group of flags that several commands share; the default of the field
sets the defaults of the group for this command::

    @dataclass(frozen=True, slots=True, kw_only=True)
    class SweeperFlags:
        connection: ConnectionFlags = field(default_factory=ConnectionFlags)
        every: Annotated[str, typer.Option(metavar="DURATION", help="Time between sweeps.")] = "5m"
        dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print.")] = False

    @with_flags
    def sweeper(flags: SweeperFlags) -> None: ...
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, get_type_hints

from koordinator.foundation.errors import BugError


def with_flags(function: Callable[..., None]) -> Callable[..., None]:
    """Return the command that typer registers for a function of flags and other parameters.

    A parameter whose type is a dataclass is replaced by the flags of its fields.
    Raises BugError for a flag that is declared twice.
    """
    hints = get_type_hints(function, include_extras=True)
    own = inspect.signature(function).parameters
    groups = {name: hints[name] for name in own if is_dataclass(hints[name])}
    parameters: list[inspect.Parameter] = []
    for name, parameter in own.items():
        if name in groups:
            parameters += _parameters(groups[name], None)
        else:
            parameters.append(
                parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)
            )
    names = [parameter.name for parameter in parameters]
    repeated = {name for name in names if names.count(name) > 1}
    if repeated:
        raise BugError(f"{function.__qualname__}: declared twice: {', '.join(sorted(repeated))}")

    def command(**values: Any) -> None:
        given = {name: _build(group, values) for name, group in groups.items()}
        function(**given, **{name: values[name] for name in own if name not in groups})

    command.__name__, command.__doc__ = function.__name__, function.__doc__
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined] # PEP 362
    return command


def _parameters(group: type, default: Any) -> Iterator[inspect.Parameter]:
    """Yield the flags of a group; ``default`` is an instance with their defaults, if given."""
    hints = get_type_hints(group, include_extras=True)
    for field in fields(group):
        preset = _default(field) if default is None else getattr(default, field.name)
        if is_dataclass(hints[field.name]):
            yield from _parameters(hints[field.name], None if preset is MISSING else preset)
            continue
        yield inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            annotation=hints[field.name],
            default=inspect.Parameter.empty if preset is MISSING else preset,
        )


def _default(field: "Field[Any]") -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _build(group: type, values: Mapping[str, Any]) -> Any:
    hints = get_type_hints(group)
    return group(
        **{
            field.name: _build(hints[field.name], values)
            if is_dataclass(hints[field.name])
            else values[field.name]
            for field in fields(group)
        }
    )
