"""Victims whose containers the runtime ends, within the time that each pod is given.

The loop starts them and asks later what became of them; threads wait for the runtime.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from koordinator.foundation.errors import HostError
from koordinator.host.container_runtime import ContainerRuntime
from koordinator.koordlet.intents import EvictPod

MOST_AT_ONCE = 32  # containers; a thread waits for each


@dataclass(slots=True)
class PodStop:
    """A victim and what became of its containers so far; ``problems`` is empty if all ended."""

    victim: EvictPod
    left: int
    problems: list[str] = field(default_factory=list)


class ContainerStops:
    """``longest_s`` caps what a pod is given, as the kubelet's eviction-max-pod-grace-period."""

    def __init__(self, runtime: ContainerRuntime, longest_s: int) -> None:
        self._runtime = runtime
        self._longest_s = longest_s
        self._under_way: dict[str, PodStop] = {}
        self._lock = threading.Lock()

    def begin(self, victim: EvictPod, start: Callable[[Callable[[], None]], None]) -> int | None:
        """Have the containers of a victim ended; return how many seconds they are given.

        None if there are none, the runtime of one can't be reached, or too many are under way
        already.  ``start`` runs a function in a
        thread of its own.
        """
        grace_s = min(victim.grace_s, self._longest_s)
        if not all(self._runtime.reaches(container) for container in victim.containers):
            return None
        with self._lock:
            waiting = sum(stop.left for stop in self._under_way.values())
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
        """Return the victims of which no container is left to wait for; each once."""
        with self._lock:
            done = [stop for stop in self._under_way.values() if not stop.left]
            for stop in done:
                del self._under_way[stop.victim.uid]
        return done

    def _stop(self, stop: PodStop, container: str, grace_s: int) -> None:
        problem = "the runtime was not asked"
        try:
            self._runtime.stop(stop.victim.uid, container, grace_s)
            problem = ""
        except HostError as error:
            problem = str(error)
        finally:
            with self._lock:
                stop.left -= 1
                if problem:
                    stop.problems.append(problem)


def in_thread(work: Callable[[], None]) -> None:
    """Run a function in a thread that the process does not wait for at its end."""
    threading.Thread(target=work, name="stop", daemon=True).start()
