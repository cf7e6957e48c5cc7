"""What has to be done how often."""

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
    """Runs what is due, in the order in which it was added.

    What was missed, because the machine slept, is done once, not many times.  ``on_failure`` is
    told what went wrong in which round, and all others go on; without it a failure is raised.
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
        """Run ``run(now_s)`` every so often, beginning at ``first_s``."""
        interval = interval_s if callable(interval_s) else _constant(interval_s)
        self._timers.append(_Timer(name, interval, run, first_s))

    def run(self, now_s: float) -> list[str]:
        """Run what is due and return its names."""
        done = []
        for timer in self._timers:
            if timer.due_s <= now_s:
                self._run(timer, now_s)
                done.append(timer.name)
                interval_s = timer.interval_s()
                # In step with the clock: a late round doesn't make all later ones late.
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
        """Return when something is due."""
        return min(timer.due_s for timer in self._timers)


def _constant(value: float) -> Callable[[], float]:
    return lambda: value
