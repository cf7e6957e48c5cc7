"""Sources of a dashboard: manifests, a simulation, a recording, a cluster."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.unit.dashboard.dashboards import crowded, followed, manifests, served
from tests.worlds import START_S, node, pod

from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.cli.dashboard.command import simulation_source
from koordinator.cli.dashboard.flags import DashboardFlags
from koordinator.cli.recording import recorded_configuration
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.dashboard import queries
from koordinator.dashboard.overview import OverviewBuilder
from koordinator.dashboard.sources import ClusterSource, SourceControl, SourceKind, SourcePhase
from koordinator.dashboard.sources.cluster import LOST_AFTER_S, LiveClusterSource
from koordinator.dashboard.sources.manifests import ManifestSource
from koordinator.dashboard.sources.recording import RecordingSource
from koordinator.dashboard.sources.simulation import SimulationSource
from koordinator.domain.audit import AuditChoice
from koordinator.foundation.clock import SystemClock, VirtualClock
from koordinator.foundation.errors import BugError, InputError
from koordinator.simulator import Simulation, read_workload
from koordinator.simulator.embedded import STOCK
from koordinator.simulator.policies import default_profile
from koordinator.simulator.recorder import opened_recording
from koordinator.simulator.recording import Recording
from koordinator.simulator.replay import ReplayRun

EXAMPLE = Path("examples/small-gpu-cluster.jsonl.gz")
WORKLOAD = Path("examples/small-gpu-cluster.yaml")


class Steps:
    """Stand-in for the feed: runs a step at each pause of a source and then ends it."""

    def __init__(self, source: ClusterSource, *steps: Callable[[], object]) -> None:
        self.source, self._steps = source, iter(steps)
        self.phases: list[SourcePhase] = []

    def __call__(self, _wait_s: float) -> bool:
        self.phases.append(self.source.status.phase)
        step = next(self._steps, None)
        if step is None:
            return False
        step()
        return True


def placed(source: ClusterSource) -> int:
    handle = source.handle
    assert handle is not None
    return len(handle.state.pods.by_key)


def nothing() -> None:
    """Do nothing at this pause."""


# -- manifests -------------------------------------------------------------------------------


def test_manifests_are_scheduled_again_after_a_change() -> None:
    objects: list[KubeObject] = crowded()
    version = 1

    def add_node() -> None:
        nonlocal version
        objects.append(node("c", cpu=16))
        version = 2

    seen: list[int] = []
    source = ManifestSource("t", lambda: objects, lambda: version, STOCK, lambda: START_S)
    steps = Steps(source, lambda: seen.append(placed(source)), add_node)
    source.follow(steps)

    assert source.kind is SourceKind.MANIFESTS
    assert seen == [2]
    assert placed(source) == 6


def test_unreadable_manifests_leave_the_previous_state() -> None:
    """The status has the error."""
    version, problem = 1, ""

    def read() -> list[KubeObject]:
        if problem:
            raise InputError(problem)
        return crowded()

    def spoil() -> None:
        nonlocal version, problem
        version, problem = 2, "line 3: nonsense"

    source = ManifestSource("t", read, lambda: version, STOCK, lambda: START_S)
    steps = Steps(source, spoil, nothing)
    source.follow(steps)

    assert steps.phases == [SourcePhase.LIVE, SourcePhase.LOST, SourcePhase.LOST]
    assert "nonsense" in source.status.problem
    assert placed(source) == 2


# -- simulations -----------------------------------------------------------------------------


def simulation(**given: Any) -> SimulationSource:
    run = Simulation(read_workload(str(WORKLOAD)), default_profile(), until_s=7200.0)
    return SimulationSource(run, default_profile(), SystemClock(), **given)


def test_ended_simulation_keeps_its_last_state() -> None:
    """Queries about the last state and the report are available."""
    source = simulation()
    steps = Steps(source, *[nothing] * 10_000)
    source.follow(steps)

    assert source.status.phase is SourcePhase.ENDED
    assert source.status.now_s == source.status.to_s == 7200.0
    assert source.status.is_virtual
    assert source.result is not None
    assert overview_of(source).totals.nodes == 4


def test_fast_run_has_the_samples_of_the_simulation() -> None:
    """There is one sample for every five minutes of the two hours."""
    with followed(simulation()) as feed:
        while feed.source.status.phase is not SourcePhase.ENDED:
            time.sleep(0.01)
    assert feed.timeline.as_data()["atS"][:24] == [300.0 * number for number in range(24)]


def test_ended_run_has_a_report() -> None:
    """Manifests have none."""
    with served(simulation()) as server:
        while server.feed.source.status.phase is not SourcePhase.ENDED:
            time.sleep(0.01)
        assert server.feed.source.status.has_report
        page = server.get("/api/report").json
        assert page["figures"][0]["label"] == "Pods scheduled"
    with served(manifests(crowded())) as server:
        assert server.get("/api/report").status == 404


def test_simulation_has_quotas_and_an_audit_trail() -> None:
    """The audit does not hide the plugins from the page."""
    flags = DashboardFlags(
        workload="examples/training-jobs.yaml", config="examples/training-profile.yaml", speed=0.0
    )
    source = simulation_source(flags, SystemClock())
    source.follow(Steps(source, *[nothing] * 60))
    assert queries.quota_report(source.handle).is_on
    assert source.trail is not None
    assert source.trail.entries(AuditChoice(), 5)


def test_simulation_can_be_stopped_early() -> None:
    source = simulation(speed=1.0)
    source.follow(Steps(source, nothing))

    assert source.result is not None
    assert source.status.now_s < 7200.0


def test_simulation_can_pause_but_not_seek() -> None:
    """Speeds have bounds."""
    source = simulation()
    source.control(SourceControl(is_paused=True, speed=60.0))
    assert source.status.phase is SourcePhase.PAUSED
    assert source.status.speed == 60.0
    with pytest.raises(InputError, match="record it"):
        source.control(SourceControl(seek_s=10.0))
    with pytest.raises(InputError, match=r"must be in 0\.\."):
        source.control(SourceControl(speed=-1.0))


# -- recordings ------------------------------------------------------------------------------


def recording(speed: float = 0.0) -> RecordingSource:
    with opened_recording(EXAMPLE) as first:
        header = first.header
    config = recorded_configuration("", header, "")
    return RecordingSource(
        "r",
        lambda: opened_recording(EXAMPLE),
        lambda: ReplayRun.begin(header, config),
        config,
        SystemClock(),
        speed=speed,
    )


def overview_of(source: ClusterSource) -> Any:
    assert source.handle is not None
    return OverviewBuilder(source.handle).build(source.status)


def state_at(source: RecordingSource) -> tuple[dict[str, int], set[str]]:
    """Return the rows of placed pods and the pending pods."""
    assert source.handle is not None
    state = source.handle.state
    return {key: one.row for key, one in state.pods.by_key.items()}, set(state.unbound)


def test_recording_is_replayed_to_its_end() -> None:
    source = recording()
    steps = Steps(source, *[nothing] * 50)
    source.follow(steps)

    assert source.status.phase is SourcePhase.ENDED
    assert source.status.to_s is not None
    assert source.status.now_s == source.status.to_s


def test_seek_to_an_earlier_moment_restores_its_state() -> None:
    """A moment has the same state whether time moved forward or back to it."""
    source = recording()
    source.control(SourceControl(is_paused=True))
    seen: list[Any] = []

    def record() -> None:
        seen.append((source.status.now_s, state_at(source)))

    def seek(share: float) -> Callable[[], None]:
        def go() -> None:
            status = source.status
            assert status.from_s is not None
            assert status.to_s is not None
            moment_s = status.from_s + share * (status.to_s - status.from_s)
            source.control(SourceControl(seek_s=moment_s))

        return go

    source.follow(Steps(source, seek(0.3), record, seek(0.9), record, seek(0.3), record))

    early, late, again = seen
    assert early == again
    assert early[1] != late[1]


def test_seek_outside_the_recording_is_rejected() -> None:
    source = recording()
    source.follow(Steps(source))
    with pytest.raises(InputError, match="must be in"):
        source.control(SourceControl(seek_s=-5.0))


def test_unreadable_recording_raises_input_error() -> None:

    @contextmanager
    def broken() -> Iterator[Recording]:
        raise InputError("no recording")
        yield

    source = recording()
    broken_source = RecordingSource("r", broken, source._begin_replay, STOCK, SystemClock())
    with pytest.raises(InputError, match="no recording"):
        broken_source.follow(Steps(broken_source, nothing))


# -- a cluster -------------------------------------------------------------------------------


class ReadOnly(MemoryCluster):
    """Cluster that raises BugError on a write."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.is_open = True

    def _refuse(self) -> None:
        if not self.is_open:
            raise BugError("a dashboard has written")

    def create(self, obj: Any) -> Any:
        self._refuse()
        return super().create(obj)

    def patch(self, *given: Any, **more: Any) -> Any:
        self._refuse()
        return super().patch(*given, **more)

    def bind(self, *given: Any, **more: Any) -> Any:
        self._refuse()
        return super().bind(*given, **more)

    def delete(self, *given: Any, **more: Any) -> Any:
        self._refuse()
        return super().delete(*given, **more)


def test_cluster_is_followed_without_writes() -> None:
    """The standby does not bind pods that would fit."""
    clock = VirtualClock(START_S)
    cluster = ReadOnly(clock)
    cluster.load(crowded())
    cluster.is_open = False
    source = LiveClusterSource("live", cluster, STOCK, clock)
    before: list[int] = []

    def lose_a_pod() -> None:
        before.append(overview_of(source).totals.placed)
        cluster.is_open = True
        cluster.delete(Pod, "runs-a", "blue", grace_period_s=0)
        cluster.load([pod("new", cpu=1, namespace="blue")])
        cluster.is_open = False

    source.follow(Steps(source, nothing, lose_a_pod, nothing))

    result = overview_of(source)
    assert before == [2]
    assert result.totals.placed == 1
    assert {one.key for one in result.waiting} >= {"blue/new", "blue/waits-0", "red/secret-job"}
    assert not any(pod_.spec.node_name for pod_ in cluster.list(Pod).items if "waits" in pod_.key)


def test_unreachable_cluster_is_reported_until_it_responds() -> None:
    clock = VirtualClock(START_S)
    cluster = ReadOnly(clock)
    cluster.load(crowded())
    cluster.is_open = False
    answered_s = START_S
    source = LiveClusterSource("live", cluster, STOCK, clock, answered_s=lambda: answered_s)

    def time_passes() -> None:
        clock.advance_to(START_S + LOST_AFTER_S + 10)

    def it_answers() -> None:
        nonlocal answered_s
        answered_s = clock.now_s()

    steps = Steps(source, time_passes, nothing, it_answers, nothing)
    source.follow(steps)

    assert SourcePhase.LOST in steps.phases
    assert source.status.phase is SourcePhase.LIVE
    assert overview_of(source).totals.placed == 2
