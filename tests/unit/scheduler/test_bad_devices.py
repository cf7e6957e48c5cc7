"""What is said about devices that can't be meant: once, clearly, and the rest goes on."""

import json
from typing import Any

import msgspec
import pytest
from tests.unit.scheduler.conftest import NewEmbedded
from tests.worlds import configuration, device, gpu_pod, node, pod

from koordinator.api.device import Device
from koordinator.api.event import Event
from koordinator.api.pod import Pod
from koordinator.simulator import Embedded

GPU = "koordinator.sh/gpu"
ROOM = {GPU: 400, f"{GPU}-core": 400, f"{GPU}-memory-ratio": 400}
GPUS = configuration(plugins={"multiPoint": {"enabled": [{"name": "DeviceShare"}]}})
HINT = "scheduling.koordinator.sh/device-allocate-hint"


def told(one: Embedded, kind: str, name: str) -> list[tuple[str, str]]:
    """Return (reason, note) of the warnings about an object."""
    return [
        (event.reason, event.note)
        for event in one.cluster.list(Event).items
        if (event.regarding.kind, event.regarding.name, event.type) == (kind, name, "Warning")
    ]


def with_partitions(table: Any) -> Device:
    report = device("n", gpus=4)
    text = table if isinstance(table, str) else json.dumps(table)
    meta = msgspec.structs.replace(
        report.metadata, annotations={"scheduling.koordinator.sh/gpu-partitions": text}
    )
    return msgspec.structs.replace(report, metadata=meta)


def with_a_minor_twice() -> Device:
    report = device("n", gpus=4)
    devices = (*report.spec.devices, report.spec.devices[1])
    return msgspec.structs.replace(
        report, spec=msgspec.structs.replace(report.spec, devices=devices)
    )


@pytest.mark.parametrize(
    ("report", "problem"),
    [
        (with_a_minor_twice(), "spec.devices[4].minor: found 1 again"),
        (with_partitions({"2": [{"minors": [0, 7]}]}), "7"),
        (with_partitions({"2": [{"minors": [0, 0]}]}), "0"),
        (with_partitions("no table"), "gpu-partitions"),
    ],
    ids=["a minor twice", "unknown minor", "overlapping", "no JSON"],
)
def test_a_bad_device_report_has_an_event(
    embedded: NewEmbedded, report: Device, problem: str
) -> None:
    """In the default namespace, as for every object without one; the node's GPUs are given out."""
    one = embedded(node("n", **ROOM), report, gpu_pod("p", gpu=100), config=GPUS)
    one.run_to_fixed_point()

    ((reason, note),) = told(one, "Device", "n")
    assert reason == "InvalidDevice"
    assert note.startswith("Device n: ")
    assert problem in note
    assert one.cluster.get(Pod, "p", "default").spec.node_name == "n"


def test_it_is_said_once(embedded: NewEmbedded) -> None:
    """Koordlet writes the report again every few seconds."""
    one = embedded(node("n", **ROOM), with_a_minor_twice(), config=GPUS)
    one.run_to_fixed_point()
    one.cluster.patch(Device, "n", "", {"metadata": {"labels": {"a": "b"}}})
    one.run_to_fixed_point()

    (event,) = (it for it in one.cluster.list(Event).items if it.regarding.kind == "Device")
    assert event.metadata.namespace == "default"
    assert event.reporting_controller == "koord-scheduler"


def test_a_bound_pod_with_a_device_that_its_node_lacks_has_an_event(embedded: NewEmbedded) -> None:
    """The rest of the node is given out."""
    one = embedded(
        node("n", **ROOM),
        device("n", gpus=4),
        gpu_pod("old", "n", minors=[6], gpu=100),
        gpu_pod("new", gpu=100),
        config=GPUS,
    )
    one.run_to_fixed_point()

    ((reason, note),) = told(one, "Pod", "old")
    assert reason == "InvalidPod"
    assert "names gpu devices [6], which node n does not report" in note
    assert one.cluster.get(Pod, "new", "default").spec.node_name == "n"


@pytest.mark.parametrize(
    ("requests", "hint", "reason"),
    [
        ({f"{GPU}-core": 100}, "", f"invalid resource device requests: [{GPU}-core]"),
        (
            {GPU: 100, "nvidia.com/gpu": 1},
            "",
            f"invalid resource device requests: [{GPU} nvidia.com/gpu]",
        ),
        ({GPU: 150}, "", f"invalid resource unit {GPU}: 150"),
        ({GPU: 100}, "no JSON", HINT),
        (
            {GPU: 100},
            '{"gpu": {"selector": {"matchLabels": {"a": "nowhere"}}}}',
            "Insufficient gpu devices",
        ),
    ],
    ids=[
        "core alone",
        "two names",
        "150 %",
        "a hint that is no JSON",
        "a hint that selects nothing",
    ],
)
def test_a_pod_that_asks_for_what_can_not_be_has_the_reason(
    embedded: NewEmbedded, requests: dict[str, int], hint: str, reason: str
) -> None:
    """In its condition and its event."""
    asking = pod("p", requests=requests, annotations={HINT: hint} if hint else {})
    plenty = {"nvidia.com/gpu": 8, **ROOM}
    one = embedded(node("n", **plenty), device("n", gpus=4), asking, config=GPUS)
    one.run_to_fixed_point()

    ((_, note),) = told(one, "Pod", "p")
    (condition,) = one.cluster.get(Pod, "p", "default").status.conditions
    assert reason in note
    assert reason in condition.message
