"""The command line of the installed pods is one that the program understands."""

from typing import Any

from tests.unit.deploy.installed import VALUES, scheduler_container

from koordinator.cli.commands import COMMANDS
from koordinator.process.logs import LogFormat


def parsed(command_line: list[str]) -> dict[str, Any]:
    """Return the parameters of a command, as its function would get them; raises for a bad flag."""
    name, *flags = command_line
    command = COMMANDS[name].load()
    with command.make_context(name, flags) as context:
        return context.params


def test_every_argument_is_a_flag_of_the_command() -> None:
    """With the value that the chart means by it."""
    parameters = parsed(scheduler_container()["args"])
    defaults = parsed(["scheduler"])

    assert {name: value for name, value in parameters.items() if value != defaults[name]} == {
        "config": "/config/koord-scheduler.config",
        "verbosity": VALUES["scheduler"]["log"]["level"],
    }
    assert parameters["secure_port"] == 10259
    assert parameters["logging_format"] is LogFormat(VALUES["scheduler"]["log"]["format"])
