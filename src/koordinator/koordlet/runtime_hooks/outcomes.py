"""Outcomes of hooks, passed from the threads that run them to the loop."""

from collections import deque
from dataclasses import dataclass
from typing import Final

from koordinator.koordlet.executor.cgroup_writer import Write

MOST_KEPT: Final = 4096  # while the loop is busy


@dataclass(frozen=True, slots=True)
class HookFailure:
    """Failure of a hook.

    ``container`` is empty for a hook of a pod.  ``is_fatal``: the error was returned to the
    runtime, which therefore started nothing; otherwise the pod or container started without the
    hook's changes.
    """

    hook: str
    stage: str
    namespace: str
    pod: str
    uid: str
    container: str
    error: str
    is_fatal: bool = False

    @property
    def owner(self) -> str:
        """Name of the pod or container in messages."""
        return f"{self.namespace}/{self.pod}" + (f"/{self.container}" if self.container else "")

    @property
    def note(self) -> str:
        """Sentence for an event."""
        what = "container " + self.container if self.container else "pod"
        how = "was not started" if self.is_fatal else "started without it; it is reconciled later"
        return f"{self.hook} at {self.stage}: {self.error}; the {what} {how}"


@dataclass(frozen=True, slots=True)
class HookWrites:
    """Writes to cgroups by a thread of the runtime hooks."""

    writes: tuple[Write, ...]


@dataclass(frozen=True, slots=True)
class UnpreparedContainer:
    """Running container that was created without a hook's changes.

    ``id`` is the runtime's; ``missing`` are the environment variables that it does not have.
    """

    hook: str
    namespace: str
    pod: str
    uid: str
    container: str
    id: str
    missing: tuple[str, ...]


HookOutcome = HookFailure | HookWrites | UnpreparedContainer


class HookOutcomes:
    """Bounded queue from any thread to the loop; on overflow the oldest outcomes are dropped."""

    def __init__(self) -> None:
        self._waiting: deque[HookOutcome] = deque(maxlen=MOST_KEPT)

    def put(self, outcome: HookOutcome) -> None:
        """Queue an outcome for the loop."""
        self._waiting.append(outcome)

    def take(self) -> list[HookOutcome]:
        """Return the outcomes since the last call."""
        taken = []
        while self._waiting:
            taken.append(self._waiting.popleft())
        return taken
