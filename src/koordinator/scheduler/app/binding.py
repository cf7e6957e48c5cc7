"""Placing decided pods in the state and binding them in the cluster, with undo.

A pod counts on its node from the moment it is decided.  If the cluster then refuses the bind, the
place is given back and the pod tried again.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from koordinator.api.codec import merge_patch
from koordinator.api.meta import KubeObject
from koordinator.cluster.port import Binding, Cluster
from koordinator.foundation.errors import ClusterError
from koordinator.scheduler.contract import NOTHING, Holding
from koordinator.scheduler.cycle import Choice, Scorecard
from koordinator.scheduler.queue import QueuedPod
from koordinator.scheduler.snapshot import ClusterState, IntArray, PodClass
from koordinator.scheduler.transaction import Transaction


@dataclass(slots=True, eq=False)
class Assumed:
    """A pod on its way to its node."""

    queued: QueuedPod
    node: str
    holding: Holding
    scorecard: Scorecard | None = None
    transaction: Transaction | None = None  # None: nothing to undo but the place itself
    deadline_s: float = 0.0  # of a pod that waits for its permit


class Binder:
    """Assumes and binds."""

    def __init__(self, cluster: Cluster, state: ClusterState) -> None:
        self._cluster = cluster
        self._state = state

    def assume(self, queued: QueuedPod, pod_class: PodClass, choice: Choice) -> Assumed:
        """Put one pod on its node, with everything it holds there."""
        transaction = Transaction(self._state)
        transaction.place(queued.key, queued.pod, pod_class, choice.row, choice.holding.devices)
        for item in choice.holding.objects:
            transaction.put_object(item)
        return Assumed(queued, choice.node, choice.holding, transaction=transaction)

    def assume_run(
        self, run: Sequence[QueuedPod], classes: Sequence[PodClass], rows: IntArray
    ) -> list[Assumed]:
        """Put a run of pods on the rows decided for them."""
        names = self._state.nodes.names
        chosen = rows.tolist()
        self._state.place_run(
            [
                (queued.key, queued.pod, pod_class, row)
                for queued, pod_class, row in zip(run, classes, chosen, strict=True)
            ]
        )
        return [Assumed(q, names[row], NOTHING) for q, row in zip(run, chosen, strict=True)]

    def forget(self, assumed: Assumed) -> None:
        """Take the place back."""
        if assumed.transaction is not None:
            assumed.transaction.rollback()
        else:
            self._state.displace(assumed.queued.key)

    def bind(self, batch: Sequence[Assumed]) -> list[ClusterError | None]:
        """Bind in the cluster; one result per pod.  What failed has been forgotten."""
        results: list[ClusterError | None] = [None] * len(batch)
        for index, assumed in enumerate(batch):
            if assumed.holding.objects:
                results[index] = self._write(assumed.holding.objects)
        ready = [index for index, error in enumerate(results) if error is None]
        outcomes = self._cluster.bind([_binding(batch[index]) for index in ready])
        for index, error in zip(ready, outcomes, strict=True):
            results[index] = error
        for assumed, error in zip(batch, results, strict=True):
            if error is not None:
                self.forget(assumed)
            elif assumed.transaction is not None:
                assumed.transaction.commit()
        return results

    def _write(self, objects: Sequence[KubeObject]) -> ClusterError | None:
        """Write the assumed versions of other objects, as differences to what is stored."""
        try:
            for item in objects:
                meta = item.metadata
                stored = self._cluster.get(type(item), meta.name, meta.namespace)
                patch = merge_patch(stored, item)
                self._cluster.patch(type(item), meta.name, meta.namespace, patch)
        except ClusterError as error:
            return error
        return None


def _binding(assumed: Assumed) -> Binding:
    meta, holding = assumed.queued.pod.metadata, assumed.holding
    return Binding(
        namespace=meta.namespace,
        name=meta.name,
        node=assumed.node,
        uid=meta.uid,
        annotations=holding.annotations,
        labels=holding.labels,
    )
