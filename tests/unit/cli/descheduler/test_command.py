"""``koord descheduler --once``: cycles over manifests, and how it refuses what is wrong."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.worlds import metric, node, pod, used
from typer.testing import CliRunner, Result

from koordinator.api.codec import to_manifest
from koordinator.cli.main import app
from koordinator.foundation.errors import InputError

RUNNER = CliRunner()
NOW = "2023-11-14T22:13:20Z"
EVICTOR = {"disabled": [{"name": "*"}], "enabled": [{"name": "DefaultEvictor"}]}


def configuration(**condition: Any) -> dict[str, Any]:
    return {
        "apiVersion": "descheduler/v1alpha2",
        "kind": "DeschedulerConfiguration",
        "profiles": [
            {
                "plugins": {
                    "balance": {"enabled": [{"name": "LowNodeLoad"}]},
                    "evict": EVICTOR,
                    "filter": EVICTOR,
                },
                "pluginConfig": [
                    {
                        "name": "LowNodeLoad",
                        "args": {
                            "lowThresholds": {"cpu": 30},
                            "highThresholds": {"cpu": 60},
                            "anomalyCondition": condition,
                        },
                    }
                ],
            }
        ],
    }


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    """Write down a hot node with one pod that may go, and a cool one."""
    objects = [
        node("n1", 10),
        node("n2", 10),
        pod("a", "100m", on="n1", owner=("ReplicaSet", "r")),
        pod("b", 1, on="n1"),
        metric("n1", pods={"a": used(2)}, system=used(5)),
        metric("n2"),
    ]
    file = tmp_path / "cluster.json"
    items = [to_manifest(obj) for obj in objects]
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return file


def koord(folder: Path, config: Any, *args: str) -> Result:
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump(config))
    return RUNNER.invoke(app, ["descheduler", "--config", str(file), *args])


def test_what_a_cycle_writes_is_printed(manifests: Path, tmp_path: Path) -> None:
    """The output has each object with its change; JSON and YAML have the same content."""
    args = ("--once", "-f", str(manifests), "--now", NOW)
    config = configuration(consecutiveAbnormalities=1, consecutiveNormalities=1)
    done = koord(tmp_path, config, *args, "-o", "json")

    assert done.exit_code == 0, done.output
    items = json.loads(done.output)
    shown = {(each["change"], each["object"]["kind"]) for each in items}
    assert shown == {("deleted", "Pod"), ("created", "Event")}
    assert yaml.load(koord(tmp_path, config, *args).output, yaml.CSafeLoader) == items


def test_several_cycles_find_what_one_does_not(manifests: Path, tmp_path: Path) -> None:
    """A node is too hot only when it has been so for a while."""
    args = ("--once", "-f", str(manifests), "--now", NOW, "-o", "json")
    config = configuration(consecutiveAbnormalities=2, consecutiveNormalities=1)

    assert json.loads(koord(tmp_path, config, *args).output) == []
    assert json.loads(koord(tmp_path, config, *args, "--cycles", "3").output)


@pytest.mark.parametrize(("version", "is_moved"), [("1.36", False), ("1.37", True)])
def test_moves_are_proven_as_by_the_release_that_is_named(
    tmp_path: Path, version: str, *, is_moved: bool
) -> None:
    """A pod that is being resized holds 6 CPUs up to 1.36, and 4 from 1.37 on."""
    resized = to_manifest(pod("c", 1, on="n2"))
    container = resized["spec"]["containers"][0]
    resized["spec"]["containers"] = [
        container | {"name": name, "resources": {"requests": {"cpu": cpu}}}
        for name, cpu in (("grows", "1"), ("shrinks", "3"))
    ]
    resized["status"]["containerStatuses"] = [
        {
            "name": name,
            "allocatedResources": {"cpu": granted},
            "resources": {"requests": {"cpu": granted}},
        }
        for name, granted in (("grows", "3"), ("shrinks", "1"))
    ]
    objects = [
        node("n1", 10),
        node("n2", 7),
        pod("a", 2, on="n1", owner=("ReplicaSet", "r")),
        pod("b", "7900m", on="n1"),
        metric("n1", pods={"a": used(2)}, system=used(5)),
        metric("n2", pods={"c": used(0)}),
    ]
    manifests = tmp_path / "cluster.json"
    items = [*map(to_manifest, objects), resized]
    manifests.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    config = configuration(consecutiveAbnormalities=1, consecutiveNormalities=1)
    args = ("--once", "-f", str(manifests), "--now", NOW, "-o", "json", "--kube-version", version)
    done = koord(tmp_path, config, *args)

    assert done.exit_code == 0, done.output
    changes = {(each["change"], each["object"]["kind"]) for each in json.loads(done.stdout)}
    assert (("deleted", "Pod") in changes) == is_moved


def test_the_time_may_be_seconds_since_the_epoch(manifests: Path, tmp_path: Path) -> None:
    """In JSON."""
    config = configuration(consecutiveAbnormalities=1, consecutiveNormalities=1)
    args = ("--once", "-f", str(manifests), "--now", "1700000000", "-o", "json")
    assert len(json.loads(koord(tmp_path, config, *args).output)) == 2


@pytest.mark.parametrize(
    ("change", "args", "message"),
    [
        ({"kind": "KubeSchedulerConfiguration"}, (), "must be DeschedulerConfiguration"),
        ({"apiVersion": "descheduler/v1alpha1"}, (), "must be descheduler/v1alpha2"),
        ({"deschedulingIntervall": "1m"}, (), 'did you mean "deschedulingInterval"'),
        ({"deschedulingInterval": 60}, (), "is not a duration"),
        ({"deschedulingInterval": "-1s"}, (), "0s or more"),
        ({"maxNoOfPodsToEvictTotal": -1}, (), "an integer of at least 0"),
        ({"metricsBindAddress": "here"}, (), "a socket address"),
        ({"profiles": [{"name": "a"}, {"name": "a"}]}, (), "no other profile has"),
        (
            {"profiles": [{"plugins": {"balance": {"enabled": [{"name": "A"}, {"name": "A"}]}}}]},
            (),
            "profiles[0].plugins.balance.enabled[1].name: must be unique, got 'A'",
        ),
        ({"profiles": [{"pluginConfig": [{"name": "A"}, {"name": "A"}]}]}, (), "must be unique"),
        ({}, ("--once",), "--filename: is required with --once"),
        ({}, ("--now", NOW), "requires --once"),
        ({}, ("--kube-version", "1.36"), "requires --once"),
        ({}, ("--feature-gates", "X=true"), "DisablePVCReservation"),
    ],
)
def test_wrong_input_is_refused(
    tmp_path: Path, change: Any, args: tuple[str, ...], message: str, manifests: Path
) -> None:
    """Before anything is done, naming what would be accepted."""
    if "--feature-gates" in args:
        args = (*args, "--once", "-f", str(manifests))
    done = koord(tmp_path, {**configuration(), **change}, *args)
    assert isinstance(done.exception, InputError)
    assert message in str(done.exception)


def test_the_configuration_can_be_written_out_and_read_again(tmp_path: Path) -> None:
    """With every default, so that a reader sees what counts."""
    written = tmp_path / "whole.yaml"
    done = koord(
        tmp_path, configuration(), "--leader-elect=false", "--write-config-to", str(written)
    )
    assert done.exit_code == 0, done.output
    whole = yaml.load(written.read_text(), yaml.CSafeLoader)
    assert whole["leaderElection"]["leaderElect"] is False
    assert whole["metricsBindAddress"] == "0.0.0.0:10251"
    again = tmp_path / "again.yaml"
    done = koord(tmp_path, whole, "--leader-elect=false", "--write-config-to", str(again))
    assert yaml.load(again.read_text(), yaml.CSafeLoader) == whole
