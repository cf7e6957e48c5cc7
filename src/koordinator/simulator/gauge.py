"""Samples of a run: allocation of the pools, GPU fragmentation, pending pods by reason.

Reads the world and its scheduler's state; changes nothing.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import nan

import numpy as np

from koordinator.api.pod import Pod
from koordinator.api.resource_names import GPU_MEMORY_RATIO, NVIDIA_GPU
from koordinator.domain.gpus.mix import GpuClass, PodMix
from koordinator.domain.gpus.options import Fragmentation
from koordinator.foundation.arrays import IntArray
from koordinator.foundation.memo import Memo, Memory
from koordinator.scheduler.explanations.sentences import sentence, without_names
from koordinator.scheduler.snapshot import Snapshot
from koordinator.scheduler.snapshot.axis import CPU, MEMORY
from koordinator.scheduler.snapshot.gpu_view import gpu_class, gpu_nodes, node_kinds
from koordinator.scheduler.snapshot.nodes import RATIO_OF_GPU
from koordinator.simulator.run_report import AllocatedShares, NodeGroup, RunSample
from koordinator.simulator.stages import PodStage
from koordinator.simulator.world import World

#: Reasons that waiting does not remove.
_FIXED = ("node(s) didn't match", "node(s) had untolerated taint", "node(s) were unschedulable")
#: Message of a gang's other members, with the reason of the member that was tried.
_REJECTED = re.compile(r'GangGroup ".*?" gets rejected due to .*? with reason "(.*)"')
_COUNT_OF_NODES = re.compile(r"^\d+/\d+ nodes are available: ")
#: Percent of a GPU per unit of each GPU resource; a pod uses one of the resources only.
_PERCENT_OF_GPU = {NVIDIA_GPU: 100, GPU_MEMORY_RATIO: 1}
_WHOLE = ("no candidate topology nodes", "Insufficient quotas", "Insufficient non-preemptible")
_COUNTED = re.compile(r"(\d+) (.+)")
_MEASURES: Memo[dict[int, Fragmentation]] = Memo()


class WorldGauge:
    """Gauge of a world with loaded nodes.

    ``pools`` are node names by pool; ``pods`` are the future pods, whose GPU requests define the
    typical pods of the fragmentation measure.
    """

    def __init__(
        self, world: World, pools: Mapping[str, Sequence[str]], pods: Iterable[Pod]
    ) -> None:
        self._world = world
        rows = world.embedded.state.nodes.rows
        self._rows = {
            pool: np.array([rows[name] for name in names], np.int64)
            for pool, names in pools.items()
        }
        self.groups = tuple(self._group(pool) for pool in pools)
        self._gpus_of = {group.name: group.gpus for group in self.groups}
        self._gpu_rows = np.concatenate(
            [self._rows[group.name] for group in self.groups if group.gpus]
            or [np.zeros(0, np.int64)]
        )
        self._typical = self._typical_pods([*pods])
        self.memory: Memory = {}

    def sample(self) -> RunSample:
        """Return a sample of the current state."""
        world = self._world
        counts = world.counts
        return RunSample(
            time_s=world.now_s,
            pending=counts[PodStage.PENDING],
            running=counts[PodStage.RUNNING] + counts[PodStage.INTERRUPTED],
            finished=counts[PodStage.FINISHED],
            failed=counts[PodStage.LOST],
            decisions=world.scheduler.attempts,
            scheduling_s=world.scheduling_s,
            allocated={pool: self._allocation(pool) for pool in self._rows},
            gpu_fragmentation=self._gpu_fragmentation(),
            pending_by_reason=Counter(
                self._label(run.why)
                for run in world.pods.values()
                if run.stage is PodStage.PENDING and run.why
            ),
        )

    @staticmethod
    def _label(message: str) -> str:
        """Return the reason of a pending pod, equal for similar pods.

        That is the scheduler's own reason, which programs parse.  A reason with names or amounts,
        which would differ for each pod, is replaced by its sentence without them.
        """
        reason = main_reason(message)
        kind = without_names(waiting_cause(message))
        return reason if reason == without_names(reason) else kind

    # -- allocation --------------------------------------------------------------------------

    def _requested_percent(self, rows: IntArray) -> int:
        """Return the GPUs requested by pods on the rows, in percent of one.

        The requests are the only source with profiles that assign no devices, as kube-scheduler's.
        """
        state = self._world.embedded.state
        return sum(
            int(state.nodes.requested[state.axis.names.index(name), rows].sum()) * percent
            for name, percent in _PERCENT_OF_GPU.items()
            if name in state.axis.names
        )

    def _group(self, pool: str) -> NodeGroup:
        rows, nodes = self._rows[pool], self._world.embedded.state.nodes
        return NodeGroup(
            name=pool,
            nodes=len(rows),
            cpu_cores=int(nodes.allocatable[CPU, rows].sum()) / 1000,
            memory_bytes=int(nodes.allocatable[MEMORY, rows].sum()),
            gpus=int(np.count_nonzero(nodes.gpus.total[rows, :, RATIO_OF_GPU])),
        )

    def _allocation(self, pool: str) -> AllocatedShares:
        rows, nodes = self._rows[pool], self._world.embedded.state.nodes
        cpu, memory = (
            _share(nodes.requested[column, rows].sum(), nodes.allocatable[column, rows].sum())
            for column in (CPU, MEMORY)
        )
        gpus = self._gpus_of[pool]
        used = int(nodes.gpus.used[rows, :, RATIO_OF_GPU].sum()) or self._requested_percent(rows)
        return AllocatedShares(
            cpu=cpu, memory=memory, gpu=float(used / (100 * gpus)) if gpus else 0.0
        )

    # -- fragmentation -----------------------------------------------------------------------

    def _typical_pods(self, pods: Sequence[Pod]) -> dict[int, PodMix]:
        """Return FGD's pod mix for each GPU model, from the pods that accept the model."""
        state = self._world.embedded.state
        snapshot = Snapshot(state)
        specs = {id(pod.spec): pod for pod in pods}  # pods share specs, which alone matter here
        shapes: Counter[GpuClass] = Counter()
        for spec, times in Counter(id(pod.spec) for pod in pods).items():
            shapes[gpu_class(snapshot, state.classes.of(specs[spec]))] += times
        models = np.unique(node_kinds(snapshot)[0].model).tolist()
        accepting = {
            model: {s: n for s, n in shapes.items() if s.num_gpu and s.models >> model & 1}
            for model in models
        }
        return {model: PodMix.of(mix).typical() for model, mix in accepting.items() if mix}

    def _gpu_fragmentation(self) -> float | None:
        """Return the unusable share of the free GPUs on nodes that are up; None without any."""
        if not self._typical:
            return None
        snapshot = Snapshot(self._world.embedded.state)
        rows = self._world.embedded.state.nodes.rows
        down = [rows[name] for name in self._world.nodes_down()]
        up = np.setdiff1d(self._gpu_rows, np.array(down, np.int64))
        nodes, version = gpu_nodes(snapshot)[up], (snapshot.node_version, snapshot.device_version)
        measures = _MEASURES.as_of(self, version, self._measures_of, snapshot)
        free = int(np.maximum(nodes.gpu_free, 0).sum())
        if not free:
            return None
        unusable = 0.0
        models = node_kinds(snapshot)[0].model[nodes.kind]
        for model, measure in measures.items():
            unusable += float(measure.unusable(nodes[np.flatnonzero(models == model)]).sum())
        return unusable / free

    def _measures_of(self, snapshot: Snapshot) -> dict[int, Fragmentation]:
        """Return the measure of each GPU model for the kinds of nodes there are now."""
        kinds = node_kinds(snapshot)[0]
        return {model: Fragmentation(mix, kinds) for model, mix in self._typical.items()}


def _share(requested: int, allocatable: int) -> float:
    """Return the allocated share; NaN where there is nothing to allocate."""
    return float(requested / allocatable) if allocatable else nan


def _core_message(message: str) -> str:
    """Return a message without its preemption part and gang prefix.

    A gang member has the reason of the member that was tried.  Reasons of gangs and quotas are one
    sentence after the count of nodes.
    """
    message = message.partition(" preemption: ")[0]
    while (inner := _REJECTED.search(message)) is not None:
        message = inner[1]
    reason = _COUNT_OF_NODES.sub("", message)
    if reason.startswith(_WHOLE):
        return reason.partition(" Gang ")[0].rstrip(".")
    return message


@lru_cache(maxsize=1 << 12)
def waiting_cause(message: str) -> str:
    """Return the sentence for the main reason of a pod's condition, without its best candidate."""
    return sentence(main_reason(message)).partition("; the best, ")[0]


def main_reason(message: str) -> str:
    """Return the reason of a pod's condition that waiting may remove.

    That is the reason of most nodes.  Nodes that can never take the pod count only without others;
    ties go to the alphabetically first reason.
    """
    message = _core_message(message)
    _, separator, listed = message.partition(" nodes are available: ")
    if not separator or message.startswith(_WHOLE):
        return message
    counts: dict[str, int] = {}
    for part in listed.partition(". ")[0].rstrip(".").split(", "):
        match = _COUNTED.fullmatch(part)
        counts[match[2] if match else part] = int(match[1]) if match else 0
    passing = {reason: n for reason, n in counts.items() if not reason.startswith(_FIXED)}
    candidates = passing or counts
    return min(candidates, key=lambda reason: (-candidates[reason], reason))
