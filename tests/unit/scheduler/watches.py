"""Outcomes, events and restarts for tests of the whole scheduler."""

from collections.abc import Sequence
from typing import TypeVar

from koordinator.api.event import Event
from koordinator.api.kubescheduler import KubeSchedulerConfiguration
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
