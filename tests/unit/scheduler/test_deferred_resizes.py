"""Pods whose resize is deferred: what is evicted for them, and when.

Source of the rules: kubernetes 1.37.2 pkg/scheduler, gate
InPlacePodVerticalScalingSchedulerPreemption.
"""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from tests.examples import examples
from tests.unit.scheduler.test_gangs import group, member
from tests.unit.scheduler.test_resized_pods import resized
from tests.unit.scheduler.watches import condition, events, only, stored
from tests.worlds import budget, configuration, embedded, node, pod

from koordinator.api.codec import decode, to_manifest
from koordinator.api.kube_version import KubeVersion
from koordinator.api.kubescheduler import FeatureGates
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.scheduler.assembly import build_scheduler
from koordinator.scheduler.features.deferred_resizes import DeferredResizeFeature
from koordinator.scheduler.features.metrics import SchedulerMetrics
from koordinator.scheduler.loop import Evicted, SchedulerOptions
from koordinator.scheduler.profile import WATCHED, build_profiles
from koordinator.scheduler.snapshot import ClusterState
from koordinator.simulator import Embedded
from koordinator.simulator.embedded import STOCK

GATE = "InPlacePodVerticalScalingSchedulerPreemption=true"
GATES = FeatureGates.parse(GATE, KubeVersion.parse("1.37"))
FITS = "pod resize fits, waiting for Kubelet actuation"
DISABLED = "node had resize preemption disabled"


def deferred(name: str, cpu: int, granted: int = 1, **more: Any) -> Pod:
    """Return a running pod that requests more CPUs than its node has granted."""
    given: dict[str, Any] = {"on": "n", "priority": 10, **more}
    return resized(pod(name, cpu=cpu, **given), granted, None, "Deferred")


def world(*objects: Any, gates: FeatureGates = GATES, **more: Any) -> Embedded:
    return embedded(*objects, gates=gates, **more)


def evicted(one: Embedded) -> list[str]:
    """Run the scheduler; return the names of the evicted pods."""
    outcomes = only(Evicted, one.scheduler.step())
    one.scheduler.validate()
    return sorted(outcome.pod.partition("/")[2] for outcome in outcomes)


def messages(one: Embedded) -> dict[str, str]:
    """Return the message of each deferred pod on the page."""
    feature = one.scheduler.feature(DeferredResizeFeature)
    assert feature is not None
    (page,) = feature.pages(lambda call: call()).values()
    entries: Any = page({})
    return {each["pod"].partition("/")[2]: each["message"] for each in entries}


def resizing(name: str, cpu: int) -> Pod:
    """Return a running pod with a finalizer: it stays while it is deleted."""
    manifest = to_manifest(pod(name, cpu=cpu, on="n"))
    manifest["metadata"]["finalizers"] = ["example.com/slow"]
    return decode(manifest, Pod)


def disabled(name: str, cpu: int, *owners: str) -> Node:
    manifest = to_manifest(node(name, cpu=cpu))
    manifest["spec"] = {"podPreemptionPolicy": {"disableResizePreemption": list(owners)}}
    return decode(manifest, Node)


def test_a_less_important_pod_of_the_node_goes() -> None:
    """Pods of other nodes stay; the resized pod gets neither an event nor a nomination."""
    low = pod("low", cpu=2, on="n")
    one = world(node("n", cpu=4), node("m", cpu=4), low, pod("other", cpu=4, on="m"))
    one.load([deferred("big", 3)])

    assert evicted(one) == ["low"]
    big = stored(one, "big")
    assert big.spec.node_name == "n"
    assert big.status.nominated_node_name == ""
    assert [c.type for c in big.status.conditions] == ["PodResizePending"]
    assert events(one, "big") == []
    note = f"Preempted by pod {big.metadata.uid} on node n"
    assert events(one, "low") == [("Normal", "Preempted", "Preempting", note)]
    assert evicted(one) == []
    assert messages(one) == {"big": FITS}


def test_nothing_is_evicted_without_the_gate() -> None:
    """An infeasible resize causes no eviction, either."""
    objects = node("n", cpu=4), pod("low", cpu=2, on="n")
    plain = FeatureGates.parse("", KubeVersion.parse("1.37"))
    infeasible = resized(pod("big", cpu=30, on="n", priority=10), 1, None, "Infeasible")

    without = world(*objects, deferred("big", 3), gates=plain)
    assert evicted(without) == []
    assert without.scheduler.feature(DeferredResizeFeature) is None
    one = world(*objects, infeasible)
    assert evicted(one) == []
    assert messages(one) == {}


def test_a_fitting_resize_evicts_no_pod() -> None:
    """The kubelet grants it sooner or later."""
    one = world(node("n", cpu=4), pod("low", cpu=1, on="n"), deferred("big", 3))

    assert evicted(one) == []
    assert messages(one) == {"big": FITS}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"priority": 0}, "preemption: No preemption victims found for incoming pod"),
        ({"cpu": 5}, "preemption: No preemption victims found for incoming pod"),
        (
            {"preemptionPolicy": "Never"},
            "preemption: not eligible due to preemptionPolicy=Never.",
        ),
    ],
)
def test_no_eviction_without_effect(more: dict[str, Any], message: str) -> None:
    """For a pod that is no more important, larger than the node, or may not preempt."""
    big = deferred("big", more.pop("cpu", 3), **more)
    one = world(node("n", cpu=4), pod("low", cpu=2, on="n"), big)

    assert evicted(one) == []
    assert messages(one) == {"big": message}


def test_only_resources_that_the_pod_requests_count() -> None:
    """The node is short of memory by other pods; the resize is about CPUs."""
    one = world(node("n", cpu=4, memory="1Gi"), pod("low", cpu=1, memory="2Gi", on="n"))
    one.load([deferred("big", 3)])

    assert evicted(one) == []
    assert messages(one) == {"big": FITS}


def test_as_few_as_possible_go_and_budgets_are_kept() -> None:
    """The most important one stays, one with a budget stays before it."""
    kept = pod("kept", cpu=1, on="n", labels={"app": "kept"})
    one = world(node("n", cpu=5), budget("b", 0, app="kept"), kept)
    one.load([pod("a", cpu=1, on="n", priority=2), pod("b", cpu=1, on="n", priority=1)])
    one.load([deferred("big", 3)])

    assert evicted(one) == ["b"]


def test_a_node_may_forbid_it_and_allow_it_again() -> None:
    """The change of the policy has the pod looked at again."""
    one = world(disabled("n", 4, "autoscaler"), pod("low", cpu=2, on="n"), deferred("big", 3))
    assert evicted(one) == []
    assert messages(one) == {"big": DISABLED}

    one.cluster.overwrite(disabled("n", 4))
    assert evicted(one) == ["low"]


def test_deferred_resize_is_retried_on_a_new_node() -> None:
    """The resized pod may be listed before its node."""
    one = world(pod("low", cpu=2, on="n"), deferred("big", 3))
    assert evicted(one) == []

    one.load([node("n", cpu=4)])
    assert evicted(one) == ["low"]


@pytest.mark.parametrize("change", ["own", "other"])
def test_larger_resize_is_retried(change: str) -> None:
    """The resize may be the pod's own, or that of another pod on the node."""
    low = pod("low", cpu=1, on="n")
    one = world(node("n", cpu=4), low, pod("peer", cpu=1, on="n", priority=10), deferred("big", 2))
    assert evicted(one) == []

    larger = deferred("big", 3) if change == "own" else pod("peer", cpu=2, on="n", priority=10)
    one.cluster.overwrite(larger)
    assert evicted(one) == ["low"]


def test_a_smaller_or_granted_resize_evicts_no_pod() -> None:
    """The pod is forgotten when it waits no more."""
    one = world(disabled("n", 4, "x"), pod("low", cpu=2, on="n"), deferred("big", 3))
    assert evicted(one) == []

    one.cluster.overwrite(resized(pod("big", cpu=2, on="n", priority=10), 2))
    one.cluster.overwrite(disabled("n", 4))
    assert evicted(one) == []
    assert messages(one) == {}


def test_a_deleted_pod_is_forgotten() -> None:
    one = world(disabled("n", 4, "x"), pod("low", cpu=2, on="n"), deferred("big", 3))
    assert evicted(one) == []

    one.cluster.delete(Pod, "big", "default")
    one.cluster.overwrite(disabled("n", 4))
    assert evicted(one) == []
    assert messages(one) == {}


def test_victims_that_are_leaving_are_waited_for() -> None:
    """No second one goes in their place."""
    one = world(node("n", cpu=4), resizing("leaving", 2), pod("low", cpu=1, on="n", priority=5))
    one.load([deferred("big", 2)])
    assert evicted(one) == ["leaving"]

    one.cluster.overwrite(deferred("big", 3))
    assert evicted(one) == []
    assert messages(one)["big"].startswith("preemption: not eligible")
    one.cluster.overwrite(deferred("big", 4))
    assert evicted(one) == ["low"]


def test_the_most_important_pod_is_served_first() -> None:
    """The capacity that the other pod needs is used up then."""
    one = world(node("n", cpu=6), pod("low", cpu=2, on="n"), pod("mid", cpu=1, on="n", priority=15))
    one.load([deferred("a", 2), deferred("b", 3, priority=20)])

    assert evicted(one) == ["low"]
    assert messages(one)["b"] == FITS


def test_a_pod_of_another_scheduler_is_left_to_it() -> None:
    big = deferred("big", 3, schedulerName="other")
    one = world(node("n", cpu=4), pod("low", cpu=2, on="n"), big)

    assert evicted(one) == []
    assert messages(one) == {}


def test_a_gang_goes_as_a_whole_or_stays() -> None:
    """A member that is as important as the pod protects the whole gang."""
    sorts = {"disabled": [{"name": "*"}], "enabled": [{"name": "Coscheduling"}]}
    enabled = {"enabled": [{"name": "Coscheduling"}]}
    config = configuration(plugins={"multiPoint": enabled, "queueSort": sorts})
    for priority, victims in ((0, ["g-0", "g-1"]), (10, [])):
        members = (
            member("g-0", "g", 2, on="n"),
            member("g-1", "g", 2, on="m", priority=priority),
        )
        nodes = node("n", cpu=4), node("m", cpu=4)
        one = world(*nodes, group("g", 2), *members, deferred("big", 3), config=config)

        assert evicted(one) == victims


def test_a_more_important_nominated_pod_counts() -> None:
    """The room that it waits for is not for the resize."""
    one = world(
        node("n", cpu=4),
        resizing("held", 2),
        pod("low", cpu=1, on="n"),
        pod("top", cpu=3, priority=90),
    )
    assert evicted(one) == ["held"]
    assert stored(one, "top").status.nominated_node_name == "n"

    one.load([deferred("big", 1)])
    assert evicted(one) == ["low"]


def test_a_nominated_pod_that_is_deleted_leaves_the_room_to_the_resize() -> None:
    """The deletion has the deferred pod looked at again, though it was never on the node."""
    one = world(
        node("n", cpu=4),
        resizing("held", 2),
        pod("low", cpu=1, on="n", priority=5),
        pod("top", cpu=3, priority=90),
    )
    assert evicted(one) == ["held"]
    assert stored(one, "top").status.nominated_node_name == "n"
    one.load([deferred("big", 4)])
    assert evicted(one) == []
    assert messages(one) == {"big": "preemption: No preemption victims found for incoming pod"}

    one.cluster.delete(Pod, "top", "default")
    assert evicted(one) == ["low"]


def test_plain_pods_are_decided_together_with_the_gate() -> None:
    """No resize of a pod without a node is deferred: none of them needs a permit."""
    one = world(node("n", cpu=4), pod("a", cpu=1), pod("b", cpu=1, memory="1Mi"))

    state = one.scheduler.state
    pods = [state.classes.of(stored(one, name)) for name in ("a", "b")]
    cycle = one.scheduler.cycles["default-scheduler"]
    assert cycle.queue_key(pods[0]) is cycle.queue_key(pods[1])


def test_after_a_restart_it_is_decided_as_before() -> None:
    """As well in a process that measures its plugins."""
    one = world(disabled("n", 4, "x"), pod("low", cpu=2, on="n"), deferred("big", 3))
    assert evicted(one) == []

    one.cluster.overwrite(disabled("n", 4))
    state = ClusterState()
    again = build_scheduler(
        one.cluster,
        one.clock,
        build_profiles(STOCK, state.axis, gates=GATES).profiles,
        state,
        WATCHED,
        options=SchedulerOptions().with_gates(GATES),
        metrics=SchedulerMetrics(CollectorRegistry()),
    )
    assert [outcome.pod for outcome in only(Evicted, again.step())] == ["default/low"]


def test_a_pending_pod_does_not_take_the_room() -> None:
    """The node is full for it."""
    one = world(node("n", cpu=4), pod("low", cpu=2, on="n"), deferred("big", 3), pod("p", cpu=1))

    assert evicted(one) == ["low"]
    assert stored(one, "p").spec.node_name == "n"
    one.load([pod("q", cpu=1)])
    assert evicted(one) == []
    unschedulable = condition(one, "q")
    assert unschedulable is not None
    assert unschedulable[2].startswith("0/1 nodes are available: 1 Insufficient cpu.")


@settings(max_examples=examples(40), deadline=None)
@given(
    size=st.integers(2, 10),
    others=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20)), max_size=5),
    resizes=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 20)), min_size=1, max_size=3),
    covered=st.integers(0, 5),
)
def test_victims_of_a_resize_are_less_important_and_all_needed(
    size: int, others: list[tuple[int, int]], resizes: list[tuple[int, int]], covered: int
) -> None:
    """Victims are less important, all are needed, and where none helps none goes.

    The bystander on the other node stays.
    """
    pods = [
        pod(
            f"p{i}",
            cpu=cpu,
            on="n",
            priority=priority,
            labels={"app": "kept" if i < covered else "x"},
        )
        for i, (cpu, priority) in enumerate(others)
    ]
    waiting = [deferred(f"d{i}", cpu, priority=p) for i, (cpu, p) in enumerate(resizes)]
    one = world(node("n", cpu=size), node("m", cpu=4), budget("b", 0, app="kept"), *pods)
    one.load([pod("bystander", cpu=4, on="m"), *waiting])
    amounts = {each.metadata.name: each for each in (*pods, *waiting)}
    cpus = {f"p{i}": cpu for i, (cpu, _) in enumerate(others)}
    cpus |= {f"d{i}": cpu for i, (cpu, _) in enumerate(resizes)}

    def cpu_of(names: list[str]) -> int:
        return sum(cpus[name] for name in names)

    victims = evicted(one)
    left = [name for name in amounts if name not in victims]
    most = max(priority for _, priority in resizes)
    for name in victims:
        assert (amounts[name].spec.priority or 0) < most
    still = {name: message for name, message in messages(one).items() if message != FITS}
    if cpu_of(left) <= size:
        assert not still
        assert not victims or all(
            cpu_of([*left, name]) > size for name in victims if cpu_of([name])
        )
    else:
        for name in left:
            waits = amounts[name] in waiting
            lower = [
                other
                for other in left
                if (amounts[other].spec.priority or 0) < (amounts[name].spec.priority or 0)
            ]
            assert not waits or cpu_of(left) - cpu_of(lower) > size
    assert evicted(one) == []
