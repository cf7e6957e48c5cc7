"""Containers that were created while the agent was away, without what its hooks give them."""

import logging
from collections.abc import Callable, Iterable
from typing import Final

from koordinator.foundation.errors import HostError
from koordinator.host.container_runtime import ContainerRuntime
from koordinator.koordlet.app.container_stops import in_thread
from koordinator.koordlet.app.events import unprepared_event
from koordinator.koordlet.app.outbox import Outbox
from koordinator.koordlet.failure_policy import UnpreparedPolicy
from koordinator.koordlet.runtime_hooks.outcomes import UnpreparedContainer
from koordinator.koordlet.view.pods import PodView

log = logging.getLogger(__name__)

_MOST: Final = 4096
_DEFAULT_GRACE_S: Final = 30


class UnpreparedContainers:
    """Reports them, and ends them by policy Restart, so that the kubelet creates them again.

    ``start`` runs a function in a thread of its own.
    """

    def __init__(
        self,
        outbox: Outbox,
        policy: UnpreparedPolicy,
        runtime: ContainerRuntime | None,
        start: Callable[[Callable[[], None]], None] = in_thread,
    ) -> None:
        self._outbox = outbox
        self._policy = policy
        self._runtime = runtime
        self._start = start
        self._found: dict[str, UnpreparedContainer] = {}  # by id of the runtime
        self._handled: set[str] = set()

    def add(self, found: UnpreparedContainer) -> None:
        """Take note of a container, once, however often the runtime connects."""
        if len(self._found) < _MOST:
            self._found.setdefault(found.id, found)

    def update(self, pods: Iterable[PodView], now_s: float) -> int:
        """Handle the containers of pods that are known; return how many there are."""
        present = {
            view.id.rpartition("/")[2]: (pod, view.id)
            for pod in (pods if self._found else ())
            for view in pod.containers
        }
        for id_ in self._found.keys() & present.keys() - self._handled:
            self._handled.add(id_)
            self._handle(self._found[id_], *present[id_], now_s)
        ended = self._handled - present.keys()
        self._handled -= ended
        self._found = {id_: found for id_, found in self._found.items() if id_ not in ended}
        return len(self._handled)

    def _handle(
        self, found: UnpreparedContainer, pod: PodView, container_id: str, now_s: float
    ) -> None:
        runtime = self._runtime
        what = "it was created while the node agent could not be asked"
        restarts = pod.pod.spec.restart_policy in {"", "Always"}
        if self._policy is UnpreparedPolicy.RESTART and restarts and runtime is not None:
            what += ", and is restarted"
            stated = pod.pod.spec.termination_grace_period_seconds
            grace_s = _DEFAULT_GRACE_S if stated is None else stated
            self._start(lambda: _stop(runtime, str(pod.uid), container_id, grace_s))
        log.warning("container not prepared", extra={"pod": pod.key, "container": found.container})
        event = unprepared_event(found, what, now_s)
        self._outbox.put(f"unprepared {found.id}", lambda cluster: cluster.report([event]))


def _stop(runtime: ContainerRuntime, uid: str, container_id: str, grace_s: int) -> None:
    try:
        runtime.stop(uid, container_id, grace_s)
    except HostError as error:
        log.warning("container not restarted", extra={"container": container_id, "error": error})
