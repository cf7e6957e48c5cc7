"""Preemption that frees specific devices."""

import json
from typing import Any

import msgspec
from tests.unit.scheduler.conftest import NewEmbedded
from tests.worlds import configuration, device, gpu_pod, node

from koordinator.api.device import Device
from koordinator.api.pod import Pod
from koordinator.scheduler.loop import Evicted

GPU = "koordinator.sh/gpu"
HEADROOM: dict[str, Any] = {GPU: 400, f"{GPU}-core": 400, f"{GPU}-memory-ratio": 400}
GPUS = configuration(plugins={"multiPoint": {"enabled": [{"name": "DeviceShare"}]}})


def in_pairs() -> Device:
    """Return a node with four GPUs, allocated one by one or in NVLink pairs."""
    table = {
        "1": [{"minors": [minor], "gpuLinkType": "NVLink"} for minor in range(4)],
        "2": [{"minors": pair, "gpuLinkType": "NVLink"} for pair in ([0, 1], [2, 3])],
    }
    report = device("n", gpus=4)
    meta = msgspec.structs.replace(
        report.metadata,
        labels={"node.koordinator.sh/gpu-partition-policy": "Honor"},
        annotations={"scheduling.koordinator.sh/gpu-partitions": json.dumps(table)},
    )
    return msgspec.structs.replace(report, metadata=meta)


def allocation(name: str, minor: int, priority: int) -> Pod:
    allocated = gpu_pod(name, "n", minors=[minor], gpu=100)
    spec = msgspec.structs.replace(allocated.spec, priority=priority)
    return msgspec.structs.replace(allocated, spec=spec)


def wanting(priority: int) -> Pod:
    pair = gpu_pod("pair", gpu=200)
    return msgspec.structs.replace(pair, spec=msgspec.structs.replace(pair.spec, priority=priority))


def test_victims_complete_a_partition(embedded: NewEmbedded) -> None:
    """GPU 2 has an important pod, so evicting the pod on GPU 3 would not help."""
    one = embedded(
        node("n", **HEADROOM),
        in_pairs(),
        allocation("a", 0, 1),
        allocation("b", 1, 1),
        allocation("important", 2, 100),
        allocation("c", 3, 0),
        wanting(10),
        config=GPUS,
    )
    done = one.run_to_fixed_point()

    assert {each.pod for each in done if isinstance(each, Evicted)} == {
        "default/a",
        "default/b",
    }
    placed = one.cluster.get(Pod, "pair", "default")
    text = placed.metadata.annotations["scheduling.koordinator.sh/device-allocated"]
    assert [each["minor"] for each in json.loads(text)["gpu"]] == [0, 1]


def test_no_eviction_without_a_complete_partition(embedded: NewEmbedded) -> None:
    """Two GPUs could be freed, but in different partitions."""
    one = embedded(
        node("n", **HEADROOM),
        in_pairs(),
        allocation("a", 0, 1),
        allocation("important", 1, 100),
        allocation("important-too", 2, 100),
        allocation("b", 3, 1),
        wanting(10),
        config=GPUS,
    )
    done = one.run_to_fixed_point()

    assert not [each for each in done if isinstance(each, Evicted)]
    (condition,) = one.cluster.get(Pod, "pair", "default").status.conditions
    assert "Insufficient Partitioned GPU Devices" in condition.message
