"""``koord node show``: the inside of a node as a diagram."""

import io
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console
from tests.equipped_nodes import HINT, PLACES, SPEC, bound_pod, machine
from tests.worlds import embedded, pod

from koordinator.api.codec import to_manifest
from koordinator.api.meta import KubeObject
from koordinator.api.node import NodeResourceTopology, Zone, ZoneResource
from koordinator.api.pod import Pod
from koordinator.cli.main import app
from koordinator.cli.node import diagram, state_of
from koordinator.foundation.quantity import Quantity


def drawn(objects: Sequence[KubeObject], name: str) -> str:
    """Return the diagram as plain text."""
    state, _ = state_of(objects)
    text = io.StringIO()
    Console(file=text, width=120).print(diagram(state, name))
    return text.getvalue()


def scheduled(*objects: KubeObject) -> list[KubeObject]:
    """Return the objects with the pods bound by the scheduler."""
    one = embedded(*objects, config=PLACES)
    one.run_to_fixed_point()
    return [*(o for o in objects if not isinstance(o, Pod)), *one.cluster.list(Pod).items]


def test_allocations_are_listed_by_owner() -> None:
    """A letter per pod, at its CPUs, its devices and in the legend."""
    web = bound_pod("web", 2, annotations={SPEC: {"preferredCPUBindPolicy": "FullPCPUs"}})
    train = pod(
        "train",
        requests={"koordinator.sh/gpu": 50, "koordinator.sh/rdma": 10},
        annotations={HINT: json.dumps({"rdma": {"vfSelector": {}}})},
    )
    text = drawn(scheduled(*machine("m", gpus=2, nics=1, unhealthy=[1]), web, train), "m")

    assert "socket 0" in text
    assert "NUMA node 1  cpu 0 of 8, memory 0 of 16Gi" in text
    assert "CPUs bb ·· ·· ··" in text
    assert "██████████░░░░░░░░░░  a 50" in text
    assert "unhealthy" in text
    assert "a 10 0000:30:01.0" in text
    assert "default/web    CPUs 0,8" in text


def test_a_numa_node_without_cpus() -> None:
    """Memory behind a bus is outside of the sockets; sizes are written as people write them."""
    node, topology = machine("m")
    assert isinstance(topology, NodeResourceTopology)
    names = ("memory", "hugepages-2Mi", "kubernetes.io/batch-memory")
    much = Quantity.parse("64Gi")
    far = Zone(
        name="node-2",
        type="Node",
        resources=tuple(
            ZoneResource(name=name, capacity=much, allocatable=much, available=much)
            for name in names
        ),
    )
    text = drawn([node, replace(topology, zones=(*topology.zones, far))], "m")

    amounts = ", ".join(f"{name} 0 of 64Gi" for name in names)
    assert f"│ NUMA node 2  {amounts}" in text


def test_a_node_of_which_nothing_is_known() -> None:
    """A sentence is printed."""
    node = machine("m")[0]

    assert "its CPUs, NUMA nodes and devices are not reported" in drawn([node], "m")


def test_a_name_that_is_none_of_a_node(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The error names the nodes that there are."""
    path = tmp_path / "cluster.json"
    items = [to_manifest(obj) for obj in machine("m", gpus=2)]
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))

    with pytest.raises(Exception, match="must be one of m, got 'n'"):
        app(["node", "show", "n", "-f", str(path)], standalone_mode=False)
    app(["node", "show", "m", "-f", str(path)], standalone_mode=False)
    assert "gpu" in capsys.readouterr().out
