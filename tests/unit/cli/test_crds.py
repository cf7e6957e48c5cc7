"""``koord crds``."""

import json
from pathlib import Path

import pytest
import yaml

from koordinator.api.schema import all_crds
from koordinator.cli.crds import run
from koordinator.foundation.errors import InputError


@pytest.mark.parametrize("output", ["yaml", "-"])
def test_crds_are_printed_as_one_stream(output: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The stream can be piped into kubectl apply."""
    run(output)

    assert list(yaml.load_all(capsys.readouterr().out, yaml.CSafeLoader)) == all_crds(
        explained=True
    )


def test_crds_are_printed_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    """As one list, which kubectl takes as well."""
    run("json")

    assert json.loads(capsys.readouterr().out)["items"] == all_crds(explained=True)


@pytest.mark.parametrize("name", ["crds.yaml", "crds.yml", "crds.json"])
def test_crds_are_written_to_a_file(name: str, tmp_path: Path) -> None:
    """In the format of its name; a file that is there is replaced."""
    file = tmp_path / name
    for _ in range(2):
        run(str(file))

    documents = list(yaml.load_all(file.read_text(), yaml.CSafeLoader))
    assert (documents[0]["items"] if name.endswith("json") else documents) == all_crds(
        explained=True
    )


def test_crds_are_written_to_one_file_each(tmp_path: Path) -> None:
    """Files are named after group and plural; the folder is made if it is missing."""
    folder = tmp_path / "new" / "crds"
    run(str(folder))

    assert len(list(folder.iterdir())) == len(all_crds(explained=True))
    made = yaml.load(
        (folder / "scheduling.koordinator.sh_devices.yaml").read_text(), yaml.CSafeLoader
    )
    assert made["metadata"]["name"] == "devices.scheduling.koordinator.sh"


def test_what_can_be_written_to_is_named(tmp_path: Path) -> None:
    """A file of another name is no folder, and stays as it is."""
    file = tmp_path / "README"
    file.write_text("text")

    with pytest.raises(InputError, match=r"must be yaml, json, a file \*.yaml or \*.json, or a f"):
        run(str(file))
    assert file.read_text() == "text"
    with pytest.raises(InputError, match="cannot be written"):
        run(str(tmp_path / "missing" / "crds.yaml"))
