"""Carries evictions out, and remembers who is leaving.

Source: koordinator pkg/koordlet/qosmanager/plugins/util/evictor.go, evict.go
``DefaultEvictionExecutor``; helpers/kill.go.
"""

import logging
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from koordinator.cluster.port import Cluster
from koordinator.foundation.errors import ClusterError, HostError, NotFoundError
from koordinator.host.copilot import Copilot, Released
from koordinator.koordlet.app.container_stops import ContainerStops, in_thread
from koordinator.koordlet.app.events import EVICTED, NOT_EVICTED, pod_event
from koordinator.koordlet.app.outbox import Outbox
from koordinator.koordlet.executor import Executor
from koordinator.koordlet.intents import EndContainers, EvictPod
from koordinator.koordlet.qos.eviction import Task, choose_with_copilot, is_runtime

log = logging.getLogger(__name__)

REMEMBERED_S = 120.0
#: So long a copilot is left alone that had nothing to release or did not answer.
COPILOT_PAUSE_S = 60.0
_MOST_ANSWERS = 16
#: So long an eviction is shown by name.
SHOWN_S = 300.0
_MOST_RECENT = 1024


@dataclass(frozen=True, slots=True)
class _Answer:
    asked: EndContainers
    released: Released
    problem: str = ""


class EvictionManager:
    """One per resource, with its own time to cool down.

    With ``stops`` the runtime ends a victim's containers, within the time that its pod is given;
    without, or where the runtime can't, their processes are ended at once.  Neither needs an API
    server; ``only_by_api`` asks the API server instead, which asks disruption budgets.  With a
    ``copilot`` NodeManagers of YARN are not evicted: their containers are ended in their place.
    """

    def __init__(
        self,
        executor: Executor,
        outbox: Outbox,
        *,
        cool_s: float,
        only_by_api: bool,
        copilot: Copilot | None = None,
        stops: ContainerStops | None = None,
    ) -> None:
        self.counts: Counter[str] = Counter()  # by reason
        self._executor = executor
        self._outbox = outbox
        self._cool_s = cool_s
        self._only_by_api = only_by_api
        self._cool_until_s = 0.0
        self._leaving: dict[str, float] = {}  # uid -> since when
        self._copilot = copilot
        self._stops = stops
        self._copilot_pause_s = 0.0  # until when
        self._answers: deque[_Answer] = deque(maxlen=_MOST_ANSWERS)  # of the thread that asks
        self._recent: deque[tuple[float, tuple[str, str, str]]] = deque(maxlen=_MOST_RECENT)

    def is_cooling(self, now_s: float) -> bool:
        """Whether the last eviction is too fresh for another one."""
        return now_s < self._cool_until_s

    def recent(self, now_s: float) -> Counter[tuple[str, str, str]]:
        """Count evictions of the last minutes by namespace, name and reason."""
        return Counter(who for when_s, who in self._recent if now_s - when_s < SHOWN_S)

    def carry_out(self, tasks: Sequence[Task], now_s: float) -> None:
        """Evict whom the tasks need to go."""
        self._leaving = {u: s for u, s in tuple(self._leaving.items()) if now_s - s < REMEMBERED_S}
        self._take_answers(now_s)
        runtimes = self._runtimes(tasks)
        if runtimes and now_s < self._copilot_pause_s:
            tasks = [
                replace(task, candidates=[c for c in task.candidates if c.pod.uid not in runtimes])
                for task in tasks
            ]
        victims, asked = choose_with_copilot(tasks, self._leaving, runtimes)
        if asked is not None and asked.amounts:
            self.counts[asked.reason] += 1
            self._cool_until_s = now_s + self._cool_s
            self._release(asked)
        for victim in victims:
            log.warning(
                "evicting",
                extra={"pod": f"{victim.namespace}/{victim.name}", "why": victim.message},
            )
            self.counts[victim.reason] += 1
            self._recent.append((now_s, (victim.namespace, victim.name, victim.reason)))
            if self._only_by_api:
                self._leaving[victim.uid] = now_s
                self._ask(victim, now_s)
            else:
                self._end(victim, now_s)
                self._tell(victim, EVICTED, victim.message, now_s)
        if victims:
            self._cool_until_s = now_s + self._cool_s

    def look_after(self, now_s: float) -> None:
        """Note whose containers have ended; where the runtime failed, processes are ended."""
        for stop in self._stops.finished() if self._stops is not None else ():
            self._leaving.pop(stop.victim.uid, None)
            if stop.problems:
                log.warning(
                    "not stopped by the runtime",
                    extra={"pod": stop.victim.uid, "error": stop.problems[0]},
                )
                self._executor.kill(stop.victim, now_s)
            else:
                self._executor.note_eviction(stop.victim, "", now_s, "containers have ended")

    def _end(self, victim: EvictPod, now_s: float) -> None:
        grace_s = self._stops.begin(victim, in_thread) if self._stops is not None else None
        if grace_s is None:
            self._executor.kill(victim, now_s)
            return
        self._leaving[victim.uid] = now_s
        done = f"containers are given {grace_s} s to end"
        self._executor.note_eviction(victim, "", now_s, done)

    def _runtimes(self, tasks: Sequence[Task]) -> frozenset[str]:
        """Return the UIDs of the pods whose containers the copilot ends."""
        if self._copilot is None:
            return frozenset()
        return frozenset(
            each.pod.uid for task in tasks for each in task.candidates if is_runtime(each.pod)
        )

    def _release(self, asked: EndContainers) -> None:
        copilot, answers = self._copilot, self._answers
        log.warning("ending containers", extra={"why": asked.message})

        def release(_: Cluster) -> None:
            try:
                if copilot is not None:
                    found = copilot.release(asked.amounts, node_cpu_ratio=-1, node_memory_ratio=-1)
                    answers.append(_Answer(asked, found))
            except HostError as error:
                answers.append(_Answer(asked, {}, str(error)))

        self._outbox.put(f"containers for {asked.reason}", release)

    def _take_answers(self, now_s: float) -> None:
        """Note what the copilot has released; where that was nothing, it is left alone a while."""
        while self._answers:
            answer = self._answers.popleft()
            amounts = {name: amount for name, amount in answer.released.items() if amount > 0}
            text = ", ".join(f"{name} {amount:.0f}" for name, amount in sorted(amounts.items()))
            self._executor.note_release(
                answer.asked, f"released {text or 'nothing'}", answer.problem, now_s
            )
            if not amounts:
                self._copilot_pause_s = now_s + COPILOT_PAUSE_S

    def _ask(self, victim: EvictPod, now_s: float) -> None:
        def evict(cluster: Cluster) -> None:
            try:
                cluster.evict(victim.namespace, victim.name, uid=victim.uid)
            except NotFoundError:
                return
            except ClusterError as error:
                self._leaving.pop(victim.uid, None)  # it may be chosen again
                note = f"{victim.message}: {error}"
                cluster.report([pod_event(victim, NOT_EVICTED, note, now_s)])
                raise
            cluster.report([pod_event(victim, EVICTED, victim.message, now_s)])

        self._executor.note_eviction(victim, "", now_s)
        self._outbox.put(f"eviction of {victim.uid}", evict)

    def _tell(self, victim: EvictPod, reason: str, note: str, now_s: float) -> None:
        event = pod_event(victim, reason, note, now_s)
        self._outbox.put(f"event of {victim.uid}", lambda cluster: cluster.report([event]))
