"""Objects of a tenant in files: every command reads them, and pods of others get their nodes."""

import json
from pathlib import Path

import pytest
from tests.hostile.programs import koord

MANIFESTS = sorted((Path(__file__).parent / "manifests").glob("*.yaml"))


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_pods_beside_hostile_objects_get_nodes(path: Path) -> None:
    """``koord schedule`` decides about all pods; a pod named good… gets a node."""
    done = koord("schedule", "-f", path, "-o", "json")
    done.check(codes=(0, 1))
    decided = json.loads(done.output)
    placed = {it["pod"] for it in decided["placements"]}
    assert any(_is_good(name) for name in placed), "no good pod has a node"
    assert not [it for it in decided["unschedulable"] if _is_good(it["pod"])]


def _is_good(pod: str) -> bool:
    return pod.rpartition("/")[2].startswith("good")


@pytest.mark.parametrize(
    "command", [("explain", "pods"), ("quota", "tree"), ("gang", "list")], ids=" ".join
)
def test_questions_about_hostile_objects_are_answered(command: tuple[str, str]) -> None:
    """Of each file: with an answer, or with one line of error."""
    for path in MANIFESTS:
        done = koord(*command, "-f", path)
        done.check()
        assert done.code == 0 or len(done.errors.splitlines()) == 1, done.errors
