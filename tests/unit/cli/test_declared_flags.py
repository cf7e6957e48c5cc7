"""Command line interface: declared once, and stable for scripts."""

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import pytest
import typer
import yaml
from tests.markdown import code_blocks
from typer.testing import CliRunner

from koordinator.cli.commands import COMMANDS
from koordinator.cli.component.dataclass_flags import with_flags
from koordinator.foundation.errors import BugError, InputError

RUNNER = CliRunner()
RECORD = Path(__file__).with_name("flags.txt")
CHART = Path(__file__).parents[3] / "charts/koordinator"
ABSENT = object()


def flag_line(command: str, parameter: Any) -> str:
    """Return a line: command, names, type with bounds, default, variable, and help."""
    kind = str(parameter.type_descriptor.annotation)
    limits = (parameter.min, parameter.max)
    bounds = "" if limits == (None, None) else f" {limits[0]}..{limits[1]}"
    return " | ".join(
        (
            command,
            " ".join((*parameter.opts, *parameter.secondary_opts)),
            f"{kind}{bounds} {parameter.metavar or ''}".rstrip(),
            str(parameter.default),
            str(parameter.envvar or ""),
            getattr(parameter, "help", None) or "",
        )
    )


def inventory() -> Iterator[str]:
    """Yield every argument and flag of every command."""

    def lines(path: str, command: Any) -> Iterator[str]:
        for parameter in command.params:
            yield flag_line(path, parameter)
        for name, inner in getattr(command, "commands", {}).items():
            yield from lines(f"{path} {name}", inner)

    for name, source in COMMANDS.items():
        yield from lines(name, source.load())


def test_no_flag_changes_its_name_its_default_or_its_meaning() -> None:
    """Scripts and Deployments go on: each line of flags.txt is still so; there may be more.

    ``python -m tests.unit.cli.test_declared_flags`` writes the file again.
    """
    missing = set(RECORD.read_text("utf-8").splitlines()) - set(inventory())

    assert not missing


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """A group of two flags."""

    every: Annotated[str, typer.Option(help="Between sweeps.")] = "5m"
    most: Annotated[int, typer.Option(min=1, max=9)] = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweeping:
    """A group within, and flags of its own."""

    rest: Rest = field(default_factory=lambda: Rest(most=7))
    label: Annotated[str, typer.Option("--label", "-l")]


def run(*args: str) -> tuple[int, str]:
    app = typer.Typer()

    @app.command()
    @with_flags
    def sweep(where: Annotated[str, typer.Argument()], flags: Sweeping) -> None:
        """Sweep."""
        typer.echo(json.dumps([where, flags.rest.every, flags.rest.most, flags.label]))

    done = RUNNER.invoke(app, args, env={"COLUMNS": "200"})
    return done.exit_code, done.output


def test_the_fields_of_a_dataclass_are_the_flags() -> None:
    """Groups too, with the defaults of the one who has the group; arguments stay arguments."""
    assert run("here", "-l", "x") == (0, '["here", "5m", 7, "x"]\n')
    assert run("here", "--most", "2", "--every=1s", "--label", "y") == (
        0,
        '["here", "1s", 2, "y"]\n',
    )


def test_bounds_and_required_flags_are_checked() -> None:
    """With the sentence that typer has for it, and exit code 2."""
    code, text = run("here", "-l", "x", "--most", "10")
    assert code == 2
    assert "'--most': Input should be less than or equal to 9" in text
    code, text = run("here")
    assert code == 2
    assert "Missing option '--label'" in text


def test_the_help_shows_every_flag_with_its_default() -> None:
    """As if it had been declared for this command."""
    code, text = run("--help")

    assert code == 0
    assert "Sweep." in text
    assert re.search(r"--most .*\[default: 7\]", text)
    assert re.search(r"--every .*Between sweeps\. \[default: 5m\]", text)


def test_two_flags_of_one_name_are_a_mistake_of_ours() -> None:
    """A second flag of the same name would be ignored without an error."""

    def twice(flags: Sweeping, rest: Rest) -> None:
        """Take one group twice."""

    with pytest.raises(BugError, match="every, most"):
        with_flags(twice)


def test_the_how_to_declares_a_command_that_works() -> None:
    """The code of the page, run as it stands there."""
    page = (CHART.parents[1] / "docs/how-to/declare-flags.md").read_text("utf-8")
    module = ModuleType("sweeper")
    sys.modules["sweeper"] = module
    try:
        for block in code_blocks(page, "python"):
            exec(block, module.__dict__)  # noqa: S102 -- our own page
        app = typer.Typer()
        app.command()(module.sweeper)
        done = RUNNER.invoke(app, ["--sweep-interval=1m", "--max-per-sweep", "100"])
        assert done.output == "10260 60 100\n"
        assert RUNNER.invoke(app, ["--max-per-sweep", "101"]).exit_code == 2
        with pytest.raises(InputError, match="--sweep-interval: must be more than 0"):
            RUNNER.invoke(app, ["--sweep-interval=0s"], catch_exceptions=False)
    finally:
        del sys.modules["sweeper"]


def charted() -> Iterator[tuple[str, str, str]]:
    """Yield command, flag and value of every flag in the templates of the chart."""
    for file in sorted(CHART.glob("templates/*/*.yaml")):
        text = file.read_text("utf-8")
        started = re.search(r"(?:args|command): *\[?\n? *-? *\"?(?:koord\n? *- )?([\w-]+)", text)
        for flag, value in re.findall(r"^ +- (--[a-z-]+)(?:=(.*))?$", text, re.MULTILINE):
            if not started:
                raise AssertionError(f"{file.name}: which command has {flag}?")
            yield started[1], flag, value


CHARTED = sorted(set(charted()))


def schema_of(path: str) -> dict[str, Any]:
    """Return the chart's schema of a value such as ``.Values.koordlet.port``."""
    schema = json.loads((CHART / "values.schema.json").read_text("utf-8"))
    result = schema
    for name in path.split("."):
        while "$ref" in result:
            result = schema["definitions"][result["$ref"].rpartition("/")[2]]
        result = result["properties"][name]
    if "$ref" in result:
        steps = result["$ref"].removeprefix("#/").split("/")
        result = schema
        for step in steps:
            result = result[step]
    return dict(result)


def test_the_chart_names_flags_of_every_component() -> None:
    """The next test has flags to compare for every component."""
    assert {command for command, _, _ in CHARTED} >= {"scheduler", "manager", "koordlet"}


@pytest.mark.parametrize(("command", "flag", "value"), CHARTED)
def test_the_chart_takes_no_value_that_the_flag_refuses(
    command: str, flag: str, value: str
) -> None:
    """A flag of the chart exists, and the bounds of its value are within the flag's."""
    declared = {option: each for each in COMMANDS[command].load().params for option in each.opts}
    assert flag in declared, f"{command} has no {flag}"
    parameter = declared[flag]
    source = re.fullmatch(r"\{\{ \.Values\.([\w.]+) \}\}", value)
    if source is None:
        return
    values = yaml.load((CHART / "values.yaml").read_text("utf-8"), yaml.CSafeLoader)
    schema = schema_of(source[1])
    for step in source[1].split("."):
        values = values[step]
    if parameter.min is not None:
        assert parameter.min <= schema["minimum"] <= values
    if parameter.max is not None:
        assert values <= schema["maximum"] <= parameter.max
    if "enum" in schema:
        assert set(schema["enum"]) <= set(parameter.type_descriptor.annotation)


if __name__ == "__main__":
    RECORD.write_text("".join(f"{line}\n" for line in inventory()), encoding="utf-8")
