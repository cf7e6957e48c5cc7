"""``koord descheduler plan``: the moves of a policy, without making them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.descheduler.migration.world import replicas
from tests.worlds import START_S, budget, metric, node, pod, used
from typer.testing import CliRunner

from koordinator.api.codec import to_manifest
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.cli.main import app
from koordinator.descheduler.contract import MoveGain, SkippedMove, SkipReason
from koordinator.descheduler.evictor import MoveVerdict
from koordinator.descheduler.move_reports import entry_of
from koordinator.domain.audit import to_lines
from koordinator.foundation.errors import InputError

RUNNER = CliRunner()
CONDITION = {"consecutiveAbnormalities": 3, "consecutiveNormalities": 1}


def policy(**more: Any) -> dict[str, Any]:
    args = {"anomalyCondition": CONDITION, "lowThresholds": {"cpu": 30},
            "highThresholds": {"cpu": 60}}  # fmt: skip
    return {
        "apiVersion": "descheduler/v1alpha2",
        "kind": "DeschedulerConfiguration",
        "profiles": [
            {
                "plugins": {"balance": {"enabled": [{"name": "LowNodeLoad"}]}},
                "pluginConfig": [
                    {"name": "LowNodeLoad", "args": args},
                    {
                        "name": "MigrationController",
                        "args": {"skipCheckExpectedReplicas": True, "maxMigratingPerNode": 5},
                    },
                ],
            }
        ],
        **more,
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write a hot node: a pod that can be moved, and one of an unknown scheduler."""
    objects: list[KubeObject] = [
        node("n1", 10),
        node("n2", 10),
        *replicas("web", on=["n1"], cpu=1),
        *replicas("alien", on=["n1"], cpu=1, scheduler="volcano"),
        metric("n1", pods={"web-0": used(1), "alien-0": used(4)}, system=used(3)),
        metric("n2"),
    ]
    items = [to_manifest(obj) for obj in objects]
    for item in items:
        if item["kind"] in {"Deployment", "ReplicaSet"}:
            name = item["metadata"]["name"]
            template = {
                "metadata": {"labels": {"of": name}},
                "spec": {"containers": [{"name": "c"}]},
            }
            item["spec"] |= {"selector": {"matchLabels": {"of": name}}, "template": template}
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    (tmp_path / "cluster.json").write_text(text)
    given = policy()
    given["profiles"][0]["pluginConfig"][1]["args"]["schedulerNames"] = [
        "koord-scheduler",
        "volcano",
    ]
    (tmp_path / "policy.yaml").write_text(yaml.safe_dump(given))
    return tmp_path


def plan(folder: Path, *more: str) -> Any:
    args = ("-f", str(folder / "cluster.json"), "--config", str(folder / "policy.yaml"))
    now = ("--now", str(int(START_S)))
    return RUNNER.invoke(app, ["descheduler", "plan", *args, *now, *more])


def test_a_plan_lists_moves_with_gain_and_cost_and_skipped_pods(folder: Path) -> None:
    """The node has to be hot three times: the plan looks until something is wanted."""
    done = plan(folder, "-o", "json")
    assert done.exit_code == 0, done.output
    printed = json.loads(done.output)
    (move,) = printed["moves"]
    assert (move["pod"], move["source"], move["target"]) == ("default/web-0", "n1", "n2")
    assert move["gain"] == pytest.approx(10.0)
    assert move["cost"]["priority"] == 0
    (stay,) = printed["stays"]
    assert stay["pod"] == "default/alien-0"
    assert stay["why"] == "not moved: its scheduler cannot be simulated"
    assert printed["cycles"] == 4
    assert printed["isProven"]
    by_node = {each["node"]: each for each in printed["nodes"]}
    assert by_node["n1"]["pods"] == [2, 1]
    assert by_node["n2"]["used"]["cpu"] == [0.0, 0.1]
    (job,) = printed["jobs"]
    assert job["kind"] == "PodMigrationJob"
    assert job["spec"]["podRef"]["uid"] == "uid-web-0"


def test_the_same_cluster_gives_the_same_plan(folder: Path) -> None:
    first = plan(folder, "-o", "json").output
    assert plan(folder, "-o", "json").output == first


def test_what_the_plan_leaves_out_is_reported_once(folder: Path) -> None:
    """A kind that no scheduling depends on."""
    path = folder / "cluster.json"
    objects = json.loads(path.read_text())
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "r"}}
    objects["items"].append(role)
    path.write_text(json.dumps(objects))

    assert plan(folder, "-o", "json").stderr.count("left out") == 1


def test_people_see_a_table_and_a_page(folder: Path) -> None:
    """The page loads nothing; names are escaped."""
    page = folder / "plan.html"
    done = plan(folder, "--html", str(page))
    assert "default/web-0" in done.output
    assert "10.00 percentage points closer" in done.output
    assert "schedulerName 'volcano' is not one of" in done.output
    assert "2 → 1" in done.output
    text = page.read_text("utf-8")
    assert "default-src &#x27;none&#x27;" in text
    assert "default/web-0" in text
    assert '"before":' in text


def test_a_budget_that_is_left_is_part_of_the_cost(folder: Path) -> None:
    """The plan shows how many disruptions a restart would cost."""
    known = json.loads((folder / "cluster.json").read_text())
    for item in known["items"]:
        if item["kind"] == "Pod":
            item["metadata"].setdefault("labels", {})["app"] = "web"
    known["items"].append(to_manifest(budget("keep", allowed=1, app="web")))
    (folder / "cluster.json").write_text(json.dumps(known))
    (move,) = json.loads(plan(folder, "-o", "json").output)["moves"]
    assert move["cost"]["budgets"] == [{"name": "keep", "left": 1}]


def test_a_plan_without_proofs_is_marked_as_unproven(folder: Path) -> None:
    (folder / "policy.yaml").write_text(yaml.safe_dump(policy(proveMoves=False)))
    printed = json.loads(plan(folder, "-o", "json").output)
    assert not printed["isProven"]
    assert "not proven" in plan(folder).output


def test_a_cluster_in_which_nothing_is_wanted_has_an_empty_plan(folder: Path) -> None:
    objects: list[KubeObject] = [node("n1"), node("n2"), pod("a", on="n1")]
    items = [to_manifest(obj) for obj in objects]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    (folder / "cluster.json").write_text(text)
    assert plan(folder).output.strip() == "nothing moves"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("-f", "nowhere.json"), "--config: is required"),
        (("--config", "nowhere.yaml", "-f", "x"), "cannot be read"),
        (("--config", "POLICY"), "-f or --kubeconfig"),
        (("--config", "POLICY", "-f", "CLUSTER", "--apply"), "requires --kubeconfig"),
        (("--config", "POLICY", "-f", "CLUSTER", "--html", "/nowhere/x.html"), "cannot be written"),
    ],
)
def test_wrong_input_is_refused(folder: Path, args: tuple[str, ...], message: str) -> None:
    """Before anything is done."""
    places = {"POLICY": str(folder / "policy.yaml"), "CLUSTER": str(folder / "cluster.json")}
    line = [places.get(each, each) for each in args]
    done = RUNNER.invoke(app, ["descheduler", "plan", *line])
    assert isinstance(done.exception, InputError)
    assert message in str(done.exception)


def test_the_audit_has_the_reason_of_a_move(folder: Path) -> None:
    """Under its old name, although it was deleted, and under the name of its replacement."""
    moved = MoveVerdict(
        plugin="LowNodeLoad",
        profile="p",
        pod=placed("web-0", "n1"),
        reason="node is overutilized",
        target="n2",
        gain=MoveGain(10.0, "n1: cooler"),
    )
    stays = replace(
        moved, pod=placed("web-1", "n1"), skipped=SkippedMove(SkipReason.COMES_BACK, "n1")
    )
    (folder / "audit.jsonl").write_bytes(
        to_lines([entry_of(moved, START_S), entry_of(stays, START_S)])
    )
    items = [to_manifest(obj) for obj in (node("n2"), placed("web-2", "n2"))]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    (folder / "now.json").write_text(text)
    args = ("-f", str(folder / "now.json"), "--audit", str(folder / "audit.jsonl"))

    def audit(name: str, *more: str) -> str:
        done = RUNNER.invoke(app, ["explain", "pod", name, *args, *more])
        assert done.exit_code == 0, done.exception
        return done.output

    assert "default/web-0 moved n1 -> n2 by LowNodeLoad: node is overutilized; gain" in audit(
        "web-0"
    )
    assert "default/web-0 moved n1 -> n2" in audit("web-2")
    assert "stayed on n1; LowNodeLoad: node is overutilized; not moved: its replacement" in audit(
        "web-1"
    )
    assert json.loads(audit("web-0", "-o", "json"))["moves"]["default/web-0"]


def placed(name: str, on: str) -> Pod:
    return pod(name, on=on, owner=("ReplicaSet", "web"))


@pytest.mark.parametrize("command", [("plan",), ("--once",)])
@pytest.mark.parametrize(
    ("gates", "is_moved"),
    [("", True), ("GenericWorkload=true,TopologyAwareWorkloadScheduling=true", False)],
)
def test_moves_are_proven_with_the_gates_of_the_scheduler(
    folder: Path, command: tuple[str, ...], gates: str, *, is_moved: bool
) -> None:
    """A PodGroup of Kubernetes keeps its pods in one rack; without the gate nothing knows it."""
    items = json.loads((folder / "cluster.json").read_text())["items"]
    for item in items:
        name = item["metadata"]["name"]
        if item["kind"] == "Node":
            item["metadata"].setdefault("labels", {})["rack"] = name
        if name == "web-0":
            item["spec"]["schedulingGroup"] = {"podGroupName": "web"}
    other = to_manifest(pod("web-1", 1, on="n1", schedulingGroup={"podGroupName": "web"}))
    group = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "schedulingPolicy": {"basic": {}},
            "schedulingConstraints": {"topology": [{"key": "rack"}]},
        },
    }
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": [*items, other, group]})
    (folder / "cluster.json").write_text(text)
    hot_at_once = policy()
    args = hot_at_once["profiles"][0]["pluginConfig"][0]["args"]
    args["anomalyCondition"] = CONDITION | {"consecutiveAbnormalities": 1}
    (folder / "policy.yaml").write_text(yaml.safe_dump(hot_at_once))
    files = ("-f", str(folder / "cluster.json"), "--config", str(folder / "policy.yaml"))
    more = ("--now", str(int(START_S)), "--scheduler-feature-gates", gates, "-o", "json")

    done = RUNNER.invoke(app, ["descheduler", *command, *files, *more])

    assert done.exit_code == 0, done.output
    printed = json.loads(done.stdout)
    if command == ("plan",):
        moved = {each["pod"] for each in printed["moves"]}
    else:
        moved = {
            f"default/{each['object']['spec']['podRef']['name']}"
            for each in printed
            if each["object"]["kind"] == "PodMigrationJob"
        }
    assert moved == ({"default/web-0"} if is_moved else set())


@pytest.mark.parametrize("command", [(), ("--once",), ("plan",)])
def test_wrong_gates_of_the_scheduler_are_refused_by_the_name_of_their_flag(
    folder: Path, command: tuple[str, ...]
) -> None:
    """The descheduler refuses them as well, before it connects to a cluster."""
    files = ("-f", str(folder / "cluster.json")) if command else ()
    args = ("--config", str(folder / "policy.yaml"), "--scheduler-feature-gates", "Gang=true")
    done = RUNNER.invoke(app, ["descheduler", *command, *files, *args])
    assert isinstance(done.exception, InputError)
    assert str(done.exception) == "--scheduler-feature-gates: unrecognized feature gate: Gang"
