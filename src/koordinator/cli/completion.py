"""Command ``koord completion``: the script that completes commands and flags in a shell."""

import enum
from typing import Annotated, Final

import typer
from typer import completion as shells

PROGRAM: Final = "koord"


class Shell(enum.StrEnum):
    """Supported shells."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"
    POWERSHELL = "powershell"


def completion(
    shell: Annotated[Shell, typer.Argument(help="The shell that reads the script.")],
) -> None:
    """Print the script that completes commands in a shell.

    For bash: ``source <(koord completion bash)``; to keep it, put the line into ``~/.bashrc``.
    """
    shells.completion_init()  # type: ignore[attr-defined] # typer exports neither by name
    variable = f"_{PROGRAM}_complete".upper()
    script = shells.get_completion_script(  # type: ignore[attr-defined] # as above
        prog_name=PROGRAM, complete_var=variable, shell=shell.value
    )
    typer.echo(script)
