"""Rounds of the agent's loop: periodic tasks, and isolation of pods that make one fail.

The faulty pod is taken from the traceback: a loop over pods has the current one in a local
variable.  Nothing is wrapped, so the normal case costs nothing.
"""

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TypeVar

from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.koordlet.view.pods import PodView

OnFailure = Callable[[str, Exception], None]


@dataclass(slots=True)
class _Timer:
    name: str
    interval_s: Callable[[], float]
    run: Callable[[float], None]
    due_s: float


class Timers:
    """Timers, run in the order in which they were added.

    Intervals missed while the machine slept are run once.  ``on_failure`` receives the name and
    the error of a failed timer, and the others continue; without it the error is raised.
    """

    def __init__(self, on_failure: OnFailure | None = None) -> None:
        self._on_failure = on_failure
        self._timers: list[_Timer] = []

    def add(
        self,
        name: str,
        interval_s: float | Callable[[], float],
        run: Callable[[float], None],
        first_s: float = 0.0,
    ) -> None:
        """Call ``run(now_s)`` every ``interval_s``, first at ``first_s``."""
        interval = interval_s if callable(interval_s) else (lambda: interval_s)
        self._timers.append(_Timer(name, interval, run, first_s))

    def run(self, now_s: float) -> list[str]:
        """Run the timers that are due and return their names."""
        done = []
        for timer in self._timers:
            if timer.due_s <= now_s:
                self._run(timer, now_s)
                done.append(timer.name)
                interval_s = timer.interval_s()
                # Stay in step with the clock: a late round must not delay all later ones.
                late_s = (now_s - timer.due_s) % interval_s if timer.due_s > 0 else 0.0
                timer.due_s = now_s + interval_s - late_s
        return done

    def _run(self, timer: _Timer, now_s: float) -> None:
        try:
            timer.run(now_s)
        except Exception as error:
            if self._on_failure is None:
                raise
            self._on_failure(timer.name, error)

    def next_s(self) -> float:
        """Return the time at which the next timer is due."""
        return min(timer.due_s for timer in self._timers)


ResultT = TypeVar("ResultT")


class PodIsolation:
    """Registry of the pods that made a part fail; a pod is retried when it changes.

    ``on_failure`` receives each failure; without it the failure is raised.
    """

    def __init__(self, on_failure: OnFailure | None) -> None:
        self._on_failure = on_failure
        self._broken: dict[str, dict[str, PodView]] = {}  # by part and key

    def report(self, part: str, error: Exception, about: str = "") -> None:
        """Report a failure; raise it without ``on_failure``, and always for a MemoryError."""
        if self._on_failure is None or isinstance(error, MemoryError):
            try:
                raise error
            finally:
                del error  # the traceback refers to this frame
        if about:
            error.add_note(f"while processing {about}")
        self._on_failure(part, error)

    def attempt(
        self, part: str, pods: Sequence[PodView], work: Callable[[tuple[PodView, ...]], ResultT]
    ) -> ResultT | None:
        """Run ``work`` without the pods that make it fail; None if no pod is the cause."""
        remaining = self._remaining(part, pods)
        while True:
            try:
                return work(remaining)
            except Exception as error:  # noqa: BLE001 -- reported
                pod = _faulty_pod(error.__traceback__, remaining)
                self.report(part, error, f"pod {pod.key}" if pod is not None else "")
                if pod is None:
                    return None
                self._broken.setdefault(part, {})[pod.key] = pod
                remaining = tuple(one for one in remaining if one is not pod)

    def _remaining(self, part: str, pods: Sequence[PodView]) -> tuple[PodView, ...]:
        broken = self._broken.get(part)
        if not broken:
            return tuple(pods)
        unchanged = {pod.key: pod for pod in pods if broken.get(pod.key) is pod}
        self._broken[part] = unchanged
        return tuple(pod for pod in pods if pod.key not in unchanged)


def _faulty_pod(trace: TracebackType | None, pods: Sequence[PodView]) -> PodView | None:
    """Return the pod in a local variable of the innermost frame that has one."""
    faulty = None
    known = {id(pod) for pod in pods}
    while trace is not None:
        for value in trace.tb_frame.f_locals.values():
            if id(value) in known:
                faulty = value
        trace = trace.tb_next
    return faulty
