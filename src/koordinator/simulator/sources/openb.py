"""Alibaba's GPU trace of 2023 (openb) as a source.

The protocol ``arrivals`` is the one of the published experiments; ``times`` follows the trace.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace as changed
from math import inf
from pathlib import Path

from koordinator.api.defaults import with_defaults
from koordinator.api.kubescheduler import KubeSchedulerConfiguration
from koordinator.api.meta import ObjectMeta
from koordinator.api.pod import Pod, PodSpec
from koordinator.foundation.errors import InputError
from koordinator.simulator.generation import SimulationPlan
from koordinator.simulator.policies import TRACE_CONFIGURATION
from koordinator.simulator.research.openb import Arrivals, OpenbTrace, TracePod, arrivals
from koordinator.simulator.research.openb_objects import expected_pods, node_objects, pod_spec
from koordinator.simulator.sources.source import ARRIVING, Source, arriving
from koordinator.simulator.stages import PodLife
from koordinator.simulator.world import Submission

SEED = 42  # of the published experiments' first run
_WITHOUT_GPUS = "cpu"
_KIND = "openb"


def arriving_openb(
    trace: OpenbTrace, ratio: float, folder: Path | None, *, with_topology: bool = False
) -> Source:
    """Return a source in which every pod of the list arrives once, or up to a ratio of demand."""

    def generate(seed: int, _until_s: float) -> SimulationPlan:
        order = arrivals(trace, seed, ratio, folder)
        plan = changed(
            _cluster(trace, with_topology=with_topology),
            submissions=tuple(_arriving(trace, order)),
            ranks={
                node.name: int(rank) for node, rank in zip(trace.nodes, order.rank, strict=False)
            },
            order=order.source,
        )
        return arriving(plan)

    source = _source(trace, generate)
    return changed(
        source,
        timeless="pods arrive one per second, in their order",
        endless="pods that arrive never leave",
        only_requests=True,
    )


def timed_openb(trace: OpenbTrace, *, with_topology: bool = False) -> Source:
    """Return a source in which pods come and go as in the trace.

    Raises InputError if the list has no times.
    """
    if not any(pod.length_s for pod in trace.pods):
        text = "no pod has creation_time and deletion_time; without them only arrivals are possible"
        raise InputError(text, source=f"pod list {trace.name}")
    first_s = min(pod.created_s for pod in trace.pods)
    horizon_s = max(pod.created_s + pod.length_s for pod in trace.pods) - first_s

    def generate(_seed: int, until_s: float) -> SimulationPlan:
        cluster = _cluster(trace, with_topology=with_topology)
        submissions = sorted(_timed(trace, first_s, until_s), key=lambda each: each.at_s)
        return changed(cluster, submissions=tuple(submissions))

    source = _source(trace, generate)
    return changed(source, horizon_s=horizon_s, sample_every_s=max(60.0, horizon_s // 500))


def _source(trace: OpenbTrace, generate: Callable[[int, float], SimulationPlan]) -> Source:
    return Source(
        title=f"openb, list {trace.name}",
        kind="trace",
        generate=generate,
        horizon_s=inf,
        seed=SEED,
        configuration=_configuration,
        configuration_name="the trace's default",
        expected=lambda _plan: expected_pods(trace),
        name=trace.name,
    )


def _configuration() -> KubeSchedulerConfiguration:
    return TRACE_CONFIGURATION


def _cluster(trace: OpenbTrace, *, with_topology: bool) -> SimulationPlan:
    pools: dict[str, list[str]] = {}
    for node in trace.nodes:
        pools.setdefault(node.model or _WITHOUT_GPUS, []).append(node.name)
    objects = [o for n in trace.nodes for o in node_objects(n, with_topology=with_topology)]
    names = {pool: tuple(nodes) for pool, nodes in sorted(pools.items())}
    return SimulationPlan(tuple(objects), names, (), ())


def _specs(trace: OpenbTrace) -> list[PodSpec]:
    """Return the specs of the pods; pods with equal requests share one."""
    known: dict[tuple[object, ...], PodSpec] = {}
    found = []
    for pod in trace.pods:
        key = (pod.cpu_milli, pod.memory_mib, pod.num_gpu, pod.gpu_milli, pod.gpu_spec)
        spec = known.get(key)
        if spec is None:
            made = with_defaults(Pod(metadata=ObjectMeta(name="x"), spec=pod_spec(pod)))
            spec = known[key] = made.spec
        found.append(spec)
    return found


def _arriving(trace: OpenbTrace, order: Arrivals) -> Iterator[Submission]:
    by_position = _specs(trace)
    for number, position in enumerate(order.order.tolist()):
        meta = ObjectMeta(name=order.names[number], namespace="default")
        pod = Pod(metadata=meta, spec=by_position[position])
        yield Submission(float(number), pod, kind=_kind_name(trace.pods[position]), life=ARRIVING)


def _timed(trace: OpenbTrace, first_s: float, until_s: float) -> Iterator[Submission]:
    for pod, spec in zip(trace.pods, _specs(trace), strict=True):
        at_s = pod.created_s - first_s
        if at_s > until_s:
            continue
        meta = ObjectMeta(name=pod.name, namespace="default")
        life = PodLife(work_s=pod.length_s or inf)
        yield Submission(at_s, Pod(metadata=meta, spec=spec), kind=_kind_name(pod), life=life)


def _kind_name(pod: TracePod) -> str:
    """Return the kind of a pod in totals: by its GPUs."""
    if not pod.num_gpu:
        return "no GPU"
    if pod.num_gpu == 1 and pod.gpu_milli < 1000:  # noqa: PLR2004 -- a whole GPU
        return "share of a GPU"
    return f"{pod.num_gpu} GPU{'s' if pod.num_gpu > 1 else ''}"
