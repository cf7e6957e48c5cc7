"""The scheduler without one of its features."""

import pytest
from tests.worlds import START_S, configuration, node, pod

from koordinator.cluster.memory.server import MemoryCluster
from koordinator.foundation.clock import VirtualClock
from koordinator.scheduler.assembly import build_scheduler
from koordinator.scheduler.features.explanations import ExplanationFeature
from koordinator.scheduler.features.gangs import GangFeature
from koordinator.scheduler.features.nodes import NodePagesFeature
from koordinator.scheduler.features.quotas import JobQueueFeature, QuotaFeature
from koordinator.scheduler.features.reservations import ReservationFeature
from koordinator.scheduler.features.topology import TopologyFeature
from koordinator.scheduler.loop import Bound, Scheduler, SchedulerOptions, Unschedulable
from koordinator.scheduler.loop.feature import Feature
from koordinator.scheduler.profile import WATCHED, build_profiles
from koordinator.scheduler.snapshot import ClusterState

FEATURES: tuple[type[Feature], ...] = (
    JobQueueFeature,
    GangFeature,
    TopologyFeature,
    QuotaFeature,
    ReservationFeature,
    ExplanationFeature,
    NodePagesFeature,
)
LISTED = {"preFilter": ["Reservation", "ElasticQuota"], "permit": ["Coscheduling"]}


def scheduler(*without: type[Feature]) -> tuple[Scheduler, MemoryCluster]:
    """Return a scheduler with all plugins that features need, and its cluster."""
    clock = VirtualClock(START_S)
    cluster, state = MemoryCluster(clock), ClusterState()
    enabled = {
        point: {"enabled": [{"name": name} for name in names]} for point, names in LISTED.items()
    }
    profiles = build_profiles(configuration(plugins=enabled), state.axis).profiles
    built = build_scheduler(
        cluster,
        clock,
        profiles,
        state,
        WATCHED,
        options=SchedulerOptions(writes_network=True),
        without=without,
    )
    return built, cluster


@pytest.mark.parametrize("kind", FEATURES, ids=lambda kind: kind.__name__)
def test_a_scheduler_runs_without_a_feature(kind: type[Feature]) -> None:
    """Pods that fit are bound, the others have a reason, and invariants hold."""
    one, cluster = scheduler(kind)
    cluster.create(node("n", cpu=4))
    for name, cpu in (("small", 1), ("again", 1), ("large", 9)):
        cluster.create(pod(name, cpu))
    outcomes = [*one.step(), *one.step()]
    bound = {o.pod for o in outcomes if isinstance(o, Bound)}
    waiting = {o.pod for o in outcomes if isinstance(o, Unschedulable)}
    assert (bound, waiting) == ({"default/small", "default/again"}, {"default/large"})
    assert one.feature(kind) is None
    one.validate()


def test_scheduler_runs_without_features() -> None:
    """The loop depends on none of them."""
    one, cluster = scheduler(*FEATURES)
    cluster.create(node("n"))
    cluster.create(pod("p", 1))
    assert [o.pod for o in (*one.step(), *one.step()) if isinstance(o, Bound)] == ["default/p"]
    assert one.next_wakeup_s() is None


def test_every_feature_is_tested() -> None:
    """A new feature must be left out here, too."""
    one, _ = scheduler()
    assert {type(feature) for feature in one.handle.hooks.features} == set(FEATURES)
