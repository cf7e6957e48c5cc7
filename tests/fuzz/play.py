"""Plays a script: the scheduler over an in-memory cluster, step by step, with a witness."""

import random
from contextlib import suppress

from tests.fuzz.late_events import FarCluster
from tests.fuzz.rules import Witness
from tests.fuzz.script import Cordon, Create, Delete, Finish, Reap, Restart, Script, Step, Wait
from tests.worlds import START_S

from koordinator.api.meta import KubeObject
from koordinator.api.node import Node
from koordinator.api.node_metric import NodeMetric
from koordinator.api.pod import Pod
from koordinator.foundation.clock import VirtualClock
from koordinator.foundation.errors import AlreadyExistsError, NotFoundError
from koordinator.scheduler.assembly import build_scheduler
from koordinator.scheduler.loop import Evicted, Outcome, Scheduler, SchedulerOptions, Unschedulable
from koordinator.scheduler.profile import WATCHED, build_profiles
from koordinator.scheduler.queue import QueueState
from koordinator.scheduler.snapshot import ClusterState
from koordinator.simulator.embedded import DEFAULT_ADMISSION

MOST_ROUNDS = 400  # of one step of a script; a longer one counts as endless
FRUITLESS = 8


class RestlessError(AssertionError):
    """The scheduler goes on and on although nothing happens any more."""


class Play:
    """One world.  ``now`` is in it; ``step`` executes an event and runs the scheduler until idle.

    ``watch`` sees to it that the rules hold then.
    """

    def __init__(self, script: Script, *, merge_runs: bool = True, checks: bool = True) -> None:
        self.script = script
        self.clock = VirtualClock(START_S)
        self.cluster = FarCluster(
            self.clock,
            admission=DEFAULT_ADMISSION,
            immediate_pod_deletion=not script.slow_ends,
        )
        if script.lags:
            self.cluster.draw = random.Random(script.seed)
        self.outcomes: list[Outcome] = []
        self._options = SchedulerOptions(merge_runs=merge_runs)
        self._witness = Witness(self.cluster, script) if checks else None
        self.scheduler = self._started()

    def _started(self) -> Scheduler:
        state = ClusterState()
        profiles = build_profiles(self.script.configuration, state.axis).profiles
        return build_scheduler(
            self.cluster, self.clock, profiles, state, WATCHED, options=self._options
        )

    def run(self) -> None:
        """Play the whole script.  Raises whatever goes wrong."""
        for step in self.script.steps:
            self.step(step)
        if self.script.slow_ends:
            self.step(Reap(1.0))
        self.step(Wait(400.0))

    def step(self, step: Step) -> None:
        """Execute the event, and run the scheduler."""
        self.happen(step)
        self.settle()
        if self._witness is not None:
            self._witness.check(self.scheduler)

    def happen(self, step: Step) -> None:
        """Execute the event, if it is possible."""
        match step:
            case Create(objects):
                for obj in objects:
                    self._create(obj)
            case Delete(kind, name, namespace):
                with suppress(NotFoundError):
                    self.cluster.delete(kind, name, namespace)
            case Finish(name):
                self._finish(name)
            case Reap(part):
                self._reap(part)
            case Cordon(name, off):
                with suppress(NotFoundError):
                    self.cluster.patch(Node, name, "", {"spec": {"unschedulable": off}})
            case Wait(seconds):
                self.clock.advance_to(self.clock.now_s() + seconds)
            case Restart():
                self.scheduler.finish()
                self.scheduler = self._started()

    def _finish(self, name: str) -> None:
        with suppress(NotFoundError):
            if self.cluster.get(Pod, name, "default").spec.node_name:
                over = {"status": {"phase": "Succeeded"}}
                self.cluster.patch(Pod, name, "default", over, subresource="status")

    def _reap(self, part: float) -> None:
        ending = [
            p.metadata
            for p in self.cluster.list(Pod).items
            if p.metadata.deletion_timestamp is not None
        ]
        for meta in ending[: max(1, round(part * len(ending)))] if ending else ():
            self.cluster.delete(Pod, meta.name, meta.namespace, grace_period_s=0)

    def _create(self, obj: KubeObject) -> None:
        if isinstance(obj, NodeMetric):
            with suppress(NotFoundError):
                self.cluster.delete(NodeMetric, obj.metadata.name)
        with suppress(AlreadyExistsError):
            self.cluster.load([obj], admit=True)

    def settle(self) -> None:
        """Work until nothing moves any more, letting backoffs pass."""
        fruitless = 0
        for _ in range(MOST_ROUNDS):
            done = self.scheduler.step()
            self.outcomes += done
            late = self.cluster.late
            if any(not isinstance(one, Unschedulable) for one in done) or (late and late.has_more):
                fruitless = 0
                continue
            fruitless += 1
            counts = self.scheduler.queue.counts()
            waits = counts[QueueState.BACKOFF] or counts[QueueState.IN_FLIGHT]
            wakeup_s = self.scheduler.next_wakeup_s()
            if fruitless < 3 and self.cluster.draw is not None:
                continue  # the last writes may not have been seen
            if not waits or wakeup_s is None or fruitless >= FRUITLESS:
                return
            self.clock.advance_to(wakeup_s)
        raise RestlessError(f"{MOST_ROUNDS} rounds, and still {self.outcomes[-3:]}")

    def digest(self) -> dict[str, str]:
        """Return where the pods are, and who had to go."""
        placed = {p.key: p.spec.node_name for p in self.cluster.list(Pod).items}
        evicted = [one.pod for one in self.outcomes if isinstance(one, Evicted)]
        return placed | {"evicted": ", ".join(evicted)}
