"""Findings of checks, and their printed report."""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final

import msgspec
from rich.console import Console
from rich.text import Text

from koordinator.cli.output import Output, console, print_data
from koordinator.cluster.kubernetes.failures import ForbiddenError
from koordinator.foundation.errors import ClusterError
from koordinator.foundation.text import listed

MAX_NAMED: Final = 5  # names in a text; the others are counted


class FindingSeverity(StrEnum):
    """Weight of a finding; only a problem changes the exit code."""

    PROBLEM = "problem"
    NOTE = "note"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """State that needs a person: an object, its problem, and the remedy."""

    check: str
    about: str  # kind/name, or what the check reads
    problem: str
    remedy: str
    severity: FindingSeverity = FindingSeverity.PROBLEM


class CheckResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one check; ``summary`` describes the subject."""

    name: str
    summary: str
    findings: tuple[Finding, ...] = ()

    @property
    def is_healthy(self) -> bool:
        """Whether the check found no problem; notes do not count."""
        return not any(each.severity is FindingSeverity.PROBLEM for each in self.findings)


def unreadable(check: str, about: str, error: ClusterError) -> Finding:
    """Return the finding for something that the user of the kubeconfig could not read."""
    remedy = (
        "run koord doctor as a user with this right, such as a cluster administrator"
        if isinstance(error, ForbiddenError)
        else "repeat the command; if it fails again, see the log of the API server"
    )
    return Finding(check=check, about=about, problem=f"cannot be checked: {error}", remedy=remedy)


def named(names: Iterable[str]) -> str:
    """Return sorted names as a text, with a count for those beyond the first few."""
    return listed(sorted(names), MAX_NAMED)


def print_report(target: str, checks: Sequence[CheckResult], output: Output) -> None:
    """Print the checks and their findings as a table, JSON or YAML."""
    if output is not Output.TABLE:
        data = {
            "target": target,
            "healthy": all(each.is_healthy for each in checks),
            "checks": [
                {"name": each.name, "healthy": each.is_healthy, "summary": each.summary}
                for each in checks
            ],
            "findings": [msgspec.to_builtins(it) for each in checks for it in each.findings],
        }
        print_data(data, output)
        return
    printer = console()
    width = max(len(each.name) for each in checks)
    for each in checks:
        verdict = "ok" if each.is_healthy else "problem"
        line = f"{verdict:<8} {each.name:<{width}}  {each.summary}"
        printer.print(Text(line, "" if each.is_healthy else "bold"), soft_wrap=True)
        for finding in each.findings:
            _print_finding(printer, finding)
    problems = sum(
        it.severity is FindingSeverity.PROBLEM for each in checks for it in each.findings
    )
    plural = "" if problems == 1 else "s"
    printer.print(f"{target}: {problems or 'no'} problem{plural} found")


def _print_finding(printer: Console, finding: Finding) -> None:
    for line in (
        f"         {finding.severity}: {finding.about}: {finding.problem}",
        f"           remedy: {finding.remedy}",
    ):
        printer.print(Text(line), soft_wrap=True)
