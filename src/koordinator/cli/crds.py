"""Command ``koord crds``: the CustomResourceDefinitions, generated from the types."""

from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer
import yaml

from koordinator.api.meta import JsonObject
from koordinator.api.schema import all_crds
from koordinator.cli.output import STDOUT, write_text
from koordinator.foundation.errors import InputError

_YAML: Final = (".yaml", ".yml")
_JSON: Final = ".json"


def crds(
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="yaml|json|FILE|FOLDER",
            help="The format to print; or a file *.yaml or *.json to write; or a folder for one "
            "file per CRD, named <group>_<plural>.yaml.",
        ),
    ] = "yaml",
) -> None:
    """Print the CustomResourceDefinitions, ready for kubectl apply."""
    run(output)


def run(output: str) -> None:
    """Print all CRDs, write them to one file, or write each to its own file of a folder.

    Raises InputError if a file can't be written.
    """
    path = Path(output)
    if output in ("yaml", STDOUT):
        typer.echo(_stream(), nl=False)
    elif output == "json":
        typer.echo(_list())
    elif path.suffix in (*_YAML, _JSON) and not path.is_dir():
        write_text(_list() if path.suffix == _JSON else _stream(), path)
    else:
        _write_folder(path)


def _write_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"must be yaml, json, a file *.yaml or *.json, or a folder: {error.strerror}",
            source=f"--output {folder}",
        ) from None
    for crd in all_crds(explained=True):
        write_text(_to_yaml(crd), folder / _file_name(crd))


def _stream() -> str:
    return "---\n".join(map(_to_yaml, all_crds(explained=True)))


def _list() -> str:
    """Return all CRDs as one object of kind List."""
    listed = {"apiVersion": "v1", "kind": "List", "items": all_crds(explained=True)}
    return msgspec.json.format(msgspec.json.encode(listed), indent=2).decode() + "\n"


def _file_name(crd: JsonObject) -> str:
    spec = crd["spec"]
    return f"{spec['group']}_{spec['names']['plural']}.yaml"


def _to_yaml(crd: JsonObject) -> str:
    text: str = yaml.dump(crd, Dumper=_PlainDumper, sort_keys=False, width=100, allow_unicode=True)
    return text


class _PlainDumper(yaml.CSafeDumper):
    """YAML dumper without anchors, which are hard to read."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 -- the signature of PyYAML
        return True
