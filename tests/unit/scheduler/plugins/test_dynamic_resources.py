"""Pods with ResourceClaims: they wait for claims, get devices with their node, and release them.

A claim's devices are known from its status alone, so a restart loses nothing.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.examples import examples
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
from koordinator.scheduler.contract import Refusal
from koordinator.scheduler.loop import Bound, Unschedulable
from koordinator.scheduler.plugins.dynamic_resources.plugin import DynamicResources
from koordinator.scheduler.queue import QueueState
from koordinator.scheduler.snapshot import ObjectChange, ObjectTable, PodClass, Snapshot
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


def gpu_claim_spec(count: int = 1, *selectors: str) -> dict[str, Any]:
    """Return the spec of a claim of ``count`` GPUs."""
    chosen = [{"cel": {"expression": text}} for text in selectors]
    exactly = {"deviceClassName": "gpu", "count": count, "selectors": chosen}
    return {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}


def claim(name: str, count: int = 1, *selectors: str, **more: Any) -> KubeObject:
    """Return a claim of a number of GPUs."""
    return made("ResourceClaim", name, V1, spec=gpu_claim_spec(count, *selectors), **more)


def template(name: str, count: int = 1) -> KubeObject:
    """Return a template of claims."""
    return made("ResourceClaimTemplate", name, V1, spec={"spec": gpu_claim_spec(count)})


def user(name: str, *claims: str, **spec: Any) -> Pod:
    """Return a pod that references claims."""
    entries = [{"name": f"e{i}", "resourceClaimName": one} for i, one in enumerate(claims)]
    return pod(name, resourceClaims=entries, **spec)


def templated(name: str, of: str) -> Pod:
    """Return a pod with a claim from a template."""
    return pod(name, resourceClaims=[{"name": "own", "resourceClaimTemplateName": of}])


def stored(one: Embedded, name: str) -> ResourceClaim:
    """Return a claim as stored in the cluster."""
    return one.cluster.get(ResourceClaim, name, "default")


def devices(claim: ResourceClaim) -> list[str]:
    """Return the devices allocated to a claim."""
    allocation = claim.status.allocation
    return [f"{r.pool}/{r.device}" for r in allocation.devices.results] if allocation else []


def places(one: Embedded) -> dict[str, str]:
    """Schedule until nothing changes, and return the node of each pod."""
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


def test_queued_claims_are_not_read_for_pods_in_front(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods with claims are decided one by one, so each reads its claims in its own turn."""
    count = 12
    claims = [claim(f"c{i:02}") for i in range(count)]
    one = new_embedded(node("n", cpu=99), slice_of("n", count), GPUS, *claims, report=False)
    one.load(user(f"p{i:02}", f"c{i:02}", cpu="10m") for i in range(count))
    read: Counter[str] = Counter()
    prefilter = DynamicResources.prefilter

    def counted(self: DynamicResources, snapshot: Snapshot, pod: PodClass) -> Refusal | None:
        read[pod.name] += 1
        return prefilter(self, snapshot, pod)

    monkeypatch.setattr(DynamicResources, "prefilter", counted)

    assert len(places(one)) == count
    assert sum(read.values()) <= 1.5 * count


def test_devices_are_allocated_once(embedded: NewEmbedded) -> None:
    """The third pod waits with a reason, and is scheduled when a claim is released."""
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


def test_claim_of_local_and_shared_devices_is_charged_to_its_node(
    embedded: NewEmbedded,
) -> None:
    """Nodes of one shape differ afterwards, although a shared pool has changed too."""
    network = slice_of("net", 4, nodeName=None, allNodes=True, driver="net.example.com")
    own = made("DeviceClass", "own", V1, spec=_of_driver(DRIVER))
    net = made("DeviceClass", "net", V1, spec=_of_driver("net.example.com"))
    requests = [{"name": n, "exactly": {"deviceClassName": n, "count": 1}} for n in ("own", "net")]
    claims = [
        made("ResourceClaim", name, V1, spec={"devices": {"requests": requests}}) for name in "cd"
    ]
    nodes = (node("a"), node("b"), slice_of("a", 1), slice_of("b", 1))
    one = embedded(*nodes, network, own, net, *claims, user("p", "c"), user("q", "d"))

    assert sorted(places(one).values()) == ["a", "b"]


def _of_driver(driver: str) -> dict[str, Any]:
    return {"selectors": [{"cel": {"expression": f'device.driver == "{driver}"'}}]}


def test_pods_share_a_claim_on_the_nodes_that_reach_its_devices(embedded: NewEmbedded) -> None:
    """The second pod follows the first, although other nodes are equally good."""
    one = embedded(
        node("a"), node("b"), slice_of("b", 1), GPUS, claim("c"), user("p", "c"), user("q", "c")
    )

    assert places(one) == {"p": "b", "q": "b"}
    assert [r.name for r in stored(one, "c").status.reserved_for] == ["p", "q"]


def test_pod_is_gated_until_its_claim_exists(embedded: NewEmbedded) -> None:
    """No attempt is made and nothing is reported; creating the claim admits the pod."""
    one = embedded(node("n"), slice_of("n", 1), GPUS, user("p", "late"))

    assert one.run_to_fixed_point() == []
    queued = one.scheduler.queue.get("default/p")
    assert queued is not None
    assert (queued.state, queued.gated_by) == (QueueState.GATED, "DynamicResources")
    assert 'resourceclaim.resource.k8s.io "late" not found' in queued.message
    one.cluster.create(claim("late"))
    assert places(one) == {"p": "n"}


def test_each_pod_of_a_template_gets_its_own_claim(embedded: NewEmbedded) -> None:
    """The claim is in the pod's status, owned by the pod, and deleted with it."""
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


def test_unused_claim_allocated_elsewhere_is_deallocated(embedded: NewEmbedded) -> None:
    """The pod is retried immediately; a claim reserved for others stays allocated."""
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
    """Create a pod for one node that uses the claim c, and schedule."""
    one.cluster.create(user(name, "c", nodeSelector={"kubernetes.io/hostname": where}))
    return places(one)


def test_claim_with_256_consumers_is_refused(embedded: NewEmbedded) -> None:
    """The API server would reject one consumer more."""
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
    """The explanation also names the claim that holds a suitable device."""
    wants = f'device.attributes["{DRIVER}"].index == 0'
    one = embedded(
        node("n"), slice_of("n", 2), GPUS, claim("c", 1, wants), claim("d", 1, wants),
        user("p", "c"), user("q", "d"),
    )  # fmt: skip
    places(one)
    detail = explained(one, "q")
    assert detail == (
        "claim default/d, request r: 1 wanted, 0 free, n/gpu-0: allocated to claim default/c, "
        f"n/gpu-1: not selected by claim default/d: selector #0 ({wants})"
    )


def explained(one: Embedded, name: str) -> str:
    """Return the details about the first node for a pending pod."""
    profile = one.scheduler.cycles["default-scheduler"].profile
    (plugin,) = [a.plugin for a in profile.filter if a.name == "DynamicResources"]
    waiting = one.cluster.get(Pod, name, "default")
    detail = plugin.detail(Snapshot(one.state)[np.array([0])], one.state.classes.of(waiting))
    assert isinstance(detail, str)
    return detail


def test_selector_error_on_one_node_refuses_the_pod_everywhere(embedded: NewEmbedded) -> None:
    """The pod waits until the selector, the device or the node selection changes. Source.

    Kubernetes test/e2e/dra/dra.go, keeps pod pending because of CEL runtime errors.
    """
    wants = f'device.attributes["{DRIVER}"].index == 0'
    bare = slice_of("a", 0, devices=[{"name": "bare"}])
    one = embedded(
        node("a"), node("b"), bare, slice_of("b", 2), GPUS, claim("c", 1, wants), user("p", "c"),
        claim("d", 1, wants), user("q", "d", nodeSelector={"kubernetes.io/hostname": "b"}),
    )  # fmt: skip

    (outcome,) = [it for it in one.run_to_fixed_point() if isinstance(it, Unschedulable)]
    assert outcome.pod == "default/p"
    assert (
        "node a: claim default/c: selector #0 on device gpu.example.com/a/bare: CEL runtime error: "
        "no such key: index. consider using CEL optional chaining" in outcome.message
    )
    assert one.cluster.get(Pod, "q", "default").spec.node_name == "b"

    one.cluster.update(slice_of("a", 1))
    assert places(one) == {"p": "a"}


def test_taints_apply_only_with_their_gate(embedded: NewEmbedded) -> None:
    """The gate for taints of devices is on from Kubernetes 1.36 on."""
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
    """Return a DeviceTaintRule; an empty selector matches all devices."""
    spec = {"taint": {"key": key, "effect": effect}, "deviceSelector": selector}
    return made("DeviceTaintRule", name, "resource.k8s.io/v1", spec=spec)


@pytest.mark.parametrize(("version", "taints"), [("v1", 0), ("v1beta2", 1), ("v1alpha3", 1)])
def test_rule_without_selector_matches_no_device_from_v1_on(
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
    """A rule selects by driver, pool and device; without its gate it has no effect."""
    objects = (node("n"), slice_of("n", 2), GPUS, claim("c"), user("p", "c"), rule("r", **selector))
    one = embedded(*objects, gates=RULES)
    one.run_to_fixed_point()
    assert devices(stored(one, "c")) == left

    without = embedded(*objects, gates=FeatureGates.parse("DRADeviceTaintRules=false"))
    without.run_to_fixed_point()
    assert devices(stored(without, "c")) == ["n/gpu-0"]


def test_pod_is_requeued_when_a_rule_stops_tainting(embedded: NewEmbedded) -> None:
    """The rule was changed or deleted; devices out of reach need no toleration."""
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


@settings(max_examples=examples(25))
@given(
    rules=st.lists(st.tuples(_selectors, st.sampled_from(["None", "NoSchedule", "NoExecute"]))),
    late=st.booleans(),
)
def test_rules_equal_taints_in_slices(rules: list[tuple[dict[str, str], str]], late: bool) -> None:
    """The order of rules and slices does not matter."""
    objects = [node("n"), node("m"), GPUS, *(claim(f"c{i}") for i in range(4))]
    given_rules = [rule(f"r{i}", effect, **which) for i, (which, effect) in enumerate(rules)]
    slices = [slice_of("n", 2), slice_of("m", 2)]
    by_rules = new_embedded(*objects, gates=RULES)
    for batch in (slices, given_rules) if late else (given_rules, slices):
        by_rules.load(batch)

    def taints_of(pool: str, name: str) -> list[dict[str, str]]:
        attributes = {"driver": DRIVER, "pool": pool, "device": name}.items()
        return [
            {"key": "k", "effect": effect} for which, effect in rules if which.items() <= attributes
        ]

    tainted = [
        slice_of(
            pool,
            2,
            devices=[{"name": n, "taints": taints_of(pool, n)} for n in ("gpu-0", "gpu-1")],
        )
        for pool in ("n", "m")
    ]
    by_slices = new_embedded(*objects, *tainted, gates=RULES)
    allocations = []
    for one in (by_rules, by_slices):
        one.load(user(f"p{i}", f"c{i}") for i in range(4))
        one.run_to_fixed_point()
        allocations.append([devices(stored(one, f"c{i}")) for i in range(4)])
    assert allocations[0] == allocations[1]


def test_a_bind_waits_for_the_conditions_of_its_devices(embedded: NewEmbedded) -> None:
    """With its gate on, the driver reports when a device is ready."""
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
def test_device_that_never_gets_ready_is_deallocated(embedded: NewEmbedded, ends_by: str) -> None:
    """The claim is allocated again, and the pod goes where another device is."""
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
    """A claim that has the partition keeps its counters; afterwards they are available."""
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
def test_counters_of_a_withdrawn_partition_are_unknown(
    embedded: NewEmbedded, restarts: bool
) -> None:
    """No counter of its pool is allocated until it is released or offered, also after a restart."""
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
    assert "n/b: counters of its pool may be taken by withdrawn devices n/a" in explained(one, "q")
    one.cluster.update(offer_of_parts(*every, units=2))
    assert places(one) == {"q": "n"}
    assert devices(stored(one, "d")) == ["n/b", "n/plain"]


def test_partitions_are_not_allocated_without_the_gate(embedded: NewEmbedded) -> None:
    """Devices that are no partitions are allocated."""
    offer = offer_of_parts("a", "b", "plain")
    gates = FeatureGates.parse("DRAPartitionableDevices=false")
    one = embedded(node("n"), offer, GPUS, claim("c"), claim("d"), user("p", "c"), gates=gates)

    assert places(one) == {"p": "n"}
    assert devices(stored(one, "c")) == ["n/plain"]
    one.cluster.create(user("q", "d"))
    assert places(one) == {}
    assert "n/a n/b: consumes counters, which need the gate" in explained(one, "q")


def test_explanations_name_slices_that_skip_operations(embedded: NewEmbedded) -> None:
    """Devices of such a slice consume no counters, and no gate would help."""
    skipping = slice_of(
        "n",
        0,
        nodeName="n",
        devices=[{"name": "a"}],
        skipNodeOperations=["NodePrepareResources"],
    )
    one = embedded(node("n"), skipping, GPUS, claim("c"), user("p", "c"))

    assert places(one) == {}
    assert explained(one, "p") == (
        "claim default/c, request r: 1 wanted, 0 free, n/a: its slice skips operations of nodes "
        "(skipNodeOperations), which is not supported"
    )


def test_explanations_name_the_missing_amount(embedded: NewEmbedded) -> None:
    """The amount is used capacity, counters of other devices, or behind a gate that is off."""
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
        "n-net/slow: has binding conditions, which need the gate DRADeviceBindingConditions"
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
    entries = [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]
    of_claim = {"requests": ["r"], "opaque": opaque}
    spec = {"devices": {"requests": entries, "config": [of_claim]}}
    made_of = made("ResourceClaim", "c", V1, spec=spec)
    gates = FeatureGates.parse("", level)
    one = embedded(node("n"), slice_of("n", 1), GPUS, made_of, user("p", "c"), gates=gates)

    assert places(one) == {"p": "n"}
    allocation = stored(one, "c").status.allocation
    assert allocation is not None
    assert [each.requests for each in allocation.devices.config] == [requests]


def offer_of_parts(*names: str, units: int = 1) -> KubeObject:
    """Return a slice of partitions that each take one of ``units``, except ``plain`` ones."""
    takes = [{"counterSet": "units", "counters": {"units": {"value": "1"}}}]
    parts = [
        {"name": name} | ({} if name == "plain" else {"consumesCounters": takes}) for name in names
    ]
    shared = [{"name": "units", "counters": {"units": {"value": str(units)}}}]
    return slice_of("n", 0, devices=parts, sharedCounters=shared)


# -- changes that are assumed ---------------------------------------------------------------------


def test_assumed_object_survives_unrelated_updates() -> None:
    """An older version of the object does not release the devices."""
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
    """Cluster that sometimes refuses a patch of a claim or loses its response."""

    def __init__(self, cluster: Any, fates: Iterator[int]) -> None:
        self._cluster, self._fates = cluster, fates

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    def patch(self, kind: Any, name: str, namespace: str, patch: Any, subresource: str = "") -> Any:
        """Lose the request, the response or neither."""
        fate = next(self._fates, 0) if kind is ResourceClaim else 0
        if fate == 1:
            raise ClusterError("the request was lost")
        done = self._cluster.patch(kind, name, namespace, patch, subresource)
        if fate == 2:
            raise ClusterError("the answer was lost")
        return done


ACTIONS = ("pod", "templated", "delete", "relabel", "restart", "offer", "withdraw", "time")


@settings(deadline=None, max_examples=examples(25))
@given(
    st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 5)), max_size=25),
    st.lists(st.integers(0, 2), max_size=12),
)
def test_no_device_is_allocated_twice(actions: list[tuple[str, int]], fates: list[int]) -> None:
    """Events come in any order, with restarts and lost writes or responses."""
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
    """Send writes of claims through a lossy cluster."""
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
    """Change something in the cluster."""
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
    """Check that no device is in two claims, and that every running pod has its claim."""
    every = one.cluster.list(ResourceClaim).items
    for claims in (every, list(one.state.objects.all(ResourceClaim))):
        allocations = Counter(device for each in claims for device in devices(each))
        assert [device for device, times in allocations.items() if times > 1] == []
    reserved = {(each.metadata.name, r.uid) for each in every for r in each.status.reserved_for}
    for each in one.cluster.list(Pod).items:
        if each.spec.node_name:
            for entry in each.spec.resource_claims:
                if entry.resource_claim_name is not None:
                    assert (entry.resource_claim_name, each.metadata.uid) in reserved


@pytest.mark.parametrize("now_s", [START_S])
def test_pods_without_claims_are_skipped(embedded: NewEmbedded, now_s: float) -> None:
    """Pods without claims are neither gated nor filtered."""
    one = embedded(node("n"), slice_of("n", 1), pod("p"))

    assert places(one) == {"p": "n"}
    assert one.clock.now_s() == now_s
