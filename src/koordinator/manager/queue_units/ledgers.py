"""Ledgers of the amounts that units hold in a quota, its ancestors and a namespace; and queues.

Of several ResourceQuotas of a namespace, the one with the name of the namespace counts. Only units
are counted, not the pods that the API server counts.  Annotations of a Queue are read with both
prefixes: ``koord-queue/`` and, as before 1.8, ``kube-queue/``.

Source: koord-queue, plugins ElasticQuotaV2 and ResourceQuota; pkg/queue/queuepolicies.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

from koordinator.api.elastic_quota import ROOT_QUOTA, ElasticQuota
from koordinator.api.policy import ResourceQuota
from koordinator.api.queue_unit import AdmissionCheckRef, Queue, UnitPolicy
from koordinator.api.selectors import matches
from koordinator.api.syntax import invalid_value
from koordinator.domain.amounts import (
    Amounts,
    add,
    amounts_of,
    exceeded,
    multiple,
    named_by,
    plus,
    to_text,
)
from koordinator.domain.quota.spec import QuotaSpec
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.yaml_documents import yaml_document

PREFIXES: Final = ("koord-queue/", "kube-queue/")
POLICY_LABEL: Final = "queue-policy"  # on a quota, with a prefix, as all below on a queue
WAITS_FOR_PODS: Final = "wait-for-pods-running"
PREEMPTS: Final = "enable-queueunit-preemption"
DEPTH: Final = "max-depth"
THRESHOLD: Final = "priority-threshold"
ARGUMENTS: Final = "queue-args"  # YAML: backoff times
DEFAULT_THRESHOLD: Final = 4
MOST_CHECKS: Final = 8
_LONGEST_S: Final = 10**6

_PRECISION: Final = 1 << 20

_REQUESTS: Final = "requests."  # requests.cpu is the same as cpu


@dataclass(frozen=True, slots=True)
class UnitPlace:
    """Queue and quota of a unit; ``problem`` is the reason why it can never be admitted."""

    queue: str = ""
    quota: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class UnitResources:
    """Resources that a unit requests or holds."""

    key: str
    namespace: str
    quota: str
    amounts: Amounts
    priority: int = 0
    is_preemptible: bool = True


class UnitLedger(Protocol):
    """Ledger of the resources that units hold.  A unit may be taken and released repeatedly."""

    def expect(self, unit: UnitResources) -> None:
        """Register a pending unit."""
        ...

    def take(self, unit: UnitResources) -> None:
        """Add the resources of a unit to its usage."""
        ...

    def release(self, unit: UnitResources) -> None:
        """Subtract the resources of a unit from its usage."""
        ...

    def shortfall(self, unit: UnitResources) -> str:
        """Return why a unit exceeds the ledger; empty if it fits."""
        ...

    def is_satisfiable(self, unit: UnitResources) -> bool:
        """Return whether a unit can fit after preemption of other units."""
        ...

    def preempts(self, unit: UnitResources) -> bool:
        """Return whether a unit may preempt others, regardless of its queue."""
        ...


class JointLedger:
    """Several ledgers; a unit fits if it fits into all of them."""

    def __init__(self, ledgers: Iterable[UnitLedger]) -> None:
        self._ledgers: Sequence[UnitLedger] = tuple(ledgers)

    def expect(self, unit: UnitResources) -> None:
        """Register a pending unit in all ledgers."""
        for ledger in self._ledgers:
            ledger.expect(unit)

    def take(self, unit: UnitResources) -> None:
        """Add a unit to all ledgers."""
        for ledger in self._ledgers:
            ledger.take(unit)

    def release(self, unit: UnitResources) -> None:
        """Subtract a unit from all ledgers."""
        for ledger in self._ledgers:
            ledger.release(unit)

    def shortfall(self, unit: UnitResources) -> str:
        """Return the shortfall of the first ledger that a unit exceeds; empty if none."""
        return next(filter(None, (each.shortfall(unit) for each in self._ledgers)), "")

    def is_satisfiable(self, unit: UnitResources) -> bool:
        """Return whether a unit can fit into every ledger after preemption."""
        return all(ledger.is_satisfiable(unit) for ledger in self._ledgers)

    def preempts(self, unit: UnitResources) -> bool:
        """Return whether any ledger permits preemption."""
        return any(ledger.preempts(unit) for ledger in self._ledgers)


def times_rate(amounts: Amounts, rate: float) -> dict[str, int]:
    """Return the amounts times ``rate``, rounded down; exact for a rate such as 1.5."""
    factor = round(rate * _PRECISION)
    return {resource: amount * factor // _PRECISION for resource, amount in amounts.items()}


class UnitQuotas:
    """Ledger of the ElasticQuotas of a cluster, by name."""

    def __init__(self, quotas: Iterable[ElasticQuota], oversell_rate: float = 1.0) -> None:
        """Create an empty ledger; limits are ``max`` of a quota times ``oversell_rate``."""
        self._quotas: dict[str, ElasticQuota] = {}
        self._rate = oversell_rate
        self._used: dict[str, dict[str, int]] = {}
        self._ambiguous: set[str] = set()  # names of several quotas
        for quota in quotas:
            name = quota.metadata.name
            if name in self._quotas:
                self._ambiguous.add(name)
            self._quotas[name] = quota

    def path(self, name: str) -> tuple[str, ...] | str:
        """Return a quota and its existing ancestors, or why it can't admit any unit."""
        path: list[str] = []
        while name != ROOT_QUOTA:
            quota = self._quotas.get(name)
            if quota is None:
                return f"there is no quota {name}" if name else "the job names no quota"
            if name in path:
                return f"quota {name} is its own ancestor"
            if name in self._ambiguous:
                return f"there is more than one quota {name}"
            path.append(name)
            name = quota.parent
        if ROOT_QUOTA in self._quotas:
            path.append(ROOT_QUOTA)
        return tuple(path)

    def expect(self, unit: UnitResources) -> None:
        """Do nothing: pending units do not affect others."""

    def take(self, unit: UnitResources) -> None:
        """Add a unit to its quota and all ancestors; if the quota was deleted, to its name only."""
        self._count(unit.quota, unit.amounts)

    def release(self, unit: UnitResources) -> None:
        """Subtract a unit that was added with ``take``."""
        self._count(unit.quota, multiple(unit.amounts, -1))

    def is_satisfiable(self, unit: UnitResources) -> bool:
        """Return whether the quota and its ancestors exist."""
        return isinstance(self.path(unit.quota), tuple)

    def preempts(self, unit: UnitResources) -> bool:  # noqa: ARG002 -- the same for every unit
        """Return False: only queues permit preemption."""
        return False

    def _count(self, name: str, amounts: Amounts) -> None:
        path = self.path(name)
        for level in path if isinstance(path, tuple) else (name,):
            add(self._used.setdefault(level, {}), amounts)

    def used(self, name: str) -> Amounts:
        """Return the usage of a quota by units."""
        return self._used.get(name, {})

    def limit(self, name: str) -> Amounts:
        """Return the limit of a quota."""
        return times_rate(amounts_of(self._quotas[name].spec.max), self._rate)

    def shortfall(self, unit: UnitResources) -> str:
        """Return why a unit exceeds its quota or an ancestor; empty if it fits."""
        path, request = self.path(unit.quota), unit.amounts
        if isinstance(path, str):
            return path
        for level in path:
            limit, used = self.limit(level), self.used(level)
            requested = {resource: amount for resource, amount in request.items() if amount > 0}
            over = exceeded(named_by(plus(used, requested), requested), limit)
            if over:
                spec, own = (QuotaSpec.of(self._quotas[name]) for name in (level, unit.quota))
                figures = ""
                if spec.shows_figures_to(unit.namespace, own):
                    in_use = to_text(named_by(used, requested))
                    figures = f", used {in_use}, limit {to_text(limit)}"
                return (
                    f"quota {level} has no room: requested {to_text(requested)}{figures}; "
                    f"insufficient {', '.join(over)}"
                )
        return ""


class NamespaceLedger:
    """Ledger of ResourceQuotas, by namespace."""

    def __init__(self, quotas: Iterable[ResourceQuota]) -> None:
        self._quotas: dict[str, list[ResourceQuota]] = {}
        self._used: dict[str, dict[str, int]] = {}
        for quota in quotas:
            self._quotas.setdefault(quota.metadata.namespace, []).append(quota)

    def expect(self, unit: UnitResources) -> None:
        """Do nothing: pending units do not affect others."""

    def take(self, unit: UnitResources) -> None:
        """Add a unit to the usage of its namespace."""
        add(self._used.setdefault(unit.namespace, {}), unit.amounts)

    def release(self, unit: UnitResources) -> None:
        """Subtract a unit from the usage of its namespace."""
        add(self._used.setdefault(unit.namespace, {}), multiple(unit.amounts, -1))

    def shortfall(self, unit: UnitResources) -> str:
        """Return why a unit exceeds the ResourceQuota; empty if it fits."""
        quota = self._quota(unit.namespace)
        if isinstance(quota, str):
            return quota
        limit, used = _limit(quota), self._used.get(unit.namespace, {})
        requested = {resource: amount for resource, amount in unit.amounts.items() if amount > 0}
        over = exceeded(named_by(plus(used, requested), requested), limit)
        if not over:
            return ""
        return (
            f"ResourceQuota {quota.metadata.name} has no room: requested {to_text(requested)}, "
            f"used {to_text(named_by(used, requested))}, limit {to_text(limit)}; "
            f"insufficient {', '.join(over)}"
        )

    def is_satisfiable(self, unit: UnitResources) -> bool:
        """Return whether the namespace has a ResourceQuota that applies."""
        return not isinstance(self._quota(unit.namespace), str)

    def preempts(self, unit: UnitResources) -> bool:  # noqa: ARG002 -- the same for every unit
        """Return False: a ResourceQuota has no priorities."""
        return False

    def _quota(self, namespace: str) -> ResourceQuota | str:
        quotas = self._quotas.get(namespace, [])
        if len(quotas) == 1:
            return quotas[0]
        named = [quota for quota in quotas if quota.metadata.name == namespace]
        if named:
            return named[0]
        count = "no ResourceQuota"
        if quotas:
            count = f"{len(quotas)} ResourceQuotas, none named {namespace}"
        return f"namespace {namespace} has {count}"


def _limit(quota: ResourceQuota) -> Amounts:
    limit: dict[str, int] = {}
    for name, quantity in quota.spec.hard.items():
        for resource, amount in amounts_of({name.removeprefix(_REQUESTS): quantity}).items():
            limit[resource] = min(amount, limit.get(resource, amount))
    return limit


def marked(marks: Mapping[str, str], name: str) -> str:
    """Return the value of an annotation or label with one of the prefixes; empty without any."""
    return next((marks[key] for key in (f"{it}{name}" for it in PREFIXES) if key in marks), "")


def policy_named(name: str, default: UnitPolicy = UnitPolicy.PRIORITY) -> UnitPolicy:
    """Return a policy by its name; ``default`` for an unknown name."""
    try:
        return UnitPolicy(name)
    except ValueError:
        return default


@dataclass(frozen=True, slots=True)
class UnitQueue:
    """Queueing rules of a queue."""

    name: str
    priority: int = 0
    policy: UnitPolicy = UnitPolicy.PRIORITY
    waits_for_pods: bool = False
    preempts: bool = False
    depth: int | None = None  # number of units from the head of the queue that are considered
    threshold: int = DEFAULT_THRESHOLD  # of Intelligent: units of lower priority do not block
    initial_backoff_s: float | None = None  # None: the default of all queues
    longest_backoff_s: float | None = None
    checks: tuple[AdmissionCheckRef, ...] = ()
    is_strict: bool = False  # a scheduler must confirm its units

    @classmethod
    def of(
        cls,
        queue: Queue,
        default_policy: UnitPolicy = UnitPolicy.PRIORITY,
        *,
        is_strict: bool = False,
    ) -> "UnitQueue":
        """Return the rules of a queue; invalid annotations are ignored."""
        marks = queue.metadata.annotations
        arguments = _arguments(marked(marks, ARGUMENTS))
        return cls(
            queue.metadata.name,
            queue.spec.priority or 0,
            policy_named(queue.spec.queue_policy, default_policy),
            marked(marks, WAITS_FOR_PODS) == "true",
            marked(marks, PREEMPTS) == "true",
            _number(marked(marks, DEPTH)),
            _number(marked(marks, THRESHOLD)) or DEFAULT_THRESHOLD,
            _seconds(arguments.get("podInitialBackoffSeconds")),
            _seconds(arguments.get("podMaxBackoffSeconds")),
            queue.spec.admission_checks,
            is_strict,
        )

    def checks_of(self, labels: Mapping[str, str]) -> tuple[str, ...]:
        """Return the admission checks that a unit with these labels must pass.

        Raises InputError for an invalid selector, and for more checks than a unit can have.
        """
        names: dict[str, None] = {}
        for check in self.checks:
            try:
                applies = check.label_selector is None or matches(check.label_selector, labels)
            except InputError as error:
                path = f"spec.admissionChecks[{check.name}].labelSelector"
                raise error.within(path=path) from None
            if applies:
                names[check.name] = None
        if len(names) > MOST_CHECKS:
            raise invalid_value(
                "spec.admissionChecks", f"{len(names)} checks", f"at most {MOST_CHECKS}"
            )
        return tuple(names)


def _arguments(text: str) -> Mapping[str, object]:
    try:
        arguments = yaml_document(text, ARGUMENTS)
    except InputError:
        return {}
    return arguments if isinstance(arguments, dict) else {}


def _seconds(value: object) -> float | None:
    """Return whole seconds, given as a number or as text."""
    text = str(value)
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(_LONGEST_S))
    return float(text) if is_number else None


def _number(text: str) -> int | None:
    is_number = text.isascii() and text.isdigit() and len(text) < 10  # noqa: PLR2004 -- of 32 bits
    return int(text) if is_number and int(text) > 0 else None
