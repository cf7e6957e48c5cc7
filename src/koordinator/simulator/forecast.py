"""When a waiting pod would start if nothing else came: the queue, run forward.

Pods leave when they are known to: those being deleted at the end of their grace period, those with
a deadline when it is reached.  All others stay.
"""

import heapq

from koordinator.api.pod import Pod
from koordinator.foundation.clock import to_datetime, to_epoch_s
from koordinator.foundation.errors import NotFoundError
from koordinator.scheduler.explain import Forecast
from koordinator.scheduler.loop import Bound
from koordinator.simulator.embedded import Embedded

NOBODY_LEAVES = "no running pod has a known end"


def forecast(world: Embedded, key: str) -> Forecast:
    """Run a world forward until the pod is bound; the world is used up.

    The world has been run to a fixed point.
    """
    leaving = [
        (max(ends_s, world.clock.now_s()), pod.metadata.namespace, pod.metadata.name)
        for pod in world.cluster.list(Pod).items
        if (ends_s := _ends_s(pod)) is not None
    ]
    if not leaving:
        return Forecast(why=NOBODY_LEAVES)
    heapq.heapify(leaving)
    while leaving:
        now_s, namespace, name = heapq.heappop(leaving)
        world.clock.advance_to(max(now_s, world.clock.now_s()))
        try:
            world.cluster.delete(Pod, name, namespace, grace_period_s=0)
        except NotFoundError:
            continue
        if leaving and leaving[0][0] <= now_s:
            continue  # several leave at once
        for outcome in world.run_to_fixed_point():
            if isinstance(outcome, Bound) and outcome.pod == key:
                at = to_datetime(world.clock.now_s()).isoformat().replace("+00:00", "Z")
                return Forecast(at=at, node=outcome.node)
    return Forecast(why="it waits even when all have left that say when they end")


def _ends_s(pod: Pod) -> float | None:
    """Return when a pod that has a node leaves it; None if that isn't known."""
    if not pod.spec.node_name:
        return None
    ends: list[float] = []
    if pod.metadata.deletion_timestamp is not None:
        ends.append(to_epoch_s(pod.metadata.deletion_timestamp))
    if pod.spec.active_deadline_seconds is not None and pod.status.start_time is not None:
        ends.append(to_epoch_s(pod.status.start_time) + pod.spec.active_deadline_seconds)
    return min(ends, default=None)
