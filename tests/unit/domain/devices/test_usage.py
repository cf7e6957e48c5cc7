"""Allocations of a node's devices, and the annotation that records them."""

import pytest
from tests.unit.domain.devices.machines import (
    ANY_FUNCTION,
    CORE,
    GIB,
    GPU,
    JOINT,
    MEMORY,
    NOTHING,
    RATIO,
    RDMA,
    SHARED,
    WHOLE,
    allocate,
    gpu,
    gpu_amounts,
    hold,
    node,
    pairs,
    pod_request,
    share,
    using,
)

from koordinator.api.annotations.devices import ALLOCATED
from koordinator.api.meta import ObjectMeta
from koordinator.domain.devices.allocation import (
    Allocation,
    DeviceShortage,
    from_annotation,
    to_annotation,
)
from koordinator.foundation.errors import BugError

NIC = "koordinator.sh/rdma"


def read(text: str) -> Allocation:
    """Return the allocation of an annotation."""
    result = ALLOCATED.read(ObjectMeta(annotations={ALLOCATED.key: text}))
    assert result is not None
    return from_annotation(result)


def test_the_annotation_has_ids_amounts_and_functions() -> None:
    """In the order in which the devices were taken; amounts that are 0 are left out."""
    on = pairs()
    wanted = pod_request({CORE: 40, RATIO: 40, NIC: 1}, joint=JOINT, hints=ANY_FUNCTION)
    result = allocate(on, wanted)
    assert not isinstance(result, DeviceShortage)

    assert ALLOCATED.write(to_annotation(result, on.ids)) == (
        '{"gpu":[{"minor":0,"resources":{"koordinator.sh/gpu-core":"40",'
        '"koordinator.sh/gpu-memory":"32Gi","koordinator.sh/gpu-memory-ratio":"40"},'
        '"id":"GPU-0"}],"rdma":[{"minor":1,"resources":{"koordinator.sh/rdma":"1"},'
        '"id":"0000:01:00.0","extension":{"vfs":[{"busID":"1.a"}]}}]}'
    )


def test_annotation_round_trip_keeps_the_allocation() -> None:
    """Devices, amounts, functions; ids are no part of it."""
    on = pairs()
    for requests in ({WHOLE: 3, NIC: 1}, {SHARED: 2, MEMORY: 6 * GIB, NIC: 200}):
        result = allocate(on, pod_request(requests, joint=JOINT, hints=ANY_FUNCTION))
        assert not isinstance(result, DeviceShortage)
        text = ALLOCATED.write(to_annotation(result, on.ids))

        assert read(text) == result


def test_the_template_of_a_cut_card_is_written_and_read() -> None:
    """Beside virtual functions, in the extension."""
    text = (
        '{"gpu":[{"minor":1,"resources":{"huawei.com/npu-core":"5"},'
        '"extension":{"gpuSharedResourceTemplate":"vir05"}}]}'
    )
    result = read(text)

    assert [(each.minor, each.template) for each in result[GPU]] == [(1, "vir05")]
    assert ALLOCATED.write(to_annotation(result, {})) == text


def test_annotations_of_others_are_understood() -> None:
    """Former resource names count; unknown types of devices and amounts are left out."""
    result = read(
        '{"tpu":[{"minor":0,"resources":{}}],"gpu":[{"minor":5,"resources":'
        '{"kubernetes.io/gpu-core":"50","example.com/x":"1","koordinator.sh/gpu-memory":"8Gi"}}]}'
    )

    assert list(result) == [GPU]
    assert [(each.minor, each.amounts[:3]) for each in result[GPU]] == [(5, (50, 8 * GIB, 0))]


@pytest.mark.parametrize("minor", [-1, 1024, 2**31])
def test_minors_that_no_device_has_are_left_out(minor: int) -> None:
    """Unknown minors and negative amounts in an annotation raise no error."""
    resources = '"resources":{"koordinator.sh/gpu-core":"-50","koordinator.sh/gpu-memory":"8Gi"}'
    result = read(f'{{"gpu":[{{"minor":{minor},{resources}}},{{"minor":0,{resources}}}]}}')

    assert [(each.minor, each.amounts[:2]) for each in result[GPU]] == [(0, (0, 8 * GIB))]


def test_removed_allocation_leaves_no_usage() -> None:
    """A device without users equals one that never had any."""
    on = pairs()
    first, second = hold(on, gpu=[0, 1], rdma=[(1, "1.a")]), share(0, 50)
    both = using(first, second)

    assert both.of(GPU)[0].times == 2
    assert both.of(RDMA)[1].functions == {"1.a": 1}
    assert both.minus(first) == using(second)
    assert both.minus(first).minus(second) == both.minus(second).minus(first) == NOTHING


def test_unreported_devices_count_as_allocated() -> None:
    """The report may come later, and may change."""
    used = using(share(7, 100))

    assert used.of(GPU)[7].amounts == gpu_amounts(100, 80 * GIB, 100)
    result = allocate(node(gpu(0)), pod_request({WHOLE: 1}), used)
    assert not isinstance(result, DeviceShortage)


def test_overallocated_devices_leave_nothing_free() -> None:
    """The free amount is 0, and positive again once a holder is removed."""
    on = node(gpu(0))
    half, whole = share(0, 50), share(0, 100)

    assert isinstance(allocate(on, pod_request({RATIO: 10}), using(half, whole)), DeviceShortage)
    assert not isinstance(
        allocate(on, pod_request({RATIO: 50}), using(half, whole).minus(whole)), DeviceShortage
    )


@pytest.mark.parametrize("released", [share(0, 60), share(1, 10), {RDMA: share(0, 1)[GPU]}])
def test_unallocated_devices_cannot_be_released(released: Allocation) -> None:
    """Releasing an unallocated device is a bug of the caller."""
    with pytest.raises(BugError):
        using(share(0, 50)).minus(released)
