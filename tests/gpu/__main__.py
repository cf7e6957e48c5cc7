"""Checks on a real GPU: ``python -m tests.gpu --json FILE [--library libvgpu.so]``."""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pynvml
from tests.gpu import checks, sharing
from tests.gpu.probe import missing_gpu
from tests.gpu.report import (
    CheckResult,
    Figures,
    SkippedError,
    as_json,
    as_table,
    exit_code,
    run_check,
)

#: No check starts later: the longest one takes a minute.
LAST_START_S = 400.0

CHECKS: dict[str, Callable[[checks.Machine], Figures]] = {
    "inventory": checks.inventory,
    "health events": checks.health,
    "Device object and scheduling": checks.device,
    "collection cost": checks.cost,
    "usage": checks.usage,
    "HAMi-core memory limit": sharing.memory_limit,
    "HAMi-core core limit": sharing.core_limit,
    "HAMi-core region in the monitor": sharing.monitor,
    "HAMi-core blocking by priority": sharing.priority,
    "two processes on one card": sharing.two_processes,
}


def run_checks(
    machine: checks.Machine, write: Callable[[list[CheckResult]], None]
) -> list[CheckResult]:
    """Run all checks in order; skip those that would start too late.

    ``write`` gets the results after each check, so that a run that is killed leaves a report.
    """
    begin = time.monotonic()
    results: list[CheckResult] = []
    for name, check in CHECKS.items():
        call = partial(check, machine)
        if time.monotonic() - begin > LAST_START_S:
            call = partial(_too_late, machine)
        results.append(run_check(name, call))
        sys.stderr.write(f"{results[-1].status} {name} ({results[-1].seconds} s)\n")
        write(results)
    return results


def _too_late(_: checks.Machine) -> Figures:
    raise SkippedError(f"{LAST_START_S:.0f} s have passed")


def _machine_figures() -> Figures:
    pynvml.nvmlInit()
    names = [
        str(pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(index)))
        for index in range(pynvml.nvmlDeviceGetCount())
    ]
    try:
        driver = str(pynvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError:
        driver = "unknown"
    date = time.strftime("%Y-%m-%d", time.gmtime())
    return {"date": date, "GPUs": ", ".join(names), "driver": driver}


def main() -> int:
    """Run the checks, write the report; return 1 if a check failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu")
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--library", type=Path)
    flags = parser.parse_args()
    reason = missing_gpu()
    if reason:
        sys.stdout.write(f"No check was run: {reason}.\n")
        return 0
    flags.json.parent.mkdir(parents=True, exist_ok=True)
    figures = _machine_figures()

    def write(results: list[CheckResult]) -> None:
        flags.json.write_text(as_json(results, figures))
        flags.json.with_suffix(".md").write_text(as_table(results))

    with tempfile.TemporaryDirectory() as folder:
        results = run_checks(checks.Machine(Path(folder), flags.library), write)
    sys.stdout.write(as_table(results))
    return exit_code(results)


if __name__ == "__main__":
    sys.exit(main())
