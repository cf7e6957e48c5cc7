"""Jobs and machines of a trace as a source: common parts of the readers of formats."""

import csv
import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import Final

from koordinator.api.core import ResourceList, ResourceRequirements
from koordinator.api.defaults import with_defaults
from koordinator.api.labels import POD_GROUP
from koordinator.api.meta import ObjectMeta
from koordinator.api.pod import Container, Pod, PodSpec
from koordinator.api.pod_groups import PodGroup, PodGroupSpec
from koordinator.api.policy import PriorityClass
from koordinator.api.resource_names import CPU, GPU_CORE, GPU_MEMORY_RATIO, MEMORY, NVIDIA_GPU
from koordinator.foundation.errors import InputError
from koordinator.foundation.files import read_packed
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.quantity import Quantity
from koordinator.simulator.generation import POOL, Outage, SimulationPlan, node_objects
from koordinator.simulator.policies import TRACE_CONFIGURATION
from koordinator.simulator.sources.source import Source
from koordinator.simulator.stages import PodLife
from koordinator.simulator.workload import NodePool
from koordinator.simulator.world import Submission

_NAMESPACE: Final = "trace"
_SAMPLES: Final = 400
_WHOLE: Final = 100


@dataclass(frozen=True, slots=True)
class TraceTask:
    """Request of one pod; ``gpu_percent`` is a share of one GPU, where ``gpus`` is 0."""

    cpu_milli: int = 0
    memory_mib: int = 0
    gpus: int = 0
    gpu_percent: int = 0


@dataclass(frozen=True, slots=True)
class TraceJob:
    """Job of a trace: its pods start together and run for ``run_s``."""

    name: str
    submit_s: float  # since the start of the trace
    run_s: float  # infinite for a job that had not ended
    tasks: tuple[TraceTask, ...]
    pool: str = ""  # node pool that it is confined to
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Machines:
    """Equal machines of a trace; ``pool`` describes one of them."""

    pool: NodePool
    names: tuple[str, ...]


def jobs_source(
    title: str,
    machines: Sequence[Machines],
    jobs: Sequence[TraceJob],
    *,
    outages: Sequence[Outage] = (),
    notices: Sequence[str] = (),
    horizon_s: float | None = None,
) -> Source:
    """Return the source of a trace; by default it ends an hour after the last submission.

    Raises InputError for a trace without jobs or machines.
    """
    if not jobs or not machines:
        raise InputError("has no jobs or no machines", source=title)
    jobs = sorted(jobs, key=lambda job: job.submit_s)
    first_s = jobs[0].submit_s
    last_s = (
        max(job.submit_s + (3600.0 if job.run_s == inf else job.run_s) for job in jobs) - first_s
    )
    classes = sorted({job.priority for job in jobs if job.priority})

    def generate(_seed: int, until_s: float) -> SimulationPlan:
        objects = [
            obj
            for group in machines
            for name in group.names
            for obj in node_objects(group.pool, name, {POOL: group.pool.name})
        ]
        priorities = [
            with_defaults(PriorityClass(metadata=ObjectMeta(name=_class(each)), value=each))
            for each in classes
        ]
        specs: dict[tuple[TraceTask, str, int], PodSpec] = {}
        submissions = [
            submission
            for job in jobs
            if job.submit_s - first_s <= until_s
            for submission in _submissions(job, first_s, specs)
        ]
        pools: dict[str, tuple[str, ...]] = {}
        for group in machines:
            pools[group.pool.name] = (*pools.get(group.pool.name, ()), *group.names)
        return SimulationPlan((*objects, *priorities), pools, tuple(submissions), tuple(outages))

    horizon_s = last_s if horizon_s is None else horizon_s
    return Source(
        title=title,
        kind="trace",
        generate=generate,
        horizon_s=horizon_s,
        sample_every_s=max(horizon_s / _SAMPLES, 1.0),
        configuration=lambda: TRACE_CONFIGURATION,
        configuration_name="the trace's default",
        notices=tuple(notices),
    )


def _submissions(
    job: TraceJob, first_s: float, specs: dict[tuple[TraceTask, str, int], PodSpec]
) -> Iterator[Submission]:
    group = None
    labels: dict[str, str] = {}
    if len(job.tasks) > 1:
        meta = ObjectMeta(name=job.name, namespace=_NAMESPACE)
        group = PodGroup(metadata=meta, spec=PodGroupSpec(min_member=len(job.tasks)))
        labels = {POD_GROUP: job.name}
    life = PodLife(work_s=job.run_s)
    kind = _kind(job)
    for number, task in enumerate(job.tasks):
        key = task, job.pool, job.priority
        spec = specs.get(key)
        if spec is None:
            spec = specs[key] = _spec(*key)
        name = job.name if group is None else f"{job.name}-{number}"
        meta = ObjectMeta(name=name, namespace=_NAMESPACE, labels=labels)
        pod = Pod(metadata=meta, spec=spec)
        yield Submission(job.submit_s - first_s, pod, kind=kind, life=life, group=group)


def _spec(task: TraceTask, pool: str, priority: int) -> PodSpec:
    amounts: ResourceList = {}
    if task.cpu_milli:
        amounts[CPU] = Quantity.from_milli(task.cpu_milli)
    if task.memory_mib:
        amounts[MEMORY] = Quantity.parse(f"{task.memory_mib}Mi")
    if task.gpus:
        amounts[NVIDIA_GPU] = Quantity.from_int(task.gpus)
    elif task.gpu_percent:
        amounts[GPU_CORE] = amounts[GPU_MEMORY_RATIO] = Quantity.from_int(task.gpu_percent)
    resources = ResourceRequirements(requests=amounts, limits=amounts)
    spec = PodSpec(
        containers=(Container(name="main", resources=resources),),
        node_selector={POOL: pool} if pool else {},
        restart_policy="Never",
        priority_class_name=_class(priority) if priority else "",
    )
    return with_defaults(Pod(metadata=ObjectMeta(name="x"), spec=spec)).spec


def _class(priority: int) -> str:
    return f"priority-{priority}"


def _kind(job: TraceJob) -> str:
    """Return the kind of a job in totals: by its GPUs."""
    gpus = sum(task.gpus for task in job.tasks)
    if gpus:
        return f"{gpus} GPU{'s' if gpus > 1 else ''}"
    return "share of a GPU" if any(task.gpu_percent for task in job.tasks) else "no GPU"


# -- files -----------------------------------------------------------------------------------


def find_trace(folder: Path, *names: str, get: str) -> Path:
    """Return the first of the files in a folder or below it, also gzipped.

    ``get`` is where the trace is published.  Raises InputError with it if no file is there.
    """
    for name in names:
        for pattern in (name, f"{name}.gz", f"*/{name}", f"*/{name}.gz"):
            if matches := sorted(folder.glob(pattern)):
                return matches[0]
    raise InputError(f"{' or '.join(names)} is missing; the trace is at {get}", source=str(folder))


def rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Yield line numbers and rows of a CSV file with these columns.  Raises InputError."""
    try:
        text = read_packed(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError("must be UTF-8 text", source=str(path)) from None
    reader = csv.DictReader(io.StringIO(text), skipinitialspace=True)
    header = reader.fieldnames or ()
    missing = [column for column in columns if column not in header]
    if missing:
        raise InputError(
            f"must have the column {missing[0]!r}, got {', '.join(header)}",
            source=str(path),
            subject="line 1",
        )
    try:
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:
        raise InputError(
            f"cannot be read: {error}", source=str(path), subject=f"line {reader.line_num}"
        ) from None


def number(row: Mapping[str, str], column: str, path: Path, line: int) -> float:
    """Return a number of at least 0; an empty cell is 0.  Raises InputError."""
    cell = (row.get(column) or "").strip()
    try:
        value = float(cell or 0)
    except ValueError:
        value = -1.0
    if not 0 <= value < inf:
        raise InputError(
            f"must be a number of at least 0, got {cell!r}",
            source=str(path),
            subject=f"line {line}",
            path=column,
        )
    return value


def epoch_s(text: str, path: Path, subject: str) -> float:
    """Return the time of ``2017-10-07 01:12:09`` in seconds.  Raises InputError."""
    try:
        return datetime.fromisoformat(text.strip()).replace(tzinfo=UTC).timestamp()
    except ValueError:
        problem = f"must be a time such as 2017-10-07 01:12:09, got {text!r}"
        raise InputError(problem, source=str(path), subject=subject) from None


def counted(left_out: Counter[str]) -> list[str]:
    """Return a sentence for each reason for which jobs are left out."""
    return [
        f"{n} {'job is' if n == 1 else 'jobs are'} left out: {why}"
        for why, n in sorted(left_out.items())
    ]
