"""Claims for extended resources with gangs, quotas, priorities, restarts and lost responses.

No device is allocated twice, and no claim is left over.
"""

from typing import Any

import pytest
from msgspec.structs import replace
from tests.equipped_nodes import machine
from tests.reservations import reservation
from tests.unit.domain.quota.quotas import PREFIX, quota
from tests.unit.scheduler.plugins.test_dynamic_resources import devices, places, slice_of
from tests.unit.scheduler.plugins.test_extended_resources import (
    GPU,
    ON,
    claims,
    given,
    gpu_class,
    requesting,
    world,
)
from tests.worlds import START_S, configuration, made, node

from koordinator.api.annotations.devices import ALLOCATED
from koordinator.api.dynamic_resources import DeviceClass, ResourceClaim
from koordinator.api.meta import KubeObject
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.reservation import Reservation
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.domain.dynamic_resources.extended_resources import ExtendedRequests
from koordinator.foundation.clock import VirtualClock
from koordinator.foundation.errors import ClusterError
from koordinator.scheduler.assembly import build_scheduler
from koordinator.scheduler.contract import Refusal
from koordinator.scheduler.loop import Scheduler
from koordinator.scheduler.plugins.dynamic_resources.changes import make_claim
from koordinator.scheduler.profile import WATCHED, build_profiles
from koordinator.scheduler.snapshot import ClusterState, ObjectTable

CROWD = configuration(
    plugins={
        "multiPoint": {
            "enabled": [
                {"name": name}
                for name in ("DeviceShare", "Reservation", "Coscheduling", "ElasticQuota")
            ]
        },
        "queueSort": {"disabled": [{"name": "*"}], "enabled": [{"name": "Coscheduling"}]},
    }
)
GROUP = "pod-group.scheduling.sigs.k8s.io"


def gang(name: str, count: int) -> list[KubeObject]:
    """Return a gang of pods that request a GPU each."""
    about = {"namespace": "default"}
    spec = {"minMember": count}
    group = made("PodGroup", name, "scheduling.sigs.k8s.io/v1alpha1", metadata=about, spec=spec)
    return [group, *(requesting(f"{name}{n}", labels={GROUP: name}) for n in range(count))]


def test_a_gang_gets_all_its_devices_or_none() -> None:
    """A gang that is too large blocks no devices."""
    nodes = (node("n"), node("m"), slice_of("n", 2), slice_of("m", 1), gpu_class())
    one = world(*nodes, *gang("g", 4), config=CROWD)
    assert places(one) == {}
    assert claims(one) == []

    one.load(gang("h", 3))
    assert sorted(places(one)) == ["h0", "h1", "h2"]
    assert sorted(device for got in given(one).values() for device in got) == [
        "m/gpu-0",
        "n/gpu-0",
        "n/gpu-1",
    ]
    one.scheduler.validate()


def test_equal_pods_get_distinct_devices() -> None:
    """Pods are placed until all devices are allocated."""
    nodes = [each for n in "abcd" for each in (node(n), slice_of(n, 3))]
    pods = [requesting(f"p{number}") for number in range(20)]
    one = world(*nodes, gpu_class(), *pods)

    assert len(places(one)) == 12
    got = [device for each in given(one).values() for device in each]
    assert len(got) == len(set(got)) == 12
    one.scheduler.validate()


def test_a_quota_counts_the_resource() -> None:
    """The quota counts devices of plugins and of claims."""
    most = {"cpu": 64, "memory": "640Gi", GPU: 2}
    labels = {f"{PREFIX}name": "q"}
    pods, nine = [requesting(f"p{n}", labels=labels) for n in range(4)], dict[str, Any]({GPU: 9})
    nodes = (node("n"), slice_of("n", 9), node("m", **nine))
    one = world(*nodes, gpu_class(), quota("q", most=most), *pods, config=CROWD)

    assert len(places(one)) == 2


def test_victims_free_only_plugin_resources() -> None:
    """As in kube-scheduler, devices are released with the claim, not with the pod."""
    plugged: dict[str, Any] = {GPU: 1}
    nodes = (node("n", **plugged), node("m"), slice_of("m", 1), gpu_class())
    one = world(*nodes, requesting("low0"), requesting("low1"))
    assert sorted(places(one).values()) == ["m", "n"]
    one.load([requesting("high", priority=100)])

    assert places(one) == {"high": "n"}


def test_a_reservation_gets_no_claim() -> None:
    """The reservation is placed where a device plugin has the resource."""
    reserved = reservation("r", 1, requests={GPU: 1})
    one = world(node("n"), slice_of("n", 4), gpu_class(), reserved, config=CROWD)
    one.run_to_fixed_point()
    assert one.cluster.get(Reservation, "r").status.node_name == ""

    plugged: dict[str, Any] = {GPU: 1}
    one.load([node("m", **plugged)])
    one.run_to_fixed_point()
    assert one.cluster.get(Reservation, "r").status.node_name == "m"
    assert claims(one) == []


def test_device_share_leaves_a_resource_to_its_class() -> None:
    """The node reports GPUs and has none of the resource itself."""
    name = "nvidia.com/gpu"
    host, *about = machine("n", gpus=2)
    assert isinstance(host, Node)
    amounts = {key: n for key, n in host.status.allocatable.items() if key != name}
    host = replace(host, status=replace(host.status, allocatable=amounts))
    asks = requesting("p", 1, name)
    one = world(host, *about, slice_of("n", 1), gpu_class(resource=name), asks, config=CROWD)

    assert places(one) == {"p": "n"}
    assert given(one) == {"p": ["n/gpu-0"]}
    assert ALLOCATED.read(one.cluster.get(Pod, "p", "default").metadata) is None


def test_class_is_renamed_while_a_pod_waits() -> None:
    """Afterwards the pod waits for the resource on nodes."""
    one = world(node("n"), gpu_class(), requesting("p"))
    assert places(one) == {}
    one.cluster.patch(DeviceClass, "gpu", "", {"spec": {"extendedResourceName": "example.com/x"}})
    one.run_to_fixed_point()
    one.load([slice_of("n", 1)])
    assert places(one) == {}
    one.load([gpu_class("later")])
    assert places(one) == {"p": "n"}


# -- restarts and lost answers --------------------------------------------------------------------


class LossyCluster(MemoryCluster):
    """Cluster that loses one request or response of a kind of write."""

    loses = ""  # such as "create answer", or "pods/status request, then resourceclaims request"

    def create(self, obj: Any) -> Any:
        if not isinstance(obj, ResourceClaim):
            return super().create(obj)
        return self._perhaps("create", lambda: super(LossyCluster, self).create(obj))

    def patch(
        self, kind_type: Any, name: str, namespace: str, merge_patch: Any, subresource: str = ""
    ) -> Any:
        def write() -> Any:
            return super(LossyCluster, self).patch(
                kind_type, name, namespace, merge_patch, subresource
            )

        verb = f"{kind_type.PLURAL}/{subresource}".rstrip("/")
        return self._perhaps(verb, write)

    def _perhaps(self, verb: str, write: Any) -> Any:
        first, _, then = self.loses.partition(", then ")
        lost, _, what = first.partition(" ")
        if lost != verb:
            return write()
        self.loses = then
        if what == "answer":
            write()
        raise ClusterError("connection lost")


class SlowCluster(LossyCluster):
    """Cluster whose events of claims are delivered on demand."""

    brings = 1 << 20

    def watch(self, *args: Any, **more: Any) -> Any:
        return SlowWatch(self, super().watch(*args, **more))


class SlowWatch:
    """Watch of a slow cluster."""

    def __init__(self, cluster: SlowCluster, watch: Any) -> None:
        self._cluster, self._watch = cluster, watch
        self._kept: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._watch, name)

    def poll(self) -> list[Any]:
        brought: list[Any] = []
        for event in self._watch.poll():
            (self._kept if isinstance(event.object, ResourceClaim) else brought).append(event)
        count = min(self._cluster.brings, len(self._kept))
        self._cluster.brings -= count
        brought += self._kept[:count]
        del self._kept[:count]
        return brought


@pytest.mark.parametrize("news", range(8))
def test_late_event_of_a_deleted_claim_releases_nothing(news: int) -> None:
    """The pod has another claim of that name by then, whose device stays allocated."""
    clock = VirtualClock(START_S)
    cluster = SlowCluster(clock)
    cluster.load([node("n"), slice_of("n", 1), gpu_class()])
    scheduler = started(cluster, clock)
    scheduler.step()
    cluster.load([requesting("p")])
    cluster.brings, cluster.loses = 0, "pods/status request, then resourceclaims request"
    for _ in range(6):
        scheduler.step()
        clock.advance_to(clock.now_s() + 15)
    assert outcome(cluster) == {"p": ["n/gpu-0"]}
    cluster.load([requesting("q")])
    cluster.brings = news
    for _ in range(10):
        scheduler.step()
        clock.advance_to(clock.now_s() + 400)

    assert outcome(cluster) == {"p": ["n/gpu-0"]}
    cluster.brings = 1 << 20
    settle(clock, scheduler)
    assert outcome(cluster) == {"p": ["n/gpu-0"]}
    scheduler.validate()


def started(cluster: MemoryCluster, clock: VirtualClock) -> Scheduler:
    """Return a new scheduler."""
    state = ClusterState()
    profiles = build_profiles(CROWD, state.axis, gates=ON).profiles
    return build_scheduler(cluster, clock, profiles, state, WATCHED)


def settle(clock: VirtualClock, *schedulers: Scheduler) -> None:
    """Advance the clock until nothing changes."""
    for _ in range(40):
        for scheduler in schedulers:
            scheduler.step()
        clock.advance_to(clock.now_s() + 15)


def outcome(cluster: MemoryCluster) -> dict[str, list[str]]:
    """Return the devices of each claim by its owner.

    Raises AssertionError if a running pod has no claim, or one that is not in its status.
    """
    by_owner = {c.metadata.owner_references[0].name: c for c in cluster.list(ResourceClaim).items}
    for one in cluster.list(Pod).items:
        if one.spec.node_name:
            named = one.status.extended_resource_claim_status
            assert named is not None
            assert named.resource_claim_name == by_owner[one.metadata.name].metadata.name
    return {owner: devices(one) for owner, one in by_owner.items()}


@pytest.mark.parametrize("what", ["request", "answer"])
@pytest.mark.parametrize(
    "verb", ["create", "resourceclaims", "resourceclaims/status", "pods/status"]
)
@pytest.mark.parametrize("members", [0, 2])
def test_lost_response_allocates_nothing_twice(verb: str, what: str, members: int) -> None:
    """Every pod finally has a distinct device; of a gang all members."""
    clock = VirtualClock(START_S)
    cluster = LossyCluster(clock)
    pods = gang("g", members) if members else [requesting("p"), requesting("q")]
    cluster.load([node("n"), slice_of("n", 2), gpu_class()])
    scheduler = started(cluster, clock)
    scheduler.step()
    cluster.loses = f"{verb} {what}"
    cluster.load(pods)
    settle(clock, scheduler)

    got = outcome(cluster)
    assert cluster.loses == ""
    assert sorted(device for each in got.values() for device in each) == ["n/gpu-0", "n/gpu-1"]
    assert all(one.spec.node_name == "n" for one in cluster.list(Pod).items)
    scheduler.validate()


@pytest.mark.parametrize("members", [0, 2])
def test_restarted_scheduler_deletes_leftover_claims(members: int) -> None:
    """The claim was written before the bind of a pod or of a gang member."""
    clock = VirtualClock(START_S)
    cluster = LossyCluster(clock)
    pods = gang("g", members) if members else [requesting("p"), requesting("q")]
    cluster.load([node("n"), slice_of("n", 2), gpu_class(), *pods])
    first = started(cluster, clock)
    cluster.loses = "pods/status request"
    binder: Any = first.handle.binder
    binder.forget = _die
    with pytest.raises(SystemExit):
        first.step()
    assert len(cluster.list(ResourceClaim).items) >= 1
    settle(clock, started(cluster, clock))

    got = outcome(cluster)
    assert sorted(device for each in got.values() for device in each) == ["n/gpu-0", "n/gpu-1"]
    assert all(one.spec.node_name == "n" for one in cluster.list(Pod).items)


def _die(*_args: object, **_more: object) -> None:
    raise SystemExit


def test_two_schedulers_create_one_claim() -> None:
    """The second one finds the claim of the first, or the bound pod."""
    clock = VirtualClock(START_S)
    cluster = LossyCluster(clock)
    cluster.load([node("n"), node("m"), slice_of("n", 1), slice_of("m", 1), gpu_class()])
    cluster.load([requesting("p"), requesting("q")])
    settle(clock, started(cluster, clock), started(cluster, clock))

    assert sorted(device for each in outcome(cluster).values() for device in each) == [
        "m/gpu-0",
        "n/gpu-0",
    ]


def test_old_event_of_a_claim_does_not_release_the_new_ones_devices() -> None:
    """Two claims share the name: the devices of both count until one is confirmed."""
    first = world(node("n"), slice_of("n", 1), gpu_class(), requesting("p"))
    assert places(first) == {"p": "n"}
    (old,) = claims(first)
    owner, allocation = old.metadata.owner_references[0], old.status.allocation
    assert allocation is not None
    (result,) = allocation.devices.results
    wanted = replace(
        allocation, devices=replace(allocation.devices, results=(replace(result, device="gpu-9"),))
    )
    pod = replace(old.metadata, name=owner.name, uid=owner.uid)
    table = ObjectTable()
    made_now = make_claim(table, pod, ExtendedRequests(old.spec.devices.requests, ()), wanted)
    assert not isinstance(made_now, Refusal)
    change, name = made_now
    assert name == old.metadata.name

    def shown() -> list[str]:
        known = table.get(ResourceClaim, old.key)
        return [] if known is None else devices(known)

    table.assume(change)
    assert shown() == ["n/gpu-9"]
    table.put(old)
    assert shown() == ["n/gpu-0", "n/gpu-9"]
    table.drop(old)
    assert shown() == ["n/gpu-9"]
    table.withdraw(change)
    assert shown() == []
