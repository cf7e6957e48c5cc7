"""Periodic tasks of the agent's loop."""

from collections.abc import Callable
from dataclasses import dataclass

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
        interval = interval_s if callable(interval_s) else _constant(interval_s)
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


def _constant(value: float) -> Callable[[], float]:
    return lambda: value
