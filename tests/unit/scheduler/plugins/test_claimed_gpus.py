"""GPUs offered both as devices and as extended resources: each is allocated once."""

from typing import Any

import numpy as np
import pytest
from tests.equipped_nodes import CORE, MEMORY, RATIO, machine
from tests.fuzz.devices import NVIDIA, play
from tests.reservations import affinity, reservation
from tests.unit.scheduler.conftest import NewEmbedded
from tests.unit.scheduler.plugins.test_dynamic_resources import devices, places, stored
from tests.worlds import Amount, configuration, made, pod

from koordinator.api.annotations.devices import ALLOCATED
from koordinator.api.device import Device
from koordinator.api.dynamic_resources import ResourceSlice
from koordinator.api.kubescheduler import FeatureGates
from koordinator.api.meta import KubeObject
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.reservation import Reservation
from koordinator.koordlet.report.gpu_slices import gpu_slices
from koordinator.scheduler.loop import Unschedulable
from koordinator.scheduler.snapshot import Snapshot
from koordinator.simulator import Embedded

V1 = "resource.k8s.io/v1"
BOTH_WAYS = configuration(
    plugins={"multiPoint": {"enabled": [{"name": "DeviceShare"}, {"name": "Reservation"}]}}
)
SHARING = FeatureGates.parse("DRAConsumableCapacity=true")
CLASS = made("DeviceClass", "gpu", V1, spec={})
WHOLE = {"koordinator.sh/gpu": 100}


def offered(*, shares: bool = False, gpus: int = 1, **more: Any) -> list[KubeObject]:
    """Return a node n with GPUs of 40 GiB, its Device object, and its ResourceSlice."""
    objects = machine("n", gpus=gpus, device=NVIDIA, **more)
    (node,) = [each for each in objects if isinstance(each, Node)]
    (device,) = [each for each in objects if isinstance(each, Device)]
    return [*objects, CLASS, *gpu_slices(node, device, shares=shares)]


def claim(name: str, count: int = 1, **capacity: str) -> KubeObject:
    """Return a claim of whole GPUs, or of a share of one."""
    exactly: dict[str, Any] = {"deviceClassName": "gpu", "count": count}
    if capacity:
        exactly["capacity"] = {"requests": capacity}
    spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    return made("ResourceClaim", name, V1, spec=spec)


def user(name: str, of: str, **spec: Any) -> Pod:
    """Return a pod with a claim."""
    return pod(name, resourceClaims=[{"name": "gpu", "resourceClaimName": of}], **spec)


def minors(one: Embedded, name: str) -> list[int]:
    """Return the GPUs allocated to a pod for its requests."""
    got = ALLOCATED.read(one.cluster.get(Pod, name, "default").metadata) or {}
    return [gpu.minor for gpu in got.get("gpu", ())]


def test_pod_that_requests_a_claimed_gpu_waits(embedded: NewEmbedded) -> None:
    """The pod gets the GPU once the claim is released."""
    one = embedded(*offered(), claim("c"), user("a", "c"), config=BOTH_WAYS)
    assert places(one) == {"a": "n"}

    one.cluster.create(pod("b", requests=WHOLE))
    (waits,) = one.run_to_fixed_point()
    assert isinstance(waits, Unschedulable)
    assert "Insufficient GPU Devices" in waits.message
    one.cluster.delete(Pod, "a", "default")
    one.step_controllers()
    assert places(one) == {"b": "n"}


def test_owner_of_a_reservation_gets_the_gpu_of_a_released_claim(embedded: NewEmbedded) -> None:
    """The owner needs 2 of 3 GPUs and can use one of two reservations, which have one GPU each."""
    reserved = [reservation(name, 1, "1Gi", requests=WHOLE, ttl="3000s") for name in ("r0", "r1")]
    two = {"koordinator.sh/gpu": 200}
    owner = pod("b", 1, requests=two, labels={"app": "web"}, annotations=affinity())
    there = [*offered(gpus=3), claim("c"), user("a", "c")]
    one = embedded(*there, config=BOTH_WAYS)
    assert places(one) == {"a": "n"}
    one.load([*reserved])
    one.run_to_fixed_point()
    one.cluster.create(owner)
    assert not places(one)

    one.cluster.delete(Pod, "a", "default")
    one.scheduler.step()
    one.clock.advance_to(one.clock.now_s() + 60)
    one.scheduler.step()  # tried again: the claim still has its GPU
    one.step_controllers()
    one.scheduler.step()
    one.clock.advance_to(one.clock.now_s() + 60)
    one.scheduler.step()
    assert len(minors(one, "b")) == 2


def test_pod_that_claims_a_requested_gpu_waits(embedded: NewEmbedded) -> None:
    """The message names the GPU's holder, and the pod gets the GPU once the holder is deleted."""
    one = embedded(*offered(), claim("c"), pod("b", requests=WHOLE), config=BOTH_WAYS)
    assert places(one) == {"b": "n"}

    one.cluster.create(user("a", "c"))
    (waits,) = one.run_to_fixed_point()
    assert isinstance(waits, Unschedulable)
    assert "1 cannot allocate all claims" in waits.message
    assert "n/gpu-0: allocated to pods that request resources" in why(one, "a")
    one.cluster.delete(Pod, "b", "default")
    assert places(one) == {"a": "n"}
    assert devices(stored(one, "c")) == ["n/gpu-0"]


def why(one: Embedded, name: str) -> str:
    """Return the plugin's reason for the first node."""
    profile = one.scheduler.cycles["default-scheduler"].profile
    (plugin,) = [a.plugin for a in profile.filter if a.name == "DynamicResources"]
    pod_class = one.state.classes.of(one.cluster.get(Pod, name, "default"))
    detail: str = plugin.detail(Snapshot(one.state)[np.array([0])], pod_class)
    return detail


def test_both_ways_fill_a_node_together(embedded: NewEmbedded) -> None:
    """Four GPUs, two each way, each of them once."""
    asking = [pod(f"r{i}", requests=WHOLE) for i in range(2)]
    claiming = [user(f"u{i}", f"c{i}") for i in range(2)]
    mixed = [asking[0], claiming[0], asking[1], claiming[1]]
    one = embedded(*offered(gpus=4), claim("c0"), claim("c1"), *mixed, config=BOTH_WAYS)

    assert set(places(one)) == {"r0", "r1", "u0", "u1"}
    given = [*minors(one, "r0"), *minors(one, "r1")]
    given += [int(devices(stored(one, name))[0].rpartition("-")[2]) for name in ("c0", "c1")]
    assert sorted(given) == [0, 1, 2, 3]


def test_pod_with_claims_and_requests_gets_distinct_gpus(embedded: NewEmbedded) -> None:
    """Claims avoid the GPUs of the pod's requests."""
    one = embedded(*offered(), claim("c"), user("a", "c", requests=WHOLE), config=BOTH_WAYS)

    assert places(one) == {}
    assert devices(stored(one, "c")) == []


@pytest.mark.parametrize(("share", "fits"), [({CORE: 50, RATIO: 50}, True), (WHOLE, False)])
def test_gpu_is_shared_by_claims_and_requests(
    embedded: NewEmbedded, share: dict[str, int], fits: bool
) -> None:
    """A claim of 40 % of the cores and a quarter of the memory leaves the rest to requests."""
    one = embedded(
        *offered(shares=True), claim("c", core="40", memory="10Gi"), user("a", "c"),
        config=BOTH_WAYS, gates=SHARING,
    )  # fmt: skip
    assert places(one) == {"a": "n"}

    one.cluster.create(pod("b", requests=share))
    assert ("b" in places(one)) is fits


def test_requested_amounts_are_not_available_to_claims(embedded: NewEmbedded) -> None:
    """With 30 GiB and 60 % requested, a claim of 20 GiB waits and one of 10 GiB does not."""
    requests: dict[str, Amount] = {CORE: 60, MEMORY: "30Gi"}
    one = embedded(
        *offered(shares=True), pod("b", requests=requests), claim("large", core="1", memory="20Gi"),
        claim("small", core="40", memory="10Gi"), config=BOTH_WAYS, gates=SHARING,
    )  # fmt: skip
    places(one)

    one.cluster.create(user("l", "large"))
    one.cluster.create(user("s", "small"))
    assert places(one) == {"s": "n"}


def test_claim_without_amount_gets_a_whole_gpu(embedded: NewEmbedded) -> None:
    """A claim without amount takes whole GPUs, even those that can be shared."""
    one = embedded(
        *offered(shares=True), claim("c"), claim("d", core="1", memory="1Gi"), user("a", "c"),
        config=BOTH_WAYS, gates=SHARING,
    )  # fmt: skip
    assert places(one) == {"a": "n"}

    one.cluster.create(user("b", "d"))
    one.cluster.create(pod("r", requests={CORE: 1, RATIO: 1}))
    assert places(one) == {}


def test_reserved_gpus_are_not_claimed(embedded: NewEmbedded) -> None:
    """Claims never use reservations, whatever their owners."""
    template = {"spec": pod("x", requests=WHOLE).spec}
    owners = [{"labelSelector": {"matchLabels": {"app": "x"}}}]
    spec = {"template": template, "owners": owners, "ttl": "0s"}
    reserved = made("Reservation", "r", Reservation.API_VERSION, spec=spec)
    one = embedded(*offered(), reserved, config=BOTH_WAYS)
    one.run_to_fixed_point()

    one.cluster.create(claim("c"))
    one.cluster.create(user("a", "c", labels={"app": "x"}))
    assert places(one) == {}
    assert devices(stored(one, "c")) == []


def test_claims_count_in_any_order_of_events(embedded: NewEmbedded) -> None:
    """The claim may precede its node and the Device object, and both may be recreated."""
    before = embedded(*offered(), claim("c"), user("a", "c"), config=BOTH_WAYS)
    places(before)
    got = stored(before, "c")
    node, *others = [each for each in offered() if not isinstance(each, ResourceSlice)]
    one = embedded(got, config=BOTH_WAYS)
    one.load([node])
    one.scheduler.step()
    for each in others:
        one.load([each])
        one.scheduler.step()
    one.cluster.create(pod("b", requests=WHOLE))
    assert places(one) == {}

    one.cluster.delete(Node, "n")
    one.scheduler.step()
    one.load([*offered()[:1]])
    assert places(one) == {}
    one.cluster.delete(Device, "n")
    one.scheduler.step()
    one.scheduler.validate()


@pytest.mark.parametrize("seed", [1, 8, 18])
def test_no_gpu_is_allocated_twice_in_random_worlds(seed: int) -> None:
    """``python -m tests.fuzz.devices`` plays thousands of them."""
    play(seed, steps=25)
