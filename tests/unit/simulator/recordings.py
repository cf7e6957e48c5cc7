"""A small cluster whose scheduler works while it is recorded, in virtual time."""

from typing import Any

from msgspec.structs import replace
from tests.worlds import START_S, configuration, pod

from koordinator.api.kubescheduler import KubeSchedulerConfiguration
from koordinator.api.meta import KubeObject
from koordinator.api.node import Node
from koordinator.api.node_metric import NodeMetric
from koordinator.api.pod import Pod
from koordinator.scheduler.loop import Bound, Evicted
from koordinator.simulator import Embedded
from koordinator.simulator.recorder import Recorder
from koordinator.simulator.recording import Anonymiser, read_recording
from koordinator.simulator.replay import ReplayOutcomes, replay


class Session:
    """``nodes_of`` is what the scheduler decided: of every pod that got one, its first node."""

    def __init__(
        self,
        *objects: KubeObject,
        anonymous: bool = False,
        config: KubeSchedulerConfiguration | None = None,
    ) -> None:
        self.config = config or configuration()
        self.world = Embedded(self.config, now_s=START_S)
        self.world.load(objects)
        self.lines: list[bytes] = []
        self.anonymiser = Anonymiser(b"secret") if anonymous else None
        self.recorder = Recorder(
            self.world.cluster,
            self.world.clock,
            self.lines.append,
            anonymiser=self.anonymiser,
        )
        self.recorder.step()
        self.nodes_of: dict[str, str] = {}
        self.evicted: set[str] = set()
        self.settle()

    def settle(self) -> None:
        """Run the scheduler on the events so far."""
        while True:
            outcomes = self.world.scheduler.step()
            self.recorder.step()
            for outcome in outcomes:
                if isinstance(outcome, Bound):
                    self.nodes_of.setdefault(outcome.pod, outcome.node)
                elif isinstance(outcome, Evicted):
                    self.evicted.add(outcome.pod)
            if not any(isinstance(outcome, Evicted) for outcome in outcomes):
                return

    def wait(self, seconds: float) -> None:
        """Advance the clock, and run the scheduler meanwhile."""
        until_s = self.world.clock.now_s() + seconds
        while True:
            wakeup_s = self.world.scheduler.next_wakeup_s()
            if wakeup_s is None or wakeup_s >= until_s:
                break
            self.world.clock.advance_to(wakeup_s)
            self.settle()
        self.world.clock.advance_to(until_s)

    def submit(self, *pods: Pod) -> None:
        for one in pods:
            self.world.cluster.create(one)
        self.happened()

    def add(self, *objects: KubeObject) -> None:
        for one in objects:
            self.world.cluster.load([one])
        self.happened()

    def cordon(self, name: str, *, on: bool) -> None:
        stored = self.world.cluster.get(Node, name)
        self.world.cluster.update(replace(stored, spec=replace(stored.spec, unschedulable=on)))
        self.happened()

    def report(self, metric: NodeMetric) -> None:
        """Report the usage of a node."""
        cluster, name = self.world.cluster, metric.metadata.name
        known = [it for it in cluster.list(NodeMetric).items if it.metadata.name == name]
        stored = known[0] if known else cluster.create(metric)
        cluster.update_status(replace(stored, status=metric.status))
        self.happened()

    def finish(self, name: str, phase: str = "Succeeded") -> None:
        """Report the phase of a pod; one that is over is deleted afterwards."""
        stored = self.world.cluster.get(Pod, name, "default")
        status = replace(stored.status, phase=phase)
        self.world.cluster.update_status(replace(stored, status=status))
        self.happened()

    def delete(self, name: str) -> None:
        self.world.cluster.delete(Pod, name, "default", grace_period_s=0)
        self.happened()

    def exists(self, name: str) -> bool:
        return any(it.metadata.name == name for it in self.world.cluster.list(Pod).items)

    def happened(self) -> None:
        self.recorder.step()
        self.settle()

    def replayed(self, config: KubeSchedulerConfiguration | None = None) -> ReplayOutcomes:
        return replay(read_recording(self.lines, "session"), config or self.config)


def new_pod(name: str, **given: Any) -> Pod:
    """Return a pod as a user creates it."""
    one = pod(name, **given)
    return replace(one, metadata=replace(one.metadata, uid="", creation_timestamp=None))
