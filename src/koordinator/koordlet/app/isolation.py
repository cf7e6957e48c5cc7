"""Isolation of pods that make a round fail, so that the round continues with the others.

The faulty pod is taken from the traceback: a loop over pods has the current one in a local
variable.  Nothing is wrapped, so the normal case costs nothing.
"""

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TypeVar

from koordinator.koordlet.app.timers import OnFailure
from koordinator.koordlet.view.pods import PodView

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
            raise error
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
