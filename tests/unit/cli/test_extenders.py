"""``koord schedule`` asks the extenders of its configuration."""

import json
from pathlib import Path
from typing import Any

import yaml
from tests.extender_server import extender_server
from typer.testing import CliRunner

from koordinator.cli.main import app
from koordinator.foundation.errors import InputError

MANIFESTS = """
apiVersion: v1
kind: Node
metadata: {name: a}
status: {allocatable: {cpu: 4, memory: 8Gi, pods: 10}}
---
apiVersion: v1
kind: Node
metadata: {name: b}
status: {allocatable: {cpu: 4, memory: 8Gi, pods: 10}}
---
apiVersion: v1
kind: Pod
metadata: {name: p}
spec: {containers: [{name: c, image: busybox}]}
"""


def invoke(
    tmp_path: Path,
    extender: dict[str, Any],
    *flags: str,
    command: tuple[str, ...] = ("schedule",),
) -> Any:
    manifests, config = tmp_path / "objects.yaml", tmp_path / "config.yaml"
    manifests.write_text(MANIFESTS)
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "extenders": [extender],
    }
    config.write_text(yaml.safe_dump(configuration))
    arguments = [*command, "-f", str(manifests), "--config", str(config), *flags]
    return CliRunner().invoke(app, arguments)


def test_pods_go_where_the_extender_lets_them(tmp_path: Path) -> None:
    """``--scores`` shows why the extender rejected nodes."""

    def only_b(question: dict[str, Any]) -> Any:
        assert question["NodeNames"] == ["a", "b"]
        return {"NodeNames": ["b"], "FailedNodes": {"a": "no licence"}}

    with extender_server({"filter": only_b}) as url:
        extender = {"urlPrefix": url, "filterVerb": "filter", "nodeCacheCapable": True}
        done = invoke(tmp_path, extender, "-o", "json", "--scores")

    (placement,) = json.loads(done.stdout)["placements"]
    assert placement["node"] == "b"
    assert placement["filtered"] == {"a": {"plugin": "Extender", "reason": "no licence"}}
    assert set(placement["scores"]) == {"b"}


def test_an_extender_that_is_not_there_keeps_pods_waiting(tmp_path: Path) -> None:
    """The pod is unschedulable, with the address of the extender as the reason."""
    done = invoke(tmp_path, {"urlPrefix": "http://127.0.0.1:1/x", "filterVerb": "filter"})

    assert done.exit_code == 0
    assert "extender http://127.0.0.1:1/x: filter: " in " ".join(done.stdout.split())
    assert "0 placed, 1 unschedulable" in done.stdout


def test_unreadable_certificate_is_an_input_error(tmp_path: Path) -> None:
    """With the path of the field."""
    extender = {
        "urlPrefix": "https://127.0.0.1:1/x",
        "filterVerb": "filter",
        "enableHTTPS": True,
        "tlsConfig": {"caFile": "/nowhere"},
    }
    done = invoke(tmp_path, extender)

    assert isinstance(done.exception, InputError)
    assert "extenders[0].tlsConfig" in str(done.exception)


def test_explanation_queries_the_extender_and_never_binds(tmp_path: Path) -> None:
    """``koord explain`` names what the extender answered to ``koord schedule``."""

    def nothing(question: dict[str, Any]) -> Any:
        return {"NodeNames": [], "FailedNodes": dict.fromkeys(question["NodeNames"], "no seats")}

    def never(_: dict[str, Any]) -> Any:
        raise AssertionError

    with extender_server({"filter": nothing, "bind": never}) as url:
        verbs = {"filterVerb": "filter", "bindVerb": "bind"}
        extender = {"urlPrefix": url, "nodeCacheCapable": True, **verbs}
        done = invoke(tmp_path, extender, "-o", "json", command=("explain", "pod", "default/p"))

    (explained,) = json.loads(done.stdout)["pods"]
    assert explained["verdict"] == "waits"
    assert [cause["plugin"] for cause in explained["causes"]] == ["Extender"]
    assert "no seats" in explained["causes"][0]["reason"]
