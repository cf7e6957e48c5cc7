"""Run benchmarks: ``python -m benchmarks [NAME …] [--scale F] [--json FILE]``."""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import (
    audit,
    cluster,
    colocation,
    colocation_node,
    dashboard,
    descheduler,
    devices,
    explain,
    gangs,
    job_preemption,
    koordlet,
    load_aware,
    manager,
    node_crashes,
    nri,
    openb,
    openb_curve,
    proven_moves,
    queues,
    quota,
    replay,
    reservations,
    room,
    throughput,
    topology,
    vgpu,
    webhook,
    yarn,
)

ALL = {
    **throughput.BENCHMARKS,
    **gangs.BENCHMARKS,
    **topology.BENCHMARKS,
    **job_preemption.BENCHMARKS,
    **quota.BENCHMARKS,
    **queues.BENCHMARKS,
    **devices.BENCHMARKS,
    **reservations.BENCHMARKS,
    **load_aware.BENCHMARKS,
    **manager.BENCHMARKS,
    **webhook.BENCHMARKS,
    **explain.BENCHMARKS,
    **dashboard.BENCHMARKS,
    **audit.BENCHMARKS,
    **replay.BENCHMARKS,
    **openb.BENCHMARKS,
    **openb_curve.BENCHMARKS,
    **room.BENCHMARKS,
    **cluster.BENCHMARKS,
    **colocation.BENCHMARKS,
    **koordlet.BENCHMARKS,
    **descheduler.BENCHMARKS,
    **proven_moves.BENCHMARKS,
    **nri.BENCHMARKS,
    **node_crashes.BENCHMARKS,
    **colocation_node.BENCHMARKS,
    **vgpu.BENCHMARKS,
    **yarn.BENCHMARKS,
}


def main() -> None:
    """Run the named benchmarks, or all, each in a process of its own."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("names", nargs="*", choices=[*ALL, []], metavar="NAME", help=", ".join(ALL))
    parser.add_argument("--scale", type=float, default=1.0, help="share of the pods to run")
    parser.add_argument("--json", help="also write the results to this file")
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.alone:
        print(json.dumps(ALL[arguments.alone].run(arguments.scale)))
        return
    console = Console()
    cpus, load = os.cpu_count(), os.getloadavg()[0]
    where = f"{platform.machine()}, {cpus} cores, Python {platform.python_version()}"
    console.print(f"{where}, load {load:.1f}")
    table = Table("benchmark", "measured", "to reach", box=None, header_style="bold")
    results = {}
    for name in arguments.names or ALL:
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
        table.add_row(ALL[name].title, shown, ALL[name].target)
        console.print(f"{name}: {shown} ({time.perf_counter() - started:.0f} s)")
    console.print()
    console.print(table)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
