"""Preemption sees which devices would come free, not only how many."""

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
    """Four GPUs, given out alone or as the pairs that NVLink joins."""
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
    held = gpu_pod(name, "n", minors=[minor], gpu=100)
    spec = msgspec.structs.replace(held.spec, priority=priority)
    return msgspec.structs.replace(held, spec=spec)


def wanting(priority: int) -> Pod:
    pair = gpu_pod("pair", gpu=200)
    return msgspec.structs.replace(pair, spec=msgspec.structs.replace(pair.spec, priority=priority))


def test_the_victims_are_those_whose_devices_make_a_group_whole(embedded: NewEmbedded) -> None:
    """GPU 2 stays with its important pod, so that the one on GPU 3 would go in vain."""
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


def test_nobody_goes_where_no_group_would_become_whole(embedded: NewEmbedded) -> None:
    """Two GPUs could be freed, but of different groups."""
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
