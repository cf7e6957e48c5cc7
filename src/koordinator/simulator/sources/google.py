"""Google's cluster trace of 2019 in its published format: JSON lines of BigQuery's tables.

Source: google/cluster-data clusterdata_trace_format_v3.proto.  Amounts are normalized: 1.0 is the
largest machine, here 100 CPUs and 1 TiB.
"""

from collections import Counter
from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Any, Final

import msgspec

from koordinator.foundation.decoders import decode_json
from koordinator.foundation.errors import InputError
from koordinator.foundation.files import read_packed
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.quantity import Quantity
from koordinator.simulator.generation import Outage
from koordinator.simulator.sources.source import Source
from koordinator.simulator.sources.trace_jobs import (
    Machines,
    TraceJob,
    TraceTask,
    counted,
    jobs_source,
)
from koordinator.simulator.workload import NodePool

GOOGLE_AT: Final = "https://github.com/google/cluster-data/blob/master/ClusterData2019.md"
_CPU_MILLI: Final = 100_000  # of the largest machine
_MEMORY_MIB: Final = 1 << 20
_SCHEDULE: Final = "SCHEDULE"
_AFTER_THE_END: Final = 1 << 62  # microseconds
_ENDS: Final = frozenset({"FAIL", "FINISH", "KILL", "LOST"})
_EVENTS: Final = (
    *("SUBMIT", "QUEUE", "ENABLE", "SCHEDULE", "EVICT", "FAIL", "FINISH", "KILL", "LOST"),
    *("UPDATE_PENDING", "UPDATE_RUNNING"),
)
_MACHINE_EVENTS: Final = ("UNKNOWN", "ADD", "REMOVE", "UPDATE")


class _MachineResources(msgspec.Struct, frozen=True):
    cpus: float | None = None
    memory: float | None = None


class _MachineEvent(msgspec.Struct):
    time: int | str
    machine_id: int | str
    type: int | str
    capacity: _MachineResources | None = None


class _InstanceEvent(msgspec.Struct):
    time: int | str
    type: int | str
    collection_id: int | str
    instance_index: int | str = 0
    alloc_collection_id: int | str | None = 0
    priority: int | str | None = 0
    resource_request: _MachineResources | None = None


_NOTHING: Final = _MachineResources()


@dataclass(slots=True)
class _Task:
    """Life of one instance."""

    submitted_s: float
    priority: int
    started_s: float | None = None
    ended_s: float | None = None
    request: _MachineResources = _NOTHING

    def job(self, name: str) -> TraceJob:
        """Return the instance as a job of one pod."""
        run_s = inf
        if self.ended_s is not None and self.started_s is not None:
            run_s = max(self.ended_s - self.started_s, 1.0)
        request = TraceTask(
            cpu_milli=round(_CPU_MILLI * (self.request.cpus or 0.0)),
            memory_mib=round(_MEMORY_MIB * (self.request.memory or 0.0)),
        )
        return TraceJob(name, self.submitted_s, run_s, (request,), priority=self.priority)


def google_source(folder: Path) -> Source:
    """Return Google's trace of one cell: ``machine_events*`` and ``instance_events*``.

    Instances of alloc sets reserve resources like pods; tasks inside of them are left out, as they
    take no further ones.  A removed machine is down until it is added again.
    """
    tasks, left_out = _tasks(folder)
    jobs = []
    for name, task in tasks.items():
        if task.ended_s is not None and task.started_s is None:
            left_out["ended before being scheduled"] += 1
            continue
        jobs.append(task.job(name))
    machines, outages, ends_s = _machines(folder)
    first_s = min((job.submit_s for job in jobs), default=0.0)
    moved = [Outage(o.node, max(o.at_s - first_s, 0.0), o.repaired_after_s) for o in outages]
    last_s = max(
        (job.submit_s + (0.0 if job.run_s == inf else job.run_s) for job in jobs), default=0.0
    )
    return jobs_source(
        "Google 2019",
        machines,
        jobs,
        outages=moved,
        notices=counted(left_out),
        horizon_s=max(last_s, ends_s) - first_s,
    )


def _tasks(folder: Path) -> tuple[dict[str, _Task], Counter[str]]:
    """Return the instances by name, and why others are left out."""
    tasks: dict[str, _Task] = {}
    inside: set[str] = set()
    for event in _events(folder, "instance_events", _InstanceEvent):
        name = f"{event.collection_id}-{event.instance_index}"
        if int(event.alloc_collection_id or 0):
            inside.add(name)
            continue
        at_s, kind = _seconds(event.time), _named(event.type, _EVENTS)
        if at_s == inf:  # after the end of the trace
            continue
        task = tasks.setdefault(name, _Task(at_s, int(event.priority or 0)))
        task.request = event.resource_request or task.request
        if kind == _SCHEDULE:
            task.started_s, task.ended_s = at_s, None
        elif kind in _ENDS:
            task.ended_s = at_s
    why = "they run inside of an alloc set"
    return tasks, Counter({why: len(inside)} if inside else {})


def _machines(folder: Path) -> tuple[list[Machines], list[Outage], float]:
    """Return machines by capacity, their outages, and the time of the last event."""
    capacity: dict[str, tuple[int, int]] = {}
    down: dict[str, float] = {}
    outages: list[Outage] = []
    last_s = 0.0
    for event in _events(folder, "machine_events", _MachineEvent):
        name, at_s = f"m{event.machine_id}", _seconds(event.time)
        if at_s == inf:
            continue
        last_s = max(last_s, at_s)
        kind = _named(event.type, _MACHINE_EVENTS)
        given = event.capacity or _NOTHING
        if kind == "ADD":
            amounts = (
                round(_CPU_MILLI * (given.cpus or 0.0)),
                round(_MEMORY_MIB * (given.memory or 0.0)),
            )
            if all(amounts):
                capacity.setdefault(name, amounts)
            if name in down:
                outages.append(Outage(name, down[name], at_s - down.pop(name)))
        elif kind == "REMOVE" and name in capacity:
            down.setdefault(name, at_s)
    outages += [Outage(name, at_s, inf) for name, at_s in down.items()]
    groups: dict[tuple[int, int], list[str]] = {}
    for name, amounts in capacity.items():
        groups.setdefault(amounts, []).append(name)
    machines = [
        Machines(
            NodePool(
                name=f"{cpu}m-{memory}mi",
                count=1,
                cpu=Quantity.from_milli(cpu),
                memory=Quantity.parse(f"{memory}Mi"),
                max_pods=10_000,
            ),
            tuple(names),
        )
        for (cpu, memory), names in sorted(groups.items())
    ]
    return machines, outages, last_s


def _events(folder: Path, table: str, kind: Any) -> Iterator[Any]:
    """Yield the rows of all files of a table, in order of time.  Raises InputError."""
    files = sorted(
        path
        for path in folder.glob(f"**/{table}*")
        if path.name.removesuffix(".gz").endswith((".json", ".jsonl"))
    )
    if not files:
        text = f"{table}*.json is missing; the trace is at {GOOGLE_AT}"
        raise InputError(text, source=str(folder))
    events = []
    for path in files:
        for line, row in enumerate(read_packed(path).splitlines(), start=1):
            if not row.strip():
                continue
            try:
                events.append(decode_json(row, kind))
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                problem = f"must be a row of the table {table}: {error}"
                raise InputError(problem, source=str(path), subject=f"line {line}") from None
    events.sort(key=lambda event: int(event.time))
    yield from events


def _named(value: int | str, names: tuple[str, ...]) -> str:
    """Return the name of an event, which BigQuery exports as a number or a name."""
    if isinstance(value, str) and not value.isdigit():
        return value
    index = int(value)
    return names[index] if index < len(names) else ""


def _seconds(microseconds: int | str) -> float:
    number = int(microseconds)
    return inf if number >= _AFTER_THE_END else number / 1e6
