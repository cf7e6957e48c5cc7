"""``koord schedule``: a job that gets the places of another one, from manifests."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from koordinator.cli.main import app

CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  plugins:
    preEnqueue: {enabled: [{name: Coscheduling}]}
    permit: {enabled: [{name: Coscheduling}]}
    postFilter: {disabled: [{name: "*"}], enabled: [{name: Coscheduling}]}
  pluginConfig:
  - name: Coscheduling
    args: {enablePreemption: true}
"""
NODE = """
---
apiVersion: v1
kind: Node
metadata: {{name: {name}}}
status: {{allocatable: {{cpu: "4", memory: 8Gi, pods: "10"}}}}
"""
GROUP = """
---
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: PodGroup
metadata: {{name: {name}, namespace: ml}}
spec: {{minMember: {least}}}
"""
POD = """
---
apiVersion: v1
kind: Pod
metadata:
  name: {name}
  namespace: ml
  labels: {{pod-group.scheduling.sigs.k8s.io: {gang}}}
spec:
  priority: {priority}
  nodeName: {node}
  containers: [{{name: c, image: busybox, resources: {{requests: {{cpu: "4"}}}}}}]
"""


def decided(folder: Path, nodes: int, *arguments: str) -> dict[str, Any]:
    """Return the output of ``koord schedule``: ``old`` has two of the nodes, ``new`` needs 3."""
    text = "".join(NODE.format(name=f"n{i}") for i in range(nodes))
    text += GROUP.format(name="old", least=2) + GROUP.format(name="new", least=3)
    text += "".join(
        POD.format(name=f"old-{i}", gang="old", priority=0, node=f"n{i}") for i in range(2)
    )
    text += "".join(
        POD.format(name=f"new-{i}", gang="new", priority=9, node='""') for i in range(3)
    )
    manifests, config = folder / "manifests.yaml", folder / "config.yaml"
    manifests.write_text(text)
    config.write_text(CONFIG)
    command = ["schedule", "-f", str(manifests), "--config", str(config), "-o", "json"]
    done = CliRunner().invoke(app, [*command, *arguments])
    assert done.exit_code == 0, done.output
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.mark.parametrize("arguments", [(), ("--scores",)], ids=["plain", "with scores"])
def test_victim_job_is_evicted_as_a_whole(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """One node of the job would be enough, but the job needs all of its workers."""
    result = decided(tmp_path, 4, *arguments)

    assert {it["pod"] for it in result["evicted"]} == {"ml/old-0", "ml/old-1"}
    assert all("gang group ml/new" in it["reason"] for it in result["evicted"])
    assert {it["pod"] for it in result["placements"]} == {f"ml/new-{i}" for i in range(3)}


def test_no_eviction_without_enough_room_for_the_job(tmp_path: Path) -> None:
    """Two nodes for three members: the old job runs on, and the members get the reason."""
    result = decided(tmp_path, 2)

    assert (result["evicted"], result["placements"]) == ([], [])
    assert any("3 members do not fit" in it["message"] for it in result["unschedulable"])
