"""Results of checks, as JSON and as a table."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

Figure = float | int | str | bool | None
Figures = Mapping[str, Figure]
Status = Literal["pass", "fail", "skip"]


class SkippedError(Exception):
    """Check that can't run here; the message is the reason."""


class FailedError(Exception):
    """Check whose measurement violates its expectation, with the figures so far."""

    def __init__(self, reason: str, figures: Figures) -> None:
        super().__init__(reason)
        self.figures = figures


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Outcome of one check; ``reason`` is empty if it passed."""

    name: str
    status: Status
    reason: str
    figures: Figures = field(default_factory=dict)
    seconds: float = 0.0


def expect(condition: bool, reason: str, figures: Figures) -> None:
    """Raise FailedError with a reason and figures unless a condition is met."""
    if not condition:
        raise FailedError(reason, figures)


def run_check(name: str, check: Callable[[], Figures]) -> CheckResult:
    """Run a check; an exception of any kind is its result and does not stop the others."""
    begin = time.perf_counter()
    status: Status = "pass"
    reason = ""
    figures: Figures = {}
    try:
        figures = check()
    except SkippedError as error:
        status, reason = "skip", str(error)
    except FailedError as error:
        status, reason, figures = "fail", str(error), error.figures
    except Exception as error:  # noqa: BLE001 -- the report names it
        status, reason = "fail", f"{type(error).__name__}: {error}"
    return CheckResult(name, status, reason, figures, round(time.perf_counter() - begin, 2))


def as_json(results: Sequence[CheckResult], machine: Figures) -> str:
    """Return the report as JSON text."""
    checks = [
        {
            "name": each.name,
            "status": each.status,
            "reason": each.reason,
            "seconds": each.seconds,
            "figures": dict(each.figures),
        }
        for each in results
    ]
    report = {"machine": dict(machine), "exitCode": exit_code(results), "checks": checks}
    return json.dumps(report, indent=2) + "\n"


def as_table(results: Sequence[CheckResult]) -> str:
    """Return the report as a table in Markdown: one line per check."""
    lines = ["| check | result | figures |", "|---|---|---|"]
    for each in results:
        parts = [each.reason] if each.reason else []
        parts += [f"{name} {_text(value)}" for name, value in each.figures.items()]
        lines.append(f"| {each.name} | {each.status} | {_cell('; '.join(parts))} |")
    return "\n".join(lines) + "\n"


def exit_code(results: Sequence[CheckResult]) -> int:
    """Return 1 if a check failed, otherwise 0."""
    return int(any(each.status == "fail" for each in results))


def _text(value: Figure) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
