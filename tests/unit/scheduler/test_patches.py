"""Background writes of statuses with retries."""

from collections.abc import Sequence

from tests.unit.scheduler.test_gangs import config, group, members
from tests.worlds import START_S, node

from koordinator.api.pod_groups import PodGroup
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.cluster.port import ObjectPatch, Report
from koordinator.foundation.clock import VirtualClock
from koordinator.scheduler.assembly import build_scheduler
from koordinator.scheduler.loop.reporter import AGAIN_S
from koordinator.scheduler.profile import WATCHED, build_profiles
from koordinator.scheduler.snapshot import ClusterState


class Forgetful(MemoryCluster):
    """Cluster that loses patches on demand."""

    loses = True

    def report(self, reports: Sequence[Report]) -> None:
        """Write the due statuses."""
        kept = [r for r in reports if not (self.loses and isinstance(r, ObjectPatch))]
        super().report(kept)


def phase(cluster: MemoryCluster) -> str:
    return cluster.get(PodGroup, "g", "default").status.phase


def test_lost_status_is_written_again() -> None:
    """The write is retried after a pause that spares a slow server, and without events."""
    clock, state = VirtualClock(START_S), ClusterState()
    cluster = Forgetful(clock)
    cluster.load([node("a"), group("g", 2), *members("g", 2)], admit=True)
    profiles = build_profiles(config(), state.axis).profiles
    scheduler = build_scheduler(cluster, clock, profiles, state, WATCHED)
    scheduler.sync()
    scheduler.step()

    cluster.loses = False
    scheduler.step()
    assert phase(cluster) == ""
    due_s = scheduler.next_wakeup_s()
    assert due_s is not None
    assert due_s <= START_S + AGAIN_S
    clock.advance_to(START_S + AGAIN_S)
    for _ in range(3):
        scheduler.step()

    assert phase(cluster) == "Scheduled"
