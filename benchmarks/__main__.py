"""Run benchmarks: ``python -m benchmarks [NAME …] [--scale F] [--json FILE]``."""

import argparse
import importlib
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.benchmark import Benchmark

MODULES = [
    "throughput",
    "curves",
    "gangs",
    "topology",
    "job_preemption",
    "quota",
    "queues",
    "devices",
    "claims",
    "reservations",
    "load_aware",
    "manager",
    "webhook",
    "explain",
    "dashboard",
    "audit",
    "replay",
    "openb",
    "openb_curve",
    "room",
    "cluster",
    "peers",
    "recovery",
    "colocation",
    "koordlet",
    "koordlet_process",
    "descheduler",
    "proven_moves",
    "nri",
    "node_crashes",
    "colocation_node",
    "vgpu",
    "yarn",
]


def _load() -> tuple[dict[str, Benchmark], list[str]]:
    """Return the benchmarks by name, and a sentence for each module that can't be imported here."""
    by_name: dict[str, Benchmark] = {}
    problems = []
    for name in MODULES:
        try:
            by_name |= importlib.import_module(f"benchmarks.{name}").BENCHMARKS
        except ModuleNotFoundError as error:
            problems.append(f"benchmarks of {name}: no module {error.name}; make bench installs it")
    return by_name, problems


def main() -> None:
    """Run the named benchmarks, or all, each in a process of its own."""
    benchmarks, problems = _load()
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument(
        "names", nargs="*", choices=[*benchmarks, []], metavar="NAME", help=", ".join(benchmarks)
    )
    parser.add_argument("--scale", type=float, default=1.0, help="share of the pods to run")
    parser.add_argument("--json", help="also write the results to this file")
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.alone:
        print(json.dumps(benchmarks[arguments.alone].run(arguments.scale)))
        return
    console = Console()
    cpus, load = os.cpu_count(), os.getloadavg()[0]
    where = f"{platform.machine()}, {cpus} cores, Python {platform.python_version()}"
    console.print(f"{where}, load {load:.1f}")
    for problem in problems:
        console.print(problem, style="red")
    table = Table("benchmark", "measured", "to reach", box=None, header_style="bold")
    results = {}
    for name in arguments.names or benchmarks:
        started = time.perf_counter()
        command = [
            sys.executable,
            "-m",
            "benchmarks",
            "--alone",
            name,
            "--scale",
            str(arguments.scale),
        ]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            console.print(f"{name}: failed", style="red")
            continue
        results[name] = json.loads(done.stdout.splitlines()[-1])
        shown = ", ".join(f"{key} {value}" for key, value in results[name].items())
        table.add_row(benchmarks[name].title, shown, benchmarks[name].target)
        console.print(f"{name}: {shown} ({time.perf_counter() - started:.0f} s)")
    console.print()
    console.print(table)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
