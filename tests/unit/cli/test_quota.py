"""``koord quota tree``: what it shows."""

import json
from pathlib import Path
from typing import Any

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
        "a", "cpu", "█" * 12 + "▒" * 3 + "·" * 9, "4", "5", "2", "8", "5", "2", "from", "b", "1",
    ]  # fmt: skip


def names_of(quotas: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the names of quotas, each with the names of its children."""
    return {one["name"]: names_of(one["children"]) for one in quotas}


@pytest.fixture
def two_tenants(tmp_path: Path) -> str:
    """Write the quota of two tenants below one parent, and one in a tree of its own."""
    own_tree = quota("far", most=8, least=0)
    own_tree["metadata"] |= {"namespace": "v", "labels": {PREFIX + "tree-id": "east"}}  # type: ignore[operator]
    other = quota("b", "dept", most=8, least=3)
    other["metadata"]["namespace"] = "u"  # type: ignore[index]
    web = pod("x", "a", 4, on="n")
    web["metadata"]["labels"]["app"] = "web"  # type: ignore[index]
    guest = pod("y", "a", 1)
    guest["metadata"]["namespace"] = "guests"  # type: ignore[index]
    path = tmp_path / "all.yaml"
    dept = quota("dept", most=8, least=6)
    path.write_text(
        yaml.safe_dump_all(
            (NODE, dept, quota("a", "dept", most=8, least=2), other, own_tree, web, guest)
        )
    )
    return str(path)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["-A"], [{"dept": {"a": {}, "b": {}}}, {"far": {}}]),
        (["-n", "u"], [{"dept": {"b": {}}}]),
        (["-n", "v"], [{"far": {}}]),
        (["-n", "guests"], [{"dept": {"a": {}}}]),
        (["-l", "app=web"], [{"dept": {"a": {}}}]),
        (["-n", "guests", "-l", "app=web"], []),
        (["-n", "nowhere"], []),
    ],
)
def test_quotas_of_a_namespace_or_of_some_pods(
    flags: list[str], expected: list[dict[str, Any]], two_tenants: str
) -> None:
    """With the quotas above them, and with figures of all pods; the table has the same rows."""
    everywhere = ["quota", "tree", "-f", two_tenants, "--feature-gates", "MultiQuotaTree=true"]
    command = [*everywhere, *flags]
    done = CliRunner().invoke(app, [*command, "-o", "json"], catch_exceptions=False)
    every = CliRunner().invoke(app, [*everywhere, "-o", "json"])
    table = CliRunner().invoke(app, command, env={"COLUMNS": "200"}).stdout
    trees = json.loads(done.stdout)["trees"]

    built_in = {"koordinator-default-quota", "koordinator-system-quota"}
    names = [names_of(tree["quotas"]) for tree in trees]
    assert [
        {n: below for n, below in one.items() if n not in built_in} for one in names
    ] == expected
    for name in ("dept", "a", "b", "far"):
        rows = [line for line in table.splitlines() if line.split()[:2] == [name, "cpu"]]
        assert len(rows) == (f"'{name}'" in str(expected))
    whole = json.loads(every.stdout)["trees"]
    for tree in trees:
        (same,) = (one for one in whole if one["id"] == tree["id"])
        assert tree["total"] == same["total"]


def test_nothing_to_look_at_is_an_error() -> None:
    """Manifests or a cluster."""
    done = CliRunner().invoke(app, ["quota", "tree"])

    assert isinstance(done.exception, InputError)


def test_queues_and_quota_warnings_are_shown(tmp_path: Path) -> None:
    """The page has the number of waiting pods by state, and a warning for invalid quotas."""
    queue = quota("a", "dept", most=8, least=7)
    queue["metadata"]["annotations"] = {PREFIX + "queue-policy": "strict"}  # type: ignore[index]
    path = tmp_path / "all.yaml"
    objects = (NODE, quota("dept", most=8, least=6), queue, pod("x", "a", 4), pod("y", "a", 4))
    path.write_text(yaml.safe_dump_all(objects))

    table = CliRunner().invoke(app, ["quota", "tree", "-f", str(path)], env={"COLUMNS": "200"})
    data = CliRunner().invoke(app, ["quota", "tree", "-f", str(path), "-o", "json"])

    assert "2 strict" in table.stdout
    assert "spec.min[cpu]: must be at least the sum of its children's" in table.stderr
    (shown,) = json.loads(data.stdout)["trees"][0]["quotas"][0]["children"]
    assert (shown["waitingPods"], shown["queuePolicy"]) == (2, "strict")


def test_brackets_in_a_reason_are_printed(tmp_path: Path) -> None:
    """The exceeded amounts are in brackets, which are not markup."""
    path = tmp_path / "all.yaml"
    objects = (NODE, quota("dept", most=8, least=6), pod("x", "dept", 9))
    path.write_text(yaml.safe_dump_all(objects))
    config = tmp_path / "config.yaml"
    enabled = {"preFilter": {"enabled": [{"name": "ElasticQuota"}]}}
    profile = {"schedulerName": "default-scheduler", "plugins": enabled}
    kind = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    config.write_text(yaml.safe_dump({**kind, "profiles": [profile]}))

    command = ["schedule", "-f", str(path), "--config", str(config)]
    done = CliRunner().invoke(app, command, env={"COLUMNS": "300"})

    assert "exceedDimensions: [cpu]" in done.stdout
