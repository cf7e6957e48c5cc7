"""Preemption by single pods: victims and nominations."""

from tests.unit.scheduler.conftest import NewEmbedded
from tests.unit.scheduler.watches import events, only, places, restarted, stored
from tests.worlds import START_S, budget, node, pod

from koordinator.api.event import Event
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.foundation.clock import VirtualClock
from koordinator.foundation.errors import InvalidError
from koordinator.scheduler.loop import (
    Evicted,
    Unschedulable,
)


def test_less_important_pod_is_preempted(embedded: NewEmbedded) -> None:
    """One victim suffices; it has an event and is deleted, and the pod follows."""
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
        (
            "0/1 nodes are available: 1 Insufficient cpu. preemption: found a potential placement "
            "for pod on node n, preempting 1 victims"
        ),
    )
    ((kind, reason, action, note),) = events(one, "lower")
    assert (kind, reason, action) == ("Normal", "Preempted", "Preempting")
    assert note == f"Preempted by pod {stored(one, 'p').metadata.uid} on node n"


def test_terminating_victims_keep_their_node() -> None:
    """Meanwhile the pod is nominated, waits, and evicts no other pods."""
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
    """Cluster that refuses deletions as an admission webhook may."""

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


def test_refused_eviction_is_retried() -> None:
    """The pod has the reason; the victim gets its event only after the eviction."""
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


def test_nominated_node_is_kept(embedded: NewEmbedded) -> None:
    """Less important pods do not get the node, also after the victims have terminated."""
    one = embedded(node("n", cpu=1), pod("low", cpu=1, on="n"), pod("p", cpu=1, priority=10))
    one.scheduler.step(limit=1)
    one.cluster.create(pod("thief", cpu=1, priority=5))

    assert places(one.run_to_fixed_point()) == {"p": "n"}


def test_more_important_pod_takes_a_nominated_node(embedded: NewEmbedded) -> None:
    """The nominated pod is scheduled elsewhere."""
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


def test_never_preempting_pod_waits(embedded: NewEmbedded) -> None:
    """The message has the reason."""
    one = embedded(
        node("n", cpu=1),
        pod("low", cpu=1, on="n"),
        pod("p", cpu=1, priority=10, preemptionPolicy="Never"),
    )

    (failed,) = only(Unschedulable, one.run_to_fixed_point())
    assert failed.message == (
        "0/1 nodes are available: 1 Insufficient cpu. "
        "preemption: not eligible due to preemptionPolicy=Never."
    )


def test_pod_bound_in_this_step_can_be_a_victim(embedded: NewEmbedded) -> None:
    """The cluster has not confirmed the bind yet."""
    one = embedded(node("n", cpu=1), pod("low", cpu=1))
    one.scheduler.step()
    one.cluster.create(pod("p", cpu=1, priority=10))

    assert places(one.run_to_fixed_point()) == {"p": "n"}
