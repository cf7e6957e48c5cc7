"""Device requests of a pod, from resource names."""

import pytest
from tests.unit.domain.devices.machines import (
    CORE,
    FPGA,
    GIB,
    GPU,
    MEMORY,
    NPU_CORE,
    NPU_CPU,
    NPU_DVPP,
    RATIO,
    RDMA,
    SHARED,
    WHOLE,
)

from koordinator.api.device import DeviceType
from koordinator.domain.devices.allocation import NAMES
from koordinator.domain.devices.requests import DeviceRequestError, device_requests
from koordinator.domain.gpus.options import GpuRequest, gpu_request

PERCENT = "koordinator.sh/gpu"
NIC, CARD = "koordinator.sh/rdma", "koordinator.sh/fpga"


def split_request(
    requests: dict[str, int], kind: DeviceType = GPU
) -> tuple[int, dict[str, int], bool]:
    """Return count, amounts of each device, whether it is shared."""
    result = device_requests(requests)[kind]
    amounts = {n: amount for n, amount in zip(NAMES[kind], result.amounts, strict=True) if amount}
    return result.count, amounts, result.is_share


@pytest.mark.parametrize("name", [WHOLE, "amd.com/gpu", "dcu.com/gpu"])
def test_vendors_names_count_whole_cards(name: str) -> None:
    """Each card counts with all of its core and memory."""
    assert split_request({name: 3, "cpu": 4}) == (3, {CORE: 100, RATIO: 100}, False)


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        ({PERCENT: 50}, (1, {CORE: 50, RATIO: 50}, True)),
        ({PERCENT: 100}, (1, {CORE: 100, RATIO: 100}, False)),
        ({PERCENT: 400}, (4, {CORE: 100, RATIO: 100}, False)),
        ({RATIO: 80}, (1, {RATIO: 80}, True)),
        ({RATIO: 200}, (2, {RATIO: 100}, False)),
        ({CORE: 50, RATIO: 100}, (1, {CORE: 50, RATIO: 100}, False)),
        ({CORE: 200, RATIO: 200}, (2, {CORE: 100, RATIO: 100}, False)),
        ({MEMORY: 80 * GIB}, (1, {MEMORY: 80 * GIB}, True)),
        ({CORE: 300, MEMORY: 60 * GIB}, (1, {CORE: 300, MEMORY: 60 * GIB}, True)),
        ({SHARED: 3, RATIO: 120}, (3, {RATIO: 40}, True)),
        ({SHARED: 2, RATIO: 200}, (2, {RATIO: 100}, False)),
        ({SHARED: 2, CORE: 60, MEMORY: 8 * GIB}, (2, {CORE: 30, MEMORY: 4 * GIB}, True)),
        ({SHARED: 1, CORE: 25, RATIO: 25}, (1, {CORE: 25, RATIO: 25}, True)),
        ({NPU_CORE: 80, RATIO: 400}, (4, {NPU_CORE: 20, RATIO: 100}, False)),
        (
            {SHARED: 1, NPU_CORE: 5, NPU_CPU: 1, MEMORY: 16 * GIB},
            (1, {NPU_CORE: 5, NPU_CPU: 1, MEMORY: 16 * GIB}, True),
        ),
        (
            {SHARED: 1, NPU_CORE: 4, NPU_CPU: 4, NPU_DVPP: 50, MEMORY: 12 * GIB},
            (1, {NPU_CORE: 4, NPU_CPU: 4, NPU_DVPP: 50, MEMORY: 12 * GIB}, True),
        ),
    ],
)
def test_a_request_is_split_over_devices(
    requests: dict[str, int], expected: tuple[int, dict[str, int], bool]
) -> None:
    """By ``gpu.shared`` if it is there, else one device per 100 percent of memory."""
    assert split_request(requests) == expected


@pytest.mark.parametrize(("name", "kind"), [(NIC, RDMA), (CARD, FPGA)])
@pytest.mark.parametrize(("amount", "split"), [(1, (1, 1)), (100, (1, 100)), (400, (4, 100))])
def test_cards_are_requested_in_percent(
    name: str, kind: DeviceType, amount: int, split: tuple[int, int]
) -> None:
    """Up to 100 of one card, or whole cards; they are never shared in the sense of GPUs."""
    count, each = split
    assert split_request({name: amount}, kind) == (count, {name: each}, False)


@pytest.mark.parametrize(
    "requests",
    [
        {CORE: 50},
        {SHARED: 1},
        {WHOLE: 1, PERCENT: 100},
        {WHOLE: 1, "amd.com/gpu": 1},
        {PERCENT: 100, RATIO: 50},
        {MEMORY: GIB, RATIO: 50},
        {CORE: 10, MEMORY: GIB, RATIO: 50},
        {NPU_CORE: 10},
        {NPU_CORE: 10, MEMORY: GIB},
        {SHARED: 1, NPU_CORE: 10, RATIO: 50},
        {SHARED: 1, NPU_CORE: 10, MEMORY: GIB},
        {CORE: 10, NPU_CORE: 10, RATIO: 50},
    ],
)
def test_names_that_do_not_go_together_are_refused(requests: dict[str, int]) -> None:
    """The error has all names that conflict, and no other resource."""
    names = " ".join(sorted(requests))
    with pytest.raises(DeviceRequestError) as refusal:
        device_requests({**requests, "cpu": 1, NIC: 1})

    assert str(refusal.value) == f"invalid resource device requests: [{names}]"


@pytest.mark.parametrize(
    ("requests", "wrong"),
    [
        ({PERCENT: 150}, PERCENT),
        ({PERCENT: 150, RATIO: 50}, PERCENT),
        ({RATIO: 101}, RATIO),
        ({CORE: 150, RATIO: 100}, CORE),
        ({CORE: 101, MEMORY: GIB}, CORE),
        ({NPU_CORE: 20, RATIO: 250}, RATIO),
        ({SHARED: 2, RATIO: 51}, RATIO),
        ({SHARED: 2, MEMORY: 1}, MEMORY),
        ({SHARED: 2, RATIO: 202}, RATIO),
        ({SHARED: 2, CORE: 33, RATIO: 50}, CORE),
        ({SHARED: 2, NPU_CORE: 4, NPU_CPU: 2, MEMORY: GIB}, SHARED),
        ({SHARED: 1, NPU_CORE: 4, NPU_CPU: 2, NPU_DVPP: 101, MEMORY: GIB}, NPU_DVPP),
        ({NIC: 150}, NIC),
        ({CARD: 101}, CARD),
    ],
)
def test_wrong_amounts_are_refused(requests: dict[str, int], wrong: str) -> None:
    """With the name and the amount."""
    with pytest.raises(DeviceRequestError) as refusal:
        device_requests(requests)

    assert str(refusal.value) == f"invalid resource unit {wrong}: {requests[wrong]}"


def test_former_names_count_unless_the_current_one_is_there() -> None:
    """Former names are those under ``kubernetes.io``."""
    assert split_request({"kubernetes.io/gpu": 50}) == (1, {CORE: 50, RATIO: 50}, True)
    assert split_request({"kubernetes.io/rdma": 7, NIC: 3}, RDMA) == (1, {NIC: 3}, False)


def test_device_types_are_requested_independently() -> None:
    """A pod without devices gets an empty answer; an amount of 0 requests nothing."""
    assert device_requests({"cpu": 4, "memory": GIB, WHOLE: 0}) == {}
    assert set(device_requests({WHOLE: 1, NIC: 1, CARD: 1})) == {GPU, RDMA, FPGA}


def test_the_snapshot_sees_three_amounts_of_gpus() -> None:
    """Core, memory and its ratio; nothing of other devices."""
    assert gpu_request({SHARED: 2, CORE: 60, MEMORY: 8 * GIB}) == GpuRequest(2, 30, 4 * GIB, 0)
    assert gpu_request({NIC: 1}) is None
