"""``koord``: the commands, and what their failures exit with.

0 done, 1 the work failed, 2 the input is wrong.
"""

import sys

import typer
from rich.console import Console

from koordinator.cli.crds import crds
from koordinator.cli.schedule import schedule
from koordinator.foundation.errors import InputError, InvalidError, KoordinatorError

app = typer.Typer(
    name="koord",
    help="QoS-aware scheduling, co-location and device management for Kubernetes.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(schedule)
app.command()(crds)


def main() -> None:
    """Run the command line; never returns."""
    errors = Console(stderr=True, highlight=False)
    try:
        app()
    except (InputError, InvalidError) as error:
        errors.print(f"error: {error}", style="red", markup=False)
        sys.exit(2)
    except KoordinatorError as error:
        errors.print(f"failed: {error}", style="red", markup=False)
        sys.exit(1)
    except BrokenPipeError:
        sys.exit(1)
