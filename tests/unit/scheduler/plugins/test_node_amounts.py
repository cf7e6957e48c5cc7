"""Devices that take resources of their nodes (gate DRANodeAllocatableResources).

Source of the rules: kubernetes 1.37.2 pkg/scheduler/framework/plugins/dynamicresources/
nodeallocatabledynamicresources.go; k8s.io/component-helpers 0.37.2 resource/helpers.go.
"""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.examples import examples
from tests.unit.scheduler.plugins.test_dynamic_resources import (
    GPUS,
    V1,
    claim,
    devices,
    places,
    slice_of,
    stored,
)
from tests.unit.scheduler.plugins.test_extended_resources import gpu_class, requesting
from tests.unit.scheduler.test_extended_resource_claims import LossyCluster, gang, settle
from tests.worlds import START_S, configuration, embedded, made, node, pod

from koordinator.api.codec import decode, to_manifest
from koordinator.api.dynamic_resources import ResourceClaim
from koordinator.api.kube_version import V1_36
from koordinator.api.kubescheduler import NO_GATES, FeatureGates
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.foundation.clock import VirtualClock
from koordinator.foundation.quantity import Quantity
from koordinator.scheduler.assembly import build_scheduler
from koordinator.scheduler.features.explanations.explainer import explain
from koordinator.scheduler.loop import Scheduler, SchedulerOptions, Unschedulable
from koordinator.scheduler.profile import WATCHED, build_profiles
from koordinator.scheduler.snapshot import ClusterState
from koordinator.scheduler.snapshot.axis import CPU, MEMORY
from koordinator.simulator import Embedded
from koordinator.simulator.explanations import explain_pods

ON = FeatureGates.parse("DRANodeAllocatableResources=true")
GIB = 1 << 30
ONE_CPU = {"cpu": {"mapping": {"deviceMultiplier": "1"}}}
FOUR_CPUS = {"cpu": {"mapping": {"deviceMultiplier": "4"}}}
HOST_MEMORY = {"memory": {"overhead": {"perPod": "1Gi", "perContainer": "256Mi"}}}
SHARED_CORES = {"cpu": {"mapping": {"capacityKey": "cores", "capacityMultiplier": "2"}}}


def taking(name: str, count: int, amounts: dict[str, Any], **device: Any) -> KubeObject:
    """Return devices of a node; each takes these amounts of it."""
    own = [
        {"name": f"gpu-{i}", "nodeAllocatableResources": amounts, **device} for i in range(count)
    ]
    return slice_of(name, count, devices=own)


def user(name: str, *claims: str, cpu: str = "1", containers: int = 1, **spec: Any) -> Pod:
    """Return a pod whose containers each reference the claims."""
    entries = [{"name": f"e{i}", "resourceClaimName": one} for i, one in enumerate(claims)]
    resources = {"requests": {"cpu": cpu}, "claims": [{"name": one["name"]} for one in entries]}
    running = [{"name": f"c{i}", "resources": resources} for i in range(containers)]
    return pod(name, resourceClaims=entries, containers=running, **spec)


def world(*objects: KubeObject, gates: FeatureGates = ON, **options: Any) -> Embedded:
    """Return a world with the gate on."""
    return embedded(*objects, gates=gates, **options)


def requested(one: Embedded, name: str = "n") -> tuple[int, int]:
    """Return the requested milli-CPUs and bytes of a node; the sums over its pods are checked."""
    one.scheduler.validate()
    row = one.state.nodes.rows[name]
    return int(one.state.nodes.requested[CPU, row]), int(one.state.nodes.requested[MEMORY, row])


def status_of(one: Embedded, name: str) -> Any:
    """Return what the status of a pod states for its claims, as JSON."""
    manifest: Any = to_manifest(one.cluster.get(Pod, name, "default"))
    return manifest.get("status", {}).get("nodeAllocatableResourceClaimStatuses", [])


def why(one: Embedded, name: str) -> str:
    """Schedule, and return why a pod is pending."""
    outcomes = one.run_to_fixed_point()
    rejected = [o for o in outcomes if isinstance(o, Unschedulable) and o.pod == f"default/{name}"]
    return rejected[-1].message


def test_amounts_of_claims_are_explained_as_no_resize() -> None:
    """A pod holds more than it requests by its claims, as long as it runs."""
    one = world(node("n", cpu=6), GPUS, taking("n", 1, FOUR_CPUS), claim("c"), user("u", "c"))
    one.run_to_fixed_point()
    manifest: Any = to_manifest(one.cluster.get(Pod, "u", "default"))
    amounts = {"cpu": "1"}
    in_force = {"name": "c0", "allocatedResources": amounts, "resources": {"requests": amounts}}
    manifest["status"]["containerStatuses"] = [in_force]
    one.cluster.overwrite(decode(manifest, Pod))
    one.load([pod("new", 2)])
    one.run_to_fixed_point()

    explanation = explain(one.scheduler.handle, "default/new")

    assert [cause.detail for cause in explanation.causes] == ["cpu: requests 2, 1 of 6 free"]


def test_mapped_devices_count_on_the_node_and_in_the_status() -> None:
    """Two devices of four CPUs leave three of twelve to other pods."""
    one = world(
        node("n", cpu=12),
        taking("n", 3, FOUR_CPUS),
        GPUS,
        claim("c", 2),
        user("p", "c"),
        pod("q", 1),
    )

    assert places(one) == {"p": "n", "q": "n"}
    assert status_of(one, "p") == [
        {
            "resourceClaimName": "c",
            "containers": ["c0"],
            "mapping": [{"name": "cpu", "quantity": "8"}],
        }
    ]
    assert requested(one)[0] == 8_000 + 1_000 + 1_000
    one.load([user("late", cpu="3")])
    assert why(one, "late").startswith("0/1 nodes are available: 1 Insufficient cpu. ")
    one.cluster.delete(Pod, "p", "default")
    one.step_controllers()
    assert places(one) == {"late": "n"}
    assert requested(one)[0] == 4_000


def test_without_the_gate_devices_take_nothing() -> None:
    """The gate is off by default, and at 1.36, whose API differs."""
    at_1_36 = FeatureGates.parse("DRANodeAllocatableResources=true", V1_36)
    assert dict(at_1_36.without_effect).keys() == {"DRANodeAllocatableResources"}
    for gates in (NO_GATES, at_1_36):
        objects = (node("n", cpu=2), taking("n", 1, FOUR_CPUS), GPUS, claim("c"), user("p", "c"))
        one = world(*objects, gates=gates)
        assert places(one) == {"p": "n"}
        assert status_of(one, "p") == []
        assert requested(one)[0] == 1_000


def test_overhead_counts_per_pod_and_per_container() -> None:
    """Two pods share a claim: each takes its own overhead, three containers more than one."""
    one = world(
        node("n"),
        taking("n", 1, HOST_MEMORY),
        GPUS,
        claim("c"),
        user("p", "c"),
        user("q", "c", containers=3),
    )

    assert places(one) == {"p": "n", "q": "n"}
    assert requested(one)[1] == (GIB + GIB // 4) + (GIB + 3 * GIB // 4)
    assert status_of(one, "q") == [
        {
            "resourceClaimName": "c",
            "containers": ["c0", "c1", "c2"],
            "overhead": [{"name": "memory", "perPod": "1Gi", "perContainer": "256Mi"}],
        }
    ]


def test_mapped_capacity_is_multiplied() -> None:
    """A claim of three cores of a shared device takes six CPUs."""
    cores = {"cores": {"value": "8", "requestPolicy": {"default": "1"}}}
    offered = taking("n", 1, SHARED_CORES, capacity=cores, allowMultipleAllocations=True)
    exactly = {"deviceClassName": "gpu", "count": 1, "capacity": {"requests": {"cores": "3"}}}
    spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    wanted = [made("ResourceClaim", name, V1, spec=spec) for name in "cd"]
    one = world(node("n", cpu=14), offered, GPUS, *wanted, user("p", "c"), user("q", "d"))

    assert places(one) == {"p": "n", "q": "n"}
    assert requested(one)[0] == 2 * (6_000 + 1_000)


def test_capacity_of_a_device_that_is_not_shared_is_an_error() -> None:
    """The allocation states no consumed capacity, so the amount is unknown."""
    offered = taking("n", 1, SHARED_CORES, capacity={"cores": {"value": "8"}})
    one = world(node("n"), offered, GPUS, claim("c"), user("p", "c"))

    assert (
        "claim default/c, device gpu-0: ConsumedCapacity is nil, but Capacity key 'cores' is set "
        "in NodeAllocatableResources for resource cpu"
    ) in why(one, "p")


def test_the_node_with_room_for_the_claim_is_chosen() -> None:
    """The other node has devices and room for the requests, but not for both."""
    nodes = (node("a", cpu=4), node("b", cpu=6))
    offers = (taking("a", 1, FOUR_CPUS), taking("b", 1, FOUR_CPUS))
    one = world(*nodes, *offers, GPUS, claim("c"), claim("d"), user("p", "c"), user("q", "d"))

    assert why(one, "q").startswith(
        "0/2 nodes are available: 1 Insufficient cpu, 1 cannot allocate all claims. preemption: "
    )
    assert one.cluster.get(Pod, "p", "default").spec.node_name == "b"
    assert devices(stored(one, "d")) == []
    assert status_of(one, "q") == []


def test_victims_are_preempted_for_room() -> None:
    """A full node can be freed, a node that is too small cannot."""
    objects = (node("n", cpu=5), taking("n", 2, FOUR_CPUS), GPUS, claim("c"), claim("d", 2))
    one = world(*objects, pod("low", cpu="4"))
    assert places(one) == {"low": "n"}

    one.load([user("large", "d", priority=100)])
    assert why(one, "large").endswith(
        "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    )
    one.cluster.delete(Pod, "large", "default")
    one.load([user("high", "c", priority=100)])
    assert places(one) == {"high": "n"}
    assert [p.metadata.name for p in one.cluster.list(Pod).items] == ["high"]


def test_a_mapped_claim_belongs_to_one_pod() -> None:
    """The second pod would take the same CPUs again."""
    one = world(node("n"), taking("n", 2, ONE_CPU), GPUS, claim("c"), user("p", "c"))
    assert places(one) == {"p": "n"}

    one.load([user("q", "c")])
    assert (
        "1 node allocatable resource claim c has a mapped device and cannot be shared across pods"
    ) in why(one, "q")


@pytest.mark.parametrize(
    ("own", "container", "amounts", "problem"),
    [
        ({"requests": {"cpu": "4"}}, {}, FOUR_CPUS, "request for cpu is insufficient to cover the"),
        ({"requests": {"cpu": "5"}}, {}, FOUR_CPUS, ""),
        (
            {"requests": {"cpu": "5"}, "limits": {"cpu": "5"}},
            {"limits": {"cpu": "2"}},
            FOUR_CPUS,
            "limit for cpu is insufficient to cover the limit and DRA overhead for container c0",
        ),
        (
            {"requests": {"memory": "2Gi"}, "limits": {"memory": "2Gi"}},
            {"requests": {"memory": "128Mi"}, "limits": {"memory": "1Gi"}},
            HOST_MEMORY,
            "limit for memory is insufficient to cover the limit and DRA overhead for container c0",
        ),
        (
            {"requests": {"memory": "3Gi"}, "limits": {"memory": "3Gi"}},
            {"requests": {"memory": "128Mi"}, "limits": {"memory": "1Gi"}},
            HOST_MEMORY,
            "",
        ),
    ],
)
def test_pod_level_resources_cover_the_claims(
    own: dict[str, Any], container: dict[str, Any], amounts: dict[str, Any], problem: str
) -> None:
    """Pod-level resources are all that the pod gets; only its requests count on the node."""
    requests = {"cpu": "1", **container.get("requests", {})}
    resources = {"claims": [{"name": "e0"}], **container, "requests": requests}
    wanted = pod(
        "p",
        resourceClaims=[{"name": "e0", "resourceClaimName": "c"}],
        resources=own,
        containers=[{"name": "c0", "resources": resources}],
    )
    one = world(node("n"), taking("n", 1, amounts), GPUS, claim("c"), wanted)

    if problem:
        assert f"pod level {problem}" in why(one, "p")
        return
    assert places(one) == {"p": "n"}
    assert requested(one)[0] in {1_000, 5_000}


def test_huge_pages_of_a_node_without_any() -> None:
    """No node has them, so that none can be freed."""
    pages = {"hugepages-2Mi": {"mapping": {"deviceMultiplier": "2Mi"}}}
    one = world(node("n"), taking("n", 1, pages), GPUS, claim("c"), user("p", "c"))

    assert "1 Insufficient hugepages-2Mi. preemption: " in why(one, "p")


def test_claims_of_extended_resources_take_nothing_of_the_node() -> None:
    """The API server accepts amounts only of claims that the pod references: no node is taken."""
    gates = FeatureGates.parse("DRAExtendedResource=true,DRANodeAllocatableResources=true")
    one = world(node("n"), taking("n", 1, ONE_CPU), gpu_class(), requesting("p"), gates=gates)

    assert "devices for extended resources take resources of the node" in why(one, "p")


def test_explanation_names_the_amounts_of_claims() -> None:
    """The explanation has the request, the claims' part of it, and the free amount."""
    objects = [node("n", cpu=4), taking("n", 1, FOUR_CPUS), GPUS, claim("c"), user("p", "c")]
    (explanation,) = explain_pods(objects, ["default/p"], gates=ON)

    text = str(explanation)
    assert "cpu: requests 5, 4 of it by claims, 4 of 4 free" in text


def test_a_gang_takes_no_more_than_its_nodes_have() -> None:
    """Three members with three CPUs each by their claims fit; four do not."""
    crowd = configuration(
        plugins={
            "multiPoint": {"enabled": [{"name": "Coscheduling"}]},
            "queueSort": {"disabled": [{"name": "*"}], "enabled": [{"name": "Coscheduling"}]},
        }
    )
    three = {"cpu": {"mapping": {"deviceMultiplier": "3"}}}
    nodes = (node("a", cpu=8), node("b", cpu=4), taking("a", 4, three), taking("b", 4, three))
    for count, fitting in ((4, 0), (3, 3)):
        group, *_ = gang("g", count)
        labels = {"pod-group.scheduling.sigs.k8s.io": "g"}
        members = [user(f"g{i}", f"c{i}", labels=labels) for i in range(count)]
        claims = [claim(f"c{i}") for i in range(count)]
        one = world(*nodes, GPUS, *claims, group, *members, config=crowd)
        assert len(places(one)) == fitting
        assert (requested(one, "a")[0], requested(one, "b")[0]) in {(0, 0), (8_000, 4_000)}


# -- restarts and lost answers --------------------------------------------------------------------


def started(cluster: LossyCluster, clock: VirtualClock) -> Scheduler:
    """Return a new scheduler."""
    state = ClusterState()
    profiles = build_profiles(configuration(), state.axis, gates=ON).profiles
    options = SchedulerOptions().with_gates(ON)
    return build_scheduler(cluster, clock, profiles, state, WATCHED, options=options)


def amounts_on(scheduler: Scheduler, name: str = "n") -> int:
    """Return the requested milli-CPUs of a node."""
    scheduler.validate()
    state = scheduler.state
    return int(state.nodes.requested[CPU, state.nodes.rows[name]])


def test_a_restarted_scheduler_counts_the_claims() -> None:
    """The pod's status is enough."""
    clock = VirtualClock(START_S)
    cluster = LossyCluster(clock)
    cluster.load([node("n"), taking("n", 1, FOUR_CPUS), GPUS, claim("c"), user("p", "c")])
    first = started(cluster, clock)
    settle(clock, first)
    second = started(cluster, clock)
    settle(clock, second)

    assert amounts_on(first) == amounts_on(second) == 5_000


@pytest.mark.parametrize("what", ["request", "answer"])
@pytest.mark.parametrize("verb", ["pods/status", "resourceclaims/status"])
def test_lost_response_leaves_no_stale_amounts(verb: str, what: str) -> None:
    """The pod is bound in the end, with its amounts stated once."""
    clock = VirtualClock(START_S)
    cluster = LossyCluster(clock)
    cluster.load([node("n"), taking("n", 1, FOUR_CPUS), GPUS, claim("c"), user("p", "c")])
    scheduler = started(cluster, clock)
    cluster.loses = f"{verb} {what}"
    settle(clock, scheduler)

    bound = cluster.get(Pod, "p", "default")
    assert bound.spec.node_name == "n"
    assert len(bound.status.node_allocatable_resource_claim_statuses) == 1
    assert amounts_on(scheduler) == 5_000


class RefusingCluster(LossyCluster):
    """Cluster that refuses to bind."""

    refuses = True

    def bind(self, bindings: Any) -> Any:
        if self.refuses:
            bindings = [replace(each, uid="another") for each in bindings]
        return super().bind(bindings)


def test_a_refused_bind_takes_the_amounts_back() -> None:
    """The next attempt states them again."""
    clock = VirtualClock(START_S)
    cluster = RefusingCluster(clock)
    cluster.load([node("n"), taking("n", 1, FOUR_CPUS), GPUS, claim("c"), user("p", "c")])
    scheduler = started(cluster, clock)
    scheduler.step()
    pending = cluster.get(Pod, "p", "default")
    assert not pending.spec.node_name
    assert pending.status.node_allocatable_resource_claim_statuses == ()
    assert amounts_on(scheduler) == 0

    cluster.refuses = False
    settle(clock, scheduler)
    bound = cluster.get(Pod, "p", "default")
    assert bound.spec.node_name == "n"
    assert len(bound.status.node_allocatable_resource_claim_statuses) == 1
    assert amounts_on(scheduler) == 5_000


# -- random clusters ------------------------------------------------------------------------------

MULTIPLES = st.sampled_from(["500m", "1", "2", "3"])
AMOUNTS = st.one_of(
    st.builds(lambda one: {"cpu": {"mapping": {"deviceMultiplier": one}}}, MULTIPLES),
    st.builds(
        lambda one, more: {"cpu": {"overhead": {"perPod": one, "perContainer": more}}},
        MULTIPLES,
        MULTIPLES,
    ),
    st.builds(
        lambda one, more: {
            "cpu": {"mapping": {"deviceMultiplier": one}, "overhead": {"perPod": more}}
        },
        MULTIPLES,
        MULTIPLES,
    ),
)


def milli(amounts: dict[str, Any], containers: int) -> int:
    """Return the milli-CPUs that one device of these amounts takes."""
    cpu = amounts["cpu"]
    over = cpu.get("overhead", {})
    return sum(
        Quantity.parse(text).milli() * times
        for text, times in (
            (cpu.get("mapping", {}).get("deviceMultiplier", "0"), 1),
            (over.get("perPod", "0"), 1),
            (over.get("perContainer", "0"), containers),
        )
    )


@given(data=st.data())
@settings(max_examples=examples(10))
def test_amounts_are_those_of_the_devices_and_never_too_many(data: st.DataObject) -> None:
    """Sums over pods and the devices of their claims, after pods came and went, and a restart."""
    names = "abc"[: data.draw(st.integers(1, 3))]
    sizes = {name: data.draw(st.integers(3, 10)) for name in names}
    kinds = {name: data.draw(AMOUNTS) for name in names}
    objects: list[KubeObject] = [GPUS]
    for name in names:
        objects += [node(name, cpu=sizes[name]), taking(name, 3, kinds[name])]
    one = world(*objects)
    containers: dict[str, int] = {}
    for number in range(data.draw(st.integers(3, 9))):
        if containers and data.draw(st.integers(0, 3)) == 0:
            ended = data.draw(st.sampled_from(sorted(containers)))
            del containers[ended]
            one.cluster.delete(Pod, ended, "default")
            one.step_controllers()
        count = data.draw(st.integers(1, 2))
        own = data.draw(st.integers(0, 2))
        shared = [data.draw(st.sampled_from(["s0", "s1"]))] if data.draw(st.booleans()) else []
        claims = [f"c{number}", *shared] if own else shared
        made_now = [claim(name) for name in claims if name not in _known(one)]
        priority = data.draw(st.integers(0, 2))
        one.load(
            [
                *made_now,
                user(f"p{number}", *claims, cpu="500m", containers=count, priority=priority),
            ]
        )
        containers[f"p{number}"] = count
        one.run_to_fixed_point()
        _check(one, sizes, kinds)
    again = ClusterState()
    profiles = build_profiles(configuration(), again.axis, gates=ON).profiles
    options = SchedulerOptions().with_gates(ON)
    other = build_scheduler(one.cluster, one.clock, profiles, again, WATCHED, options=options)
    other.sync()
    for name in sizes:
        assert again.nodes.requested[CPU, again.nodes.rows[name]] == requested(one, name)[0]


def _known(one: Embedded) -> set[str]:
    return {each.metadata.name for each in one.cluster.list(ResourceClaim).items}


def _check(one: Embedded, sizes: dict[str, int], kinds: dict[str, dict[str, Any]]) -> None:
    """Compare with sums that are derived from the stored pods and claims alone."""
    claims = {c.metadata.name: c for c in one.cluster.list(ResourceClaim).items}
    totals = Counter[str]()
    mapped_users = Counter[str]()
    for each in one.cluster.list(Pod).items:
        where, count = each.spec.node_name, len(each.spec.containers)
        if not where:
            assert each.status.node_allocatable_resource_claim_statuses == ()
            continue
        totals[where] += 500 * count
        for entry in each.spec.resource_claims:
            name = entry.resource_claim_name or ""
            assert devices(claims[name])[0].startswith(f"{where}/")
            totals[where] += milli(kinds[where], count)
            mapped_users[name] += "mapping" in kinds[where]["cpu"]
    assert all(totals[name] <= 1_000 * size for name, size in sizes.items())
    assert all(count <= 1 for count in mapped_users.values())
    for name in sizes:
        assert requested(one, name)[0] == totals[name]
