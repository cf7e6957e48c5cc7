"""Selection of pods for a question: -n, -A and -l as in kubectl."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from koordinator.cli.main import app

RUNNER = CliRunner()
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n"},
    "status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "9"}},
}


def pod(namespace: str, name: str, app_label: str, cpu: str = "2") -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    meta = {"name": name, "namespace": namespace, "labels": {"app": app_label}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {"containers": [container]},
    }


WORLD = "\n".join(
    map(
        json.dumps,
        [
            NODE,
            pod("a", "p", "web"),
            pod("a", "q", "db"),
            pod("b", "p", "web"),
            pod("b", "small", "web", "1"),
        ],
    )
)


def output(*arguments: str) -> Any:
    done = RUNNER.invoke(app, [*arguments, "-f", "-", "-o", "json"], input=WORLD)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("flags", "pods"),
    [
        ([], ["a/p", "a/q", "b/p"]),
        (["-A"], ["a/p", "a/q", "b/p"]),
        (["-n", "a"], ["a/p", "a/q"]),
        (["--namespace", "b"], ["b/p"]),
        (["-l", "app=web"], ["a/p", "b/p"]),
        (["-n", "a", "-l", "app in (db)"], ["a/q"]),
        (["-n", "c"], []),
    ],
)
def test_answers_are_limited_to_the_selected_pods(flags: list[str], pods: list[str]) -> None:
    """All else takes part in the decisions as ever."""
    causes = output("explain", "pods", *flags)["causes"]
    assert sorted(pod for cause in causes for pod in cause["pods"]) == pods

    assert [one["pod"] for one in output("schedule", *flags)["unschedulable"]] == pods
    if pods:
        result = output("explain", "pod", *flags)["pods"]
        assert [one["pod"] for one in result] == pods


def test_a_name_without_a_namespace_is_of_the_flag() -> None:
    """Of default without it."""
    (explanation,) = output("explain", "pod", "q", "-n", "a")["pods"]
    assert explanation["pod"] == "a/q"


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["-n", "a", "-A"], "--namespace: cannot be used with --all-namespaces"),
        (["-l", "=="], "--selector: "),
    ],
)
def test_contradictory_flags_are_rejected(flags: list[str], problem: str) -> None:
    """Before anything is read."""
    for command in (["explain", "pods"], ["schedule"], ["gang", "list"], ["quota", "tree"]):
        done = RUNNER.invoke(app, [*command, *flags, "-f", "-"], input=WORLD)
        assert problem in str(done.exception)


@pytest.mark.parametrize(
    "command", [["explain", "pods"], ["gang", "list"], ["quota", "tree"], ["node", "show", "n"]]
)
def test_without_files_and_cluster_both_are_named(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the places in which a cluster is looked for."""
    monkeypatch.setenv("HOME", "/nowhere")
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)

    done = RUNNER.invoke(app, command)

    assert "-f: is required" in str(done.exception)
    assert "KUBECONFIG" in str(done.exception)
