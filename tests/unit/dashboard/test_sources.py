"""What a dashboard looks at: manifests, a simulation, a recording, a cluster."""

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
from koordinator.cli.dashboard import simulation_source
from koordinator.cli.dashboard_flags import DashboardFlags
from koordinator.cli.recording import opened_recording, recorded_configuration
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
from koordinator.simulator.recording import Recording
from koordinator.simulator.replay import ReplayRun
from koordinator.simulator.run import default_profile

EXAMPLE = Path("examples/small-gpu-cluster.jsonl.gz")
WORKLOAD = Path("examples/small-gpu-cluster.yaml")


class Looks:
    """Stands for the feed: looks each time a source lets it, and says when it is enough."""

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
    """Let time pass."""


# -- manifests -------------------------------------------------------------------------------


def test_manifests_are_scheduled_and_read_again_when_they_change() -> None:
    """A pod that finds a place has one; a node that is written to the files makes room."""
    objects: list[KubeObject] = crowded()
    version = 1

    def add_node() -> None:
        nonlocal version
        objects.append(node("c", cpu=16))
        version = 2

    seen: list[int] = []
    source = ManifestSource("t", lambda: objects, lambda: version, STOCK, lambda: START_S)
    looks = Looks(source, lambda: seen.append(placed(source)), add_node)
    source.follow(looks)

    assert source.kind is SourceKind.MANIFESTS
    assert seen == [2]
    assert placed(source) == 6


def test_what_can_not_be_read_any_more_leaves_what_was_there() -> None:
    """The page says what is wrong, and shows the last that could be read."""
    version, problem = 1, ""

    def read() -> list[KubeObject]:
        if problem:
            raise InputError(problem)
        return crowded()

    def spoil() -> None:
        nonlocal version, problem
        version, problem = 2, "line 3: nonsense"

    source = ManifestSource("t", read, lambda: version, STOCK, lambda: START_S)
    looks = Looks(source, spoil, nothing)
    source.follow(looks)

    assert looks.phases == [SourcePhase.LIVE, SourcePhase.LOST, SourcePhase.LOST]
    assert "nonsense" in source.status.problem
    assert placed(source) == 2


# -- simulations -----------------------------------------------------------------------------


def simulation(**given: Any) -> SimulationSource:
    run = Simulation(read_workload(str(WORKLOAD)), default_profile(), until_s=7200.0)
    return SimulationSource(run, default_profile(), SystemClock(), **given)


def test_a_simulation_runs_to_its_end_and_stays() -> None:
    """Afterwards its last moment can be asked about, and its report is there."""
    source = simulation()
    looks = Looks(source, *[nothing] * 10_000)
    source.follow(looks)

    assert source.status.phase is SourcePhase.ENDED
    assert source.status.now_s == source.status.to_s == 7200.0
    assert source.status.is_virtual
    assert source.result is not None
    assert overview_of(source).totals.nodes == 4


def test_a_run_that_is_over_at_once_has_been_seen_all_along() -> None:
    """As often as the simulation itself has looked: every five minutes of two hours."""
    with followed(simulation()) as feed:
        while feed.source.status.phase is not SourcePhase.ENDED:
            time.sleep(0.01)
    assert feed.timeline.as_data()["atS"][:24] == [300.0 * number for number in range(24)]


def test_a_run_that_is_over_has_a_report() -> None:
    """The page of koord simulate --report; before that, and of manifests, there is none."""
    with served(simulation()) as found:
        while found.feed.source.status.phase is not SourcePhase.ENDED:
            time.sleep(0.01)
        assert found.feed.source.status.has_report
        page = found.get("/api/report").json
        assert page["figures"][0]["label"] == "Pods scheduled"
    with served(manifests(crowded())) as found:
        assert found.get("/api/report").status == 404


def test_quotas_of_a_simulation_are_on_and_its_decisions_kept() -> None:
    """What remembers decisions does not stand between the page and the plugins."""
    flags = DashboardFlags(
        workload="examples/training-jobs.yaml", config="examples/training-profile.yaml", speed=0.0
    )
    source = simulation_source(flags, SystemClock())
    source.follow(Looks(source, *[nothing] * 200))
    assert queries.quota_report(source.handle).is_on
    assert source.trail is not None
    assert source.trail.entries(AuditChoice(), 5)


def test_a_simulation_is_ended_early() -> None:
    """Whoever stops the dashboard does not wait for the day to pass."""
    source = simulation(speed=1.0)
    source.follow(Looks(source, nothing))

    assert source.result is not None
    assert source.status.now_s < 7200.0


def test_time_of_a_simulation_can_be_paused_but_not_turned_back() -> None:
    """A moment is chosen in recordings only; speeds have bounds."""
    source = simulation()
    source.control(SourceControl(is_paused=True, speed=60.0))
    assert source.status.phase is SourcePhase.PAUSED
    assert source.status.speed == 60.0
    with pytest.raises(InputError, match="record it"):
        source.control(SourceControl(seek_s=10.0))
    with pytest.raises(InputError, match="accepted is 0"):
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
    """Return where pods are, and who waits."""
    assert source.handle is not None
    state = source.handle.state
    return {key: one.row for key, one in state.pods.by_key.items()}, set(state.unbound)


def test_a_recording_is_replayed_to_its_end() -> None:
    """At the end everything is as ``koord replay`` left it."""
    source = recording()
    looks = Looks(source, *[nothing] * 50)
    source.follow(looks)

    assert source.status.phase is SourcePhase.ENDED
    assert source.status.to_s is not None
    assert source.status.now_s == source.status.to_s


def test_whoever_goes_back_in_a_recording_sees_what_was_there_before() -> None:
    """The same moment looks the same, whether time came to it or went back to it."""
    source = recording()
    source.control(SourceControl(is_paused=True))
    seen: list[Any] = []

    def look() -> None:
        seen.append((source.status.now_s, state_at(source)))

    def seek(share: float) -> Callable[[], None]:
        def go() -> None:
            status = source.status
            assert status.from_s is not None
            assert status.to_s is not None
            moment_s = status.from_s + share * (status.to_s - status.from_s)
            source.control(SourceControl(seek_s=moment_s))

        return go

    source.follow(Looks(source, seek(0.3), look, seek(0.9), look, seek(0.3), look))

    early, late, again = seen
    assert early == again
    assert early[1] != late[1]


def test_only_moments_of_the_recording_can_be_chosen() -> None:
    """What was before or came later nobody knows."""
    source = recording()
    source.follow(Looks(source))
    with pytest.raises(InputError, match="accepted is"):
        source.control(SourceControl(seek_s=-5.0))


def test_a_recording_that_can_not_be_read_is_told() -> None:
    """An error in the middle ends the replay with a sentence, not with a trace."""

    @contextmanager
    def broken() -> Iterator[Recording]:
        raise InputError("no recording")
        yield

    source = recording()
    broken_source = RecordingSource("r", broken, source._begin_replay, STOCK, SystemClock())
    with pytest.raises(InputError, match="no recording"):
        broken_source.follow(Looks(broken_source, nothing))


# -- a cluster -------------------------------------------------------------------------------


class ReadOnly(MemoryCluster):
    """A cluster that says so loudly if anybody writes."""

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


def test_a_cluster_is_followed_and_never_written_to() -> None:
    """Pods that would fit stay where they are: it is not the dashboard's to place them."""
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

    source.follow(Looks(source, nothing, lose_a_pod, nothing))

    found = overview_of(source)
    assert before == [2]
    assert found.totals.placed == 1
    assert {one.key for one in found.waiting} >= {"blue/new", "blue/waits-0", "red/secret-job"}
    assert not any(pod_.spec.node_name for pod_ in cluster.list(Pod).items if "waits" in pod_.key)


def test_a_cluster_that_goes_away_is_told_and_comes_back() -> None:
    """What is shown then is old, and the page says how old."""
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

    looks = Looks(source, time_passes, nothing, it_answers, nothing)
    source.follow(looks)

    assert SourcePhase.LOST in looks.phases
    assert source.status.phase is SourcePhase.LIVE
    assert overview_of(source).totals.placed == 2
