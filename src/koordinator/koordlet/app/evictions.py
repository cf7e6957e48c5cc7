"""Execution of evictions: stops of containers, kills, evictions through the API server.

The loop starts a stop and polls its result; one thread per container waits for the runtime.
Source: koordinator pkg/koordlet/qosmanager/plugins/util/evictor.go, evict.go
``DefaultEvictionExecutor``; helpers/kill.go.
"""

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import field, replace

from koordinator.cluster.port import Cluster
from koordinator.foundation.errors import ClusterError, HostError, NotFoundError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.host.port import ContainerRuntime, Copilot, Released
from koordinator.koordlet.app.outbox import EVICTED, NOT_EVICTED, Outbox, pod_event
from koordinator.koordlet.executor import Executor
from koordinator.koordlet.intents import EndContainers, EvictPod
from koordinator.koordlet.qos.eviction import Task, choose_with_copilot, is_runtime

MOST_AT_ONCE = 32  # containers; each occupies a thread

log = logging.getLogger(__name__)

REMEMBERED_S = 120.0
#: Pause after a copilot released nothing or did not answer.
COPILOT_PAUSE_S = 60.0
_MOST_RESULTS = 16
#: Time that an eviction stays in the metric with the pod's name.
SHOWN_S = 300.0
_MOST_RECENT = 1024


@dataclass(slots=True)
class PodStop:
    """Progress of a victim's stop; ``problems`` is empty if all containers have stopped."""

    victim: EvictPod
    pending: int  # containers
    problems: list[str] = field(default_factory=list)


class ContainerStops:
    """Running stops.  ``longest_s`` caps the grace period (eviction-max-pod-grace-period)."""

    def __init__(self, runtime: ContainerRuntime, longest_s: int) -> None:
        self._runtime = runtime
        self._longest_s = longest_s
        self._under_way: dict[str, PodStop] = {}
        self._lock = threading.Lock()

    def begin(self, victim: EvictPod, start: Callable[[Callable[[], None]], None]) -> int | None:
        """Stop the containers of a victim; return the grace period in seconds.

        Return None if there are none, the runtime of one is unreachable, or too many stops are
        running.  ``start`` runs a function in a new thread.
        """
        grace_s = min(victim.grace_s, self._longest_s)
        if not all(self._runtime.reaches(container) for container in victim.containers):
            return None
        with self._lock:
            waiting = sum(stop.pending for stop in self._under_way.values())
            count = len(victim.containers)
            if victim.uid in self._under_way:
                return grace_s
            if not count or waiting + count > MOST_AT_ONCE:
                return None
            stop = self._under_way[victim.uid] = PodStop(victim, count)
        for container in victim.containers:
            start(lambda container=container: self._stop(stop, container, grace_s))  # type: ignore[misc]
        return grace_s

    def finished(self) -> Sequence[PodStop]:
        """Return each victim once, when none of its containers is pending."""
        with self._lock:
            done = [stop for stop in self._under_way.values() if not stop.pending]
            for stop in done:
                del self._under_way[stop.victim.uid]
        return done

    def _stop(self, stop: PodStop, container: str, grace_s: int) -> None:
        problem = "the runtime was not called"
        try:
            self._runtime.stop(stop.victim.uid, container, grace_s)
            problem = ""
        except HostError as error:
            problem = str(error)
        finally:
            with self._lock:
                stop.pending -= 1
                if problem:
                    stop.problems.append(problem)


def in_thread(work: Callable[[], None]) -> None:
    """Run a function in a daemon thread."""
    threading.Thread(target=work, name="stop", daemon=True).start()


@dataclass(frozen=True, slots=True)
class _ReleaseResult:
    request: EndContainers
    released: Released
    problem: str = ""


class EvictionManager:
    """Evictions for one resource, with a cool-down of their own.

    With ``stops`` the runtime stops the containers of a victim within the pod's grace period;
    without it, or where the runtime fails, their processes are killed.  Neither needs an API
    server.  ``only_by_api`` evicts through the API server instead, which respects disruption
    budgets.  With a ``copilot``, NodeManagers of YARN are not evicted: YARN containers are
    released in their place.
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
        self._leaving: dict[str, float] = {}  # start of the eviction by UID
        self._copilot = copilot
        self._stops = stops
        self._copilot_pause_s = 0.0  # end of the pause
        #: Appended by the thread of the outbox, consumed by the loop.
        self._results: deque[_ReleaseResult] = deque(maxlen=_MOST_RESULTS)
        self._recent: deque[tuple[float, tuple[str, str, str]]] = deque(maxlen=_MOST_RECENT)

    def is_cooling(self, now_s: float) -> bool:
        """Return whether the cool-down after the last eviction is running."""
        return now_s < self._cool_until_s

    def recent(self, now_s: float) -> Counter[tuple[str, str, str]]:
        """Count evictions of the last five minutes by namespace, name and reason."""
        return Counter(pod for when_s, pod in self._recent if now_s - when_s < SHOWN_S)

    def evict(self, tasks: Sequence[Task], now_s: float) -> None:
        """Evict the victims of the tasks."""
        self._leaving = {u: s for u, s in tuple(self._leaving.items()) if now_s - s < REMEMBERED_S}
        self._process_results(now_s)
        runtimes = self._runtimes(tasks)
        if runtimes and now_s < self._copilot_pause_s:
            tasks = [
                replace(task, candidates=[c for c in task.candidates if c.pod.uid not in runtimes])
                for task in tasks
            ]
        victims, request = choose_with_copilot(tasks, self._leaving, runtimes)
        if request is not None and request.amounts:
            self.counts[request.reason] += 1
            self._cool_until_s = now_s + self._cool_s
            self._release(request)
        for victim in victims:
            log.warning(
                "evicting pod",
                extra={"pod": f"{victim.namespace}/{victim.name}", "why": victim.message},
            )
            self.counts[victim.reason] += 1
            self._recent.append((now_s, (victim.namespace, victim.name, victim.reason)))
            if self._only_by_api:
                self._leaving[victim.uid] = now_s
                self._evict_by_api(victim, now_s)
            else:
                self._terminate(victim, now_s)
                self._report_event(victim, EVICTED, victim.message, now_s)
        if victims:
            self._cool_until_s = now_s + self._cool_s

    def finish_stops(self, now_s: float) -> None:
        """Record victims whose containers have stopped; kill the processes of failed stops."""
        for stop in self._stops.finished() if self._stops is not None else ():
            self._leaving.pop(stop.victim.uid, None)
            if stop.problems:
                log.warning(
                    "containers not stopped by the runtime",
                    extra={"pod": stop.victim.uid, "error": stop.problems[0]},
                )
                self._executor.kill(stop.victim, now_s)
            else:
                self._executor.note_eviction(stop.victim, "", now_s, "containers have ended")

    def _terminate(self, victim: EvictPod, now_s: float) -> None:
        grace_s = self._stops.begin(victim, in_thread) if self._stops is not None else None
        if grace_s is None:
            self._executor.kill(victim, now_s)
            return
        self._leaving[victim.uid] = now_s
        done = f"containers are stopped with a grace period of {grace_s} s"
        self._executor.note_eviction(victim, "", now_s, done)

    def _runtimes(self, tasks: Sequence[Task]) -> frozenset[str]:
        """Return the UIDs of the pods whose containers the copilot releases."""
        if self._copilot is None:
            return frozenset()
        return frozenset(
            each.pod.uid for task in tasks for each in task.candidates if is_runtime(each.pod)
        )

    def _release(self, request: EndContainers) -> None:
        copilot, results = self._copilot, self._results
        log.warning("releasing containers", extra={"why": request.message})

        def release(_: Cluster) -> None:
            try:
                if copilot is not None:
                    released = copilot.release(
                        request.amounts, node_cpu_ratio=-1, node_memory_ratio=-1
                    )
                    results.append(_ReleaseResult(request, released))
            except HostError as error:
                results.append(_ReleaseResult(request, {}, str(error)))

        self._outbox.put(f"containers for {request.reason}", release)

    def _process_results(self, now_s: float) -> None:
        """Record the releases of the copilot; pause the copilot after an empty release."""
        while self._results:
            result = self._results.popleft()
            amounts = {name: amount for name, amount in result.released.items() if amount > 0}
            text = ", ".join(f"{name} {amount:.0f}" for name, amount in sorted(amounts.items()))
            self._executor.note_release(
                result.request, f"released {text or 'nothing'}", result.problem, now_s
            )
            if not amounts:
                self._copilot_pause_s = now_s + COPILOT_PAUSE_S

    def _evict_by_api(self, victim: EvictPod, now_s: float) -> None:
        def evict(cluster: Cluster) -> None:
            try:
                cluster.evict(victim.namespace, victim.name, uid=victim.uid)
            except NotFoundError:
                return
            except ClusterError as error:
                self._leaving.pop(victim.uid, None)  # a candidate again
                note = f"{victim.message}: {error}"
                cluster.report([pod_event(victim, NOT_EVICTED, note, now_s)])
                raise
            cluster.report([pod_event(victim, EVICTED, victim.message, now_s)])

        self._executor.note_eviction(victim, "", now_s)
        self._outbox.put(f"eviction of {victim.uid}", evict)

    def _report_event(self, victim: EvictPod, reason: str, note: str, now_s: float) -> None:
        event = pod_event(victim, reason, note, now_s)
        self._outbox.put(f"event of {victim.uid}", lambda cluster: cluster.report([event]))
