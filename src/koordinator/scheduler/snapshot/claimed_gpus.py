"""GPUs of Device objects that resource claims hold, charged besides the pods.

A claim keeps its devices even if the pod that uses it is unknown.
"""

from collections.abc import Iterator, Mapping

from koordinator.api.device import DeviceType
from koordinator.api.dynamic_resources import ResourceClaim
from koordinator.domain.devices.allocation import Allocation
from koordinator.domain.dynamic_resources.node_gpus import ClaimedGpu, claimed_gpus
from koordinator.scheduler.snapshot.log import ChangeLog
from koordinator.scheduler.snapshot.nodes import NodeTable


class ClaimedGpus:
    """Written by ``ClusterState`` only; rows whose devices change are logged."""

    def __init__(self, nodes: NodeTable, log: ChangeLog) -> None:
        self._nodes, self._log = nodes, log
        self._of_claim: dict[str, Mapping[str, tuple[ClaimedGpu, ...]]] = {}  # by key, by node
        self._on_node: dict[str, dict[str, tuple[ClaimedGpu, ...]]] = {}  # by name, by claim
        self._charged: dict[str, Allocation] = {}  # by name of a node that is known

    def take(self, key: str, claim: ResourceClaim | None) -> None:
        """Apply a version of a claim; None: it was deleted."""
        before = self._of_claim.pop(key, {})
        after = claimed_gpus(claim) if claim is not None else {}
        if after:
            self._of_claim[key] = after
        if before == after:
            return
        for name in {*before, *after}:
            here = self._on_node.setdefault(name, {})
            here.pop(key, None)
            if name in after:
                here[key] = after[name]
            if not here:
                del self._on_node[name]
            self.release(name)
            self.charge(name)

    def release(self, name: str) -> None:
        """Charge a node no more, as before its report changes or it goes."""
        charged = self._charged.pop(name, None)
        if charged is not None:
            row = self._nodes.rows[name]
            self._nodes.devices.charge(row, charged, -1)
            self._log.append(row)

    def charge(self, name: str) -> None:
        """Charge a node that is not charged yet, in view of what is reported of it."""
        row, here = self._nodes.rows.get(name), self._on_node.get(name)
        if row is None or not here:
            return
        devices = self._nodes.devices
        totals = devices.columns[DeviceType.GPU].total[row]
        none = (0,) * totals.shape[1]
        charged = self._charged[name] = {
            DeviceType.GPU: tuple(
                gpu.taken(totals[gpu.minor].tolist() if gpu.minor < len(totals) else none)
                for gpus in here.values()
                for gpu in gpus
            )
        }
        devices.charge(row, charged, 1)
        self._log.append(row)

    def charged(self) -> Iterator[tuple[int, Allocation]]:
        """Yield the rows that are charged, with what."""
        for name, allocation in self._charged.items():
            yield self._nodes.rows[name], allocation
