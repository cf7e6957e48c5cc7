"""Report of the run on a GPU: results, table and exit code."""

import json

from tests.gpu.report import (
    CheckResult,
    FailedError,
    Figures,
    SkippedError,
    as_json,
    as_table,
    exit_code,
    run_check,
)


def _skip() -> Figures:
    raise SkippedError("there is no library")


def _fail() -> Figures:
    raise FailedError("the share must be near 30 %", {"share %": 41.5})


def _break() -> Figures:
    raise ZeroDivisionError("division | by zero\nhere")


RESULTS = [
    run_check("a", lambda: {"mean ms": 0.123456, "GPUs": 2}),
    run_check("b", _skip),
    run_check("c", _fail),
    run_check("d", _break),
]


def test_exception_of_any_kind_is_a_result() -> None:
    """A failed check keeps its figures, an unexpected exception names its type."""
    assert [each.status for each in RESULTS] == ["pass", "skip", "fail", "fail"]
    assert RESULTS[1].reason == "there is no library"
    assert RESULTS[2].figures == {"share %": 41.5}
    assert RESULTS[3].reason.startswith("ZeroDivisionError: ")


def test_skipped_check_does_not_fail_the_run() -> None:
    assert exit_code(RESULTS[:2]) == 0
    assert exit_code(RESULTS[:3]) == 1


def test_json_has_every_check_with_figures() -> None:
    report = json.loads(as_json(RESULTS, {"driver": "1"}))

    assert report["machine"] == {"driver": "1"}
    assert report["exitCode"] == 1
    assert [each["name"] for each in report["checks"]] == ["a", "b", "c", "d"]
    assert report["checks"][0]["figures"] == {"mean ms": 0.123456, "GPUs": 2}


def test_table_has_one_line_per_check() -> None:
    """Pipes and line breaks of a message do not break the table."""
    lines = as_table(RESULTS).splitlines()

    assert len(lines) == 2 + len(RESULTS)
    assert lines[2] == "| a | pass | mean ms 0.1235; GPUs 2 |"
    assert lines[4] == "| c | fail | the share must be near 30 %; share % 41.5 |"
    assert lines[5] == "| d | fail | ZeroDivisionError: division \\| by zero here |"


def test_report_without_checks_is_empty() -> None:
    none: list[CheckResult] = []

    assert exit_code(none) == 0
    assert json.loads(as_json(none, {}))["checks"] == []
