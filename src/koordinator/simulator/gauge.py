"""What a sample of a run is taken from: how full the pools are, how fragmented the GPUs, who waits.

Reads the world and its scheduler's state; changes nothing.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import numpy as np

from koordinator.api.pod import Pod
from koordinator.api.resource_names import GPU_MEMORY_RATIO, NVIDIA_GPU
from koordinator.domain.gpus.mix import GpuClass, PodMix
from koordinator.domain.gpus.options import Fragmentation
from koordinator.foundation.arrays import IntArray
from koordinator.scheduler.explain.sentences import sentence, without_names
from koordinator.scheduler.snapshot import Snapshot
from koordinator.scheduler.snapshot.axis import CPU, MEMORY
from koordinator.scheduler.snapshot.gpu_view import gpu_class, gpu_nodes, node_kinds
from koordinator.scheduler.snapshot.nodes import RATIO_OF_GPU
from koordinator.simulator.run_report import Allocation, NodeGroup, RunSample
from koordinator.simulator.stages import PodStage
from koordinator.simulator.world import World

#: Nodes that such a reason keeps away can't be had by waiting.
_FIXED = ("node(s) didn't match", "node(s) had untolerated taint", "node(s) were unschedulable")
#: A gang's other members are told the reason of the one that was tried.
_REJECTED = re.compile(r'GangGroup ".*?" gets rejected due to .*? with reason "(.*)"')
_COUNT_OF_NODES = re.compile(r"^\d+/\d+ nodes are available: ")
#: Names by which pods ask for GPUs, of which none asks by two, and what one of each is.
_PERCENT_OF_GPU = {NVIDIA_GPU: 100, GPU_MEMORY_RATIO: 1}
_WHOLE = ("no candidate topology nodes", "Insufficient quotas", "Insufficient non-preemptible")
_COUNTED = re.compile(r"(\d+) (.+)")


class WorldGauge:
    """Measures a world whose nodes are loaded.

    ``pools`` names the nodes by pool; ``pods`` are those to come, from which the typical GPU pods
    of the fragmentation are taken.
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
        self._typical = self._typical_pods(pods)

    def sample(self) -> RunSample:
        """Return the state of this moment."""
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
        """Return the scheduler's words for what waiting pods wait for, the same for like cases.

        Programs read those words.  Where they name objects or amounts people's words are taken,
        without these: there would be as many reasons as there are pods.
        """
        reason = main_reason(message)
        kind = without_names(waiting_cause(message))
        return reason if reason == without_names(reason) else kind

    # -- allocation --------------------------------------------------------------------------

    def _asked_percent(self, rows: IntArray) -> int:
        """Return the GPUs that pods on the rows ask for, in percent of one.

        That is what is known where the profile assigns no devices, as kube-scheduler's.
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

    def _allocation(self, pool: str) -> Allocation:
        rows, nodes = self._rows[pool], self._world.embedded.state.nodes
        cpu, memory = (
            float(nodes.requested[column, rows].sum() / nodes.allocatable[column, rows].sum())
            for column in (CPU, MEMORY)
        )
        gpus = self._gpus_of[pool]
        used = int(nodes.gpus.used[rows, :, RATIO_OF_GPU].sum()) or self._asked_percent(rows)
        return Allocation(cpu=cpu, memory=memory, gpu=float(used / (100 * gpus)) if gpus else 0.0)

    # -- fragmentation -----------------------------------------------------------------------

    def _typical_pods(self, pods: Iterable[Pod]) -> dict[int, PodMix]:
        """Return FGD's mix for each GPU model: of the GPU pods that accept it."""
        state = self._world.embedded.state
        snapshot = Snapshot(state)
        classes = Counter(state.classes.of(pod) for pod in pods)
        shapes: Counter[GpuClass] = Counter()
        for pod_class, times in classes.items():
            shapes[gpu_class(snapshot, pod_class)] += times
        models = np.unique(node_kinds(snapshot)[0].model).tolist()
        accepting = {
            model: {s: n for s, n in shapes.items() if s.num_gpu and s.models >> model & 1}
            for model in models
        }
        return {model: PodMix.of(mix).typical() for model, mix in accepting.items() if mix}

    def _gpu_fragmentation(self) -> float | None:
        """Return the share of the free GPU milli on nodes that are up; None if there is none."""
        if not self._typical:
            return None
        snapshot = Snapshot(self._world.embedded.state)
        rows = self._world.embedded.state.nodes.rows
        down = [rows[name] for name in self._world.nodes_down()]
        up = np.setdiff1d(self._gpu_rows, np.array(down, np.int64))
        nodes, kinds = gpu_nodes(snapshot)[up], node_kinds(snapshot)[0]
        free = int(np.maximum(nodes.gpu_free, 0).sum())
        if not free:
            return None
        unusable = 0.0
        for model, mix in self._typical.items():
            those = nodes[np.flatnonzero(kinds.model[nodes.kind] == model)]
            unusable += float(Fragmentation(mix, kinds).unusable(those).sum())
        return unusable / free


def _own_words(message: str) -> str:
    """Return what a message says of the pod itself: no preemption, and not who says it.

    A member of a gang waits for what the member waits for that was tried; room for a gang and
    quotas are told in one sentence behind the count of the nodes.
    """
    message = message.partition(" preemption: ")[0]
    while (inner := _REJECTED.search(message)) is not None:
        message = inner[1]
    said = _COUNT_OF_NODES.sub("", message)
    if said.startswith(_WHOLE):
        return said.partition(" Gang ")[0].rstrip(".")
    return message


@lru_cache(maxsize=1 << 12)
def waiting_cause(message: str) -> str:
    """Return the main reason of a pod's condition in words, without how near it is to be met."""
    return sentence(main_reason(message)).partition("; the best, ")[0]


def main_reason(message: str) -> str:
    """Return the one reason of a pod's condition that the pod is waiting for to go away.

    That is the one of the most nodes, where nodes that could never take the pod don't count unless
    there are no others; ties go to the first in the alphabet.
    """
    message = _own_words(message)
    _, found, listed = message.partition(" nodes are available: ")
    if not found or message.startswith(_WHOLE):
        return message
    counts: dict[str, int] = {}
    for part in listed.partition(". ")[0].rstrip(".").split(", "):
        match = _COUNTED.fullmatch(part)
        counts[match[2] if match else part] = int(match[1]) if match else 0
    passing = {reason: n for reason, n in counts.items() if not reason.startswith(_FIXED)}
    candidates = passing or counts
    return min(candidates, key=lambda reason: (-candidates[reason], reason))
