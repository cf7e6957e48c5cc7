"""What the scheduler tells about its data under /apis/v1.

Source: koordinator pkg/scheduler/frameworkext/services/node.go (the node page and its fields).
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from koordinator.foundation.errors import NotFoundError
from koordinator.scheduler.app.device_pages import device_summaries, device_summary
from koordinator.scheduler.app.numa_pages import numa_page
from koordinator.scheduler.app.shell import Scheduler
from koordinator.scheduler.queue import QueuedPod, QueueState
from koordinator.scheduler.snapshot import ClusterState

Ask = Callable[[Callable[[], object]], object]
Page = Callable[[Mapping[str, str]], object]


def services(scheduler: Scheduler, ask: Ask) -> dict[str, Page]:
    """Return the pages by path; ``ask`` has a question answered by the scheduler's own thread."""
    return {
        "/nodes/{nodeName}": lambda given: ask(
            partial(node_page, scheduler.state, given["nodeName"])
        ),
        "/queue": lambda _: ask(partial(queue_page, scheduler)),
        "/plugins/DeviceShare/nodeDeviceSummaries": lambda _: ask(
            partial(device_summaries, scheduler.state)
        ),
        "/plugins/DeviceShare/nodeDeviceSummaries/{name}": lambda given: ask(
            partial(device_summary, scheduler.state, given["name"])
        ),
        "/plugins/NodeNUMAResource/nodes/{nodeName}": lambda given: ask(
            partial(numa_page, scheduler.state, given["nodeName"])
        ),
    }


def node_page(state: ClusterState, name: str) -> dict[str, Any]:
    """Return what counts on a node.  Raises NotFoundError."""
    row = state.nodes.rows.get(name)
    if row is None:
        raise NotFoundError(f"cannot find node {name}")
    allocatable = state.nodes.allocatable[:, row].tolist()
    requested = state.nodes.requested[:, row].tolist()
    names = state.axis.names
    remaining = [a - r for a, r in zip(allocatable, requested, strict=True)]
    cpu, memory = state.nodes.nonzero[:, row].tolist()
    return {
        "node": name,
        "pods": sorted(state.pods.on_row[row]),
        "requested": dict(zip(names, requested, strict=False)),
        "nonZeroRequested": {"cpu": cpu, "memory": memory},
        "remaining": dict(zip(names, remaining, strict=False)),
        "allocatable": dict(zip(names, allocatable, strict=False)),
    }


def queue_page(scheduler: Scheduler) -> dict[str, Any]:
    """Return the pods that wait, by where, in the order in which they came."""
    queue = scheduler.queue
    return {state.value: [_waiting(queued) for queued in queue.pods(state)] for state in QueueState}


def _waiting(queued: QueuedPod) -> dict[str, Any]:
    return {
        "pod": queued.key,
        "priority": queued.priority,
        "attempts": queued.attempts,
        "since": queued.queued_at_s,
        "rejectedBy": sorted(queued.rejectors),
        "message": queued.message,
    }
