"""Stops of victims' containers by the container runtime, within each pod's grace period.

The loop starts the stops and polls their results; one thread per container waits for the runtime.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from koordinator.foundation.errors import HostError
from koordinator.host.container_runtime import ContainerRuntime
from koordinator.koordlet.intents import EvictPod

MOST_AT_ONCE = 32  # containers; each occupies a thread


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
