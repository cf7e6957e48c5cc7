"""A million pods of unique labels, a hundred thousand nodes, fifty thousand gangs and quotas.

Each kind passes through its process in a Python process of its own.  Resident memory at the end may
be a tenth more than at a tenth of the way, by when caches that have a bound are full.
"""

import gc
import json
import logging
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from tests.soak.agent import AgentChurn
from tests.soak.manager import ManagerChurn
from tests.soak.scheduling import PodChurn, SchedulerChurn
from tests.soak.yarn import YarnChurn

from koordinator.cli.main import tune_garbage_collector

ALLOWED = 1.1  # of the memory at a tenth of the way
_ENTRIES = 10  # at which memory is looked at
_KIB_PER_MIB = 1024


@dataclass(frozen=True, slots=True)
class Course:
    """Course of a soak: the number of rounds of the full run, and the function of one round."""

    title: str
    rounds: int
    start: Callable[[], Callable[[int], None]]  # returns a function that runs one round


COURSES = {
    "labels": Course(
        "scheduler: 1,000,000 pods of unique labels", 2_000, lambda: PodChurn("labels").round
    ),
    "anti-affinity": Course(
        "scheduler: 100,000 pods of unique anti-affinity", 200, lambda: PodChurn("anti").round
    ),
    "scheduler": Course(
        "scheduler: 50,000 gangs, quotas, nodes, reservations, claims",
        50_000,
        lambda: SchedulerChurn().round,
    ),
    "follower": Course(
        "scheduler that follows: 50,000 of each",
        50_000,
        lambda: SchedulerChurn(decides=False).round,
    ),
    "manager": Course(
        "manager and webhook look-ups: 100,000 nodes, quotas, profiles",
        100_000,
        lambda: ManagerChurn().round,
    ),
    "yarn-operator": Course(
        "YARN operator: 20,000 nodes with NodeManagers", 5_000, lambda: YarnChurn().round
    ),
    "koordlet": Course("koordlet: 40,000 pods", 10_000, lambda: AgentChurn().round),
}


def soak(scale: float) -> bool:
    """Run every course; print a table; return whether memory stayed in bounds."""
    table = Table("course", "rounds", "MiB at 1/10", "MiB at the end", "ratio", "s", box=None)
    passed = True
    for name, course in COURSES.items():
        command = [sys.executable, "-m", "tests.soak", "--alone", name, "--scale", str(scale)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        report = json.loads(done.stdout.splitlines()[-1])
        first, last = report["mib"][0], report["mib"][-1]
        good = last <= first * ALLOWED
        passed &= good
        table.add_row(
            course.title,
            f"{report['rounds']:,}",
            f"{first:.0f}",
            f"{last:.0f}",
            f"{last / first:.2f}" + ("" if good else " too much"),
            f"{report['seconds']:.0f}",
        )
    Console().print(table)
    return passed


def run_alone(name: str, scale: float) -> None:
    """Run one course in this process and print its figures as JSON."""
    logging.disable()
    course = COURSES[name]
    rounds = max(int(course.rounds * scale), _ENTRIES)
    tune_garbage_collector()
    pass_round, began_s, mib = course.start(), time.perf_counter(), []
    for number in range(rounds):
        pass_round(number)
        if (number + 1) % (rounds // _ENTRIES) == 0:
            gc.collect()
            mib.append(_resident_mib())
            print(name, number + 1, f"{mib[-1]:.0f} MiB", file=sys.stderr, flush=True)
    seconds = time.perf_counter() - began_s
    print(json.dumps({"rounds": rounds, "mib": mib, "seconds": seconds}))


def _resident_mib() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / _KIB_PER_MIB
    raise OSError("/proc/self/status names no VmRSS")
