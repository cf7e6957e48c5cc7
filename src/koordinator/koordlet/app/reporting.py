"""What the agent tells the API server: NodeMetric, NodeResourceTopology, Device.

Each report is made in the loop, from what is known then, and written by whoever empties the outbox.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from koordinator.api.annotations.numa import CpuBasicInfo
from koordinator.api.device import Device
from koordinator.api.meta import ObjectMeta
from koordinator.api.node_metric import NodeMetric, NodeMetricStatus
from koordinator.api.node_resource_topology import NodeResourceTopology
from koordinator.cluster.port import Cluster
from koordinator.foundation.clock import to_datetime
from koordinator.foundation.errors import ClusterError, NotFoundError
from koordinator.koordlet.app.outbox import Job, Outbox
from koordinator.koordlet.report.devices import merged_device
from koordinator.koordlet.report.topology import NumaMemory, merged_topology, topology_of
from koordinator.koordlet.view.node_view import NodeView


def report_usage(outbox: Outbox, node: str, status: NodeMetricStatus, told_s: float) -> None:
    """Replace the status of the NodeMetric; one that does not exist is the manager's affair.

    ``told_s`` is when, by the clock that others have as well.
    """
    status = replace(status, update_time=to_datetime(told_s))

    def write(cluster: Cluster) -> None:
        try:
            cluster.update_status(NodeMetric(metadata=ObjectMeta(name=node), status=status))
        except NotFoundError:
            return

    outbox.put("NodeMetric", write)


class TopologyReport:
    """Written when it differs from what was written last, and every ten minutes."""

    _AGAIN_S = 600.0

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._last: tuple[NodeResourceTopology, float] | None = None

    def report(
        self, view: NodeView, basics: CpuBasicInfo, memory: Mapping[int, NumaMemory]
    ) -> None:
        """Have the topology of this moment written, if that is news."""
        wanted = topology_of(view, basics, memory)
        if self._is_known(wanted, view.now_s):
            return
        self._last = (wanted, view.now_s)

        def write(cluster: Cluster) -> None:
            try:
                existing = cluster.get(NodeResourceTopology, wanted.metadata.name)
            except NotFoundError:
                cluster.create(wanted)
                return
            merged = merged_topology(existing, wanted)
            if merged != existing:
                cluster.update(merged)

        self._outbox.put("NodeResourceTopology", self._forgetting(write))

    def _is_known(self, wanted: NodeResourceTopology, now_s: float) -> bool:
        return (
            self._last is not None
            and self._last[0] == wanted
            and now_s - self._last[1] < self._AGAIN_S
        )

    def _forgetting(self, write: Job) -> Job:
        def attempt(cluster: Cluster) -> None:
            try:
                write(cluster)
            except ClusterError:
                self._last = None  # so that the next round tries again
                raise

        return attempt


def report_devices(outbox: Outbox, wanted: Device) -> None:
    """Create the Device object or bring it up to date; health conditions of others stay."""

    def write(cluster: Cluster) -> None:
        name = wanted.metadata.name
        try:
            existing = cluster.get(Device, name)
        except NotFoundError:
            if wanted.spec.devices:
                cluster.create(wanted)
            return
        merged = merged_device(existing, wanted)
        if merged != existing:
            cluster.update(merged)

    outbox.put("Device", write)
