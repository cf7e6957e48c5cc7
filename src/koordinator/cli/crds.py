"""``koord crds``: the CRDs that a cluster needs, made from the types."""

from pathlib import Path
from typing import Annotated

import typer
import yaml

from koordinator.api.meta import JsonObject
from koordinator.api.schema import all_crds


def crds(
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Folder for one file per CRD, named <group>_<plural>.yaml."
        ),
    ] = None,
) -> None:
    """Print the CustomResourceDefinitions, ready for ``kubectl apply``."""
    run(output)


def run(output_dir: Path | None) -> None:
    """Print all CRDs as one YAML stream, or write each to its own file of the folder."""
    made = all_crds()
    if output_dir is None:
        typer.echo("---\n".join(_to_yaml(crd) for crd in made), nl=False)
        return
    output_dir.mkdir(parents=True, exist_ok=True)
    for crd in made:
        (output_dir / _file_name(crd)).write_text(_to_yaml(crd), encoding="utf-8")


def _file_name(crd: JsonObject) -> str:
    spec = crd["spec"]
    return f"{spec['group']}_{spec['names']['plural']}.yaml"


def _to_yaml(crd: JsonObject) -> str:
    text: str = yaml.dump(crd, Dumper=_PlainDumper, sort_keys=False, width=100, allow_unicode=True)
    return text


class _PlainDumper(yaml.SafeDumper):
    """YAML without anchors, which kubectl would read but people would not."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 -- the signature of PyYAML
        return True
