"""Annotations of a pod about devices."""

import pytest
from tests.unit.domain.devices.machines import (
    CORE,
    GIB,
    GPU,
    MEMORY,
    NPU_CORE,
    NPU_CPU,
    RATIO,
    RDMA,
    SAME_PCIE,
    SHARED,
    WHOLE,
    meta_with,
    pod_request,
)

from koordinator.api.annotations.devices import DeviceAllocateStrategy
from koordinator.domain.devices.model import TemplateTable
from koordinator.domain.devices.partitions import PartitionRequest
from koordinator.domain.devices.pod_request import pod_device_request
from koordinator.domain.devices.requests import DeviceRequestError
from koordinator.foundation.errors import InputError
from koordinator.foundation.quantity import Quantity

NIC = "koordinator.sh/rdma"
HINT = "scheduling.koordinator.sh/device-allocate-hint"
TEMPLATES = {
    "huawei-Ascend-910B3": {
        "vir05_1c_16g": {NPU_CORE: 5, NPU_CPU: 1, MEMORY: 16 * GIB},
        "vir10_3c_32g": {NPU_CORE: 10, NPU_CPU: 3, MEMORY: 32 * GIB},
    },
    "huawei-Ascend-310P": {"vir05_1c_16g": {NPU_CORE: 5, NPU_CPU: 1, MEMORY: 16 * GIB}},
}


def test_a_pod_without_devices_has_no_device_request() -> None:
    """Annotations alone request no devices."""
    meta = meta_with(**{HINT: {"gpu": {}}})

    assert pod_device_request(meta, {"cpu": 1000}, TemplateTable(), []) is None


def test_without_annotations_nothing_is_required() -> None:
    """No scope, no partition, no joint allocation, no template."""
    result = pod_request({WHOLE: 2})

    assert (result.scope, result.partition, result.joint, result.templates) == (0, None, (), None)


def test_hints_are_read_by_type_of_device() -> None:
    """Unknown hints have no effect, PCIeLevel included."""
    hints = {
        "gpu": {"requiredTopologyScope": "NUMANode", "exclusivePolicy": "PCIeLevel"},
        "rdma": {
            "selector": {"matchLabels": {"fabric": "ib0"}},
            "vfSelector": {},
            "allocateStrategy": "RequestsAsCount",
            "exclusivePolicy": "DeviceLevel",
        },
        "fpga": {"allocateStrategy": "OneByOne"},
    }
    result = pod_request({WHOLE: 1, NIC: 2, "koordinator.sh/fpga": 1}, hints=hints)
    gpu, rdma, fpga = result.wants

    assert result.scope == 2
    assert (gpu.selector, gpu.is_exclusive) == (None, False)
    assert rdma.selector is not None
    assert rdma.function_selector is not None
    assert rdma.strategy is DeviceAllocateStrategy.REQUESTS_AS_COUNT
    assert rdma.is_exclusive
    assert fpga.strategy is None


@pytest.mark.parametrize(
    ("scope", "level"), [("Node", 1), ("NUMANode", 2), ("PCIe", 3), ("Device", 4), ("Rack", 1)]
)
def test_scopes_have_levels(scope: str, level: int) -> None:
    """An unknown scope is as wide as the node."""
    assert pod_request({WHOLE: 1}, hints={"gpu": {"requiredTopologyScope": scope}}).scope == level


def test_only_requested_types_are_allocated_jointly() -> None:
    """Types that are allocated as a whole are excluded; the first remaining type leads."""
    types = {"deviceTypes": ["fpga", "rdma", "gpu", "gpu"]}
    for_all = {"rdma": {"allocateStrategy": "ApplyForAll"}}

    assert pod_request({WHOLE: 1, NIC: 1}, joint=types).joint == (RDMA, GPU)
    assert pod_request({WHOLE: 1, NIC: 1}, joint=types, hints=for_all).joint == (GPU,)
    assert pod_request({WHOLE: 1, NIC: 1}, joint=SAME_PCIE).same_pcie
    assert not pod_request(
        {WHOLE: 1, NIC: 1}, joint=types | {"requiredScope": "SameRack"}
    ).same_pcie


def test_an_empty_partition_spec_is_a_wish_too() -> None:
    """An empty partition spec makes a partition table mandatory."""
    spec = {"allocatePolicy": "Restricted", "ringBusBandwidth": "150Gi"}

    assert pod_request({WHOLE: 2}, partition={}).partition == PartitionRequest()
    assert pod_request({WHOLE: 2}, partition=spec).partition == PartitionRequest(
        restricted=True, bandwidth=Quantity.parse("150Gi")
    )


def test_a_share_of_an_npu_is_one_of_the_templates() -> None:
    """By exactly its amounts, for each model that has such a template."""
    requests = {SHARED: 1, NPU_CORE: 5, NPU_CPU: 1, MEMORY: 16 * GIB}

    assert pod_request(requests, templates=TEMPLATES).templates == {
        "huawei-Ascend-910B3": ("vir05_1c_16g",),
        "huawei-Ascend-310P": ("vir05_1c_16g",),
    }


def test_a_share_that_no_template_has_is_impossible() -> None:
    """A share must equal a template; fitting into a larger one is not enough."""
    requests = {SHARED: 1, NPU_CORE: 4, NPU_CPU: 1, MEMORY: 16 * GIB}
    with pytest.raises(DeviceRequestError, match="no matched GPU shared resource template"):
        pod_request(requests, templates=TEMPLATES)


@pytest.mark.parametrize("requests", [{NPU_CORE: 40, RATIO: 200}, {CORE: 50, RATIO: 50}])
def test_whole_npus_and_other_shares_need_no_template(requests: dict[str, int]) -> None:
    """Only shares of a resource with templates need a template."""
    assert pod_request(requests, templates=TEMPLATES).templates is None


@pytest.mark.parametrize(
    ("annotations", "path"),
    [
        ({HINT: []}, f"metadata.annotations[{HINT}]"),
        (
            {HINT: {"rdma": {"selector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}}}},
            f"metadata.annotations[{HINT}].rdma.selector.matchExpressions[0].operator",
        ),
        (
            {HINT: {"rdma": {"vfSelector": {"matchLabels": {"a": "?"}}}}},
            f"metadata.annotations[{HINT}].rdma.vfSelector.matchLabels[a]",
        ),
        (
            {"scheduling.koordinator.sh/device-joint-allocate": {"deviceTypes": "gpu"}},
            "metadata.annotations[scheduling.koordinator.sh/device-joint-allocate].deviceTypes",
        ),
        (
            {"scheduling.koordinator.sh/gpu-partition-spec": {"ringBusBandwidth": "fast"}},
            "metadata.annotations[scheduling.koordinator.sh/gpu-partition-spec].ringBusBandwidth",
        ),
    ],
)
def test_broken_annotations_are_refused(annotations: dict[str, object], path: str) -> None:
    """With the path to what is wrong."""
    with pytest.raises(InputError) as refusal:
        pod_device_request(meta_with(**annotations), {WHOLE: 1, NIC: 1}, TemplateTable(), [])

    assert refusal.value.path == path
