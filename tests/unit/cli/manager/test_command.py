"""``koord manager``: what it prints without a cluster, and what it refuses."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from koordinator.cli.component.flags import parse_address
from koordinator.cli.main import app
from koordinator.foundation.errors import BugError, InputError
from koordinator.manager import app as manager_app

NODE = """
apiVersion: v1
kind: Node
metadata: {name: n, annotations: {a: b}}
status: {capacity: {cpu: "10", memory: 10G}, allocatable: {cpu: "10", memory: 10G}}
---
apiVersion: slo.koordinator.sh/v1alpha1
kind: NodeMetric
metadata: {name: n}
status:
  updateTime: "2026-01-01T00:00:00Z"
  nodeMetric: {nodeUsage: {resources: {cpu: "1", memory: 1G}}}
"""
CONFIG = """
apiVersion: v1
kind: ConfigMap
metadata: {name: slo-controller-config, namespace: koordinator-system}
data: {colocation-config: '{"enable": true}'}
"""


PENDING = """
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: default, uid: known, labels: {app: etl}}
spec: {containers: [{name: c}]}
status: {phase: Pending}
---
apiVersion: config.koordinator.sh/v1alpha1
kind: ClusterColocationProfile
metadata: {name: etl, labels: {config.koordinator.sh/controller-managed: "true"}}
spec: {selector: {matchLabels: {app: etl}}, labels: {team: data}}
"""


@pytest.fixture(autouse=True)
def _logging_as_found() -> Iterator[None]:
    """Put back what logs to the standard error of one test, which is closed after it."""
    root, ours = logging.getLogger(), logging.getLogger("koordinator")
    before = root.handlers[:], root.level, ours.level
    root.handlers.clear()  # they are pytest's: not to be closed
    yield
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    ours.setLevel(before[2])


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """Return the files of a node and of the configuration."""
    node, config = tmp_path / "node.yaml", tmp_path / "config.yaml"
    node.write_text(NODE, "utf-8")
    config.write_text(CONFIG, "utf-8")
    return str(node), str(config)


def run(*arguments: str) -> str:
    """Return what the command prints; raises what it refuses."""
    result = CliRunner().invoke(app, ["manager", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_differences_are_printed(files: tuple[str, str]) -> None:
    """At the given time: the report is good for 15 minutes."""
    node, config = files
    common = ("--once", "-f", node, "--config", config, "-o", "json", "--now")

    def batch(now: str) -> str | None:
        changes = json.loads(run(*common, now))
        assert [each["kind"] for each in changes["created"]] == ["NodeSLO"]
        (node,) = (each for each in changes["changed"] if each["kind"] == "Node")
        cpu: str | None = node["status"]["allocatable"].get("kubernetes.io/batch-cpu")
        return cpu

    assert batch("2026-01-01T00:15:00Z") == "6k"
    assert batch("2026-01-01T00:15:01Z") is None


def test_a_rejected_configuration_is_logged(
    files: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """With the section and the reason, also where no webhook would have refused it."""
    node, config = files
    text = Path(config).read_text("utf-8")
    bad = text.replace('"enable": true', '"enable": true, "degradeTimeMinutes": -1')
    Path(config).write_text(bad, "utf-8")
    result = CliRunner().invoke(app, ["manager", "--once", "-f", node, "--config", config])

    (record,) = caplog.records
    assert record.message == "configuration rejected"
    assert record.key == "colocation-config"  # type: ignore[attr-defined]  # an extra
    assert "DegradeTimeMinutes must be 1 or greater" in record.error  # type: ignore[attr-defined]
    assert "batch-cpu" not in result.stdout


def test_controllers_and_plugins_can_be_left_out(files: tuple[str, str]) -> None:
    """By the original's flags."""
    node, config = files
    common = ("--once", "-f", node, "--config", config, "-o", "json")
    now = ("--now", "2026-01-01T00:01:00Z")

    only = json.loads(run(*common, *now, "--controllers=nodeslo"))
    assert [each["kind"] for each in only["created"]] == ["NodeSLO"]
    assert only["changed"] == []
    some = json.loads(run(*common, *now, "--noderesource-plugins=*,-BatchResource"))
    (changed_node,) = (each for each in some["changed"] if each["kind"] == "Node")
    extended = [name for name in changed_node["status"]["allocatable"] if "/" in name]
    assert extended == ["kubernetes.io/mid-cpu", "kubernetes.io/mid-memory"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--once",), "--filename: required"),
        (("-f", "x"), "requires --once"),
        (("--once", "--controllers=nothing", "-f", "x"), r"--controllers: must be one of \*, "),
        (
            ("--once", "--noderesource-plugins=-X", "-f", "x"),
            r"--noderesource-plugins: must be one of \*, ",
        ),
        (("--once", "--feature-gates=X=true", "-f", "x"), "--feature-gates: must be one of "),
        (
            ("--colocation-profile-reconcile-interval=0s",),
            "--colocation-profile-reconcile-interval",
        ),
        (
            ("--feature-gates=DisablePVCReservation=true",),
            "DisablePVCReservation: .* gate of the descheduler",
        ),
        (("--leader-elect-resource-lock=configmaps",), "must be leases"),
        (
            ("--metrics-addr=8080x",),
            "--metrics-addr: must be an address such as :8080, or 0, got '8080x'",
        ),
    ],
)
def test_wrong_flags_are_refused_by_name(arguments: tuple[str, ...], message: str) -> None:
    """With what was found and what is accepted."""
    with pytest.raises(InputError, match=message):
        run(*arguments)


def test_a_profile_reaches_pods_that_exist(tmp_path: Path) -> None:
    """With the gate of its controller on."""
    file = tmp_path / "objects.yaml"
    file.write_text(PENDING, "utf-8")
    common = ("--once", "-f", str(file), "-o", "json")

    assert not json.loads(run(*common))["changed"]
    (pod,) = json.loads(run(*common, "--feature-gates=ColocationProfileController=true"))["changed"]
    assert pod["metadata"]["labels"] == {"app": "etl", "team": "data"}


def test_the_configuration_must_be_the_config_map(files: tuple[str, str]) -> None:
    """Objects of another kind or name are refused."""
    node, config = files
    with pytest.raises(InputError, match="must be the ConfigMap koordinator-system/slo"):
        run("--once", "-f", node, "--config", node)
    with pytest.raises(InputError, match="must be the ConfigMap koordinator-system/mine"):
        run("--once", "-f", node, "--config", config, "--slo-config-name=mine")


def test_addresses_are_those_of_go() -> None:
    """A port alone is every address; 0 is none."""
    assert parse_address(":8080", "x") == ("::", 8080)
    assert parse_address("127.0.0.1:1", "x") == ("127.0.0.1", 1)
    assert parse_address("[::1]:2", "x") == ("::1", 2)
    assert parse_address("0", "x") is None


def test_a_failing_node_is_reported_after_the_others_are_updated(
    files: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command prints the results of the other nodes, and fails."""
    own = manager_app.Manager._reconcile_slo

    def broken(self: manager_app.Manager, name: str) -> None:
        if name == "evil":
            raise RecursionError
        own(self, name)

    monkeypatch.setattr(manager_app.Manager, "_reconcile_slo", broken)
    node, config = files
    evil = tmp_path / "evil.yaml"
    evil.write_text(NODE.split("---", maxsplit=1)[0].replace("name: n,", "name: evil,"), "utf-8")
    arguments = ["manager", "--once", "-f", str(evil), "-f", node, "--config", config]
    now = ["--now", "2026-01-01T00:01:00Z", "-o", "json"]
    result = CliRunner().invoke(app, [*arguments, *now])

    assert result.exit_code == 1
    assert isinstance(result.exception, BugError)
    assert 'evil: internal error: reconcile of "' in str(result.exception)
    document = json.loads(result.stdout)
    made = {(obj["kind"], obj["metadata"]["name"]) for obj in document["created"]}
    assert {("NodeSLO", "n"), ("NodeMetric", "evil")} <= made
    assert ("NodeSLO", "evil") not in made
