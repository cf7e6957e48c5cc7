"""Traces of GPU clusters in their published formats: Philly, Helios, Alibaba 2025.

Sources: README of msr-fiddle/philly-traces (Jeon et al., ATC 2019), README of
S-Lab-System-Group/HeliosData (Hu et al., SC 2021), README of cluster-trace-gpu-v2025 in
alibaba/clusterdata (NSDI 2025).  Values that a trace lacks are assumptions, named below and in the
notices.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence
from math import ceil, inf
from pathlib import Path
from typing import Any, Final

import msgspec

from koordinator.foundation.decoders import decode_json
from koordinator.foundation.errors import InputError
from koordinator.foundation.files import read_packed
from koordinator.foundation.quantity import Quantity
from koordinator.simulator.sources.source import Source
from koordinator.simulator.sources.trace_jobs import (
    Machines,
    TraceJob,
    TraceTask,
    counted,
    epoch_s,
    find_trace,
    jobs_source,
    number,
    rows,
)
from koordinator.simulator.workload import GpusConfig, NodePool

PHILLY_AT: Final = "https://github.com/msr-fiddle/philly-traces"
HELIOS_AT: Final = "https://github.com/S-Lab-System-Group/HeliosData"
ALIBABA_2025_AT: Final = (
    "https://github.com/alibaba/clusterdata/tree/master/cluster-trace-gpu-v2025"
)
_MOST_GPUS: Final = 64
_GPUS_PER_NODE: Final = 8


# -- Philly ----------------------------------------------------------------------------------

#: CPUs and memory of a node by cluster: table 1 of the paper.
_HELIOS_NODES: Final = {
    "venus": (48, "376Gi"),
    "earth": (48, "376Gi"),
    "saturn": (64, "256Gi"),
    "uranus": (64, "256Gi"),
}

#: Cores, memory and GPUs of a node, which the trace does not have, by role of the instance.
_NODES_2025: Final = {"CN": (128, 1024, 0), "HN": (128, 1024, 8)}
_SPARE: Final = 1.1  # nodes over those that the largest demand would fill
_COLUMNS_2025: Final = (
    *("instance_sn", "role", "cpu_request", "gpu_request", "memory_request"),
    *("creation_time", "deletion_time"),
)


class _Detail(msgspec.Struct):
    gpus: list[str] = msgspec.field(default_factory=list)
    ip: str = ""


class _Attempt(msgspec.Struct):
    start_time: str | None = None
    end_time: str | None = None
    detail: list[_Detail] = msgspec.field(default_factory=list)


class _PhillyJob(msgspec.Struct):
    jobid: str
    submitted_time: str
    vc: str = ""
    attempts: list[_Attempt] = msgspec.field(default_factory=list)


def philly_source(folder: Path) -> Source:
    """Return Microsoft's Philly trace: ``cluster_job_log`` and ``cluster_machine_list``.

    A job has a pod per server of its last attempt, and runs as long as all its attempts together.
    CPUs and memory, which the trace does not have, are not requested.
    """
    log = find_trace(folder, "cluster_job_log", "cluster_job_log.json", get=PHILLY_AT)
    try:
        listed = decode_json(read_packed(log), list[_PhillyJob])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"must be a JSON list of jobs: {error}", source=str(log)) from None
    left_out: Counter[str] = Counter()
    jobs = []
    for each in listed:
        ran = [attempt for attempt in each.attempts if attempt.start_time and attempt.detail]
        if not ran:
            left_out["no attempt with a start and servers"] += 1
            continue
        tasks = tuple(
            TraceTask(gpus=min(len(detail.gpus), _MOST_GPUS)) for detail in ran[-1].detail
        )
        subject = f"job {each.jobid}"
        run_s = inf
        if all(attempt.end_time for attempt in ran):
            run_s = sum(
                max(
                    epoch_s(attempt.end_time or "", log, subject)
                    - epoch_s(attempt.start_time or "", log, subject),
                    1.0,
                )
                for attempt in ran
            )
        submit_s = epoch_s(each.submitted_time, log, subject)
        jobs.append(TraceJob(_name(each.jobid), submit_s, run_s, tasks))
    machines = find_trace(folder, "cluster_machine_list", "cluster_machine_list.csv", get=PHILLY_AT)
    notices = ["CPUs and memory are not in the trace: jobs request GPUs only", *counted(left_out)]
    return jobs_source("Philly", _philly_machines(machines), jobs, notices=notices)


def _philly_machines(path: Path) -> list[Machines]:
    names: dict[tuple[int, str], list[str]] = {}
    columns = ("machineId", "number of GPUs", "single GPU mem")
    for line, row in rows(path, columns):
        gpus = int(number(row, columns[1], path, line))
        memory = row[columns[2]].strip().upper().removesuffix("B")
        names.setdefault((gpus, memory), []).append(_name(row[columns[0]]))
    return [
        Machines(_pool(f"{gpus}x{memory}".lower(), gpus, f"{memory}i"), tuple(machines))
        for (gpus, memory), machines in sorted(names.items())
    ]


# -- Helios ----------------------------------------------------------------------------------


def helios_source(folder: Path) -> Source:
    """Return a cluster of SenseTime's Helios: ``cluster_log.csv`` and ``cluster_gpu_number.csv``.

    Each virtual cluster is a pool of nodes with eight GPUs, as many as it had at most; its jobs run
    in it only.  A job has as many pods as nodes, which share its GPUs and CPUs.
    """
    log = find_trace(folder, "cluster_log.csv", get=HELIOS_AT)
    columns = ("job_id", "vc", "gpu_num", "cpu_num", "node_num", "submit_time", "duration")
    left_out: Counter[str] = Counter()
    sizes = _helios_sizes(find_trace(folder, "cluster_gpu_number.csv", get=HELIOS_AT))
    cpus, memory = _HELIOS_NODES.get(log.parent.name.lower(), _HELIOS_NODES["venus"])
    jobs = []
    for line, row in rows(log, columns):
        if not sizes.get(row["vc"]):
            left_out["a virtual cluster that never had GPUs"] += 1
            continue
        gpus, cores, nodes = (
            int(number(row, column, log, line)) for column in ("gpu_num", "cpu_num", "node_num")
        )
        subject = f"line {line}"
        jobs.append(
            TraceJob(
                _name(f"job-{row['job_id']}"),
                epoch_s(row["submit_time"], log, subject),
                max(number(row, "duration", log, line), 1.0),
                _split(gpus, min(cores, cpus * max(nodes, 1)), max(nodes, 1)),
                pool=row["vc"].lower(),
            )
        )
    machines = [
        Machines(
            _pool(vc.lower(), _GPUS_PER_NODE, "32Gi", cpus, memory),
            tuple(f"{vc.lower()}-{i}" for i in range(ceil(gpus / _GPUS_PER_NODE))),
        )
        for vc, gpus in sorted(sizes.items())
        if gpus
    ]
    return jobs_source(f"Helios {log.parent.name}", machines, jobs, notices=counted(left_out))


def _helios_sizes(path: Path) -> dict[str, int]:
    """Return the largest number of GPUs of each virtual cluster."""
    sizes: dict[str, int] = {}
    for line, row in rows(path, ("date", "total")):
        for name in row:
            if name not in {"date", "total"}:
                sizes[name] = max(sizes.get(name, 0), int(number(row, name, path, line)))
    return sizes


def _split(gpus: int, cpus: int, pods: int) -> tuple[TraceTask, ...]:
    """Return pods that share GPUs and CPUs as evenly as whole ones allow."""
    return tuple(
        TraceTask(
            cpu_milli=1000 * cpus // pods,
            gpus=gpus // pods + (index < gpus % pods),
        )
        for index in range(pods)
    )


# -- Alibaba 2025 ----------------------------------------------------------------------------


def alibaba_2025_source(folder: Path) -> Source:
    """Return Alibaba's trace of disaggregated inference: ``disaggregated_DLRM_trace.csv``.

    Its nodes are not published: there are as many of each role as the largest demand fills, and a
    tenth more.
    """
    path = find_trace(folder, "disaggregated_DLRM_trace.csv", get=ALIBABA_2025_AT)
    jobs = []
    for line, row in rows(path, _COLUMNS_2025):
        if row["role"] not in _NODES_2025:
            raise InputError(
                f"must be CN or HN, got {row['role']!r}",
                source=str(path),
                subject=f"line {line}",
                path="role",
            )
        gpus = number(row, "gpu_request", path, line)
        task = TraceTask(
            cpu_milli=round(1000 * number(row, "cpu_request", path, line)),
            memory_mib=round(1024 * number(row, "memory_request", path, line)),
            gpus=int(gpus) if gpus >= 1 else 0,
            gpu_percent=round(100 * gpus) if gpus < 1 else 0,
        )
        created_s = number(row, "creation_time", path, line)
        deleted = row["deletion_time"].strip()
        run_s = inf
        if deleted:
            run_s = max(number(row, "deletion_time", path, line) - created_s, 1.0)
        pool = row["role"].lower()
        jobs.append(TraceJob(_name(row["instance_sn"]), created_s, run_s, (task,), pool=pool))
    machines = [
        _machines_2025(role, [job for job in jobs if job.pool == role.lower()])
        for role in sorted(_NODES_2025)
    ]
    notices = [
        "the trace has no nodes: their number and size are assumptions",
        "RDMA, disks and the most instances per node are not simulated",
    ]
    present = [group for group in machines if group.names]
    return jobs_source("Alibaba GPU 2025", present, jobs, notices=notices)


def _machines_2025(role: str, jobs: Sequence[TraceJob]) -> Machines:
    cores, memory_gib, gpus = _NODES_2025[role]
    filled = max(
        _peak((job, job.tasks[0].cpu_milli / (1000 * cores)) for job in jobs),
        _peak((job, job.tasks[0].memory_mib / (1024 * memory_gib)) for job in jobs),
        _peak((job, job.tasks[0].gpus / gpus) for job in jobs) if gpus else 0.0,
    )
    pool = _pool(role.lower(), gpus, "32Gi", cores, f"{memory_gib}Gi")
    return Machines(pool, tuple(f"{role.lower()}-{i}" for i in range(ceil(_SPARE * filled))))


def _peak(demands: Iterable[tuple[TraceJob, float]]) -> float:
    """Return the largest sum of the demands that are there at one time."""
    ends: list[tuple[float, float]] = []
    now = most = 0.0
    for job, demand in sorted(demands, key=lambda each: each[0].submit_s):
        while ends and ends[0][0] <= job.submit_s:
            now -= heapq.heappop(ends)[1]
        now += demand
        most = max(most, now)
        heapq.heappush(ends, (job.submit_s + job.run_s, demand))
    return most


# -- parts -----------------------------------------------------------------------------------


def _pool(name: str, gpus: int, gpu_memory: str, cpus: int = 64, memory: str = "512Gi") -> NodePool:
    more: dict[str, Any] = {}
    if gpus:
        more["gpus"] = GpusConfig(count=gpus, memory=Quantity.parse(gpu_memory))
    return NodePool(
        name=name,
        count=1,
        cpu=Quantity.from_int(cpus),
        memory=Quantity.parse(memory),
        max_pods=1000,
        **more,
    )


def _name(text: str) -> str:
    """Return a name that Kubernetes accepts."""
    return "".join(c if c.isalnum() else "-" for c in text.strip().lower()).strip("-") or "x"
