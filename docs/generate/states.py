"""Pages of event reasons and of conditions, from the constants and enumerations that name them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module

from docs.generate.dated import ABOUT_SINCE, Row, dated_table
from docs.generate.declarations import declarations, member_comments
from docs.generate.markdown import cell, code, page

from koordinator.api import pod_migration_job, reservation

_WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class Constants:
    """Constants of a module that are reasons or types; their comments give the meaning."""

    title: str
    module: str
    names: tuple[str, ...]


#: Reasons of events by component.
EVENTS = (
    Constants(
        "koord-scheduler",
        "koordinator.scheduler.loop.reporter",
        ("BOUND", "FAILED", "DISPLACED", "FAILED_RESERVATION", "INVALID"),
    ),
    Constants(
        "koord-manager",
        "koordinator.manager.writes",
        ("JOB_NOT_QUEUED", "CREATE_QUOTA_FAILED", "UPDATE_QUOTA_FAILED", "INVALID_QUOTA_PROFILE"),
    ),
    Constants(
        "koord-manager",
        "koordinator.manager.configuration.reader",
        (
            "SLO_FAILED",
            "NORMALIZATION_FAILED",
            "AMPLIFICATION_FAILED",
            "COLOCATION_FAILED",
            "COLOCATION_NODE_FAILED",
        ),
    ),
    Constants("koord-descheduler", "koordinator.descheduler.move_reports", ("NOT_MOVED",)),
    Constants("koord-descheduler", "koordinator.descheduler.migration.jobs", ("DESCHEDULED",)),
    Constants(
        "koord-descheduler",
        "koordinator.descheduler.migration.transitions",
        ("COMPLETE", "RESERVATION_USED"),
    ),
    Constants(
        "koordlet",
        "koordinator.koordlet.app.outbox",
        (
            "EVICTED",
            "NOT_EVICTED",
            "BAD_SLO",
            "KUBELET_MEMORY_QOS",
            "POLICY_RAISED",
            "CGROUPS_MISSING",
            "CPUS_UNREADABLE",
            "KUBELET_SILENT",
            "HOOK_FAILED",
            "UNPREPARED",
        ),
    ),
    Constants(
        "koord-yarn-operator",
        "koordinator.yarn.app",
        ("BAD_REFERENCE", "REFUSED", "UNREADABLE"),
    ),
    Constants(
        "every component with a Lease", "koordinator.cluster.leader_election", ("LEADER_ELECTION",)
    ),
)
_NORMAL = frozenset({"NOT_MOVED", "DESCHEDULED", "COMPLETE", "LEADER_ELECTION"})
_REPORTER = "koordinator.scheduler.loop.reporter"
_LIFE = "koordinator.manager.queue_units.life"
#: Conditions by kind: their types, then their reasons.
CONDITIONS = (
    (
        "Pod",
        Constants("", _REPORTER, ("SCHEDULED",)),
        Constants("", _REPORTER, ("UNSCHEDULABLE", "GATED")),
    ),
    (
        "Pod (a victim)",
        Constants("", "koordinator.api.pod", ("DISRUPTION_TARGET",)),
        Constants("", "koordinator.api.pod", ("PREEMPTED",)),
    ),
    (
        "PodGroup, ElasticQuota and ClusterNetworkTopology",
        Constants("", _REPORTER, ("VALID",)),
        Constants("", _REPORTER, ("INVALID",)),
    ),
    (
        "QueueUnit",
        Constants("", _LIFE, ("QUOTA_RESERVED", "ADMITTED", "PODS_READY", "FINISHED", "EVICTED")),
        Constants(
            "",
            _LIFE,
            (
                "DEACTIVATED",
                "BACKOFF_TIMEOUT",
                "PREEMPTED",
                "TOO_LONG",
                "SUSPENDED",
                "CHECK_FAILED",
                "REJECTED",
                "NOT_SCHEDULED",
            ),
        ),
    ),
    ("Device (of one device)", Constants("", "koordinator.api.device", ("HEALTHY",)), None),
)
ENUMERATIONS: Sequence[tuple[str, type[StrEnum], type[StrEnum]]] = (
    ("Reservation", reservation.ReservationConditionType, reservation.ReservationReason),
    (
        "PodMigrationJob",
        pod_migration_job.PodMigrationJobConditionType,
        pod_migration_job.PodMigrationJobReason,
    ),
)


def event_reasons() -> str:
    """Return the page of event reasons by component."""
    parts: dict[str, list[Row]] = {}
    for constants in EVENTS:
        module = import_module(constants.module)
        for name, meaning in _meanings(constants):
            value = getattr(module, name)
            severity, reason = value[:2] if isinstance(value, tuple) else (_type(name), value)
            pattern = _pattern(name, reason)
            row = Row(pattern, (code(pattern), severity, cell(meaning)))
            parts.setdefault(constants.title, []).append(row)
    sections = [
        f"## {title}\n\n"
        + dated_table(f"event {title}", ("reason", "type", "object, and meaning"), rows)
        for title, rows in parts.items()
    ]
    return page(
        "Event reasons",
        "Reasons of the events that the components write, with the kind of the object. Events of a "
        "PodMigrationJob also have the reasons of its [conditions](conditions.md). "
        f"{ABOUT_SINCE}",
        *sections,
    )


def conditions() -> str:
    """Return the page of conditions: types and reasons by kind."""
    parts = []
    for kind, types, reasons in CONDITIONS:
        parts.append(_section(kind, list(_rows(types)), list(_rows(reasons)) if reasons else []))
    for kind, types_of, reasons_of in ENUMERATIONS:
        parts.append(_section(kind, list(_members(types_of)), list(_members(reasons_of))))
    return page(
        "Conditions",
        "Conditions that the components write into the status of objects, and their reasons. A "
        "condition whose status is True and that has no reason of its own has its type as reason. "
        f"{ABOUT_SINCE}",
        *parts,
    )


def _section(kind: str, types: Sequence[Row], reasons: Sequence[Row]) -> str:
    text = f"## {kind}\n\n{dated_table(f'condition {kind}', ('type', 'meaning'), types)}"
    if not reasons:
        return text
    return f"{text}\n{dated_table(f'reason {kind}', ('reason', 'meaning'), reasons)}"


def _rows(constants: Constants) -> Iterator[Row]:
    module = import_module(constants.module)
    for name, meaning in _meanings(constants):
        value = getattr(module, name)
        reason = _pattern(name, value[1] if isinstance(value, tuple) else value)
        yield Row(reason, (code(reason), cell(meaning)))


def _members(enumeration: type[StrEnum]) -> Iterator[Row]:
    comments = member_comments(enumeration)
    for member in enumeration:
        yield Row(member.value, (code(member.value), cell(comments.get(member.name, ""))))


def _meanings(constants: Constants) -> Iterator[tuple[str, str]]:
    known = {it.name: it.comment for it in declarations(import_module(constants.module))}
    for name in constants.names:
        yield name, known[name]


def _pattern(name: str, reason: str) -> str:
    return f"{reason}<kind>" if name == "INVALID" else reason


def _type(name: str) -> str:
    return "Normal" if name in _NORMAL else _WARNING
