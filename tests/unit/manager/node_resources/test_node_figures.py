"""Devices, normalization, amplification, and whether a change is worth a write."""

from typing import Any

import pytest
from msgspec.structs import replace
from tests.unit.manager.node_resources.nodes import amounts, counted, node, pod

from koordinator.api.annotations.node import RAW_ALLOCATABLE
from koordinator.api.annotations.numa import CpuBasicInfo
from koordinator.api.codec import decode
from koordinator.api.device import Device
from koordinator.api.pod import PodStatus
from koordinator.api.slo_config import CpuNormalizationStrategy
from koordinator.foundation.errors import InputError
from koordinator.foundation.quantity import Quantity
from koordinator.manager.node_resources.batch import is_different
from koordinator.manager.node_resources.calculation import gpu_labels, gpu_resources, rdma_resources
from koordinator.manager.node_resources.node import NANOS, CpuMemory
from koordinator.manager.node_resources.ratios import (
    amplification_ratios,
    amplified,
    is_another_ratio,
    normalization_ratio,
)

RATIOS = "node.koordinator.sh/resource-amplification-ratio"
VENDOR = "node.koordinator.sh/gpu-vendor"


def device(*devices: dict[str, Any], **labels: str) -> Device:
    """Return a report of devices."""
    meta = {"name": "n", "labels": {f"node.koordinator.sh/{k}": v for k, v in labels.items()}}
    return decode({"metadata": meta, "spec": {"devices": list(devices)}}, Device)


def gpu(*, health: bool = True) -> dict[str, Any]:
    """Return a GPU of 16 GiB."""
    resources = {
        "koordinator.sh/gpu-core": "100",
        "koordinator.sh/gpu-memory": "16Gi",
        "koordinator.sh/gpu-memory-ratio": "100",
    }
    return {"type": "gpu", "health": health, "resources": resources}


@pytest.mark.parametrize(("vendor", "whole"), [("", "200"), ("nvidia", "200"), ("huawei", None)])
def test_healthy_gpus_are_added_up(vendor: str, whole: str | None) -> None:
    """GPUs of other vendors are not called koordinator.sh/gpu."""
    labels = {"gpu-vendor": vendor} if vendor else {}
    result = gpu_resources(device(gpu(), gpu(), gpu(health=False), **labels), shows_shared=True)

    assert result is not None
    assert {name.removeprefix("koordinator.sh/"): str(each) for name, each in result.items()} == {
        "gpu-core": "200",
        "gpu-memory": "32Gi",
        "gpu-memory-ratio": "200",
        "gpu.shared": "200",
        **({"gpu": whole} if whole else {}),
    }


def test_without_healthy_devices_there_is_nothing() -> None:
    """Unhealthy devices provide neither resources nor labels."""
    broken = device(gpu(health=False), **{"gpu-model": "X"})

    assert (
        gpu_resources(broken, shows_shared=True) is gpu_resources(None, shows_shared=True) is None
    )
    assert gpu_labels(broken) == {}
    assert gpu_labels(device(gpu(), **{"gpu-model": "X", "other": "Y"})) == {
        "node.koordinator.sh/gpu-model": "X"
    }
    assert rdma_resources(device(gpu())) is None
    cards = device({"type": "rdma", "health": True}, {"type": "rdma", "health": False})
    assert rdma_resources(cards) == {"koordinator.sh/rdma": Quantity.from_int(100)}


@pytest.mark.parametrize(
    ("hyper", "turbo", "ratio"),
    [(True, True, 1.8), (True, False, 1.5), (False, True, 1.2), (False, False, 1.0)],
)
def test_cpu_ratio_depends_on_the_model(hyper: bool, turbo: bool, ratio: float) -> None:
    """By whether hyper-threading and turbo are on."""
    strategy = decode(
        {
            "ratioModel": {
                "M": {
                    "baseRatio": 1.0,
                    "hyperThreadEnabledRatio": 1.5,
                    "turboEnabledRatio": 1.2,
                    "hyperThreadTurboEnabledRatio": 1.8,
                }
            }
        },
        CpuNormalizationStrategy,
    )
    info = CpuBasicInfo(cpu_model="M", hyper_thread_enabled=hyper, turbo_enabled=turbo)

    assert normalization_ratio(strategy, info) == ratio


@pytest.mark.parametrize(
    ("default", "message"), [(None, "no ratio for"), (0.9, r"0\.9"), (5.1, r"5\.1")]
)
def test_unknown_model_has_the_default_ratio(default: float | None, message: str) -> None:
    """The default ratio must exist and be in 1..5."""
    info = CpuBasicInfo(cpu_model="other")
    assert normalization_ratio(CpuNormalizationStrategy(default_ratio=1.1), info) == 1.1

    with pytest.raises(InputError, match=message):
        normalization_ratio(CpuNormalizationStrategy(default_ratio=default), info)


@pytest.mark.parametrize(("old", "new", "differs"), [(1.2, 1.21, False), (1.2, 1.22, True)])
def test_ratios_that_look_the_same_are(old: float, new: float, differs: bool) -> None:
    """Ratios are written with two decimals."""
    assert is_another_ratio(old, new) is differs


@pytest.mark.parametrize(
    ("configured", "normalization", "ratios"),
    [
        ({"cpu": 1.25}, 1.2, {"cpu": 1.5}),
        ({}, 1.2, {"cpu": 1.2}),
        ({"memory": 1.2}, None, {"memory": 1.2}),
        ({}, 1.0, {}),
        ({"cpu": 1.0}, None, {"cpu": 1.0}),
    ],
)
def test_amplification_takes_in_what_cpus_are_worth(
    configured: dict[str, float], normalization: float | None, ratios: dict[str, float]
) -> None:
    """CPUs are amplified even if no other resource is."""
    assert amplification_ratios(configured, normalization) == pytest.approx(ratios)


def test_nothing_is_made_smaller() -> None:
    """A ratio below 1 is refused."""
    with pytest.raises(InputError, match=r"memory must be at least 1, got 0\.5"):
        amplification_ratios({"memory": 0.5}, None)


def test_what_the_kubelet_reports_is_kept_and_amplified() -> None:
    """Repeated, changed, and no more amplified (6.8 of the specification)."""
    annotations = {RATIOS: '{"cpu":1.50}'}
    stored = node(amounts(16, "8Gi"), amounts("15900m", "8Gi"), annotations=annotations)

    meta, shown = amplified(stored, stored)
    assert str(shown["cpu"]) == "23850m"
    assert RAW_ALLOCATABLE.read(meta) == stored.status.allocatable

    raised = node(
        amounts(16, "8Gi"), {"cpu": "23850m", "memory": "8Gi"}, annotations={**meta.annotations}
    )
    for reported, cpu in (("15900m", "23850m"), ("15800m", "23700m"), ("23850m", "23850m")):
        new = node(amounts(16, "8Gi"), amounts(reported, "8Gi"), annotations=meta.annotations)
        assert str(amplified(raised, new)[1]["cpu"]) == cpu

    plain = node(
        amounts(16, "8Gi"), amounts("15900m", "8Gi"), annotations={RAW_ALLOCATABLE.key: "{}"}
    )
    assert amplified(raised, plain)[0].annotations == {}


@pytest.mark.parametrize(
    ("old", "new", "differs"),
    [
        ("50000", "55000", False),
        ("50000", "55001", True),
        ("0", "1", True),
        ("0", "0", False),
        (None, "0", True),
        ("0", None, True),
        (None, None, False),
    ],
)
def test_a_tenth_more_is_no_difference(old: str | None, new: str | None, differs: bool) -> None:
    """More than that is, and so is to be there or not."""
    pair = [Quantity.parse(each) if each is not None else None for each in (old, new)]

    assert is_different(pair[0], pair[1], 0.1) is differs


def test_shrinking_pod_counts_with_its_current_amounts() -> None:
    """The kubelet has granted less, but has not taken the memory back yet."""
    requested, present = amounts("1", "1Gi"), amounts("4", "8Gi")
    made = pod("web", requested)
    own = {"name": "c", "allocatedResources": requested, "resources": {"requests": present}}
    status = decode({"phase": "Running", "containerStatuses": [own]}, PodStatus)

    (counts,) = counted([replace(made, status=status)])

    assert counts.request == CpuMemory(4 * NANOS, 8 * 2**30 * NANOS)
