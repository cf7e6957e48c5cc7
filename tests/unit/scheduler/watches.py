"""Outcomes, events and restarts for tests of the whole scheduler."""

from collections.abc import Sequence
from typing import TypeVar

from tests.worlds import START_S

from koordinator.api.event import Event
from koordinator.api.kubescheduler import KubeSchedulerConfiguration
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.foundation.clock import VirtualClock
from koordinator.scheduler.assembly import build_scheduler
from koordinator.scheduler.features.metrics import SchedulerMetrics
from koordinator.scheduler.loop import (
    Bound,
    Outcome,
    Scheduler,
    SchedulerOptions,
)
from koordinator.scheduler.profile import WATCHED, build_profiles
from koordinator.scheduler.snapshot import ClusterState
from koordinator.simulator import Embedded
from koordinator.simulator.embedded import STOCK

OutcomeT = TypeVar("OutcomeT", bound=Outcome)


def only(kind: type[OutcomeT], outcomes: Sequence[Outcome]) -> list[OutcomeT]:
    return [outcome for outcome in outcomes if isinstance(outcome, kind)]


def places(outcomes: Sequence[Outcome]) -> dict[str, str]:
    """Return ``{pod: node}`` of bound pods."""
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
    """Advance the clock and run the scheduler."""
    one.clock.advance_to(one.clock.now_s() + seconds)
    return one.scheduler.step()


def run_until(one: Embedded, seconds: float = 20) -> None:
    """Advance the clock to a time after the start, and run until nothing changes."""
    one.clock.advance_to(START_S + seconds)
    one.run_to_fixed_point()
    one.scheduler.validate()


def nodes_of_pods(one: Embedded) -> dict[str, str]:
    """Return the node of each pod by name; empty for pods without one."""
    return {each.metadata.name: each.spec.node_name for each in one.cluster.list(Pod).items}


def delete_now(one: Embedded, kind: type[KubeObject], name: str) -> None:
    """Delete an object of the default namespace, a pod without a grace period."""
    namespace = "default" if kind.NAMESPACED else ""
    one.cluster.delete(kind, name, namespace, grace_period_s=0 if kind is Pod else None)


def restarted(
    cluster: MemoryCluster,
    clock: VirtualClock,
    config: KubeSchedulerConfiguration = STOCK,
    options: SchedulerOptions | None = None,
    metrics: SchedulerMetrics | None = None,
) -> Scheduler:
    """Return a new scheduler on an existing cluster."""
    state = ClusterState()
    profiles = build_profiles(config, state.axis).profiles
    return build_scheduler(
        cluster, clock, profiles, state, WATCHED, options=options, metrics=metrics
    )
