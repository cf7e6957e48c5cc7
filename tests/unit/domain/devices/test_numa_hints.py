"""NUMA nodes that requests prefer.

Cases of koordinator pkg/scheduler/plugins/deviceshare/topology_hint_test.go among them.
"""

from tests.unit.domain.devices.machines import (
    ANY_FUNCTION,
    JOINT,
    NOTHING,
    WHOLE,
    gpu,
    hold,
    nic,
    node,
    pairs,
    pod_request,
    using,
)

from koordinator.domain.devices.allocation import DeviceShortage
from koordinator.domain.devices.free_devices import DeviceUsage, headrooms
from koordinator.domain.devices.model import NodeDevices
from koordinator.domain.devices.plan import DevicePlan, NumaHint, NumaHintTable, numa_hints
from koordinator.domain.devices.pod_request import PodDeviceRequest

NIC = "koordinator.sh/rdma"


def hints(
    on: NodeDevices, wanted: PodDeviceRequest, used: DeviceUsage = NOTHING
) -> list[NumaHint] | DeviceShortage:
    """Return the hints, the same by what is left alone."""
    plan, left = DevicePlan(on.model, wanted), headrooms(on, used)
    result = numa_hints(plan, left, on.totals)
    if plan.never is None:
        assert NumaHintTable(plan).of(plan.state(left)) == result
    return result if isinstance(result, DeviceShortage) else list(result)


def test_the_nodes_of_the_gpus_that_would_be_taken_anyway_score() -> None:
    """Four GPUs fit on either; on the whole machine the first four would be taken."""
    assert hints(pairs(), pod_request({WHOLE: 4, NIC: 1}, joint=JOINT, hints=ANY_FUNCTION)) == [
        NumaHint((0,), preferred=True, score=500),
        NumaHint((1,), preferred=True, score=0),
        NumaHint((0, 1), preferred=False, score=500),
    ]


def test_what_fits_on_no_node_alone_prefers_both() -> None:
    """No fewer are enough."""
    on = pairs()

    assert hints(on, pod_request({WHOLE: 6})) == [NumaHint((0, 1), preferred=True, score=500)]
    assert hints(on, pod_request({WHOLE: 2}), using(hold(on, gpu=[0, 1, 2, 3]))) == [
        NumaHint((1,), preferred=True, score=500),
        NumaHint((0, 1), preferred=False, score=500),
    ]


def test_without_gpus_all_places_are_the_same() -> None:
    """All places have the same GPUs: none."""
    assert hints(pairs(), pod_request({NIC: 100})) == [
        NumaHint((0,), preferred=True, score=500),
        NumaHint((1,), preferred=True, score=500),
        NumaHint((0, 1), preferred=False, score=500),
    ]


def test_a_shortage_of_the_whole_node_is_reported() -> None:
    """As without a request for NUMA nodes."""
    on = pairs()

    assert hints(on, pod_request({WHOLE: 8}), using(hold(on, gpu=[0]))) == DeviceShortage(
        "Insufficient GPU Devices"
    )
    assert hints(on, pod_request({WHOLE: 16})) == DeviceShortage(
        "Insufficient NUMA Scoped Devices", resolvable=False
    )
    assert hints(on, pod_request({"koordinator.sh/fpga": 1})) == DeviceShortage(
        "Insufficient fpga devices", resolvable=False
    )


def test_devices_on_no_numa_node_have_no_opinion() -> None:
    """Devices without a known NUMA node give no hints."""
    assert hints(node(gpu(0), nic(1, "a", -1)), pod_request({WHOLE: 1})) == []


def test_of_many_numa_nodes_single_ones_and_all_are_tried() -> None:
    """As for CPUs and memory: the number of sets doubles with each NUMA node."""
    on = node(*(gpu(minor, "a", minor) for minor in range(18)))
    result = hints(on, pod_request({WHOLE: 1}))

    assert isinstance(result, list)
    assert [hint.nodes for hint in result] == [*((n,) for n in range(18)), tuple(range(18))]
