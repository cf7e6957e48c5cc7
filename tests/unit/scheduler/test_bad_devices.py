"""Reports about invalid device objects and annotations, without effect on others."""

import json
from typing import Any

import msgspec
import pytest
from tests.unit.scheduler.conftest import NewEmbedded
from tests.worlds import configuration, device, gpu_pod, node, pod

from koordinator.api.annotations.devices import ALLOCATED
from koordinator.api.device import Device
from koordinator.api.event import Event
from koordinator.api.pod import Pod
from koordinator.simulator import Embedded

GPU = "koordinator.sh/gpu"
HEADROOM: dict[str, Any] = {GPU: 400, f"{GPU}-core": 400, f"{GPU}-memory-ratio": 400}
GPUS = configuration(plugins={"multiPoint": {"enabled": [{"name": "DeviceShare"}]}})
HINT = "scheduling.koordinator.sh/device-allocate-hint"


def warnings(one: Embedded, kind: str, name: str) -> list[tuple[str, str]]:
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
        (
            with_a_minor_twice(),
            "spec.devices[4].minor: must be unique among the gpu devices, got 1 again",
        ),
        (with_partitions({"2": [{"minors": [0, 7]}]}), "7"),
        (with_partitions({"2": [{"minors": [0, 0]}]}), "0"),
        (with_partitions("no table"), "gpu-partitions"),
    ],
    ids=["a minor twice", "unknown minor", "overlapping", "no JSON"],
)
def test_invalid_device_object_has_an_event(
    embedded: NewEmbedded, report: Device, problem: str
) -> None:
    """The event is in the default namespace; the GPUs of the node are usable."""
    one = embedded(node("n", **HEADROOM), report, gpu_pod("p", gpu=100), config=GPUS)
    one.run_to_fixed_point()

    ((reason, note),) = warnings(one, "Device", "n")
    assert reason == "InvalidDevice"
    assert note.startswith("Device n: ")
    assert problem in note
    assert one.cluster.get(Pod, "p", "default").spec.node_name == "n"


def test_event_is_reported_once(embedded: NewEmbedded) -> None:
    """Koordlet writes the object every few seconds."""
    one = embedded(node("n", **HEADROOM), with_a_minor_twice(), config=GPUS)
    one.run_to_fixed_point()
    one.cluster.patch(Device, "n", "", {"metadata": {"labels": {"a": "b"}}})
    one.run_to_fixed_point()

    (event,) = (it for it in one.cluster.list(Event).items if it.regarding.kind == "Device")
    assert event.metadata.namespace == "default"
    assert event.reporting_controller == "koord-scheduler"


def test_bound_pod_with_a_missing_device_has_an_event(embedded: NewEmbedded) -> None:
    """The rest of the node is usable."""
    one = embedded(
        node("n", **HEADROOM),
        device("n", gpus=4),
        gpu_pod("old", "n", minors=[6], gpu=100),
        gpu_pod("new", gpu=100),
        config=GPUS,
    )
    one.run_to_fixed_point()

    ((reason, note),) = warnings(one, "Pod", "old")
    assert reason == "InvalidPod"
    assert "names gpu devices [6], which node n does not report" in note
    assert one.cluster.get(Pod, "new", "default").spec.node_name == "n"


HALF_READABLE = [
    {"minor": 0, "resources": {f"{GPU}-core": "100", f"{GPU}-memory-ratio": "100"}},
    {"minor": 1},
    {"minor": 5000, "resources": {}},
    {"minor": -1, "resources": {}},
]


def test_valid_part_of_an_annotation_counts(embedded: NewEmbedded) -> None:
    """Minor 0 is fully taken, minor 1 is free; the invalid rest is reported."""
    text = json.dumps({"gpu": HALF_READABLE})
    old = pod("old", on="n", requests={GPU: 200}, annotations={ALLOCATED.key: text})
    report, headroom = device("n", gpus=4), node("n", **HEADROOM)
    one = embedded(headroom, report, old, gpu_pod("new", gpu=200), config=GPUS)
    one.run_to_fixed_point()

    ((reason, note),) = warnings(one, "Pod", "old")
    assert reason == "InvalidPod"
    assert "gpu: minors must be numbers from 0 to 1023, got [5000, -1]" in note
    new = ALLOCATED.read(one.cluster.get(Pod, "new", "default").metadata)
    assert [taken.minor for taken in (new or {})["gpu"]] == [1, 2]


def test_impossible_amounts_do_not_break_sums(embedded: NewEmbedded) -> None:
    """Negative sums would make the GPU available again."""
    much = [{"minor": 0, "resources": dict.fromkeys((f"{GPU}-core", f"{GPU}-memory"), "9E")}]
    annotations = {ALLOCATED.key: json.dumps({"gpu": much})}
    placed = [pod(name, on="n", requests={GPU: 100}, annotations=annotations) for name in "abc"]
    one = embedded(
        node("n", **HEADROOM), device("n", gpus=4), *placed, gpu_pod("p", gpu=100), config=GPUS
    )
    one.run_to_fixed_point()

    taken = ALLOCATED.read(one.cluster.get(Pod, "p", "default").metadata)
    assert [each.minor for each in (taken or {})["gpu"]] == [1]


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
def test_invalid_device_request_is_reported_on_the_pod(
    embedded: NewEmbedded, requests: dict[str, int], hint: str, reason: str
) -> None:
    """Condition and event have the reason."""
    asking = pod("p", requests=requests, annotations={HINT: hint} if hint else {})
    plenty: dict[str, Any] = {"nvidia.com/gpu": 8, **HEADROOM}
    one = embedded(node("n", **plenty), device("n", gpus=4), asking, config=GPUS)
    one.run_to_fixed_point()

    ((_, note),) = warnings(one, "Pod", "p")
    (condition,) = one.cluster.get(Pod, "p", "default").status.conditions
    assert reason in note
    assert reason in condition.message
