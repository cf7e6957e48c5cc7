"""``koord replay`` on a file."""

import gzip
import json
import zlib
from pathlib import Path

import pytest
import yaml
from tests.unit.simulator.recordings import Session, new_pod
from tests.worlds import node
from typer.testing import CliRunner

from koordinator.cli.main import app
from koordinator.foundation.errors import InputError

PACKING = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [
        {
            "schedulerName": "default-scheduler",
            "pluginConfig": [
                {
                    "name": "NodeResourcesFit",
                    "args": {
                        "scoringStrategy": {
                            "type": "MostAllocated",
                            "resources": [{"name": "cpu", "weight": 1}],
                        }
                    },
                }
            ],
        }
    ],
}


@pytest.fixture
def recording(tmp_path: Path) -> str:
    """Record two pods that the stock scheduler spreads."""
    one = Session(node("a", cpu=4), node("b", cpu=4))
    one.submit(new_pod("p", cpu=1))
    one.submit(new_pod("q", cpu=1))
    path = tmp_path / "session.gz"
    path.write_bytes(gzip.compress(b"".join(one.lines)))
    return str(path)


def test_replay_uses_the_configuration_of_the_recording(recording: str) -> None:
    """Without a configuration the file's is used, or kube-scheduler's own."""
    done = CliRunner().invoke(app, ["replay", recording, "-o", "json"])

    document = json.loads(done.stdout)
    assert (document["same"], document["differences"]) == (2, [])
    assert {name: pod_outcome["node"] for name, pod_outcome in document["pods"].items()} == {
        "default/p": "a",
        "default/q": "b",
    }


def test_a_configuration_that_has_a_name_can_be_tried(recording: str) -> None:
    """As for ``koord schedule``; pods without a profile are reported."""
    stock = CliRunner().invoke(app, ["replay", recording, "--config", "kubernetes", "-o", "json"])
    ours = CliRunner().invoke(app, ["replay", recording, "--config", "koordinator"])

    assert json.loads(stock.stdout)["pods"]
    assert ours.exit_code == 0
    assert "no profile has the schedulerName 'default-scheduler'" in ours.stderr


def test_another_configuration_for_people(recording: str, tmp_path: Path) -> None:
    """The table has the differences and the totals."""
    config = tmp_path / "packing.yaml"
    config.write_text(yaml.safe_dump(PACKING))
    done = CliRunner().invoke(app, ["replay", recording, "--config", str(config)])

    assert "default/q  b after 0.0 s  a after 0.0 s" in done.stdout
    assert (
        "1 pods the same, 1 on other nodes, 0 placed only in the replay, 0 only in the recording"
        in done.stdout
    )


@pytest.mark.parametrize("content", [b"no gzip", gzip.compress(b"{}\n", mtime=0), b"\x1f\x8b\x08"])
def test_file_that_is_no_recording_is_refused(tmp_path: Path, content: bytes) -> None:
    """With the name of the file."""
    path = tmp_path / "other.gz"
    path.write_bytes(content)
    done = CliRunner().invoke(app, ["replay", str(path)])

    assert isinstance(done.exception, InputError)
    assert "other.gz" in str(done.exception)


def test_killed_recorder_leaves_complete_batches(recording: str, tmp_path: Path) -> None:
    """Batches are complete even if the file ends within a compressed block."""
    lines = gzip.decompress(Path(recording).read_bytes())
    torn = zlib.compressobj(wbits=31)
    path = tmp_path / "torn.gz"
    path.write_bytes(torn.compress(lines + b'{"atS"') + torn.flush(zlib.Z_SYNC_FLUSH))
    done = CliRunner().invoke(app, ["replay", str(path), "-o", "json"])

    assert json.loads(done.stdout)["same"] == 2
    assert "torn.gz is incomplete" in done.stderr


def test_a_file_compressed_in_pieces_is_one_recording(recording: str, tmp_path: Path) -> None:
    """Wherever a line is cut, as tools that compress on many cores, or appending, leave it."""
    lines = gzip.decompress(Path(recording).read_bytes())
    path = tmp_path / "pieces.gz"
    path.write_bytes(b"".join(map(gzip.compress, (lines[:100], b"", lines[100:]))))
    done = CliRunner().invoke(app, ["replay", str(path), "-o", "json"])

    assert json.loads(done.stdout)["same"] == 2
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("field", "message"), [("type", "'WHAT'"), ("object", "must be an object")]
)
def test_an_invalid_event_of_a_recording_is_rejected(
    recording: str, tmp_path: Path, field: str, message: str
) -> None:
    """With the name of the file."""
    *lines, last = gzip.decompress(Path(recording).read_bytes()).splitlines(keepends=True)
    batch = json.loads(last)
    batch["events"][0][field] = "WHAT"
    path = tmp_path / "odd.gz"
    path.write_bytes(gzip.compress(b"".join([*lines, json.dumps(batch).encode() + b"\n"])))
    done = CliRunner().invoke(app, ["replay", str(path)])

    assert isinstance(done.exception, InputError)
    assert "odd.gz" in str(done.exception)
    assert message in str(done.exception)
