"""``koord quota tree``: what it shows."""

import json
from pathlib import Path

import pytest
import yaml
from tests.unit.domain.quota.quotas import PREFIX
from typer.testing import CliRunner

from koordinator.cli.main import app
from koordinator.foundation.errors import InputError

NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "10"}}}  # fmt: skip # noqa: E501


def quota(name: str, parent: str = "", *, most: int, least: int) -> dict[str, object]:
    labels = {PREFIX + "parent": parent} if parent else {PREFIX + "is-parent": "true"}
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": name, "namespace": "t", "labels": labels},
        "spec": {"max": {"cpu": str(most)}, "min": {"cpu": str(least)}},
    }


def pod(name: str, of: str, cpu: int, *, on: str = "", phase: str = "") -> dict[str, object]:
    requests = {"requests": {"cpu": str(cpu)}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "t", "labels": {PREFIX + "name": of}},
        "spec": {
            "nodeName": on,
            "containers": [{"name": "c", "image": "x", "resources": requests}],
        },
        "status": {"phase": phase},
    }


@pytest.fixture
def manifests(tmp_path: Path) -> str:
    path = tmp_path / "all.yaml"
    objects = (
        NODE,
        quota("dept", most=8, least=6),
        quota("a", "dept", most=8, least=2),
        quota("b", "dept", most=8, least=3),
        pod("x", "a", 4, on="n"),
        pod("y", "a", 1),
        pod("z", "a", 9, on="n", phase="Succeeded"),
    )
    path.write_text(yaml.safe_dump_all(objects))
    return str(path)


def test_the_tree_as_data(manifests: str) -> None:
    """Children in their parents, with their loans; pods that have ended don't count."""
    done = CliRunner().invoke(app, ["quota", "tree", "-f", manifests, "-o", "json"])
    (tree,) = json.loads(done.stdout)["trees"]
    (dept, *_) = tree["quotas"]
    a, b = dept["children"]

    assert (tree["id"], tree["total"]) == ("", {"cpu": "10"})
    assert (dept["name"], dept["used"], dept["request"]) == ("dept", {"cpu": "4"}, {"cpu": "5"})
    assert (a["name"], a["used"], a["runtime"]) == ("a", {"cpu": "4"}, {"cpu": "5"})
    assert a["borrows"] == [{"from": "b", "resource": "cpu", "amount": "2"}]
    assert (b["name"], b["borrows"], b["children"]) == ("b", [], [])


def test_the_tree_for_people(manifests: str) -> None:
    """A bar up to the maximum: used, then what may be used, then what it could be at most."""
    done = CliRunner().invoke(app, ["quota", "tree", "-f", manifests])
    (line,) = [line for line in done.stdout.splitlines() if line.strip().startswith("a ")]

    assert line.split() == [
        "a", "cpu", "█" * 12 + "▒" * 3 + "·" * 9, "4", "5", "2", "8", "5", "2", "from", "b",
    ]  # fmt: skip


def test_nothing_to_look_at_is_an_error() -> None:
    """Manifests or a cluster."""
    done = CliRunner().invoke(app, ["quota", "tree"])

    assert isinstance(done.exception, InputError)
