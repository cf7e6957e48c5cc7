"""NICs, their virtual functions, and devices of several types that go together.

Many cases are from koordinator pkg/scheduler/plugins/deviceshare/device_allocator_test.go and
devicehandler_default_test.go.
"""

import pytest
from tests.unit.domain.devices.machines import (
    ANY_FUNCTION,
    GPU,
    JOINT,
    LEAST,
    MODEL,
    MOST,
    POLICY,
    RATIO,
    RDMA,
    SAME_PCIE,
    WHOLE,
    allocate,
    buses,
    gpu,
    hold,
    nic,
    node,
    pairs,
    pod_request,
    singles,
    take,
    using,
)

from koordinator.api.meta import JsonObject
from koordinator.domain.devices.allocation import DeviceShortage
from koordinator.domain.devices.free_devices import headrooms
from koordinator.domain.devices.plan import DevicePlan
from koordinator.domain.devices.scorer import Scorer

NIC, FPGA = "koordinator.sh/rdma", "koordinator.sh/fpga"
PLANNED = {"node.koordinator.sh/secondary-device-well-planned": "true"}


# -- counts ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("amount", "hint", "expected"),
    [
        (1, {}, [1]),
        (100, {}, [1]),
        (200, {}, [1, 2]),
        (200, {"allocateStrategy": "ApplyForAll"}, [1, 2]),
        (1, {"allocateStrategy": "ApplyForAll"}, [1, 2, 3, 4]),
        (100, {"allocateStrategy": "ApplyForAll"}, [1, 2, 3, 4]),
        (
            1,
            {"allocateStrategy": "ApplyForAll", "selector": {"matchLabels": {"fabric": "b"}}},
            [2, 4],
        ),
        (3, {"allocateStrategy": "RequestsAsCount"}, [1, 2, 3]),
        (5, {"allocateStrategy": "RequestsAsCount"}, "Insufficient rdma devices"),
        (1, {"selector": {"matchLabels": {"fabric": "b"}}}, [2]),
        (200, {"selector": {"matchLabels": {"fabric": "b"}}}, [2, 4]),
        (300, {"selector": {"matchLabels": {"fabric": "b"}}}, "Insufficient rdma devices"),
    ],
)
def test_how_many_cards_a_pod_gets(
    amount: int, hint: JsonObject, expected: list[int] | str
) -> None:
    """Hints count for up to one card only; whole cards are just that."""
    on = node(*(nic(minor, fabric="ba"[minor % 2]) for minor in (1, 2, 3, 4)))
    result = take(on, pod_request({NIC: amount}, hints={"rdma": hint}))

    assert result == ({"rdma": expected} if isinstance(expected, list) else expected)


@pytest.mark.parametrize(
    ("policy", "amount"), [("", 1), ("DeviceLevel", 100), ("PCIeLevel", 1), ("Other", 1)]
)
def test_counted_cards_may_be_exclusive(policy: str, amount: int) -> None:
    """Exclusive cards are taken whole; others give each pod one percent."""
    hint = {"allocateStrategy": "RequestsAsCount", "exclusivePolicy": policy}
    result = allocate(node(nic(1), nic(2)), pod_request({NIC: 2}, hints={"rdma": hint}))
    assert not isinstance(result, DeviceShortage)

    assert [each.amounts for each in result[RDMA]] == [(amount,), (amount,)]


def test_a_type_that_the_node_does_not_report_is_never_there() -> None:
    """No pod that goes changes that; nor if no label matches."""
    device_shortage = DeviceShortage("Insufficient rdma devices", resolvable=False)
    nothing = {
        "rdma": {"allocateStrategy": "ApplyForAll", "selector": {"matchLabels": {"fabric": "x"}}}
    }

    assert allocate(node(gpu(0)), pod_request({NIC: 1})) == device_shortage
    assert allocate(node(nic(1)), pod_request({NIC: 1}, hints=nothing)) == device_shortage
    assert allocate(node(nic(1)), pod_request({WHOLE: 1})) == DeviceShortage(
        "Insufficient gpu devices", resolvable=False
    )


@pytest.mark.parametrize(("scorer", "minor"), [(MOST, 2), (LEAST, 3)])
def test_which_card_a_part_is_taken_of(scorer: Scorer, minor: int) -> None:
    """The fullest, or the emptiest."""
    on = node(nic(1), nic(2), nic(3), nic(4, healthy=False))
    used = using(hold(on, rdma=[(1, "x"), (2, "x")]), hold(on, rdma=[(2, "y")]))

    assert take(on, pod_request({NIC: 50}), used, scorer=scorer) == {"rdma": [minor]}


# -- virtual functions -----------------------------------------------------------------------


def test_a_selector_of_functions_asks_for_one_per_card() -> None:
    """The free one with the smallest bus id; an empty selector takes any."""
    on = node(nic(1, functions={"slow": ["1.c", "1.b"], "fast": ["1.d"]}), nic(2))
    slow = pod_request({NIC: 1}, hints={"rdma": {"vfSelector": {"matchLabels": {"kind": "slow"}}}})
    anything = pod_request({NIC: 1}, hints=ANY_FUNCTION)

    assert take(on, slow) == {"rdma": [(1, "1.b")]}
    assert take(on, slow, using(hold(on, rdma=[(1, "1.b")]))) == {"rdma": [(1, "1.c")]}
    used = using(hold(on, rdma=[(1, "1.b")]), hold(on, rdma=[(1, "1.c")]))
    assert take(on, slow, used) == "Insufficient rdma devices"
    assert take(on, anything, used) == {"rdma": [(1, "1.d")]}
    assert take(on, pod_request({NIC: 1}), used, scorer=LEAST) == {"rdma": [2]}


def test_cards_without_functions_serve_no_function() -> None:
    """If there are none at all, no pod that goes changes that."""
    assert allocate(
        node(nic(1), nic(2)), pod_request({NIC: 1}, hints=ANY_FUNCTION)
    ) == DeviceShortage("Insufficient rdma VirtualFunctions", resolvable=False)


# -- joint allocation ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gpus", "taken", "nics"),
    [
        (1, [0], [1]),
        (2, [0, 1], [1]),
        (3, [0, 1, 2], [1, 2]),
        (4, [0, 1, 2, 3], [1, 2]),
        (6, [0, 1, 2, 3, 4, 5], [1, 2, 3]),
        (8, list(range(8)), [1, 2, 3, 4]),
    ],
)
@pytest.mark.parametrize("joint", [JOINT, SAME_PCIE])
def test_a_nic_goes_with_every_root_of_the_gpus(
    gpus: int, taken: list[int], nics: list[int], joint: JsonObject
) -> None:
    """Although only one was requested."""
    result = take(pairs(), pod_request({WHOLE: gpus, NIC: 1}, joint=joint, hints=ANY_FUNCTION))

    assert result == {"gpu": taken, "rdma": [(minor, f"{minor}.a") for minor in nics]}


def test_devices_in_use_attract_the_whole_group() -> None:
    """GPU 0 and a function of NIC 1 are held; for three GPUs the next function there is taken."""
    on = pairs()
    used = using(hold(on, gpu=[0], rdma=[(1, "1.a")]))

    def wanted(gpus: int) -> dict[str, list[object]] | str:
        return take(on, pod_request({WHOLE: gpus, NIC: 1}, joint=JOINT, hints=ANY_FUNCTION), used)

    assert wanted(2) == {"gpu": [2, 3], "rdma": [(2, "2.a")]}
    assert wanted(3) == {"gpu": [1, 2, 3], "rdma": [(1, "1.b"), (2, "2.a")]}


def test_nics_elsewhere_step_in_unless_the_roots_must_be_the_same() -> None:
    """Only NIC 1 has functions, the GPUs sit on two roots."""
    on = node(
        *(gpu(minor, f"p{minor // 2}") for minor in range(4)),
        nic(1, "p0", functions={"any": ["1.a"]}),
        nic(2, "p1"),
    )
    loose, strict = (
        pod_request({WHOLE: 4, NIC: 1}, joint=joint, hints=ANY_FUNCTION)
        for joint in (JOINT, SAME_PCIE)
    )

    assert take(on, loose) == {"gpu": [0, 1, 2, 3], "rdma": [(1, "1.a")]}
    assert take(on, strict) == "Insufficient rdma devices"


def test_the_same_roots_for_all_types_or_nothing() -> None:
    """GPU 1's root has no NIC: a NIC of the other root is not enough."""
    on = node(gpu(0, "a"), gpu(1, "b"), nic(1, "a"))
    used = using(hold(on, gpu=[0]))

    assert take(on, pod_request({WHOLE: 1, NIC: 1}, joint=JOINT), used) == {"gpu": [1], "rdma": [1]}
    assert allocate(on, pod_request({WHOLE: 1, NIC: 1}, joint=SAME_PCIE), used) == DeviceShortage(
        "node(s) Device Joint-Allocate rules violation"
    )


def test_roots_take_turns() -> None:
    """Root p0 has three NICs; each root gives its first before any gives a second."""
    cards = [gpu(minor, f"p{minor}") for minor in range(4)]
    cards += [nic(m, "p0", functions={"any": buses(m)}) for m in (0, 1, 2)]
    cards += [nic(m + 2, f"p{m}", functions={"any": buses(m + 2)}) for m in (1, 2, 3)]
    on = node(*cards)

    def nics(percent: int) -> object:
        result = take(on, pod_request({WHOLE: 4, NIC: percent}, joint=SAME_PCIE))
        return result["rdma"] if isinstance(result, dict) else result

    assert nics(400) == [0, 3, 4, 5]
    assert nics(500) == [0, 3, 4, 5, 1]


def test_two_nics_per_root_serve_four_gpus() -> None:
    """The first of both roots, then the second."""
    cards = [gpu(minor, f"p{minor // 2}", minor // 4) for minor in range(8)]
    cards += [nic(r + 1, f"p{r}", r // 2) for r in range(4)]
    cards += [nic(r + 5, f"p{r}", r // 2) for r in range(4)]
    on = node(*cards)
    used = using(hold(on, gpu=[0, 1, 2, 3], rdma=[(1, "x")]))

    assert take(on, pod_request({WHOLE: 4, NIC: 400}, joint=JOINT), used) == {
        "gpu": [4, 5, 6, 7],
        "rdma": [3, 4, 7, 8],
    }


def test_without_joint_allocation_types_do_not_know_each_other() -> None:
    """A request with a single other type is allocated independently as well."""
    on = pairs()
    used = using(hold(on, gpu=[0, 1]))
    alone = {"deviceTypes": ["gpu"]}

    for joint in (None, alone):
        assert take(on, pod_request({WHOLE: 2, NIC: 1}, joint=joint), used) == {
            "gpu": [2, 3],
            "rdma": [1],
        }


def test_a_pod_with_all_nics_has_no_joint_allocation() -> None:
    """The pod requests one percent of each NIC."""
    hints = {"rdma": {"allocateStrategy": "ApplyForAll"}}

    assert take(pairs(), pod_request({WHOLE: 4, NIC: 1}, joint=SAME_PCIE, hints=hints)) == {
        "gpu": [0, 1, 2, 3],
        "rdma": [1, 2, 3, 4],
    }


def test_nics_may_lead() -> None:
    """GPUs do not look for their roots; required to be there they may miss them."""
    leading = {"deviceTypes": ["rdma", "gpu"]}
    on = pairs()
    used = using(hold(on, rdma=[1]))

    assert take(on, pod_request({WHOLE: 2, NIC: 100}, joint=leading), used) == {
        "rdma": [2],
        "gpu": [0, 1],
    }
    same = {**leading, "requiredScope": "SamePCIe"}
    assert take(on, pod_request({WHOLE: 2, NIC: 100}, joint=same), used) == (
        "node(s) Device Joint-Allocate rules violation"
    )


def test_partitions_lead_as_well() -> None:
    """The H800 machine: one NIC per GPU, four GPUs with one in use."""
    on = singles(on={MODEL: "H800", POLICY: "Honor"})
    wanted = pod_request({WHOLE: 2, NIC: 1}, joint=SAME_PCIE, hints=ANY_FUNCTION)
    used = using(hold(on, gpu=[4], rdma=[(5, "5.a")]))

    assert take(on, wanted, used) == {"gpu": [6, 7], "rdma": [(7, "7.a"), (8, "8.a")]}


def test_three_types_go_together() -> None:
    """Devices of the other two types are near the devices of the leading type."""
    fpgas: list[JsonObject] = [
        nic(minor, f"p{minor}") | {"type": "fpga", "resources": {FPGA: "100"}} for minor in (0, 1)
    ]
    on = node(gpu(0, "p0"), gpu(1, "p1"), nic(1, "p0"), nic(2, "p1"), *fpgas)
    types = {"deviceTypes": ["gpu", "rdma", "fpga"], "requiredScope": "SamePCIe"}
    used = using(hold(on, gpu=[0]))

    assert take(on, pod_request({WHOLE: 1, NIC: 1, FPGA: 100}, joint=types), used) == {
        "gpu": [1],
        "rdma": [2],
        "fpga": [1],
    }


# -- before a node is chosen -----------------------------------------------------------------


def test_planned_secondaries_are_tried_last() -> None:
    """With whole GPUs; a share, or a request that is not joint, is looked at as a whole."""
    on = pairs(labels=PLANNED)
    used = using(hold(on, rdma=[1, 2, 3, 4]))
    joint = pod_request({WHOLE: 8, NIC: 1}, joint=JOINT)
    shared = pod_request({RATIO: 50, NIC: 1}, joint=JOINT)
    apart = pod_request({WHOLE: 8, NIC: 1})

    assert take(on, joint, used, early=True) == {"gpu": list(range(8))}
    assert take(on, joint, used) == "Insufficient rdma devices"
    assert take(on, shared, used, early=True) == "Insufficient rdma devices"
    assert take(on, apart, used, early=True) == "Insufficient rdma devices"


# -- reservations and preemption -------------------------------------------------------------


def test_released_devices_are_free() -> None:
    """Amounts and virtual functions of pods that would go, or of a reservation."""
    on = pairs()
    reserved = hold(on, gpu=[0, 1], rdma=[(1, "1.a")])
    used = using(reserved, hold(on, gpu=[2, 3, 4, 5, 6, 7]))
    wanted = pod_request({WHOLE: 2, NIC: 1}, joint=JOINT, hints=ANY_FUNCTION)

    assert take(on, wanted, used) == "Insufficient GPU Devices"
    assert take(on, wanted, used, given_back=using(reserved)) == {
        "gpu": [0, 1],
        "rdma": [(1, "1.a")],
    }


def test_only_reserved_devices_may_be_allocated() -> None:
    """Of the types that the reservation has: no other device, and no more of one."""
    on = node(*(gpu(minor) for minor in range(4)), nic(1))
    reserved = {GPU: (*hold(on, gpu=[2])[GPU],)}
    used = using(reserved)

    def within(requests: dict[str, int]) -> dict[str, list[object]] | str:
        return take(on, pod_request(requests), used, given_back=used, only=used)

    assert within({WHOLE: 1, NIC: 1}) == {"gpu": [2], "rdma": [1]}
    assert within({WHOLE: 2}) == "Insufficient gpu devices"


def test_part_of_a_reserved_gpu_is_in_use_for_others() -> None:
    """Half of it is reserved: a whole GPU is not to be had from there."""
    on = pairs()
    half = using({GPU: (hold(on, gpu=[3])[GPU][0],)})
    plan = DevicePlan(on.model, pod_request({RATIO: 50}))
    reserved = plan.allocate(headrooms(on, half), on.totals)
    assert not isinstance(reserved, DeviceShortage)
    (device,) = reserved[GPU]

    assert take(
        on,
        pod_request({RATIO: 60}),
        using(reserved),
        given_back=using(reserved),
        only=using(reserved),
    ) == ("Insufficient GPU Devices")
    assert take(
        on,
        pod_request({RATIO: 50}),
        using(reserved),
        given_back=using(reserved),
        only=using(reserved),
    ) == {"gpu": [device.minor]}
