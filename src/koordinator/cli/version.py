"""``koord version``: which release this is."""

from importlib import metadata

import typer


def version() -> None:
    """Print the version."""
    typer.echo(f"koord {metadata.version('koordinator')}")
