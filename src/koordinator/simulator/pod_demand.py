"""CPU and GPU demand of pods, as jobs' metrics and GPU policies count it."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from koordinator.api.labels import GPU_MODEL
from koordinator.api.pod import Pod, PodSpec
from koordinator.api.resource_names import CPU, GPU, GPU_CORE, GPU_MEMORY_RATIO, NVIDIA_GPU
from koordinator.domain.gpus.mix import WHOLE_GPU

_PERCENT = 100


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
        counts = Counter((*self.of(pod), _models(pod.spec)) for pod in pods)
        return [
            {"count": n, "cpuMilli": cpu, "gpus": gpus, "gpuMilli": milli, "models": list(models)}
            for (cpu, gpus, milli, models), n in sorted(counts.items())
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
    node = spec.affinity.node_affinity if spec.affinity is not None else None
    required = node.required_during_scheduling_ignored_during_execution if node else None
    models = {
        value
        for term in (required.node_selector_terms if required else ())
        for rule in term.match_expressions
        if rule.key == GPU_MODEL and rule.operator == "In"
        for value in rule.values
    }
    return tuple(sorted(models))
