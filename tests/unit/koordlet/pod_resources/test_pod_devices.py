"""Devices of a pod in the kubelet's answer, by resource name."""

import json
from typing import Any

import pytest

from koordinator.api.annotations.devices import ALLOCATED
from koordinator.api.meta import ObjectMeta
from koordinator.foundation.errors import InputError
from koordinator.koordlet.pod_resources import MOST_DEVICES, pod_devices


def devices(allocated: Any) -> dict[str, tuple[str, ...]]:
    text = allocated if isinstance(allocated, str) else json.dumps(allocated)
    return pod_devices(ALLOCATED.read(ObjectMeta(annotations={ALLOCATED.key: text})) or {})


def test_joint_allocation_is_listed_as_gpu_and_virtual_function() -> None:
    """By the names that exporters and Multus look for, the function instead of its card."""
    card = {"minor": 0, "id": "0000:01:00.0"}
    slices = {"vfs": [{"minor": -1, "busID": "0000:01:00.2"}]}
    by_resource = devices(
        {"rdma": [{**card, "extension": slices}], "gpu": [{"minor": 1, "id": "GPU-b"}]}
    )
    assert by_resource == {"koordinator.sh/rdma": ("0000:01:00.2",), "nvidia.com/gpu": ("GPU-b",)}
    assert list(by_resource) == sorted(by_resource)


def test_card_without_virtual_functions_is_listed_itself() -> None:
    """GPUs with another extension are listed as well, although the original omits them."""
    template = {"gpuSharedResourceTemplate": "vir01"}
    by_resource = devices({
        "rdma": [{"minor": 0, "id": "0000:01:00.0"}],
        "gpu": [{"minor": 0, "id": "GPU-a", "extension": template}],
    })  # fmt: skip
    assert by_resource == {"koordinator.sh/rdma": ("0000:01:00.0",), "nvidia.com/gpu": ("GPU-a",)}


def test_resource_without_name_or_ids_is_omitted() -> None:
    """The original lists types without a name under an empty one."""
    assert devices({"tpu": [{"minor": 0, "id": "a"}], "fpga": [{"minor": 0}], "gpu": []}) == {}
    assert devices({"fpga": [{"minor": 0, "id": "card"}]}) == {"koordinator.sh/fpga": ("card",)}


def test_device_is_listed_once_within_the_limit() -> None:
    """An annotation may say anything."""
    many = [{"minor": 0, "id": f"GPU-{number}"} for number in [0, 0, *range(5000)]]
    (ids,) = devices({"gpu": many}).values()
    assert len(ids) == len(set(ids)) == MOST_DEVICES


@pytest.mark.parametrize("text", ["{", "[]", '{"gpu": {}}', '{"gpu": [{"minor": "x"}]}'])
def test_unreadable_allocation_is_refused(text: str) -> None:
    """The error names the annotation."""
    with pytest.raises(InputError, match="device-allocated"):
        devices(text)
