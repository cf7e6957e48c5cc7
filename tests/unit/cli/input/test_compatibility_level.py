"""``--kube-version`` and ``--feature-gates`` of the commands that decide like a scheduler."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from koordinator.cli.main import app
from koordinator.foundation.errors import InputError

#: A class whose devices pods request by an extended resource: on from 1.36 on.
OBJECTS = """
apiVersion: v1
kind: Node
metadata: {name: n, labels: {kubernetes.io/hostname: n}}
status: {allocatable: {cpu: "8", memory: 32Gi, pods: "110"}}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
spec:
  extendedResourceName: example.com/gpu
  selectors: [{cel: {expression: "device.driver == 'gpu.example.com'"}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: s}
spec:
  driver: gpu.example.com
  nodeName: n
  pool: {name: n, generation: 1, resourceSliceCount: 1}
  devices: [{name: d0}]
---
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  containers: [{name: c, image: i, resources: {limits: {example.com/gpu: "1"}}}]
"""


@pytest.fixture
def manifests(tmp_path: Path) -> str:
    path = tmp_path / "objects.yaml"
    path.write_text(OBJECTS)
    return str(path)


@pytest.mark.parametrize(
    ("version", "is_placed"),
    [("1.34", False), ("v1.35.4", False), ("1.36", True), ("1.37.2", True)],
)
def test_manifests_are_decided_as_by_the_release_that_is_named(
    manifests: str, version: str, *, is_placed: bool
) -> None:
    done = CliRunner().invoke(
        app, ["schedule", "-f", manifests, "-o", "json", "--kube-version", version]
    )
    placed = {each["pod"]: each["node"] for each in json.loads(done.stdout)["placements"]}

    assert placed == ({"default/p": "n"} if is_placed else {})


@pytest.mark.parametrize(
    "command",
    [
        ("schedule", "-f"),
        ("explain", "pods", "-f"),
        ("explain", "pod", "-f"),
        ("scheduler", "--once", "-o", "json", "-f"),
        ("quota", "tree", "-f"),
    ],
)
def test_every_command_rejects_an_unknown_feature_gate(
    manifests: str, command: tuple[str, ...]
) -> None:
    done = CliRunner().invoke(app, [*command, manifests, "--feature-gates", "Bogus=true"])

    assert isinstance(done.exception, InputError)
    assert str(done.exception) == "--feature-gates: unrecognized feature gate: Bogus"


def test_a_gate_of_another_release_is_warned_of(manifests: str) -> None:
    gates = ("--feature-gates", "SchedulerQueueingHints=true")
    done = CliRunner().invoke(app, ["schedule", "-f", manifests, "--kube-version", "1.37", *gates])

    assert done.exit_code == 0
    assert "Kubernetes 1.37 has no such gate; 1.33 to 1.36 have" in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    "flags",
    [("--kube-version", "1.38"), ("--kube-version", "new"), ("--emulated-version", "1.20")],
)
def test_a_release_that_is_not_reproduced_is_refused(
    manifests: str, flags: tuple[str, ...]
) -> None:
    done = CliRunner().invoke(app, ["scheduler", "--once", "-o", "json", "-f", manifests, *flags])

    assert isinstance(done.exception, InputError)
    assert str(done.exception).startswith(flags[0])
