"""Queueing rules of a Queue object.

Annotations are read with both prefixes: ``koord-queue/`` and, as before 1.8, ``kube-queue/``.
Source: koord-queue, pkg/queue/queuepolicies.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from koordinator.api.queue_unit import AdmissionCheckRef, Queue, UnitPolicy
from koordinator.api.selectors import matches
from koordinator.api.syntax import invalid_value
from koordinator.foundation.errors import InputError
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
