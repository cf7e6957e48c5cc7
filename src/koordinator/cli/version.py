"""Command ``koord version``: the installed release."""

from importlib import metadata

import typer


def version() -> None:
    """Print the version."""
    typer.echo(f"koord {metadata.version('koordinator')}")
