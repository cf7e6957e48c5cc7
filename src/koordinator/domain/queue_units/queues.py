"""How the units of a queue wait, as its object says.

Annotations are read with both prefixes: ``koord-queue/`` and, as before 1.8, ``kube-queue/``.
Source: koord-queue, pkg/queue/queuepolicies.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from koordinator.api.queue_unit import Queue, UnitPolicy
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

    @classmethod
    def of(cls, queue: Queue, default_policy: UnitPolicy = UnitPolicy.PRIORITY) -> "UnitQueue":
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
        )


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
