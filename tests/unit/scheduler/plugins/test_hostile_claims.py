"""Malicious slices and claims: other pods are scheduled, and memory stays bounded."""

from typing import Any

import pytest
from tests.unit.scheduler.conftest import NewEmbedded
from tests.unit.scheduler.plugins.test_dynamic_resources import (
    DRIVER,
    GPUS,
    claim,
    devices,
    places,
    slice_of,
    stored,
    user,
)
from tests.worlds import made, node

from koordinator.api.dynamic_resources import DeviceClass, ResourceClaim, ResourceSlice
from koordinator.api.kubescheduler import FeatureGates
from koordinator.api.pod import Pod
from koordinator.domain.dynamic_resources import inventory
from koordinator.scheduler.loop import Unschedulable
from koordinator.scheduler.plugins.dynamic_resources.verdicts import KEPT, VerdictTable
from koordinator.simulator import Embedded

MANY = "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]"
ENDLESS = "".join(f"{MANY}.all({c}, " for c in "abcdefgh") + "true" + ")" * 8
ODD: list[dict[str, Any]] = [
    {"attributes": {"": {"int": 1}, "/": {"int": 1}, "a/b/c": {"string": "x"}}},
    {"attributes": {"index": {"string": "0"}, f"{DRIVER}/index": {"int": 0}}},
    {"capacity": {"memory": {"value": "-1"}, "x/y/z": {"value": "1e30"}}},
    {"nodeName": "elsewhere", "allNodes": False},
]
UNREADABLE: list[dict[str, Any]] = [  # no selector can be asked about them
    {"attributes": {"none": {}, "index": {"int": 0}}},
    {"attributes": {"index": {"version": "1.2"}}},
]


@pytest.mark.parametrize(("gates", "given"), [("DRAPartitionableDevices=false", 1), ("", 0)])
def test_unknown_counters_invalidate_their_pool(
    embedded: NewEmbedded, gates: str, given: int
) -> None:
    """Counters are checked by default from Kubernetes 1.36 on."""
    takes = [{"counterSet": "nobody", "counters": {"has": {"value": "1"}}}]
    devices = [{"name": "odd", "consumesCounters": takes}, {"name": "gpu-0"}]
    strange = slice_of("n", 0, devices=devices)
    on = FeatureGates.parse(gates)
    one = embedded(node("n"), strange, GPUS, claim("c", 1, "true"), user("p", "c"), gates=on)

    assert len(places(one)) == given


def test_a_slice_of_two_thousand_devices_is_searched(embedded: NewEmbedded) -> None:
    """The last device is found, too."""
    wants = f'device.attributes["{DRIVER}"].index == 1999'
    one = embedded(node("n"), slice_of("n", 2_000), GPUS, claim("c", 1, wants), user("p", "c"))

    assert places(one) == {"p": "n"}
    assert devices(stored(one, "c")) == ["n/gpu-1999"]


@pytest.mark.parametrize("odd", [*ODD, *UNREADABLE], ids=range(len(ODD) + len(UNREADABLE)))
def test_invalid_devices_do_not_block_other_pods(
    embedded: NewEmbedded, odd: dict[str, Any]
) -> None:
    """Claims for other devices on the node, and pods on other nodes, are not affected."""
    strange = slice_of("n", 0, devices=[{"name": "odd", **odd}, {"name": "gpu-0"}])
    wants = f'device.attributes["{DRIVER}"].index == 0'
    one = embedded(
        node("n"), node("m"), strange, slice_of("m", 2), GPUS, claim("c", 1, wants),
        claim("d", 1, "true"), user("p", "c", nodeSelector={"kubernetes.io/hostname": "m"}),
        user("q", "d", nodeSelector={"kubernetes.io/hostname": "m" if odd in UNREADABLE else "n"}),
    )  # fmt: skip

    assert set(places(one)) == {"p", "q"}
    one.scheduler.validate()


@pytest.mark.parametrize(
    "spec",
    [
        {"devices": [{"name": "same"}, {"name": "same"}]},
        {"pool": {"name": "n", "generation": 1, "resourceSliceCount": 2}},
        {"pool": {"name": "n", "generation": 1}},
    ],
)
def test_unreliable_pools_are_not_allocated(embedded: NewEmbedded, spec: dict[str, Any]) -> None:
    """Names are duplicated, slices are missing, or the slice count is wrong."""
    one = embedded(node("n"), slice_of("n", 1, **spec), GPUS, claim("c"), user("p", "c"))

    assert places(one) == {}
    assert devices(stored(one, "c")) == []


@pytest.mark.parametrize("expression", [ENDLESS, "1 / 0 == 1", "device.nothing", "(" * 2000])
def test_failing_selector_blocks_its_own_pod_only(embedded: NewEmbedded, expression: str) -> None:
    """The selector runs too long, fails, or is nonsense."""
    one = embedded(
        node("n"), slice_of("n", 2), GPUS, claim("bad", 1, expression), claim("good"),
        user("p", "bad"), user("q", "good"),
    )  # fmt: skip

    outcomes = one.run_to_fixed_point()
    assert [o.pod for o in outcomes if isinstance(o, Unschedulable)] == ["default/p"]
    assert one.cluster.get(Pod, "q", "default").spec.node_name == "n"


def test_claim_of_a_deleted_class_waits(embedded: NewEmbedded) -> None:
    """Allocated devices stay allocated."""
    one = embedded(node("n"), slice_of("n", 2), GPUS, claim("c"), user("p", "c"))
    places(one)
    one.cluster.delete(DeviceClass, "gpu")
    one.load([claim("d"), user("q", "d")])

    (waits,) = one.run_to_fixed_point()
    assert isinstance(waits, Unschedulable)
    assert "device class gpu does not exist" in waits.message
    one.load([made("DeviceClass", "gpu", "resource.k8s.io/v1", spec={})])
    assert places(one) == {"q": "n"}
    assert (devices(stored(one, "c")), devices(stored(one, "d"))) == (["n/gpu-0"], ["n/gpu-1"])


def test_caches_stay_bounded_under_churn(embedded: NewEmbedded) -> None:
    """Verdicts, kinds of claims, pools and usages are bounded, or removed with their objects."""
    one = embedded(node("n"), slice_of("n", 2), GPUS)
    for number in range(KEPT + 4):
        wants = f'device.attributes["{DRIVER}"].index == {number + 2}'
        one.load([claim(f"c{number}", 1, wants), user(f"p{number}", f"c{number}")])
    one.run_to_fixed_point()
    table = verdicts(one)
    (pool,) = table.devices.pools(0)
    assert len(table._by_kind) <= KEPT
    assert all(len(d._answers) <= inventory.ANSWERS_KEPT for d in pool.devices)
    assert len(inventory._ALIKE) <= inventory.ALIKE_KEPT

    one.cluster.delete(ResourceSlice, "n")
    for number in range(KEPT + 4):
        one.cluster.delete(Pod, f"p{number}", "default")
        one.cluster.delete(ResourceClaim, f"c{number}", "default")
    one.scheduler.step()
    devices_known = verdicts(one).devices
    assert devices_known.pools(0) == ()
    assert not devices_known._holders
    assert not devices_known._allocated
    assert not devices_known._slices._by_pool
    assert not devices_known.use.devices


def verdicts(one: Embedded) -> VerdictTable:
    """Return the plugin's caches, refreshed by a pod with a claim."""
    one.load([claim("last"), user("last", "last")])
    one.run_to_fixed_point()
    (table,) = [
        ledger for ledger, _ in one.state.ledgers.kept.values() if isinstance(ledger, VerdictTable)
    ]
    one.cluster.delete(Pod, "last", "default")
    one.cluster.delete(ResourceClaim, "last", "default")
    one.step_controllers()
    return table
