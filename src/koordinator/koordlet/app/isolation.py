"""Rounds that one pod breaks go on with the others.

The pod is read off the traceback: what loops over pods has the one at hand in a local variable.
Nothing is wrapped, so that nothing gets slower.
"""

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TypeVar

from koordinator.koordlet.app.timers import OnFailure
from koordinator.koordlet.view.pods import PodView

ResultT = TypeVar("ResultT")


class PodIsolation:
    """Remembers which pods broke which part, until they change.

    ``on_failure`` is told of each; without it a failure is raised.
    """

    def __init__(self, on_failure: OnFailure | None) -> None:
        self._on_failure = on_failure
        self._broken: dict[str, dict[str, PodView]] = {}  # by part and key

    def tell(self, part: str, error: Exception, about: str = "") -> None:
        """Tell of a failure; raise it if nobody listens, and lack of memory always."""
        if self._on_failure is None or isinstance(error, MemoryError):
            raise error
        if about:
            error.add_note(f"while looking at {about}")
        self._on_failure(part, error)

    def attempt(
        self, part: str, pods: Sequence[PodView], work: Callable[[tuple[PodView, ...]], ResultT]
    ) -> ResultT | None:
        """Work with all pods but those that break it; None if it breaks without one to blame."""
        left = self._left(part, pods)
        while True:
            try:
                return work(left)
            except Exception as error:  # noqa: BLE001 -- told
                pod = _at_hand(error.__traceback__, left)
                self.tell(part, error, f"pod {pod.key}" if pod is not None else "")
                if pod is None:
                    return None
                self._broken.setdefault(part, {})[pod.key] = pod
                left = tuple(one for one in left if one is not pod)

    def _left(self, part: str, pods: Sequence[PodView]) -> tuple[PodView, ...]:
        broken = self._broken.get(part)
        if not broken:
            return tuple(pods)
        still = {pod.key: pod for pod in pods if broken.get(pod.key) is pod}
        self._broken[part] = still
        return tuple(pod for pod in pods if pod.key not in still)


def _at_hand(trace: TracebackType | None, pods: Sequence[PodView]) -> PodView | None:
    """Return the pod that the innermost frame which has one was about."""
    found = None
    known = {id(pod) for pod in pods}
    while trace is not None:
        for value in trace.tb_frame.f_locals.values():
            if id(value) in known:
                found = value
        trace = trace.tb_next
    return found
