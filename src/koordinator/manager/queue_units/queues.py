"""How the units of a queue wait, as its object says.

Annotations are read with both prefixes: ``koord-queue/`` and, as before 1.8, ``kube-queue/``.
Source: koord-queue, pkg/queue/queuepolicies.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from koordinator.api.queue_unit import AdmissionCheckRef, Queue, UnitPolicy
from koordinator.api.selectors import matches
from koordinator.api.syntax import refusal
from koordinator.foundation.errors import InputError
from koordinator.foundation.yaml_documents import yaml_document

PREFIXES: Final = ("koord-queue/", "kube-queue/")
POLICY_LABEL: Final = "queue-policy"  # on a quota, with a prefix, as all below on a queue
WAITS_FOR_PODS: Final = "wait-for-pods-running"
PREEMPTS: Final = "enable-queueunit-preemption"
DEPTH: Final = "max-depth"
THRESHOLD: Final = "priority-threshold"
ARGUMENTS: Final = "queue-args"  # YAML: times of backing off
DEFAULT_THRESHOLD: Final = 4
MOST_CHECKS: Final = 8
_LONGEST_S: Final = 10**6


def marked(marks: Mapping[str, str], name: str) -> str:
    """Return the text of an annotation or label with one of the prefixes; empty: there is none."""
    return next((marks[key] for key in (f"{it}{name}" for it in PREFIXES) if key in marks), "")


def policy_named(name: str, default: UnitPolicy = UnitPolicy.PRIORITY) -> UnitPolicy:
    """Return a policy by its name; the default for one that nobody knows."""
    try:
        return UnitPolicy(name)
    except ValueError:
        return default


@dataclass(frozen=True, slots=True)
class UnitQueue:
    """How the units of a queue wait."""

    name: str
    priority: int = 0
    policy: UnitPolicy = UnitPolicy.PRIORITY
    waits_for_pods: bool = False
    preempts: bool = False
    depth: int | None = None  # so many from the first on are looked at
    threshold: int = DEFAULT_THRESHOLD  # of Intelligent: units below it are passed over
    initial_backoff_s: float | None = None  # None: as everywhere
    longest_backoff_s: float | None = None
    checks: tuple[AdmissionCheckRef, ...] = ()
    is_strict: bool = False  # a scheduler has the last word about its units

    @classmethod
    def of(
        cls,
        queue: Queue,
        default_policy: UnitPolicy = UnitPolicy.PRIORITY,
        *,
        is_strict: bool = False,
    ) -> "UnitQueue":
        """Return the rules of a queue; what makes no sense counts as not said."""
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

        Raises InputError for a selector that can't be read, and for more than a unit can show.
        """
        names: dict[str, None] = {}
        for check in self.checks:
            try:
                is_meant = check.label_selector is None or matches(check.label_selector, labels)
            except InputError as error:
                path = f"spec.admissionChecks[{check.name}].labelSelector"
                raise error.within(path=path) from None
            if is_meant:
                names[check.name] = None
        if len(names) > MOST_CHECKS:
            raise refusal("spec.admissionChecks", f"{len(names)} checks", f"at most {MOST_CHECKS}")
        return tuple(names)


def _arguments(text: str) -> Mapping[str, object]:
    try:
        found = yaml_document(text, ARGUMENTS)
    except InputError:
        return {}
    return found if isinstance(found, dict) else {}


def _seconds(found: object) -> float | None:
    """Return whole seconds, written as a number or as text."""
    text = str(found)
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(_LONGEST_S))
    return float(text) if is_number else None


def _number(text: str) -> int | None:
    is_number = text.isascii() and text.isdigit() and len(text) < 10  # noqa: PLR2004 -- of 32 bits
    return int(text) if is_number and int(text) > 0 else None
