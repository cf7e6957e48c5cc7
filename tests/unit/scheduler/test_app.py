"""The scheduler on a cluster: what it binds, what it writes, what it does when things go wrong."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import pytest
from tests.unit.scheduler.conftest import NewEmbedded
from tests.worlds import HOSTNAME, START_S, budget, configuration, device, gpu_pod, node, pod

from koordinator.api.event import Event
from koordinator.api.kubescheduler import KubeSchedulerConfiguration
from koordinator.api.meta import KubeObject
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.cluster.memory.server import EndedBinds, MemoryCluster
from koordinator.cluster.port import Binding
from koordinator.foundation.clock import VirtualClock
from koordinator.foundation.errors import ClusterError, InvalidError
from koordinator.scheduler.app import (
    Bound,
    Evicted,
    Options,
    Outcome,
    Scheduler,
    Unschedulable,
)
from koordinator.scheduler.app.metrics import Metrics
from koordinator.scheduler.contract import NoArgs, Permit, PluginSpec, Reads
from koordinator.scheduler.profile import WATCHED, build_profiles
from koordinator.scheduler.queue import QueueState
from koordinator.scheduler.snapshot import ClusterState, IntArray, PodClass, ResourceAxis, Snapshot
from koordinator.simulator import Embedded
from koordinator.simulator.embedded import STOCK

OutcomeT = TypeVar("OutcomeT", bound=Outcome)

FULL = (
    "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, "
    "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
)
GPUS = configuration(plugins={"multiPoint": {"enabled": [{"name": "DeviceShare"}]}})
GPU_NODE = {"koordinator.sh/gpu-core": 200, "koordinator.sh/gpu-memory-ratio": 200}


def only(kind: type[OutcomeT], outcomes: Sequence[Outcome]) -> list[OutcomeT]:
    return [outcome for outcome in outcomes if isinstance(outcome, kind)]


def places(outcomes: Sequence[Outcome]) -> dict[str, str]:
    """Return ``{pod: node}`` of what was bound."""
    return {bound.pod.partition("/")[2]: bound.node for bound in only(Bound, outcomes)}


def stored(one: Embedded, name: str) -> Pod:
    return one.cluster.get(Pod, name, "default")


def events(one: Embedded, about: str) -> list[tuple[str, str, str, str]]:
    """Return (type, reason, action, note) of the events about a pod, in order."""
    return [
        (event.type, event.reason, event.action, event.note)
        for event in one.cluster.list(Event).items
        if event.regarding.name == about
    ]


def condition(one: Embedded, name: str, kind: str = "PodScheduled") -> tuple[str, str, str] | None:
    return next(
        (
            (c.status, c.reason, c.message)
            for c in stored(one, name).status.conditions
            if c.type == kind
        ),
        None,
    )


def later(one: Embedded, seconds: float) -> list[Outcome]:
    """Let time pass and work."""
    one.clock.advance_to(one.clock.now_s() + seconds)
    return one.scheduler.step()


def restarted(
    cluster: MemoryCluster,
    clock: VirtualClock,
    config: KubeSchedulerConfiguration = STOCK,
    options: Options | None = None,
    metrics: Metrics | None = None,
) -> Scheduler:
    """Return a new scheduler on a cluster that is there already."""
    state = ClusterState()
    profiles = build_profiles(config, state.axis).profiles
    return Scheduler(cluster, clock, profiles, state, WATCHED, options=options, metrics=metrics)


# -- what is written -------------------------------------------------------------------------


def test_a_bound_pod_has_its_node_a_condition_and_an_event(embedded: NewEmbedded) -> None:
    """As kube-scheduler and the API server write them."""
    one = embedded(node("n"), pod("p", cpu=1))

    assert places(one.scheduler.step()) == {"p": "n"}
    assert stored(one, "p").spec.node_name == "n"
    assert condition(one, "p") == ("True", "", "")
    assert events(one, "p") == [
        ("Normal", "Scheduled", "Binding", "Successfully assigned default/p to n")
    ]


def test_a_pod_that_fits_nowhere_is_told_why(embedded: NewEmbedded) -> None:
    """In a condition and an event, with the plugin that is most to blame in the outcome."""
    one = embedded(node("n", cpu=1), pod("b", cpu=1, on="n"), pod("p", cpu=1))

    (failed,) = only(Unschedulable, one.scheduler.step())
    assert (failed.plugin, failed.reason) == ("NodeResourcesFit", "Insufficient cpu")
    assert failed.message == FULL
    assert condition(one, "p") == ("False", "Unschedulable", FULL)
    assert events(one, "p") == [("Warning", "FailedScheduling", "Scheduling", FULL)]


def test_without_nodes_there_is_nothing_to_count(embedded: NewEmbedded) -> None:
    """The message is another one."""
    one = embedded(pod("p"))

    (failed,) = only(Unschedulable, one.scheduler.step())
    assert failed.message == "no nodes available to schedule pods"


def test_a_condition_that_says_so_already_is_not_written_again(embedded: NewEmbedded) -> None:
    """A failed pod is tried again and again; its version stays."""
    one = embedded(node("n", cpu=1), pod("p", cpu=2))
    one.scheduler.step()
    version = stored(one, "p").metadata.resource_version

    assert only(Unschedulable, later(one, 301.0))
    assert stored(one, "p").metadata.resource_version == version


def test_events_name_the_scheduler_of_the_pod(embedded: NewEmbedded) -> None:
    """Of several profiles in one process."""
    config = configuration()
    both = KubeSchedulerConfiguration(
        profiles=(*configuration(schedulerName="other").profiles, *config.profiles)
    )
    one = embedded(node("n"), pod("p", schedulerName="other"), config=both)
    one.scheduler.step()

    (event,) = one.cluster.list(Event).items
    assert event.reporting_controller == "other"


def test_reports_can_be_switched_off(embedded: NewEmbedded) -> None:
    """For simulations; the outcomes have all of it."""
    one = embedded(node("n"), pod("p"), pod("q", cpu=99), report=False)
    one.scheduler.step()

    assert one.cluster.list(Event).items == []
    assert condition(one, "q") is None


# -- what waits, and for what ----------------------------------------------------------------


def test_pods_go_by_priority_then_by_arrival(embedded: NewEmbedded) -> None:
    """There is room for two."""
    one = embedded(
        node("n", cpu=2),
        pod("a", cpu=1),
        pod("b", cpu=1, priority=0),
        pod("high", cpu=1, priority=9),
    )

    assert list(places(one.scheduler.step())) == ["high", "a"]


def test_a_gated_pod_waits_for_its_gates(embedded: NewEmbedded) -> None:
    """It is no attempt; once they are gone it is scheduled."""
    one = embedded(node("n"), pod("p", schedulingGates=[{"name": "g"}]))
    assert one.scheduler.step() == []
    assert one.scheduler.queue.get("default/p").message == "waiting for scheduling gates: [g]"

    one.cluster.patch(Pod, "p", "default", {"spec": {"schedulingGates": []}})
    assert places(one.scheduler.step()) == {"p": "n"}


def test_pods_of_other_schedulers_are_left_alone(embedded: NewEmbedded) -> None:
    """But what they take, once bound, counts."""
    one = embedded(node("n", cpu=2), pod("theirs", cpu=2, schedulerName="theirs"))
    assert one.scheduler.step() == []

    one.cluster.bind([Binding("default", "theirs", "n")])
    one.cluster.create(pod("ours", cpu=1))
    assert only(Unschedulable, one.scheduler.step())


@pytest.mark.parametrize(
    ("event", "wakes"),
    [
        (lambda c: c.create(node("new")), True),
        (lambda c: c.delete(Pod, "b", "default"), True),
        (
            lambda c: c.patch(Node, "n", "", {"status": {"allocatable": {"cpu": "4"}}}, "status"),
            True,
        ),
        (lambda c: c.patch(Node, "n", "", {"metadata": {"labels": {"a": "b"}}}), False),
        (lambda c: c.create(device("n")), False),
        (lambda c: c.create(pod("other", schedulerName="theirs")), False),
    ],
)
def test_only_what_could_help_wakes_a_pod(
    embedded: NewEmbedded, event: Callable[[MemoryCluster], object], wakes: bool
) -> None:
    """The pod needs cpu: room, not labels."""
    one = embedded(node("n", cpu=1), pod("b", cpu=1, on="n"), pod("p", cpu=1))
    one.scheduler.step()
    event(one.cluster)

    assert ("default/p" in {o.pod for o in later(one, 2.0)}) is wakes


def test_a_pod_that_ends_makes_room(embedded: NewEmbedded) -> None:
    """Without being deleted."""
    one = embedded(node("n", cpu=1), pod("b", cpu=1, on="n"), pod("p", cpu=1))
    one.scheduler.step()

    one.cluster.patch(Pod, "b", "default", {"status": {"phase": "Succeeded"}}, "status")
    assert places(later(one, 2.0)) == {"p": "n"}


def test_a_pending_pod_may_change(embedded: NewEmbedded) -> None:
    """It tolerates the taint now; labels that others select count as they are when it is placed."""
    one = embedded(node("n", taints=["a=1:NoSchedule"]), pod("p"))
    one.scheduler.step()

    tolerations = [{"key": "a", "operator": "Exists"}]
    one.cluster.patch(Pod, "p", "default", {"spec": {"tolerations": tolerations}})
    assert places(later(one, 2.0)) == {"p": "n"}


def test_a_pod_that_is_deleted_while_it_waits_is_forgotten(embedded: NewEmbedded) -> None:
    """Also when one of the same name comes after it."""
    one = embedded(node("n", cpu=1), pod("p", cpu=2))
    one.scheduler.step()

    one.cluster.delete(Pod, "p", "default")
    one.cluster.create(pod("p", cpu=1))
    assert places(one.scheduler.step()) == {"p": "n"}


def test_waiting_pods_are_tried_again_after_five_minutes_at_the_latest(
    embedded: NewEmbedded,
) -> None:
    """Even if nothing happened; unless the option says otherwise."""
    one = embedded(node("n", cpu=1), pod("p", cpu=2), max_unschedulable_s=60.0)
    one.scheduler.step()

    assert one.scheduler.next_wakeup_s() == START_S + 60
    assert later(one, 59.0) == []
    assert only(Unschedulable, later(one, 2.0))


# -- binds that fail -------------------------------------------------------------------------


class Interfering(MemoryCluster):
    """Something happens right before each bind; if it is an error, that is the answer."""

    def __init__(self, clock: VirtualClock, *first: Callable[["Interfering"], object]) -> None:
        super().__init__(clock)
        self.first = list(first)

    def bind(self, bindings: Sequence[Binding]) -> EndedBinds:
        error = self.first.pop(0)(self) if self.first else None
        if isinstance(error, ClusterError):
            return EndedBinds([error] * len(bindings))
        return super().bind(bindings)


def interfering(
    *objects: KubeObject, first: Callable[[Interfering], object]
) -> tuple[Interfering, VirtualClock, Scheduler]:
    clock = VirtualClock(START_S)
    cluster = Interfering(clock, first)
    cluster.load(objects)
    return cluster, clock, restarted(cluster, clock)


def test_a_pod_that_was_deleted_meanwhile_gives_its_place_back() -> None:
    """The next pod takes it."""
    cluster, _, scheduler = interfering(
        node("n", cpu=1), pod("p", cpu=1), first=lambda c: c.delete(Pod, "p", "default")
    )
    (failed,) = only(Unschedulable, scheduler.step())
    assert failed.message == 'binding failed: pods "default/p" not found'

    cluster.create(pod("q", cpu=1))
    assert places(scheduler.step()) == {"q": "n"}
    scheduler.state.validate()


def test_a_pod_that_was_bound_elsewhere_meanwhile_counts_there() -> None:
    """Somebody else's decision wins."""
    cluster, _, scheduler = interfering(
        node("n", cpu=1),
        node("m", cpu=1, unschedulable=True),
        pod("p", cpu=1),
        first=lambda c: MemoryCluster.bind(c, [Binding("default", "p", "m")]),
    )
    assert only(Unschedulable, scheduler.step())
    assert scheduler.step() == []

    state = scheduler.state
    assert {key: state.nodes.names[p.row] for key, p in state.pods.by_key.items()} == {
        "default/p": "m"
    }
    assert scheduler.queue.get("default/p") is None
    assert cluster.get(Pod, "p", "default").spec.node_name == "m"
    state.validate()


def test_a_pod_whose_bind_failed_is_tried_again_after_a_backoff() -> None:
    """Which doubles with the second failure; the error stands in its condition."""
    cluster, clock, scheduler = interfering(
        node("n"), pod("p"), first=lambda _: ClusterError("connection lost")
    )
    cluster.first.append(lambda _: ClusterError("connection lost"))
    (failed,) = only(Unschedulable, scheduler.step())
    assert failed.message == "binding failed: connection lost"
    (scheduled,) = cluster.get(Pod, "p", "default").status.conditions
    assert (scheduled.status, scheduled.reason) == ("False", "SchedulerError")

    assert scheduler.step() == []
    assert scheduler.next_wakeup_s() == START_S + 2  # the whole second after 1 s have passed
    clock.advance_to(START_S + 2)
    assert only(Unschedulable, scheduler.step())
    assert scheduler.next_wakeup_s() == START_S + 5
    clock.advance_to(START_S + 5)
    assert places(scheduler.step()) == {"p": "n"}
    scheduler.state.validate()


def test_one_failed_bind_of_a_run_does_not_touch_the_others() -> None:
    """The pods were placed in one go."""
    _, _, scheduler = interfering(
        node("n", cpu=3),
        *(pod(f"p{index}", cpu=1) for index in range(3)),
        first=lambda c: c.delete(Pod, "p1", "default"),
    )

    assert places(scheduler.step()) == {"p0": "n", "p2": "n"}
    assert scheduler.state.nodes.requested[0, 0] == 2000
    scheduler.state.validate()


def test_gpus_of_a_failed_bind_are_free_again() -> None:
    """With everything else that was assumed."""
    clock = VirtualClock(START_S)
    cluster = Interfering(clock, lambda _: ClusterError("connection lost"))
    cluster.load(
        [
            node("n", **GPU_NODE),
            device("n", gpus=2),
            gpu_pod("p", gpu_core=100, gpu_memory_ratio=100),
        ]
    )
    scheduler = restarted(cluster, clock, GPUS)
    assert only(Unschedulable, scheduler.step())

    assert not scheduler.state.nodes.gpus.used.any()
    clock.advance_to(START_S + 2)
    assert places(scheduler.step()) == {"p": "n"}
    scheduler.state.validate()


# -- preemption ------------------------------------------------------------------------------


def test_a_pod_takes_the_place_of_less_important_ones(embedded: NewEmbedded) -> None:
    """One victim is enough; it is told, deleted, and the pod follows once it is gone."""
    one = embedded(
        node("n", cpu=2),
        pod("low", cpu=1, priority=1, on="n"),
        pod("lower", cpu=1, on="n"),
        pod("p", cpu=1, priority=10),
    )
    done = one.run_to_fixed_point()

    (evicted,) = only(Evicted, done)
    assert (evicted.pod, evicted.by) == ("default/lower", "default/p")
    assert evicted.reason == "Preempted by pod default/p on node n"
    assert places(done) == {"p": "n"}
    (failed,) = only(Unschedulable, done)
    assert (failed.nominated, failed.message) == (
        "n",
        "0/1 nodes are available: 1 Insufficient cpu.",
    )
    ((kind, reason, action, note),) = events(one, "lower")
    assert (kind, reason, action) == ("Normal", "Preempted", "Preempting")
    assert note == f"Preempted by pod {stored(one, 'p').metadata.uid} on node n"


def test_victims_that_end_with_grace_hold_their_place_until_they_are_gone() -> None:
    """Meanwhile the pod is nominated, waits, and evicts nobody else."""
    clock = VirtualClock(START_S)
    cluster = MemoryCluster(clock, immediate_pod_deletion=False)
    cluster.load(
        [
            node("n", cpu=1),
            node("m", cpu=1),
            pod("low", cpu=1, on="n", started="08:00"),
            pod("other", cpu=1, on="m", started="07:00"),
            pod("p", cpu=1, priority=10),
        ]
    )
    scheduler = restarted(cluster, clock)
    scheduler.step()
    victim = cluster.get(Pod, "low", "default")
    assert victim.metadata.deletion_timestamp is not None
    target = next(c for c in victim.status.conditions if c.type == "DisruptionTarget")
    assert (target.status, target.reason) == ("True", "PreemptionByScheduler")
    assert target.message == "default-scheduler: preempting to accommodate a higher priority pod"
    assert cluster.get(Pod, "p", "default").status.nominated_node_name == "n"

    clock.advance_to(START_S + 20)
    assert only(Evicted, scheduler.step()) == []
    cluster.delete(Pod, "low", "default", grace_period_s=0)
    clock.advance_to(START_S + 60)
    assert places(scheduler.step()) == {"p": "n"}
    assert cluster.get(Pod, "p", "default").status.nominated_node_name == ""
    scheduler.state.validate()


class Protecting(MemoryCluster):
    """Refuses to delete, as an admission webhook may."""

    refusals = 1

    def delete(
        self,
        kind_type: type[KubeObject],
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        grace_period_s: int | None = None,
    ) -> None:
        if self.refusals:
            self.refusals -= 1
            raise InvalidError("denied the request")
        super().delete(kind_type, name, namespace, uid=uid, grace_period_s=grace_period_s)


def test_a_victim_that_may_not_be_deleted_is_tried_again() -> None:
    """The pod says why it waits; the victim is not told that it was preempted before it is."""
    clock = VirtualClock(START_S)
    cluster = Protecting(clock)
    cluster.load([node("n", cpu=1), pod("low", cpu=1, on="n"), pod("p", cpu=1, priority=10)])
    scheduler = restarted(cluster, clock)
    (failed,) = scheduler.step()
    assert isinstance(failed, Unschedulable)
    assert failed.message == "preemption failed: denied the request"
    (scheduled,) = cluster.get(Pod, "p", "default").status.conditions
    assert (scheduled.reason, scheduled.message) == ("SchedulerError", failed.message)
    assert [e.reason for e in cluster.list(Event).items] == ["FailedScheduling"]

    clock.advance_to(START_S + 2)
    assert [e.pod for e in only(Evicted, scheduler.step())] == ["default/low"]
    assert "Preempted" in [e.reason for e in cluster.list(Event).items]


def test_the_place_of_a_nominated_pod_is_kept(embedded: NewEmbedded) -> None:
    """From less important pods, also once the victims are gone."""
    one = embedded(node("n", cpu=1), pod("low", cpu=1, on="n"), pod("p", cpu=1, priority=10))
    one.scheduler.step(limit=1)
    one.cluster.create(pod("thief", cpu=1, priority=5))

    assert places(one.run_to_fixed_point()) == {"p": "n"}


def test_a_more_important_pod_may_take_a_nominated_place(embedded: NewEmbedded) -> None:
    """The nominated one looks elsewhere."""
    one = embedded(node("n", cpu=1), pod("low", cpu=1, on="n"), pod("p", cpu=1, priority=10))
    one.scheduler.step(limit=1)
    one.cluster.create(pod("boss", cpu=1, priority=50))

    assert places(one.run_to_fixed_point()) == {"boss": "n"}
    assert stored(one, "p").status.nominated_node_name == ""


def test_disruption_budgets_are_kept_if_possible(embedded: NewEmbedded) -> None:
    """The other node has the more important victim."""
    web = {"app": "web"}
    one = embedded(
        node("n", cpu=1),
        pod("w", cpu=1, labels=web, on="n"),
        node("m", cpu=1),
        pod("x", cpu=1, priority=5, on="m"),
        budget("web", allowed=0, app="web"),
        pod("p", cpu=1, priority=10),
    )

    assert [e.pod for e in only(Evicted, one.run_to_fixed_point())] == ["default/x"]


def test_who_never_preempts_waits(embedded: NewEmbedded) -> None:
    """And says so."""
    one = embedded(
        node("n", cpu=1),
        pod("low", cpu=1, on="n"),
        pod("p", cpu=1, priority=10, preemptionPolicy="Never"),
    )

    (failed,) = only(Unschedulable, one.run_to_fixed_point())
    assert failed.message == (
        "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, "
        "preemption: not eligible due to preemptionPolicy=Never."
    )


def test_a_pod_that_was_just_bound_can_be_a_victim(embedded: NewEmbedded) -> None:
    """In the same step, before the cluster has said so."""
    one = embedded(node("n", cpu=1), pod("low", cpu=1))
    one.scheduler.step()
    one.cluster.create(pod("p", cpu=1, priority=10))

    assert places(one.run_to_fixed_point()) == {"p": "n"}


# -- permit ----------------------------------------------------------------------------------


class Patient:
    """Permits as it is told, by pod name."""

    answers: dict[str, Permit]

    def __init__(self, answers: dict[str, Permit]) -> None:
        self.answers = answers

    def permit(self, asked: Pod, _node: str) -> Permit:
        return self.answers.get(asked.metadata.name, Permit())


def patient(**answers: Permit) -> tuple[Patient, dict[str, Any]]:
    """Return the plugin, and what switches it on."""
    plugin = Patient(answers)

    def build(_args: NoArgs, _axis: ResourceAxis) -> Patient:
        return plugin

    config = configuration(plugins={"permit": {"enabled": [{"name": "Patient"}]}})
    return plugin, {"config": config, "out_of_tree": [PluginSpec("Patient", NoArgs, build)]}


def test_a_pod_that_waits_for_its_permit_holds_its_place(embedded: NewEmbedded) -> None:
    """It is bound as soon as it may."""
    plugin, switched_on = patient(p=Permit(wait_s=30))
    one = embedded(node("n", cpu=1), pod("p", cpu=1), pod("q", cpu=1), **switched_on)
    assert [o.pod for o in one.scheduler.step()] == ["default/q"]
    assert stored(one, "p").spec.node_name == ""
    assert one.scheduler.next_wakeup_s() == START_S + 30

    plugin.answers.clear()
    assert places(one.scheduler.step()) == {"p": "n"}


def test_a_permit_that_does_not_come_in_time_is_a_failure(embedded: NewEmbedded) -> None:
    """The place is free again, and the pod backs off."""
    _, switched_on = patient(p=Permit(wait_s=30))
    one = embedded(node("n", cpu=1), pod("p", cpu=1), **switched_on)
    one.scheduler.step()

    (failed,) = only(Unschedulable, later(one, 30.0))
    assert failed.message == "timed out waiting for its permit"
    one.cluster.create(pod("q", cpu=1))
    assert places(one.scheduler.step()) == {"q": "n"}


def test_a_refused_permit_names_the_plugin(embedded: NewEmbedded) -> None:
    """The place is free again."""
    _, switched_on = patient(p=Permit(refusal="not today"))
    one = embedded(node("n", cpu=1), pod("p", cpu=1), pod("q", cpu=1), **switched_on)
    done = one.scheduler.step()

    assert places(done) == {"q": "n"}
    (failed,) = only(Unschedulable, done)
    assert (failed.plugin, failed.reason) == ("Patient", "not today")


def test_a_pod_that_is_deleted_while_it_waits_for_its_permit_is_forgotten(
    embedded: NewEmbedded,
) -> None:
    """It is neither bound nor reported, and its place is free."""
    plugin, switched_on = patient(p=Permit(wait_s=30))
    one = embedded(node("n", cpu=1), pod("p", cpu=1), **switched_on)
    one.scheduler.step()
    one.cluster.delete(Pod, "p", "default")
    plugin.answers.clear()
    one.cluster.create(pod("q", cpu=1))

    assert one.scheduler.step() == [Bound("default/q", "n")]
    assert events(one, "p") == []


def test_a_pod_that_is_bound_elsewhere_while_it_waits_for_its_permit_counts_there(
    embedded: NewEmbedded,
) -> None:
    """And its place is free."""
    plugin, switched_on = patient(p=Permit(wait_s=30))
    one = embedded(
        node("n", cpu=1), node("m", cpu=1, unschedulable=True), pod("p", cpu=1), **switched_on
    )
    one.scheduler.step()
    one.cluster.bind([Binding("default", "p", "m")])
    plugin.answers.clear()
    one.cluster.create(pod("q", cpu=1))

    assert one.scheduler.step() == [Bound("default/q", "n")]
    placed = one.state.pods.by_key
    assert {key: one.state.nodes.names[p.row] for key, p in placed.items()} == {
        "default/p": "m",
        "default/q": "n",
    }


def test_a_new_pod_of_the_same_name_is_not_taken_for_the_one_that_waited(
    embedded: NewEmbedded,
) -> None:
    """It is scheduled anew and keeps its place."""
    plugin, switched_on = patient(p=Permit(wait_s=30))
    one = embedded(node("n", cpu=2), pod("p", cpu=1), **switched_on)
    one.scheduler.step()
    one.cluster.delete(Pod, "p", "default")
    plugin.answers.clear()
    one.cluster.create(pod("p", cpu=2))

    assert places(one.scheduler.step()) == {"p": "n"}
    assert one.state.nodes.requested[0, 0] == 2000


# -- plugins and profiles --------------------------------------------------------------------


class PreferLong:
    """Scores by the length of the node's name."""

    reads = Reads.NODE

    def score(self, snapshot: Snapshot, _pod: PodClass) -> IntArray:
        return np.array([len(name) for name in snapshot.node_names], np.int64)


def build_prefer_long(_args: NoArgs, _axis: ResourceAxis) -> PreferLong:
    return PreferLong()


def test_an_out_of_tree_plugin_is_enabled_by_name(embedded: NewEmbedded) -> None:
    """With its weight; it decides between nodes that are alike otherwise."""
    spec = PluginSpec("PreferLong", NoArgs, build_prefer_long)
    cluster = [node("a"), node("longer"), pod("p")]
    without = embedded(*cluster, out_of_tree=[spec])
    weighty = [{"name": "PreferLong", "weight": 9}]
    config = configuration(plugins={"score": {"enabled": weighty}})
    enabled = embedded(*cluster, config=config, out_of_tree=[spec], explain=True)

    assert places(without.scheduler.step()) == {"p": "a"}
    (bound,) = only(Bound, enabled.scheduler.step())
    assert bound.node == "longer"
    assert bound.scorecard is not None
    assert bound.scorecard.scores["PreferLong"].tolist() == [9, 54]


def test_every_pod_goes_by_the_profile_that_it_names(embedded: NewEmbedded) -> None:
    """One packs, one spreads."""
    packing = configuration(
        schedulerName="packing",
        pluginConfig=[
            {"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}}
        ],
    )
    both = KubeSchedulerConfiguration(profiles=(*configuration().profiles, *packing.profiles))
    one = embedded(
        node("a", cpu=4, memory="8Gi"),
        node("b", cpu=4, memory="8Gi"),
        pod("there", cpu=1, memory="2Gi", on="b"),
        pod("p", cpu=1, memory="2Gi"),
        pod("q", cpu=1, memory="2Gi", schedulerName="packing"),
        config=both,
    )

    assert places(one.scheduler.step()) == {"p": "a", "q": "a"}


# -- nodes come and go, schedulers restart ---------------------------------------------------


def test_pods_of_a_node_that_is_gone_count_again_when_it_returns(embedded: NewEmbedded) -> None:
    """What they hold is not forgotten."""
    one = embedded(node("n", cpu=1), pod("b", cpu=1, on="n"))
    one.scheduler.step()
    one.cluster.delete(Node, "n")
    one.cluster.create(pod("p", cpu=1))
    (failed,) = only(Unschedulable, one.scheduler.step())
    assert failed.message == "no nodes available to schedule pods"

    one.cluster.create(node("n", cpu=1))
    assert only(Unschedulable, later(one, 5.0))
    one.cluster.delete(Pod, "b", "default")
    assert places(later(one, 5.0)) == {"p": "n"}


def test_a_pod_deleted_while_its_node_is_gone_does_not_come_back(embedded: NewEmbedded) -> None:
    """Nor one that ended."""
    one = embedded(node("n", cpu=2), pod("b", cpu=1, on="n"), pod("c", cpu=1, on="n"))
    one.scheduler.step()
    one.cluster.delete(Node, "n")
    one.scheduler.step()
    one.cluster.delete(Pod, "b", "default")
    one.cluster.patch(Pod, "c", "default", {"status": {"phase": "Failed"}}, "status")
    one.cluster.create(node("n", cpu=2))
    one.scheduler.step()

    assert one.state.nodes.requested[0, 0] == 0


def test_a_restarted_scheduler_has_the_same_state(embedded: NewEmbedded) -> None:
    """Requests, ports and devices are all in what is stored."""
    one = embedded(
        *(part for n in "abc" for part in (node(n, **GPU_NODE), device(n, gpus=2))),
        *(gpu_pod(f"g{i}", gpu_core=30, gpu_memory_ratio=40) for i in range(8)),
        *(pod(f"p{i}", cpu=1, memory="1Gi", ports=[8080]) for i in range(3)),
        config=GPUS,
    )
    one.run_to_fixed_point()
    again = restarted(one.cluster, one.clock, GPUS)
    again.sync()

    first, second = one.state.nodes, again.state.nodes
    assert first.names == second.names
    assert first.gpus.used.any()
    assert np.array_equal(first.gpus.used, second.gpus.used)
    assert first.ports.keys() == second.ports.keys()
    for name, column in {n: i for i, n in enumerate(one.state.axis.names)}.items():
        other = again.state.axis.index(name)
        assert np.array_equal(first.requested[column], second.requested[other])
    assert again.step() == []
    again.state.validate()


def test_a_restarted_scheduler_goes_on_with_what_is_pending() -> None:
    """Nominations included: they are written in the pods."""
    clock = VirtualClock(START_S)
    cluster = MemoryCluster(clock, immediate_pod_deletion=False)
    cluster.load([node("n", cpu=1), pod("low", cpu=1, on="n"), pod("p", cpu=1, priority=10)])
    restarted(cluster, clock).step()
    cluster.delete(Pod, "low", "default", grace_period_s=0)
    cluster.load([pod("thief", cpu=1, priority=5)])
    again = restarted(cluster, clock)

    assert places(again.step()) == {"p": "n"}
    assert again.queue.counts()[QueueState.UNSCHEDULABLE] == 1


def test_a_restart_costs_no_pod_its_place() -> None:
    """Those that have waited longest go first, whatever their names."""
    clock = VirtualClock(START_S)
    cluster = MemoryCluster(clock)
    cluster.load([node("n", cpu=1)])
    for name in ("z", "m", "a"):
        clock.advance_to(clock.now_s() + 60)
        cluster.create(pod(name, cpu=1))

    assert list(places(restarted(cluster, clock).step())) == ["z"]


def test_labels_that_come_with_the_bind_count(embedded: NewEmbedded) -> None:
    """The API server copies the node's zone to the pod; whoever avoids such pods sees that."""
    one = embedded(node("n", cpu=4), pod("p", cpu=1, labels={"app": "a"}))
    one.scheduler.step()
    one.cluster.patch(Pod, "p", "default", {"metadata": {"labels": {"zone": "z"}}})
    selector = {"labelSelector": {"matchLabels": {"zone": "z"}}}
    away = {
        "requiredDuringSchedulingIgnoredDuringExecution": [selector | {"topologyKey": HOSTNAME}]
    }
    one.cluster.create(pod("q", cpu=1, affinity={"podAntiAffinity": away}))

    (refused,) = only(Unschedulable, one.scheduler.step())
    assert "anti-affinity" in refused.message
    one.scheduler.state.validate()


def test_warming_up_leaves_no_trace(embedded: NewEmbedded) -> None:
    """It decides, but places nobody, and later decisions are the same."""
    objects = (node("n", cpu=1), node("m", cpu=1), pod("p", cpu=1), pod("q", cpu=1))
    one, cold = embedded(*objects), embedded(*objects)
    one.scheduler.warm_up()

    assert not one.scheduler.state.pods.by_key
    assert places(one.scheduler.step()) == places(cold.scheduler.step())
