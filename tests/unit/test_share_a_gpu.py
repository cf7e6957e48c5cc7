"""The page about shares of GPUs: its pod gets what the page promises."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.markdown import code_blocks
from tests.unit.koordlet.hooks.test_gpu_sharing import creation
from typer.testing import CliRunner

from koordinator.cli.main import app
from koordinator.koordlet.app.options import gates_of
from koordinator.koordlet.hooks.devices import HamiCoreSettings, gpu_adjustment

PAGE = (Path(__file__).parents[2] / "docs/how-to/share-a-gpu.md").read_text("utf-8")
BLOCKS: list[Any] = [yaml.load(text, yaml.CSafeLoader) for text in code_blocks(PAGE, "yaml")]
ALLOCATED = "scheduling.koordinator.sh/device-allocated"
NODE = """
apiVersion: v1
kind: Node
metadata: {name: gpu-1, labels: {koordinator.sh/gpu-isolation-provider: HAMi-core}}
status:
  allocatable: {cpu: "8", memory: 32Gi, pods: "10", koordinator.sh/gpu-core: "100",
    koordinator.sh/gpu-memory: 40Gi, koordinator.sh/gpu-memory-ratio: "100",
    koordinator.sh/gpu.shared: "100"}
---
apiVersion: scheduling.koordinator.sh/v1alpha1
kind: Device
metadata: {name: gpu-1, labels: {node.koordinator.sh/gpu-vendor: nvidia}}
spec:
  devices:
  - {type: gpu, minor: 0, health: true, id: GPU-0, resources: {koordinator.sh/gpu-core: "100",
      koordinator.sh/gpu-memory-ratio: "100", koordinator.sh/gpu-memory: 40Gi}}
"""


@pytest.mark.slow
def test_the_pod_of_the_page_gets_a_share_with_its_limit(tmp_path: Path) -> None:
    """Scheduled as it stands there; what the agent adds is what the page lists."""
    pod = next(block for block in BLOCKS if block.get("kind") == "Pod")
    pod["metadata"]["namespace"] = "default"
    file = tmp_path / "cluster.yaml"
    file.write_text(f"{NODE}---\n{yaml.safe_dump(pod)}")
    words = ["schedule", "-f", str(file), "--config", "koordinator", "-o", "yaml"]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    placed = yaml.load(done.stdout, yaml.CSafeLoader)["placements"][0]
    allocated = json.loads(placed["annotations"][ALLOCATED])

    added = gpu_adjustment(creation(allocated), HamiCoreSettings(keeps_regions=True))
    assert added.env["CUDA_DEVICE_MEMORY_LIMIT"] == str(10 << 30)
    assert added.env["CUDA_DEVICE_SM_LIMIT"] == "25"
    assert all(f"`{name}`" in PAGE for name in added.env)


def test_the_gates_of_the_page_can_be_switched_on() -> None:
    """By exactly these names."""
    for block in BLOCKS:
        if "koordlet" in block:
            stated = block["koordlet"]["featureGates"].split(",")
            wanted = {name for name, _, _ in (gate.partition("=") for gate in stated)}
            assert wanted <= gates_of(dict.fromkeys(wanted, True))
