"""Placement trials for the descheduler on a scheduler that does not decide."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.reservations import config as config_with_reservations
from tests.reservations import reservation
from tests.worlds import START_S, configuration, node, pod

from koordinator.api.kubescheduler import KubeSchedulerConfiguration
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.domain.placement_fork import PlacementFork, replacement_of
from koordinator.foundation.clock import VirtualClock
from koordinator.foundation.errors import InputError
from koordinator.scheduler.fork import SchedulerFork, follow_cluster

GANGS: dict[str, Any] = {
    "plugins": {
        "queueSort": {"disabled": [{"name": "*"}], "enabled": [{"name": "Coscheduling"}]},
        "multiPoint": {
            "disabled": [{"name": "PrioritySort"}],
            "enabled": [{"name": "Coscheduling"}],
        },
    }
}


def fork_of(
    *objects: KubeObject, config: KubeSchedulerConfiguration | None = None, **profile: Any
) -> tuple[SchedulerFork, MemoryCluster]:
    """Return a fork over a cluster that is in sync."""
    clock = VirtualClock(START_S)
    cluster = MemoryCluster(clock)
    cluster.load(objects)
    fork = follow_cluster(cluster, clock, config or configuration(**profile))
    fork.follow()
    return fork, cluster


def on(name: str, where: str, cpu: str = "1", **more: Any) -> Pod:
    """Return a pod that runs on a node."""
    return pod(name, cpu=cpu, on=where, **more)


def test_replacement_is_placed_and_the_state_restored() -> None:
    """n1 is full except for the pod itself, n2 is empty: a spreading scheduler chooses n2."""
    fork, _ = fork_of(node("n1", cpu="4"), node("n2", cpu="4"), on("a", "n1"), on("b", "n1", "3"))
    port: PlacementFork = fork
    assert port.is_ready
    for _ in range(2):
        with port.world() as world, world.attempt() as attempt:
            assert world.node_of("default/a") == "n1"
            assert world.remove("default/a")
            landing = world.land(pod("a-2", cpu="1"))
            assert landing.node == "n2"
            assert world.node_of("default/a-2") == "n2"
            attempt.keep()
        with port.world() as world:
            assert (world.node_of("default/a"), world.node_of("default/a-2")) == ("n1", "")


def test_rolled_back_placements_do_not_count_and_kept_ones_do() -> None:
    """The two pods compete for the only free capacity, on n2."""
    objects = [node("n1", cpu="2"), node("n2", cpu="1"), on("a", "n1"), on("b", "n1")]
    fork, _ = fork_of(*objects)
    with fork.world() as world:
        with world.attempt():
            world.remove("default/a")
            world.land(pod("filler", cpu="1"))
        assert world.node_of("default/a") == "n1"
        with world.attempt() as attempt:
            assert world.land(pod("a-2", cpu="1")).node == "n2"
            attempt.keep()
        landing = world.land(pod("b-2", cpu="1"))
    assert landing.node == ""
    assert landing.plugin == "NodeResourcesFit"
    assert "0/2 nodes are available" in landing.why
    assert "Insufficient cpu" in landing.why


def test_existing_pod_can_be_put_back() -> None:
    """An evicted pod keeps its amounts until it has terminated."""
    fork, _ = fork_of(node("n1", cpu="1"), on("a", "n1"))
    with fork.world() as world:
        assert world.remove("default/a")
        assert world.land(pod("b", cpu="1")).node == "n1"
    with fork.world() as world:
        world.remove("default/a")
        world.put_back("default/a")
        assert world.node_of("default/a") == "n1"
        assert world.land(pod("b", cpu="1")).node == ""
        assert not world.remove("default/nobody")


def test_reservation_is_placed_and_used_by_its_owner() -> None:
    """A PodMigrationJob does this: reserve elsewhere, evict, create the successor."""
    elsewhere = {"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}
    terms = {"nodeSelectorTerms": [{"matchFields": [elsewhere]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    reserved = reservation("r", cpu="1", once=True, template={"affinity": affinity})
    running = on("web-1", "n1", labels={"app": "web"})
    fork, _ = fork_of(
        node("n1", cpu="8"), node("n2", cpu="1"), running, config=config_with_reservations()
    )
    with fork.world() as world:
        assert world.reserve(reserved).node == "n2"
        assert world.land(pod("stranger", cpu="8")).node == ""  # n1 has 7 left, n2 none
        world.remove("default/web-1")
        assert world.land(replacement_of(running, "web-2")).node == "n2"
    with fork.world() as world:
        assert world.land(pod("stranger", cpu="1", nodeSelector={})).node in {"n1", "n2"}


GANG = {
    "pod-group.scheduling.sigs.k8s.io/name": "train",
    "pod-group.scheduling.sigs.k8s.io/min-available": "2",
}


def test_members_of_a_gang_are_placed_together_or_not_at_all() -> None:
    """Without capacity for the second member the first has none either."""
    members = [on(f"g{i}", "n1", labels=GANG) for i in (1, 2)]
    fork, _ = fork_of(node("n1", cpu="2"), node("n2", cpu="2"), *members, **GANGS)
    fresh = [replacement_of(one, f"{one.metadata.name}-2") for one in members]
    with fork.world() as world:
        for one in members:
            world.remove(one.key)
        assert all(landing.node for landing in world.land_together(fresh))
    with fork.world() as world:
        for one in members:
            world.remove(one.key)
        world.land(pod("filler", cpu="2"))
        world.land(pod("half", cpu="1"))
        landings = world.land_together(fresh)
        assert [landing.node for landing in landings] == ["", ""]
        assert "Insufficient cpu" in landings[0].why
        assert world.node_of(fresh[0].key) == ""


def test_pods_of_other_schedulers_are_not_tried() -> None:
    fork, _ = fork_of(node("n1"), schedulerName="koord-scheduler")
    foreign = pod("x", schedulerName="volcano")
    assert set(fork.scheduler_names) == {"koord-scheduler"}
    with fork.world() as world:
        assert not world.schedules(foreign)
        with pytest.raises(InputError, match="must be one of koord-scheduler"):
            world.land(foreign)


def test_the_trial_follows_the_cluster_and_writes_nothing() -> None:
    """A pending pod stays pending."""
    fork, cluster = fork_of(node("n1", cpu="1"))
    cluster.load([pod("waits", cpu="1")])
    version = cluster.list(Pod).resource_version
    fork.follow()
    assert cluster.list(Pod).resource_version == version
    cluster.load([on("taken", "n1")])
    fork.follow()
    with fork.world() as world:
        assert world.node_of("default/taken") == "n1"
        assert world.land(pod("more", cpu="1")).node == ""


@settings(max_examples=examples(30), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 4), st.booleans()), max_size=12))
def test_trials_leave_the_state_unchanged(
    steps: list[tuple[int, int, bool]],
) -> None:
    """After removals, restorations and placements all sums equal the cluster's."""
    objects = [node(f"n{i}", cpu="4") for i in range(3)]
    labels = [GANG if i % 2 else {} for i in range(8)]
    pods = [on(f"p{i}", f"n{i % 3}", labels=labels[i]) for i in range(8)]
    fork, _ = fork_of(*objects, *pods, **GANGS)
    state = fork._scheduler.state
    before = {key: placed.row for key, placed in state.pods.by_key.items()}
    with fork.world() as world:
        for number, (which, what, keeps) in enumerate(steps):
            with world.attempt() as attempt:
                world.remove(pods[which].key)
                if what == 0:
                    world.put_back(pods[which].key)
                elif what == 1:
                    world.land_together([replacement_of(pods[which], f"next{number}")])
                else:
                    world.land(replacement_of(pods[which], f"next{number}"))
                if keeps:
                    attempt.keep()
        state.validate()
    state.validate()
    for validate in fork._scheduler.handle.hooks.validate:
        validate()
    assert {key: placed.row for key, placed in state.pods.by_key.items()} == before
    assert state.unbound == {}
