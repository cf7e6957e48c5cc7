"""What the scheduler tells about its data under /apis/v1.

Source: koordinator pkg/scheduler/frameworkext/services (the paths).
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from koordinator.domain.gangs import GangBook
from koordinator.scheduler.app.audit import Audit
from koordinator.scheduler.app.audit_pages import audit_services
from koordinator.scheduler.app.device_pages import device_summaries, device_summary
from koordinator.scheduler.app.explainer import explain
from koordinator.scheduler.app.gang_pages import gang_page, gangs_page
from koordinator.scheduler.app.load_page import load_page
from koordinator.scheduler.app.node_page import node_page
from koordinator.scheduler.app.numa_pages import numa_page
from koordinator.scheduler.app.quota_pages import quota_page, quotas_page
from koordinator.scheduler.app.reservation_pages import SELECTOR_INDEX, node_reservations_page
from koordinator.scheduler.app.shell import Scheduler
from koordinator.scheduler.plugins import load_aware
from koordinator.scheduler.plugins.elastic_quota import ElasticQuotaPlugin
from koordinator.scheduler.queue import QueuedPod, QueueState
from koordinator.scheduler.snapshot import ClusterState, Snapshot

Ask = Callable[[Callable[[], object]], object]
Page = Callable[[Mapping[str, str]], object]


def services(scheduler: Scheduler, ask: Ask, audit: Audit | None = None) -> dict[str, Page]:
    """Return the pages by path; ``ask`` has a question answered by the scheduler's own thread."""
    pages: dict[str, Page] = audit_services(audit, ask) if audit is not None else {}
    if scheduler.quotas is not None:
        pages |= _quota_services(scheduler.quotas, scheduler.state, ask)
    if scheduler.gangs:  # those of further profiles know the same
        pages |= _gang_services(scheduler.gangs[0], scheduler.state, ask)
    pages |= _node_services(scheduler, ask)
    return pages | {
        "/nodes/{nodeName}": lambda given: ask(
            partial(node_page, scheduler.state, given["nodeName"])
        ),
        "/explain/{namespace}/{podName}": lambda given: ask(
            partial(explain_page, scheduler, f"{given['namespace']}/{given['podName']}")
        ),
        "/queue": lambda _: ask(partial(queue_page, scheduler)),
    }


def _node_services(scheduler: Scheduler, ask: Ask) -> dict[str, Page]:
    """Return the pages of plugins that filter nodes, of those that some profile has."""
    state = scheduler.state
    filters = [active for cycle in scheduler.cycles.values() for active in cycle.profile.filter]
    pages: dict[str, Page] = {
        "/plugins/DeviceShare/nodeDeviceSummaries": lambda _: ask(partial(device_summaries, state)),
        "/plugins/DeviceShare/nodeDeviceSummaries/{name}": lambda given: ask(
            partial(device_summary, state, given["name"])
        ),
        "/plugins/NodeNUMAResource/nodes/{nodeName}": lambda given: ask(
            partial(numa_page, state, given["nodeName"])
        ),
        "/plugins/Reservation/nodeReservations/{nodeName}": lambda given: ask(
            partial(node_reservations_page, state, given["nodeName"])
        ),
        "/plugins/Reservation/reservationSelectorIndex": lambda _: SELECTOR_INDEX,
    }
    # Asked for by name: where plugins are timed, they are of a class that has what theirs has.
    load = next(
        (active.plugin for active in filters if active.name == load_aware.PLUGIN.name), None
    )
    if load is not None:  # that of the first profile which has it
        pages["/plugins/LoadAwareScheduling/node/{nodeName}"] = lambda given: ask(
            partial(load_page, state, load.rules, given["nodeName"])
        )
    on = {active.name for active in filters}
    return {path: page for path, page in pages.items() if path.split("/")[2] in on}


def _quota_services(quotas: ElasticQuotaPlugin, state: ClusterState, ask: Ask) -> dict[str, Page]:
    def one(given: Mapping[str, str]) -> object:
        with_pods = given.get("includePods") == "true"
        name = given["name"]
        return ask(lambda: quota_page(quotas.ledger(Snapshot(state)), name, with_pods=with_pods))

    def every(given: Mapping[str, str]) -> object:
        with_pods = given.get("includePods") == "true"
        tree = given.get("tree") or None
        return ask(lambda: quotas_page(quotas.ledger(Snapshot(state)), tree, with_pods=with_pods))

    return {"/plugins/ElasticQuota/quotas/{name}": one, "/plugins/ElasticQuota/quotas": every}


def _gang_services(gangs: GangBook, state: ClusterState, ask: Ask) -> dict[str, Page]:
    def one(given: Mapping[str, str]) -> object:
        return ask(partial(gang_page, gangs, state, given["namespace"], given["name"]))

    return {
        "/plugins/Coscheduling/gang/{namespace}/{name}": one,
        "/plugins/Coscheduling/gangs": lambda _: ask(partial(gangs_page, gangs, state)),
    }


def explain_page(scheduler: Scheduler, key: str) -> dict[str, Any]:
    """Return why a pod waits.  Raises NotFoundError."""
    page: dict[str, Any] = msgspec.to_builtins(explain(scheduler, key))
    return page


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
