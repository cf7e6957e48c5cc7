"""Problems of a cluster that no controller repairs and that need an administrator.

The thread that owns the scheduler calls this module; it changes nothing.
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum

import msgspec

from koordinator.api.node_metric import NodeMetric
from koordinator.api.reservation import Reservation
from koordinator.dashboard.access import Redactor, ViewScope
from koordinator.dashboard.overview import ClusterOverview, ComponentHealth
from koordinator.dashboard.queries import is_waiting, objects_of, quota_rules
from koordinator.dashboard.timeline import ClusterChanges
from koordinator.domain.gangs import GangDefaults, GangSummary, gang_summaries
from koordinator.domain.quota.figures import counted_quotas
from koordinator.foundation.clock import to_epoch_s
from koordinator.foundation.masks import bits_of
from koordinator.scheduler.loop.handle import SchedulerHandle
from koordinator.scheduler.snapshot import ClusterState

STUCK_S = 600.0  # waiting time of a gang that has all its members
UNUSED_S = 600.0  # age of a reservation without owners
STALE_S = 300.0  # age of a report that is ignored; LoadAwareScheduling's default is 180
MAX_PER_TOPIC = 200


class Severity(StrEnum):
    """Severity of a problem."""

    ERROR = "error"  # a resource cannot be used, or a request is never met
    WARNING = "warning"


class AttentionItem(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A problem that needs an administrator; ``about`` is ``kind/name``."""

    severity: Severity
    topic: str
    about: str
    text: str
    since_s: float | None = None


class AttentionList(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All problems, and the topics that were not checked, with the reason."""

    items: list[AttentionItem]
    not_looked_at: dict[str, str]


def attention(
    handle: SchedulerHandle,
    overview: ClusterOverview,
    scope: ViewScope,
    changes: ClusterChanges | None = None,
    components: ComponentHealth | None = None,
    *,
    gangs: Sequence[GangSummary] | None = None,
) -> AttentionList:
    """Return the problems, errors first; at most ``MAX_PER_TOPIC`` of each topic.

    ``gangs`` are the summaries of all gangs, if the caller has computed them already.
    """
    if gangs is None:
        gangs = gang_summaries(objects_of(handle), GangDefaults())
    state, now_s = handle.state, overview.status.now_s
    topics: list[Iterator[AttentionItem]] = [_gangs(gangs, scope, overview)]
    missing = {}
    if scope.sees_nodes:
        topics += [_nodes(state), _devices(state), _reports(state, now_s)]
        topics += [_flapping(changes, now_s)] if changes is not None else []
    if scope.is_everything:
        topics += [_reservations(state, now_s), _quotas(handle)]
    else:
        missing["reservations and quotas"] = "you may not list pods of all namespaces"
    unread = components.unread if components is not None else "this source has no components"
    if not scope.is_everything:
        unread = "you may not list pods of all namespaces"
    if unread:
        missing["webhooks and components"] = unread
    elif components is not None:
        topics.append(_components(components))
    items = [item for topic in topics for item, _ in zip(topic, range(MAX_PER_TOPIC), strict=False)]
    redactor = Redactor.of(state, scope)
    items = [msgspec.structs.replace(item, text=redactor.text(item.text)) for item in items]
    items.sort(key=lambda item: (item.severity is not Severity.ERROR, item.topic, item.about))
    return AttentionList(items=items, not_looked_at=missing)


def _nodes(state: ClusterState) -> Iterator[AttentionItem]:
    for node in state.nodes.objects:
        for condition in node.status.conditions if node is not None else ():
            is_bad = (condition.type == "Ready") is not (condition.status == "True")
            if (node is not None and is_bad and condition.status != "Unknown") or (
                node is not None and condition.type == "Ready" and condition.status == "Unknown"
            ):
                detail = condition.message or condition.reason
                yield AttentionItem(
                    severity=Severity.ERROR,
                    topic="nodes",
                    about=f"node/{node.metadata.name}",
                    text=f"{condition.type} is {condition.status}"
                    + (f": {detail}" if detail else ""),
                    since_s=to_epoch_s(condition.last_transition_time) or None,
                )


def _components(components: ComponentHealth) -> Iterator[AttentionItem]:
    for one in components.findings:
        yield AttentionItem(
            severity=Severity.ERROR,
            topic="components",
            about=one.about,
            text=one.text,
            since_s=one.since_s,
        )


def _flapping(changes: ClusterChanges, now_s: float) -> Iterator[AttentionItem]:
    for name, (times, since_s) in sorted(changes.flapping(now_s).items()):
        yield AttentionItem(
            severity=Severity.WARNING,
            topic="nodes",
            about=f"node/{name}",
            text=f"changed between ready and not ready {times} times within an hour; "
            "its pods are moved each time",
            since_s=since_s,
        )


def _devices(state: ClusterState) -> Iterator[AttentionItem]:
    for row, report in sorted(state.nodes.devices.reports.items()):
        name = state.nodes.names[row]
        for group in report.model.groups:
            broken = list(bits_of(group.mask & ~report.healthy.get(group.kind, 0)))
            if broken:
                minors = ", ".join(map(str, broken))
                yield AttentionItem(
                    severity=Severity.ERROR,
                    topic="devices",
                    about=f"node/{name}",
                    text=f"{group.kind} {minors}: unhealthy, not allocated to pods",
                )
        for problem in report.problems:
            yield AttentionItem(
                severity=Severity.WARNING,
                topic="devices",
                about=f"node/{name}",
                text=f"ignored part of its Device report: {problem}",
            )


def _reports(state: ClusterState, now_s: float) -> Iterator[AttentionItem]:
    for metric in state.objects.all(NodeMetric):
        name = metric.metadata.name
        at_s = to_epoch_s(metric.status.update_time)
        if name in state.nodes.rows and at_s and now_s - at_s > STALE_S:
            yield AttentionItem(
                severity=Severity.WARNING,
                topic="reports",
                about=f"node/{name}",
                text="its NodeMetric is stale, so its load counts as unknown; check its koordlet",
                since_s=at_s,
            )


def _gangs(
    gangs: Sequence[GangSummary], scope: ViewScope, overview: ClusterOverview
) -> Iterator[AttentionItem]:
    now_s = overview.status.now_s
    since = overview.waiting.first_of_gang
    for gang in gangs:
        if not scope.includes_namespace(gang.gang.partition("/")[0]):
            continue
        for text in gang.warnings:
            yield AttentionItem(
                severity=Severity.ERROR, topic="gangs", about=f"gang/{gang.gang}", text=text
            )
        first = since.get(gang.gang)
        if first is None or not is_waiting(gang):
            continue
        if gang.bound > 0:
            text = f"{gang.bound} of {gang.min_member} members have a node; no node fits the others"
            severity = Severity.ERROR
        elif gang.present < gang.min_member:
            text = f"{gang.present} of {gang.min_member} members exist; the gang waits for the rest"
            severity = Severity.WARNING
        elif now_s - first.since_s >= STUCK_S:
            text = f"all members exist and wait: {first.cause}"
            severity = Severity.WARNING
        else:
            continue
        yield AttentionItem(
            severity=severity,
            topic="gangs",
            about=f"gang/{gang.gang}",
            text=text,
            since_s=first.since_s,
        )


def _reservations(state: ClusterState, now_s: float) -> Iterator[AttentionItem]:
    for one in state.objects.all(Reservation):
        status = one.status
        created_s = to_epoch_s(one.metadata.creation_timestamp)
        is_unused = status.phase == "Available" and not status.current_owners
        if is_unused and created_s and now_s - created_s > UNUSED_S:
            yield AttentionItem(
                severity=Severity.WARNING,
                topic="reservations",
                about=f"reservation/{one.metadata.name}",
                text=f"reserves resources on {status.node_name} that no pod uses",
                since_s=created_s,
            )


def _quotas(handle: SchedulerHandle) -> Iterator[AttentionItem]:
    _, warnings = counted_quotas(objects_of(handle), quota_rules(handle))
    for text in warnings:
        yield AttentionItem(severity=Severity.ERROR, topic="quotas", about="quota/", text=text)
