"""``koord crds``."""

from pathlib import Path

import pytest
import yaml

from koordinator.api.schema import all_crds
from koordinator.cli.crds import crds, run


def test_crds_are_printed_as_one_stream(capsys: pytest.CaptureFixture[str]) -> None:
    """The stream can be piped into kubectl apply."""
    crds()

    assert list(yaml.safe_load_all(capsys.readouterr().out)) == all_crds()


def test_crds_are_written_to_one_file_each(tmp_path: Path) -> None:
    """Files are named after group and plural; the folder is made if it is missing."""
    folder = tmp_path / "new" / "crds"
    run(folder)

    assert len(list(folder.iterdir())) == len(all_crds())
    made = yaml.safe_load((folder / "scheduling.koordinator.sh_devices.yaml").read_text())
    assert made["metadata"]["name"] == "devices.scheduling.koordinator.sh"
