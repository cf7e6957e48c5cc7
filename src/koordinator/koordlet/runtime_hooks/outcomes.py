"""What became of hooks, told to the loop by the threads that ran them."""

from collections import deque
from dataclasses import dataclass
from typing import Final

from koordinator.koordlet.executor.cgroup_writer import Write

MOST_KEPT: Final = 4096  # while the loop is busy


@dataclass(frozen=True, slots=True)
class HookFailure:
    """A hook that failed; the pod or container started without what it wanted.

    ``container`` is empty where the hook was about the pod; ``is_fatal`` says that the runtime was
    told, so that nothing started.
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
        """How messages call whom it is about."""
        return f"{self.namespace}/{self.pod}" + (f"/{self.container}" if self.container else "")

    @property
    def note(self) -> str:
        """A sentence for people."""
        what = "container " + self.container if self.container else "pod"
        how = "was not started" if self.is_fatal else "started without it, and is set right later"
        return f"{self.hook} at {self.stage}: {self.error}; the {what} {how}"


@dataclass(frozen=True, slots=True)
class HookWrites:
    """Files of cgroups that a thread of the runtime hooks wrote."""

    writes: tuple[Write, ...]


@dataclass(frozen=True, slots=True)
class UnpreparedContainer:
    """A running container that was created without what a hook gives it.

    ``id`` is that of the runtime; ``missing`` are the variables that it lacks.
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
    """Filled by any thread, emptied by the loop; of too many the oldest are lost."""

    def __init__(self) -> None:
        self._waiting: deque[HookOutcome] = deque(maxlen=MOST_KEPT)

    def put(self, outcome: HookOutcome) -> None:
        """Keep an outcome for the loop."""
        self._waiting.append(outcome)

    def take(self) -> list[HookOutcome]:
        """Return what came since the last time."""
        taken = []
        while self._waiting:
            taken.append(self._waiting.popleft())
        return taken
