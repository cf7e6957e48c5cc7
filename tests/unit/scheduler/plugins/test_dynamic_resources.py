"""Pods that claim devices: they wait for their claims, get devices with their node, and free them.

A claim's devices are known from its status alone, so a restart forgets nothing.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.unit.scheduler.conftest import NewEmbedded
from tests.worlds import START_S, made, node, pod
from tests.worlds import embedded as new_embedded

from koordinator.api.dynamic_resources import (
    DELETE_PROTECTION,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceSlice,
)
from koordinator.api.kube_version import V1_35, V1_36, V1_37, KubeVersion
from koordinator.api.kubescheduler import NO_GATES, FeatureGates
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.foundation.clock import to_datetime
from koordinator.foundation.errors import ClusterError, InputError
from koordinator.scheduler.loop import Bound, Unschedulable
from koordinator.scheduler.queue import QueueState
from koordinator.scheduler.snapshot import ObjectChange, ObjectTable, Snapshot
from koordinator.simulator import Embedded

V1 = "resource.k8s.io/v1"
DRIVER = "gpu.example.com"
GPUS = made("DeviceClass", "gpu", V1, spec={})


def slice_of(name: str, count: int, **spec: Any) -> KubeObject:
    """Return devices of one node, gpu-0 and so on; other fields of the slice may be given."""
    devices = [{"name": f"gpu-{i}", "attributes": {"index": {"int": i}}} for i in range(count)]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    given = {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": devices, **spec}
    return made("ResourceSlice", name, V1, spec=given)


def asking(count: int = 1, *selectors: str) -> dict[str, Any]:
    """Return the spec of a claim of so many GPUs."""
    chosen = [{"cel": {"expression": text}} for text in selectors]
    exactly = {"deviceClassName": "gpu", "count": count, "selectors": chosen}
    return {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}


def claim(name: str, count: int = 1, *selectors: str, **more: Any) -> KubeObject:
    """Return a claim of so many GPUs."""
    return made("ResourceClaim", name, V1, spec=asking(count, *selectors), **more)


def template(name: str, count: int = 1) -> KubeObject:
    """Return a template of claims."""
    return made("ResourceClaimTemplate", name, V1, spec={"spec": asking(count)})


def user(name: str, *claims: str, **spec: Any) -> Pod:
    """Return a pod that names claims."""
    entries = [{"name": f"e{i}", "resourceClaimName": one} for i, one in enumerate(claims)]
    return pod(name, resourceClaims=entries, **spec)


def templated(name: str, of: str) -> Pod:
    """Return a pod that gets a claim of its own."""
    return pod(name, resourceClaims=[{"name": "own", "resourceClaimTemplateName": of}])


def stored(one: Embedded, name: str) -> ResourceClaim:
    """Return a claim as the cluster has it."""
    return one.cluster.get(ResourceClaim, name, "default")


def devices(claim: ResourceClaim) -> list[str]:
    """Return what a claim has got."""
    allocation = claim.status.allocation
    return [f"{r.pool}/{r.device}" for r in allocation.devices.results] if allocation else []


def places(one: Embedded) -> dict[str, str]:
    """Schedule until nothing moves; return where pods have gone."""
    outcomes = one.run_to_fixed_point()
    return {o.pod.partition("/")[2]: o.node for o in outcomes if isinstance(o, Bound)}


def test_the_claim_is_written_before_the_pod_is_bound(embedded: NewEmbedded) -> None:
    """Allocated on the node that has devices, protected, reserved for the pod."""
    one = embedded(node("bare"), node("n"), slice_of("n", 2), GPUS, claim("c", 2), user("p", "c"))

    assert places(one) == {"p": "n"}
    got, uid = stored(one, "c"), one.cluster.get(Pod, "p", "default").metadata.uid
    assert devices(got) == ["n/gpu-0", "n/gpu-1"]
    assert got.metadata.finalizers == (DELETE_PROTECTION,)
    assert [(r.resource, r.name, r.uid) for r in got.status.reserved_for] == [("pods", "p", uid)]
    assert got.status.allocation is not None
    assert got.status.allocation.node_selector is not None


def test_devices_are_given_once(embedded: NewEmbedded) -> None:
    """The third pod waits, and says why; it goes on when a claim is free again."""
    pods = [user(f"p{i}", f"c{i}") for i in range(3)]
    claims = [claim(f"c{i}") for i in range(3)]
    one = embedded(node("n"), slice_of("n", 2), GPUS, *claims, *pods)

    outcomes = one.run_to_fixed_point()
    (left,) = [o for o in outcomes if isinstance(o, Unschedulable)]
    assert left.message.startswith(
        "0/1 nodes are available: 1 cannot allocate all claims. preemption: "
    )
    one.cluster.delete(Pod, "p0", "default")
    one.step_controllers()
    assert devices(stored(one, "c0")) == []
    assert places(one) == {"p2": "n"}
    assert devices(stored(one, "c2")) == ["n/gpu-0"]


def test_a_claim_of_own_and_shared_devices_changes_what_its_node_has_left(
    embedded: NewEmbedded,
) -> None:
    """Nodes of one shape differ from then on, though a pool that all see has changed, too."""
    network = slice_of("net", 4, nodeName=None, allNodes=True, driver="net.example.com")
    own = made("DeviceClass", "own", V1, spec=_of_driver(DRIVER))
    net = made("DeviceClass", "net", V1, spec=_of_driver("net.example.com"))
    asked = [{"name": n, "exactly": {"deviceClassName": n, "count": 1}} for n in ("own", "net")]
    claims = [
        made("ResourceClaim", name, V1, spec={"devices": {"requests": asked}}) for name in "cd"
    ]
    nodes = (node("a"), node("b"), slice_of("a", 1), slice_of("b", 1))
    one = embedded(*nodes, network, own, net, *claims, user("p", "c"), user("q", "d"))

    assert sorted(places(one).values()) == ["a", "b"]


def _of_driver(driver: str) -> dict[str, Any]:
    return {"selectors": [{"cel": {"expression": f'device.driver == "{driver}"'}}]}


def test_pods_share_a_claim_on_the_nodes_that_reach_its_devices(embedded: NewEmbedded) -> None:
    """The second one follows the first, though other nodes are as good."""
    one = embedded(
        node("a"), node("b"), slice_of("b", 1), GPUS, claim("c"), user("p", "c"), user("q", "c")
    )

    assert places(one) == {"p": "b", "q": "b"}
    assert [r.name for r in stored(one, "c").status.reserved_for] == ["p", "q"]


def test_a_pod_waits_at_the_gate_for_a_claim_that_is_not_there(embedded: NewEmbedded) -> None:
    """No attempt is made, nothing is told; the claim lets it in."""
    one = embedded(node("n"), slice_of("n", 1), GPUS, user("p", "late"))

    assert one.run_to_fixed_point() == []
    queued = one.scheduler.queue.get("default/p")
    assert queued is not None
    assert (queued.state, queued.gated_by) == (QueueState.GATED, "DynamicResources")
    assert 'resourceclaim.resource.k8s.io "late" not found' in queued.message
    one.cluster.create(claim("late"))
    assert places(one) == {"p": "n"}


def test_each_pod_of_a_template_gets_a_claim_of_its_own(embedded: NewEmbedded) -> None:
    """Named in the status of its pod, owned by it, and gone with it."""
    one = embedded(
        node("n"), slice_of("n", 2), GPUS, template("t"), templated("p", "t"), templated("q", "t")
    )

    assert places(one) == {"p": "n", "q": "n"}
    (name,) = one.cluster.get(Pod, "p", "default").status.resource_claim_statuses
    assert name.resource_claim_name is not None
    assert devices(stored(one, name.resource_claim_name)) == ["n/gpu-0"]
    one.cluster.delete(Pod, "p", "default")
    one.step_controllers()
    assert len(one.cluster.list(ResourceClaim).items) == 1


def test_a_claim_allocated_elsewhere_is_freed_if_nobody_else_uses_it(embedded: NewEmbedded) -> None:
    """The pod is tried again at once; one that others use stays."""
    one = embedded(
        node("a"), node("b"), slice_of("a", 1), slice_of("b", 1), GPUS, claim("c"), user("p", "c")
    )
    (where,) = places(one).values()
    other = {"a": "b", "b": "a"}[where]
    assert places_of_pinned(one, "q", other) == {}
    one.cluster.delete(Pod, "p", "default")
    free = replace(stored(one, "c"), status=replace(stored(one, "c").status, reserved_for=()))
    one.cluster.update_status(free)  # and yet allocated, as after a bind that failed
    assert places(one) == {"q": other}
    assert devices(stored(one, "c")) == [f"{other}/gpu-0"]


def places_of_pinned(one: Embedded, name: str, where: str) -> dict[str, str]:
    """Add a pod for one node that uses the claim c, and schedule."""
    one.cluster.create(user(name, "c", nodeSelector={"kubernetes.io/hostname": where}))
    return places(one)


def test_nobody_uses_a_claim_that_is_full(embedded: NewEmbedded) -> None:
    """A claim serves at most 256 consumers; the API server would refuse one more."""
    others = tuple(
        ResourceClaimConsumerReference(resource="pods", name=f"x{i}", uid=f"u{i}")
        for i in range(256)
    )
    full = claim("c")
    assert isinstance(full, ResourceClaim)
    full = replace(full, status=replace(full.status, reserved_for=others))
    one = embedded(node("n"), slice_of("n", 1), GPUS, full, user("p", "c"))

    (outcome,) = one.run_to_fixed_point()
    assert isinstance(outcome, Unschedulable)
    assert "status.reservedFor: Too many: 257: must have at most 256 items" in outcome.message


def test_explanations_name_the_device_and_the_selector(embedded: NewEmbedded) -> None:
    """And who has the one that would do."""
    wants = f'device.attributes["{DRIVER}"].index == 0'
    one = embedded(
        node("n"), slice_of("n", 2), GPUS, claim("c", 1, wants), claim("d", 1, wants),
        user("p", "c"), user("q", "d"),
    )  # fmt: skip
    places(one)
    said = explained(one, "q")
    assert said == (
        "claim default/d, request r: 1 wanted, 0 free, n/gpu-0: allocated to claim default/c, "
        f"n/gpu-1: not selected by claim default/d: selector #0 ({wants})"
    )


def explained(one: Embedded, name: str) -> str:
    """Return what is said of the first node to a pod that waits."""
    profile = one.scheduler.cycles["default-scheduler"].profile
    (plugin,) = [a.plugin for a in profile.filter if a.name == "DynamicResources"]
    waiting = one.cluster.get(Pod, name, "default")
    said = plugin.detail(Snapshot(one.state)[np.array([0])], one.state.classes.of(waiting))
    assert isinstance(said, str)
    return said


def test_a_selector_that_breaks_on_a_node_keeps_its_pod_from_all(embedded: NewEmbedded) -> None:
    """Until it is mended, nobody asks it of that node, or the device has what it asks for.

    Source: kubernetes test/e2e/dra/dra.go, keeps pod pending because of CEL runtime errors.
    """
    wants = f'device.attributes["{DRIVER}"].index == 0'
    bare = slice_of("a", 0, devices=[{"name": "bare"}])
    one = embedded(
        node("a"), node("b"), bare, slice_of("b", 2), GPUS, claim("c", 1, wants), user("p", "c"),
        claim("d", 1, wants), user("q", "d", nodeSelector={"kubernetes.io/hostname": "b"}),
    )  # fmt: skip

    (outcome,) = [it for it in one.run_to_fixed_point() if isinstance(it, Unschedulable)]
    assert outcome.pod == "default/p"
    assert "node a: claim default/c: selector #0: CEL runtime error: no such key" in outcome.message
    assert one.cluster.get(Pod, "q", "default").spec.node_name == "b"

    one.cluster.update(slice_of("a", 1))
    assert places(one) == {"p": "a"}


def test_gates_switch_on_what_is_not_settled_yet(embedded: NewEmbedded) -> None:
    """Taints of devices do nothing without theirs, which is on from Kubernetes 1.36 on."""
    tainted = [{"name": "gpu-0", "taints": [{"key": "k", "effect": "NoSchedule"}]}]
    objects = (node("n"), slice_of("n", 1, devices=tainted), GPUS, claim("c"), user("p", "c"))

    for level, on, off in (
        (V1_35, "DRADeviceTaints=true", ""),
        (V1_36, "", "DRADeviceTaints=false"),
    ):
        assert places(embedded(*objects, gates=FeatureGates.parse(off, level))) == {"p": "n"}
        assert places(embedded(*objects, gates=FeatureGates.parse(on, level))) == {}


RULES = FeatureGates.parse("DRADeviceTaints=true,DRADeviceTaintRules=true")


def rule(name: str, effect: str = "NoSchedule", key: str = "k", **selector: str) -> KubeObject:
    """Return a rule that taints devices; with an empty selector all of them."""
    spec = {"taint": {"key": key, "effect": effect}, "deviceSelector": selector}
    return made("DeviceTaintRule", name, "resource.k8s.io/v1", spec=spec)


@pytest.mark.parametrize(("version", "taints"), [("v1", 0), ("v1beta2", 1), ("v1alpha3", 1)])
def test_a_rule_without_a_selector_concerns_no_device_from_v1_on(
    embedded: NewEmbedded, version: str, taints: int
) -> None:
    spec = {"taint": {"key": "k", "effect": "NoSchedule"}}
    unselective = made("DeviceTaintRule", "r", f"resource.k8s.io/{version}", spec=spec)
    objects = (node("n"), slice_of("n", 1), GPUS, claim("c"), user("p", "c"), unselective)

    assert len(places(embedded(*objects, gates=RULES))) == 1 - taints


@pytest.mark.parametrize(
    ("selector", "left"),
    [
        ({}, []),
        ({"driver": DRIVER}, []),
        ({"driver": "other"}, ["n/gpu-0"]),
        ({"pool": "n"}, []),
        ({"pool": "m"}, ["n/gpu-0"]),
        ({"device": "gpu-0"}, ["n/gpu-1"]),
        ({"driver": DRIVER, "pool": "n", "device": "gpu-1"}, ["n/gpu-0"]),
    ],
)
def test_a_rule_taints_the_devices_that_it_selects(
    embedded: NewEmbedded, selector: dict[str, str], left: list[str]
) -> None:
    """By driver, pool and device, those that are given; without its gate it does nothing."""
    objects = (node("n"), slice_of("n", 2), GPUS, claim("c"), user("p", "c"), rule("r", **selector))
    one = embedded(*objects, gates=RULES)
    one.run_to_fixed_point()
    assert devices(stored(one, "c")) == left

    without = embedded(*objects, gates=FeatureGates.parse("DRADeviceTaintRules=false"))
    without.run_to_fixed_point()
    assert devices(stored(without, "c")) == ["n/gpu-0"]


def test_a_pod_is_tried_again_when_a_rule_lets_its_devices_go(embedded: NewEmbedded) -> None:
    """Because it is another one by now, or gone; what is not seen needs no toleration."""
    one = embedded(
        node("n"), slice_of("n", 2), GPUS, claim("c"), claim("d"), user("p", "c"), user("q", "d"),
        rule("r"), rule("seen", "None"), gates=RULES,
    )  # fmt: skip
    assert places(one) == {}
    one.cluster.update(rule("r", device="gpu-0"))
    assert len(places(one)) == 1
    one.cluster.delete(DeviceTaintRule, "r")
    assert list(places(one)) == ["q"]


def test_a_rule_needs_the_gate_of_taints() -> None:
    with pytest.raises(InputError, match="DRADeviceTaintRules is enabled, but depends on"):
        FeatureGates.parse("DRADeviceTaintRules=true", V1_35)


_selectors = st.fixed_dictionaries(
    {},
    optional={
        "driver": st.sampled_from([DRIVER, "other"]),
        "pool": st.sampled_from(["n", "m"]),
        "device": st.sampled_from(["gpu-0", "gpu-1"]),
    },
)


@settings(max_examples=25)
@given(
    rules=st.lists(st.tuples(_selectors, st.sampled_from(["None", "NoSchedule", "NoExecute"]))),
    late=st.booleans(),
)
def test_rules_are_as_taints_in_the_slices(
    rules: list[tuple[dict[str, str], str]], late: bool
) -> None:
    """Whether they were there before the slices or came after them."""
    objects = [node("n"), node("m"), GPUS, *(claim(f"c{i}") for i in range(4))]
    given_rules = [rule(f"r{i}", effect, **which) for i, (which, effect) in enumerate(rules)]
    slices = [slice_of("n", 2), slice_of("m", 2)]
    by_rules = new_embedded(*objects, gates=RULES)
    for batch in (slices, given_rules) if late else (given_rules, slices):
        by_rules.load(batch)

    def taints_of(pool: str, name: str) -> list[dict[str, str]]:
        said = {"driver": DRIVER, "pool": pool, "device": name}.items()
        return [{"key": "k", "effect": effect} for which, effect in rules if which.items() <= said]

    tainted = [
        slice_of(
            pool,
            2,
            devices=[{"name": n, "taints": taints_of(pool, n)} for n in ("gpu-0", "gpu-1")],
        )
        for pool in ("n", "m")
    ]
    by_slices = new_embedded(*objects, *tainted, gates=RULES)
    found = []
    for one in (by_rules, by_slices):
        one.load(user(f"p{i}", f"c{i}") for i in range(4))
        one.run_to_fixed_point()
        found.append([devices(stored(one, f"c{i}")) for i in range(4)])
    assert found[0] == found[1]


def test_a_bind_waits_for_the_conditions_of_its_devices(embedded: NewEmbedded) -> None:
    """Behind the gate; the driver says when a device is ready."""
    fabric = [{"name": "gpu-0", "bindsToNode": True, "bindingConditions": ["attached"]}]
    gates = FeatureGates.parse("DRADeviceBindingConditions=true")
    one = embedded(
        node("n"), slice_of("n", 1, devices=fabric, nodeName=None, allNodes=True), GPUS,
        claim("c"), user("p", "c"), gates=gates,
    )  # fmt: skip

    assert one.scheduler.step() == []
    now = stored(one, "c")
    assert devices(now) == ["n/gpu-0"]
    ready = {"driver": DRIVER, "pool": "n", "device": "gpu-0"}
    conditions = [{"type": "attached", "status": "True", "reason": "Done"}]
    status = {"devices": [{**ready, "conditions": conditions}]}
    one.cluster.patch(ResourceClaim, "c", "default", {"status": status}, "status")
    assert places(one) == {"p": "n"}


@pytest.mark.parametrize("ends_by", ["failure", "timeout"])
def test_a_device_that_is_never_made_ready_is_given_up(embedded: NewEmbedded, ends_by: str) -> None:
    """The claim loses it, and the pod goes where there is another one."""
    slow = {"name": "gpu-0", "bindingConditions": ["Up"], "bindingFailureConditions": ["Down"]}
    gates = FeatureGates.parse("DRADeviceBindingConditions=true")
    one = embedded(
        node("a"), slice_of("a", 0, devices=[slow]), GPUS, claim("c"), user("p", "c"), gates=gates
    )
    one.scheduler.step()
    got = stored(one, "c").status.allocation
    assert got is not None
    assert got.allocation_timestamp == to_datetime(one.clock.now_s())
    one.cluster.load([node("b"), slice_of("b", 1)])
    one.cluster.delete(ResourceSlice, "a")
    if ends_by == "failure":
        down = [{"type": "Down", "status": "True", "reason": "Broken"}]
        about = {"driver": DRIVER, "pool": "a", "device": "gpu-0", "conditions": down}
        one.cluster.patch(ResourceClaim, "c", "default", {"status": {"devices": [about]}}, "status")
    else:
        one.clock.advance_to(one.clock.now_s() + 601)

    assert places(one) == {"p": "b"}
    assert devices(stored(one, "c")) == ["b/gpu-0"]


def test_a_partition_that_is_withdrawn_keeps_its_counters(embedded: NewEmbedded) -> None:
    """As long as a claim has it; then they serve others."""
    gates = FeatureGates.parse("DRAPartitionableDevices=true")
    whole, half = (offer_of_parts(*names) for names in (("a", "b"), ("b",)))
    one = embedded(node("n"), whole, GPUS, claim("c"), claim("d"), user("p", "c"), gates=gates)
    assert places(one) == {"p": "n"}

    one.cluster.update(half)
    one.cluster.create(user("q", "d"))
    assert places(one) == {}
    one.cluster.delete(Pod, "p", "default")
    one.step_controllers()
    assert places(one) == {"q": "n"}
    assert devices(stored(one, "d")) == ["n/b"]


@pytest.mark.parametrize("restarts", [False, True])
def test_what_a_withdrawn_partition_takes_is_known_to_nobody(
    embedded: NewEmbedded, restarts: bool
) -> None:
    """So no counter of its pool is given until it is free or offered again, restart or not."""
    gates = FeatureGates.parse("DRAPartitionableDevices=true")
    every = ("a", "b", "plain")
    one = embedded(
        node("n"), offer_of_parts(*every, units=2), GPUS, claim("c"), user("p", "c"), gates=gates
    )
    assert places(one) == {"p": "n"}
    one.cluster.update(offer_of_parts("b", "plain", units=2))
    one.cluster.create(claim("d", 2))
    one.cluster.create(user("q", "d"))
    if restarts:
        one = restarted(one, gates)

    assert places(one) == {}
    assert "n/b: counters of its pool may be taken by n/a, offered no more" in explained(one, "q")
    one.cluster.update(offer_of_parts(*every, units=2))
    assert places(one) == {"q": "n"}
    assert devices(stored(one, "d")) == ["n/b", "n/plain"]


def test_partitions_are_not_given_where_nobody_counts(embedded: NewEmbedded) -> None:
    """Without the gate, of partitions of one device none is given, and others are."""
    offer = offer_of_parts("a", "b", "plain")
    gates = FeatureGates.parse("DRAPartitionableDevices=false")
    one = embedded(node("n"), offer, GPUS, claim("c"), claim("d"), user("p", "c"), gates=gates)

    assert places(one) == {"p": "n"}
    assert devices(stored(one, "c")) == ["n/plain"]
    one.cluster.create(user("q", "d"))
    assert places(one) == {}
    assert "n/a n/b: takes counters, which needs the gate" in explained(one, "q")


def test_explanations_name_the_amount_that_lacks(embedded: NewEmbedded) -> None:
    """Capacity that is gone, counters that others have, a gate that is off."""
    gates = FeatureGates.parse("DRADeviceBindingConditions=false")
    full = {"name": "full", "allowMultipleAllocations": True, "capacity": {"mem": {"value": "2"}}}
    slow = {"name": "slow", "bindingConditions": ["Up"], "bindingFailureConditions": ["Down"]}
    other = slice_of("n-net", 0, nodeName="n", driver="net.example.com", devices=[full, slow])
    claims = [claim("c", 1), claim("d", 1, 'device.driver == "net.example.com"'), claim("e", 3)]
    users = [user("p", "c"), user("q", "d"), user("r", "e")]
    one = embedded(node("n"), offer_of_parts("a", "b"), other, GPUS, *claims, *users, gates=gates)

    assert places(one) == {"p": "n", "q": "n"}
    assert explained(one, "r") == (
        "claim default/e, request r: 3 wanted, 0 free, n/a: allocated to claim default/c, n/b: its "
        "pool has too little units left in units, n-net/full: has too little mem left, "
        "n-net/slow: has to be made ready, which needs the gate DRADeviceBindingConditions"
    )


@pytest.mark.parametrize(
    ("level", "got"), [(V1_35, ["n/a", "n/a"]), (V1_36, ["n/a", "n/b"]), (V1_37, ["n/a", "n/b"])]
)
def test_a_request_gets_shares_of_different_devices_from_1_36_on(
    embedded: NewEmbedded, level: KubeVersion, got: list[str]
) -> None:
    shared = {"allowMultipleAllocations": True, "capacity": {"mem": {"value": "2"}}}
    offer = slice_of("n", 0, devices=[{"name": name, **shared} for name in "ab"])
    gates = FeatureGates.parse("DRAConsumableCapacity=true", level)
    exactly = {"deviceClassName": "gpu", "count": 2, "capacity": {"requests": {"mem": "1"}}}
    spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    wanted = made("ResourceClaim", "c", V1, spec=spec)
    one = embedded(node("n"), offer, GPUS, wanted, user("p", "c"), gates=gates)

    assert places(one) == {"p": "n"}
    assert devices(stored(one, "c")) == got


@pytest.mark.parametrize(("level", "requests"), [(V1_36, ("r",)), (V1_37, ())])
def test_a_configuration_for_all_requests_names_none_from_1_37_on(
    embedded: NewEmbedded, level: KubeVersion, requests: tuple[str, ...]
) -> None:
    opaque = {"driver": DRIVER, "parameters": {"kind": "x"}}
    asked = [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]
    of_claim = {"requests": ["r"], "opaque": opaque}
    spec = {"devices": {"requests": asked, "config": [of_claim]}}
    made_of = made("ResourceClaim", "c", V1, spec=spec)
    gates = FeatureGates.parse("", level)
    one = embedded(node("n"), slice_of("n", 1), GPUS, made_of, user("p", "c"), gates=gates)

    assert places(one) == {"p": "n"}
    allocation = stored(one, "c").status.allocation
    assert allocation is not None
    assert [each.requests for each in allocation.devices.config] == [requests]


def offer_of_parts(*names: str, units: int = 1) -> KubeObject:
    """Return a slice of partitions, of which each but ``plain`` takes one of so many units."""
    takes = [{"counterSet": "units", "counters": {"units": {"value": "1"}}}]
    parts = [
        {"name": name} | ({} if name == "plain" else {"consumesCounters": takes}) for name in names
    ]
    shared = [{"name": "units", "counters": {"units": {"value": str(units)}}}]
    return slice_of("n", 0, devices=parts, sharedCounters=shared)


# -- changes that are assumed ---------------------------------------------------------------------


def test_what_is_assumed_of_an_object_stands_whatever_comes_in_between() -> None:
    """A version that knows nothing of it does not make the devices free."""
    table, first = ObjectTable(), claim("c")
    assert isinstance(first, ResourceClaim)
    table.put(first)
    mark = ObjectChange(
        ResourceClaim,
        first.key,
        lambda now: replace(now, metadata=replace(now.metadata, finalizers=("x",))),
    )

    table.assume(mark)
    table.put(replace(first, metadata=replace(first.metadata, labels={"new": "1"})))
    shown, there = table.get(ResourceClaim, first.key), table.stored(ResourceClaim, first.key)
    assert shown is not None
    assert there is not None
    assert (shown.metadata.finalizers, shown.metadata.labels) == (("x",), {"new": "1"})
    assert there.metadata.finalizers == ()
    table.withdraw(mark)
    assert table.get(ResourceClaim, first.key) == there


class LossyCluster:
    """Passes everything on; a patch of a claim now and then is refused, or its answer is lost."""

    def __init__(self, cluster: Any, fates: Iterator[int]) -> None:
        self._cluster, self._fates = cluster, fates

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    def patch(self, kind: Any, name: str, namespace: str, patch: Any, subresource: str = "") -> Any:
        """Lose the request, the answer or nothing."""
        fate = next(self._fates, 0) if kind is ResourceClaim else 0
        if fate == 1:
            raise ClusterError("the request was lost")
        done = self._cluster.patch(kind, name, namespace, patch, subresource)
        if fate == 2:
            raise ClusterError("the answer was lost")
        return done


ACTIONS = ("pod", "templated", "delete", "relabel", "restart", "offer", "withdraw", "time")


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 5)), max_size=25),
    st.lists(st.integers(0, 2), max_size=12),
)
def test_no_device_is_ever_given_twice(actions: list[tuple[str, int]], fates: list[int]) -> None:
    """Whatever the order of events, with restarts in between and writes and answers lost."""
    nodes = [node(f"n{i}") for i in range(2)]
    shared = slice_of("net", 2, nodeName=None, allNodes=True)
    slices = [*(slice_of(f"n{i}", 2) for i in range(2)), shared]
    claims = [claim(f"c{i}", 1 + i % 2) for i in range(4)]
    one = new_embedded(*nodes, *slices, GPUS, template("t"), *claims)
    lose(one, iter(fates))
    for number, (action, index) in enumerate(actions):
        act(one, action, index, number)
        one.scheduler.step()
        one.step_controllers()
        check(one)
        if action == "restart":
            one = restarted(one)
    one.run_to_fixed_point()
    check(one)
    one.scheduler.validate()


def lose(one: Embedded, fates: Iterator[int]) -> None:
    """Let writes of claims go through a lossy cluster."""
    one.scheduler.handle.binder._cluster = LossyCluster(one.cluster, fates)


def restarted(one: Embedded, gates: FeatureGates = NO_GATES) -> Embedded:
    """Return a new scheduler on the same cluster."""
    again = new_embedded(gates=gates)
    again.load(
        item
        for kind in ("Node", "DeviceClass", "ResourceSlice", "ResourceClaimTemplate")
        for item in everything(one, kind)
    )
    again.load([*everything(one, "ResourceClaim"), *everything(one, "Pod")])
    return again


def everything(one: Embedded, kind: str) -> list[KubeObject]:
    """Return all objects of a kind."""
    from koordinator.api.registry import KINDS  # noqa: PLC0415 -- for this alone

    (kind_type,) = [k for k in KINDS if kind == k.KIND]
    return list(one.cluster.list(kind_type).items)


def act(one: Embedded, action: str, index: int, number: int) -> None:
    """Let something happen in the cluster."""
    pods = one.cluster.list(Pod).items
    match action:
        case "pod":
            one.cluster.create(user(f"p{number}", f"c{index % 4}", f"c{(index + 1) % 4}"))
        case "templated":
            one.cluster.create(templated(f"t{number}", "t"))
        case "delete" if pods:
            one.cluster.delete(Pod, pods[index % len(pods)].metadata.name, "default")
        case "relabel":
            labels = {"metadata": {"labels": {"n": str(number)}}}
            one.cluster.patch(ResourceClaim, f"c{index % 4}", "default", labels)
        case "offer":
            with_more = slice_of(f"n{index % 2}", 3)
            one.cluster.update(with_more)
        case "withdraw":
            one.cluster.update(slice_of(f"n{index % 2}", 1))
        case "time":
            one.clock.advance_to(one.clock.now_s() + 20)


def check(one: Embedded) -> None:
    """No device is in two claims, there and as it is seen here; no pod runs without its claim."""
    every = one.cluster.list(ResourceClaim).items
    for claims in (every, list(one.state.objects.all(ResourceClaim))):
        held = Counter(device for each in claims for device in devices(each))
        assert [device for device, times in held.items() if times > 1] == []
    reserved = {(each.metadata.name, r.uid) for each in every for r in each.status.reserved_for}
    for each in one.cluster.list(Pod).items:
        if each.spec.node_name:
            for entry in each.spec.resource_claims:
                if entry.resource_claim_name is not None:
                    assert (entry.resource_claim_name, each.metadata.uid) in reserved


@pytest.mark.parametrize("now_s", [START_S])
def test_pods_without_claims_are_none_of_its_business(embedded: NewEmbedded, now_s: float) -> None:
    """Neither gated nor filtered, whatever devices there are."""
    one = embedded(node("n"), slice_of("n", 1), pod("p"))

    assert places(one) == {"p": "n"}
    assert one.clock.now_s() == now_s
