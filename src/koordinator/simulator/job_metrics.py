"""Metrics of jobs: waiting, completion, restarts, fairness, utilization, cost and energy.

A job is a gang, or a pod outside of gangs, with the pods that replaced it.

CPU and GPU demand of pods, as jobs' metrics and GPU policies count it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from koordinator.api.labels import GPU_MODEL
from koordinator.api.pod import Pod, PodSpec
from koordinator.api.resource_names import CPU, GPU, GPU_CORE, GPU_MEMORY_RATIO, NVIDIA_GPU
from koordinator.domain.gpus.mix import WHOLE_GPU
from koordinator.foundation.arrays import FloatArray
from koordinator.foundation.lazy_dataclass import dataclass

_PERCENT = 100

_HOUR_S = 3600.0
_KILO = 1000.0


class WaitingTimes(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Virtual seconds from submission to scheduling."""

    mean_s: float
    p50_s: float
    p95_s: float
    p99_s: float


def waiting_times(waits_s: Sequence[float]) -> WaitingTimes | None:
    """Return the mean and percentiles; None for an empty sequence."""
    if not waits_s:
        return None
    p50_s, p95_s, p99_s = np.percentile(waits_s, (50, 95, 99)).tolist()
    return WaitingTimes(mean_s=float(np.mean(waits_s)), p50_s=p50_s, p95_s=p95_s, p99_s=p99_s)


@dataclass(frozen=True, slots=True)
class NodeRates:
    """Price and power of one node: when idle, and more at full use."""

    hourly_price: float = 0.0
    idle_watts: float = 0.0
    cpu_watts: float = 0.0  # more with all CPUs allocated
    gpu_watts: float = 0.0  # more per allocated GPU


@dataclass(frozen=True, slots=True)
class PodLifeTimes:
    """Life of one pod object; times are virtual, None if the event did not occur."""

    job: str
    pod: str  # name of the first pod, which this one may replace
    submitted_s: float
    bound_s: float | None
    ended_s: float | None
    is_finished: bool
    is_restart: bool
    node: str
    cpu_milli: int
    gpu_milli: int


@dataclass(frozen=True, slots=True)
class PoolCapacity:
    """Equal nodes; amounts are totals."""

    nodes: tuple[str, ...]
    cpu_milli: float
    gpu_milli: float
    rates: NodeRates = NodeRates()


class Fairness(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Finish-time fairness of the finished jobs: completion time over that in an equal share.

    With ``n`` jobs there on average, a job that needs the share ``s`` of the cluster would take
    ``max(1, s·n)`` times its run time in an equal share.  Above 1 a job finished later than that.
    Source: Mahajan et al., "Themis", NSDI 2020.
    """

    mean: float
    p99: float
    worst: float
    unfair_share: float  # of the finished jobs, above 1


class JobMetrics(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Metrics of the jobs of a run; times in virtual seconds."""

    jobs: int
    finished: int
    restarts: int  # pods that replaced lost ones
    completion: WaitingTimes | None  # from submission to the end of finished jobs
    queueing: WaitingTimes | None  # from submission until all pods run, of started jobs
    fairness: Fairness | None
    gpu_utilization: float | None  # allocated share over the whole run; None without GPUs
    cpu_utilization: float | None
    gpu_fragmentation: float | None  # mean over time
    pools_per_gang: float | None = None  # of the nodes of started jobs with several pods, mean
    cost: float | None = None  # of all nodes; None without prices
    used_node_cost: float | None = None  # of nodes while they have pods
    cost_per_job: float | None = None  # of all nodes, per finished job
    energy_kwh: float | None = None  # None without power


@dataclass(frozen=True, slots=True)
class JobRun:
    """A job as a whole."""

    job: str
    submitted_s: float
    started_s: float | None  # when its last pod started for the first time
    ended_s: float | None  # None unless all its pods finished
    run_s: float  # longest run time of its finished pods
    pods: int
    restarts: int
    cpu_milli: int
    gpu_milli: int
    nodes: tuple[str, ...] = ()  # of its first pods that were placed

    @property
    def completion_s(self) -> float | None:
        """Time from submission to the end; None unless it finished."""
        return None if self.ended_s is None else self.ended_s - self.submitted_s

    @property
    def queued_s(self) -> float | None:
        """Time from submission until all its pods ran; None unless they did."""
        return None if self.started_s is None else self.started_s - self.submitted_s


def job_runs(pods: Iterable[PodLifeTimes]) -> list[JobRun]:
    """Return the jobs in order of their first submission."""
    jobs: dict[str, dict[str, list[PodLifeTimes]]] = {}
    for pod in pods:
        jobs.setdefault(pod.job, {}).setdefault(pod.pod, []).append(pod)
    return [_job(name, tuple(members.values())) for name, members in jobs.items()]


def _job(name: str, members: Sequence[Sequence[PodLifeTimes]]) -> JobRun:
    """Return a job; each of its members has the replacements after the first pod."""
    starts = [min((p.bound_s for p in m if p.bound_s is not None), default=None) for m in members]
    ends = [next((p.ended_s for p in m if p.is_finished), None) for m in members]
    runs = [
        p.ended_s - p.bound_s
        for m in members
        for p in m
        if p.is_finished and p.ended_s is not None and p.bound_s is not None
    ]
    began = [start for start in starts if start is not None]
    done = [end for end in ends if end is not None]
    return JobRun(
        job=name,
        submitted_s=min(m[0].submitted_s for m in members),
        started_s=max(began) if len(began) == len(members) else None,
        ended_s=max(done) if len(done) == len(members) else None,
        run_s=max(runs, default=0.0),
        pods=len(members),
        restarts=sum(p.is_restart for m in members for p in m),
        cpu_milli=sum(m[0].cpu_milli for m in members),
        gpu_milli=sum(m[0].gpu_milli for m in members),
        nodes=tuple(next((p.node for p in m if p.bound_s is not None), "") for m in members),
    )


def job_metrics(
    pods: Sequence[PodLifeTimes],
    pools: Mapping[str, PoolCapacity],
    ends_s: float,
    gpu_fragmentation: float | None = None,
) -> JobMetrics:
    """Return the metrics of a run from 0 to ``ends_s``."""
    jobs = job_runs(pods)
    cpu = sum(pool.cpu_milli for pool in pools.values())
    gpu = sum(pool.gpu_milli for pool in pools.values())
    occupied_s = np.array([_occupied_s(pod, ends_s) for pod in pods])
    cost, used_cost = _costs(pods, pools, ends_s)
    finished = sum(job.ended_s is not None for job in jobs)
    return JobMetrics(
        jobs=len(jobs),
        finished=finished,
        restarts=sum(job.restarts for job in jobs),
        completion=waiting_times([t for job in jobs if (t := job.completion_s) is not None]),
        queueing=waiting_times([t for job in jobs if (t := job.queued_s) is not None]),
        fairness=_fairness(jobs, cpu, gpu, ends_s),
        gpu_utilization=_utilization(occupied_s, [pod.gpu_milli for pod in pods], gpu * ends_s),
        cpu_utilization=_utilization(occupied_s, [pod.cpu_milli for pod in pods], cpu * ends_s),
        gpu_fragmentation=gpu_fragmentation,
        pools_per_gang=_pools_per_gang(jobs, pools),
        cost=cost,
        used_node_cost=used_cost,
        cost_per_job=None if cost is None or not finished else cost / finished,
        energy_kwh=_energy_kwh(pods, occupied_s, pools, ends_s),
    )


def _pools_per_gang(jobs: Sequence[JobRun], pools: Mapping[str, PoolCapacity]) -> float | None:
    """Return the mean number of node pools of a started job with several pods; None without one."""
    pool_of = {node: name for name, pool in pools.items() for node in pool.nodes}
    counts = [
        len({pool_of.get(node, "") for node in job.nodes})
        for job in jobs
        if job.pods > 1 and job.started_s is not None
    ]
    return float(np.mean(counts)) if counts else None


def _occupied_s(pod: PodLifeTimes, ends_s: float) -> float:
    """Return how long a pod held its node's resources."""
    if pod.bound_s is None:
        return 0.0
    return max((ends_s if pod.ended_s is None else pod.ended_s) - pod.bound_s, 0.0)


def _utilization(occupied_s: FloatArray, amounts: Sequence[int], capacity_s: float) -> float | None:
    if not capacity_s:
        return None
    return float(occupied_s @ np.array(amounts, float)) / capacity_s if len(occupied_s) else 0.0


def _fairness(jobs: Sequence[JobRun], cpu: float, gpu: float, ends_s: float) -> Fairness | None:
    done = [job for job in jobs if job.ended_s is not None and job.run_s > 0]
    if not done:
        return None
    comes = np.sort([job.submitted_s for job in jobs])
    goes = np.sort([ends_s if job.ended_s is None else job.ended_s for job in jobs])
    ratios = []
    for job in done:
        took_s = (job.ended_s or 0.0) - job.submitted_s
        present = _presence_s(comes, goes, job.submitted_s, job.submitted_s + took_s) / took_s
        share = max(
            job.gpu_milli / gpu if gpu else 0.0,
            job.cpu_milli / cpu if cpu else 0.0,
        )
        ratios.append(took_s / (job.run_s * max(1.0, share * present)))
    values = np.array(ratios)
    return Fairness(
        mean=float(values.mean()),
        p99=float(np.percentile(values, 99)),
        worst=float(values.max()),
        unfair_share=float((values > 1.0 + 1e-9).mean()),
    )


def _presence_s(comes: FloatArray, goes: FloatArray, from_s: float, to_s: float) -> float:
    """Return the integral of the number of jobs over a time span; both arrays are sorted."""

    def until(times: FloatArray, at_s: float) -> float:
        """Return the sum of ``at_s - time`` over the times before ``at_s``."""
        before = times[: int(np.searchsorted(times, at_s))]
        return float(at_s * len(before) - before.sum())

    return (until(comes, to_s) - until(comes, from_s)) - (until(goes, to_s) - until(goes, from_s))


def _costs(
    pods: Sequence[PodLifeTimes], pools: Mapping[str, PoolCapacity], ends_s: float
) -> tuple[float | None, float | None]:
    """Return the cost of all nodes, and of the nodes while they have pods."""
    if not any(pool.rates.hourly_price for pool in pools.values()):
        return None, None
    price = {name: pool.rates.hourly_price for pool in pools.values() for name in pool.nodes}
    spans: dict[str, list[tuple[float, float]]] = {}
    for pod in pods:
        if pod.bound_s is not None and price.get(pod.node):
            end_s = ends_s if pod.ended_s is None else pod.ended_s
            spans.setdefault(pod.node, []).append((pod.bound_s, end_s))
    hours = ends_s / _HOUR_S
    used = sum(price[node] * _union_s(span) / _HOUR_S for node, span in spans.items())
    return sum(price.values()) * hours, used


def _union_s(spans: list[tuple[float, float]]) -> float:
    """Return the time that at least one of the spans covers."""
    total_s, reached_s = 0.0, 0.0
    for from_s, to_s in sorted(spans):
        total_s += max(to_s - max(from_s, reached_s), 0.0)
        reached_s = max(reached_s, to_s)
    return total_s


def _energy_kwh(
    pods: Sequence[PodLifeTimes],
    occupied_s: FloatArray,
    pools: Mapping[str, PoolCapacity],
    ends_s: float,
) -> float | None:
    """Return the energy of all nodes: idle power, and more in proportion to the allocation."""
    rates = [pool.rates for pool in pools.values()]
    if not any(rate.idle_watts or rate.cpu_watts or rate.gpu_watts for rate in rates):
        return None
    by_node = {name: pool for pool in pools.values() for name in pool.nodes}
    joules = sum(pool.rates.idle_watts * len(pool.nodes) * ends_s for pool in pools.values())
    for pod, span_s in zip(pods, occupied_s.tolist(), strict=True):
        pool = by_node.get(pod.node)
        if pool is None:
            continue
        of_node = pod.cpu_milli * len(pool.nodes) / pool.cpu_milli if pool.cpu_milli else 0.0
        watts = pool.rates.cpu_watts * of_node + pool.rates.gpu_watts * pod.gpu_milli / _KILO
        joules += watts * span_s
    return joules / _HOUR_S / _KILO


class PodDemands:
    """Requests of pods; specs that pods share are evaluated once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[PodSpec, tuple[int, int, int]]] = {}

    def of(self, pod: Pod) -> tuple[int, int, int]:
        """Return CPU milli, number of GPUs, and milli of each; a share is of one GPU."""
        spec = pod.spec
        known = self._known.get(id(spec))
        if known is None or known[0] is not spec:
            known = self._known[id(spec)] = (spec, _demand(spec))
        return known[1]

    def totals(self, pod: Pod) -> tuple[int, int]:
        """Return CPU milli, and GPU milli over all GPUs."""
        cpu_milli, gpus, gpu_milli = self.of(pod)
        return cpu_milli, gpus * gpu_milli

    @staticmethod
    def models(pod: Pod) -> tuple[str, ...]:
        """Return the GPU models that a pod accepts; empty for any."""
        return _models(pod.spec)

    def expected(self, pods: Iterable[Pod]) -> list[dict[str, Any]]:
        """Return the mix of pods as the argument ``expected`` of GPU policies."""
        return expected_argument((*self.of(pod), _models(pod.spec)) for pod in pods)


def expected_argument(
    demands: Iterable[tuple[int, int, int, tuple[str, ...]]],
) -> list[dict[str, Any]]:
    """Return a mix of pods as the argument ``expected`` of GPU policies.

    A demand is the CPU milli, the number of GPUs, the milli of each and the accepted models.
    """
    return [
        {"count": n, "cpuMilli": cpu, "gpus": gpus, "gpuMilli": milli, "models": list(models)}
        for (cpu, gpus, milli, models), n in sorted(Counter(demands).items())
    ]


def _demand(spec: PodSpec) -> tuple[int, int, int]:
    requests: Counter[str] = Counter()
    for container in spec.containers:
        given: Mapping[str, Any] = {**container.resources.limits, **container.resources.requests}
        for name in (CPU, NVIDIA_GPU, GPU, GPU_CORE, GPU_MEMORY_RATIO):
            if name in given:
                requests[name] += given[name].milli() if name == CPU else given[name].value()
    if requests[NVIDIA_GPU]:
        return requests[CPU], requests[NVIDIA_GPU], WHOLE_GPU
    percent = requests[GPU_MEMORY_RATIO] or requests[GPU_CORE] or requests[GPU]
    if percent <= _PERCENT:
        return requests[CPU], int(percent > 0), percent * WHOLE_GPU // _PERCENT
    gpus = -(-percent // _PERCENT)
    return requests[CPU], gpus, percent * WHOLE_GPU // (_PERCENT * gpus)


def _models(spec: PodSpec) -> tuple[str, ...]:
    """Return the GPU models that a pod accepts; empty for any."""
    selected = spec.node_selector.get(GPU_MODEL)
    if selected:
        return (selected,)
    required = spec.required_node_affinity
    models = {
        value
        for term in (required.node_selector_terms if required else ())
        for rule in term.match_expressions
        if rule.key == GPU_MODEL and rule.operator == "In"
        for value in rule.values
    }
    return tuple(sorted(models))
