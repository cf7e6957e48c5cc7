"""Reports of the agent to the API server: NodeMetric, NodeResourceTopology, Device, slices.

The loop computes each report; the thread that delivers the outbox writes it.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from msgspec.structs import replace

from koordinator.api.annotations.numa import CpuBasicInfo
from koordinator.api.device import Device
from koordinator.api.dynamic_resources import ResourceSlice
from koordinator.api.meta import ObjectMeta
from koordinator.api.node_metric import NodeMetric, NodeMetricStatus
from koordinator.api.node_resource_topology import NodeResourceTopology
from koordinator.cluster.port import Cluster
from koordinator.domain.dynamic_resources.node_gpus import DRIVER
from koordinator.foundation.clock import to_datetime
from koordinator.foundation.errors import ClusterError, NotFoundError
from koordinator.koordlet.app.outbox import Job, Outbox
from koordinator.koordlet.report.devices import merged_device
from koordinator.koordlet.report.gpu_slices import Content, content, renewed
from koordinator.koordlet.report.topology import NumaMemory, merged_topology, topology_of
from koordinator.koordlet.view.node_view import NodeView


def report_usage(outbox: Outbox, node: str, status: NodeMetricStatus, reported_s: float) -> None:
    """Replace the status of the NodeMetric, if the manager has created it.

    ``reported_s`` is wall-clock time, which other components compare with their own clocks.
    """
    status = replace(status, update_time=to_datetime(reported_s))

    def write(cluster: Cluster) -> None:
        try:
            cluster.update_status(NodeMetric(metadata=ObjectMeta(name=node), status=status))
        except NotFoundError:
            return

    outbox.put("NodeMetric", write)


class TopologyReport:
    """NodeResourceTopology, written when it changes and every ten minutes."""

    _AGAIN_S = 600.0

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._last: tuple[NodeResourceTopology, float] | None = None

    def report(
        self, view: NodeView, basics: CpuBasicInfo, memory: Mapping[int, NumaMemory]
    ) -> None:
        """Queue a write of the current topology if it has changed."""
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
                self._last = None  # retry in the next round
                raise

        return attempt


class DeviceReport:
    """Device, written when it changes and every minute."""

    _AGAIN_S = 60.0

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._last: tuple[Device, float] | None = None

    def report(self, wanted: Device, now_s: float) -> None:
        """Queue a write of the current devices; health conditions of other writers are kept."""
        known = _undated(wanted)
        if (
            self._last is not None
            and self._last[0] == known
            and now_s - self._last[1] < self._AGAIN_S
        ):
            return
        self._last = (known, now_s)

        def write(cluster: Cluster) -> None:
            try:
                _write_device(cluster, wanted)
            except ClusterError:
                self._last = None  # retry in the next round
                raise

        self._outbox.put("Device", write)


class SliceReport:
    """ResourceSlices of the node, written when they change and compared every minute."""

    _AGAIN_S = 60.0

    def __init__(self, outbox: Outbox, node: str) -> None:
        self._outbox, self._node = outbox, node
        self._last: tuple[tuple[ResourceSlice, ...], float] | None = None
        self._kept: Mapping[Content, Content] = {}  # stored by the server, by content written

    def forget(self) -> None:
        """Compare soon: the kubelet may have deleted the slices."""
        self._last = None

    def report(self, wanted: tuple[ResourceSlice, ...], now_s: float) -> None:
        """Make ``wanted`` the only slices of the node's GPU driver."""
        last = self._last
        if last is not None and last[0] == wanted and now_s - last[1] < self._AGAIN_S:
            return
        self._last = (wanted, now_s)

        def write(cluster: Cluster) -> None:
            try:
                self._kept = write_slices(cluster, self._node, wanted, self._kept)
            except ClusterError:
                self._last = None  # retry in the next round
                raise

        self._outbox.put("ResourceSlice", write)


def write_slices(
    cluster: Cluster,
    node: str,
    wanted: Sequence[ResourceSlice],
    kept: Mapping[Content, Content],
) -> Mapping[Content, Content]:
    """Write the slices of a node that have changed, and delete those not in ``wanted``.

    Devices of a pool are allocated only when its last slice is written.  ``kept`` maps the content
    written before to the content that the server stored; return the same for ``wanted``.
    """
    own = f"spec.nodeName={node},spec.driver={DRIVER}"
    known = {
        each.metadata.name: each for each in cluster.list(ResourceSlice, field_selector=own).items
    }
    written = renewed(wanted, known.values(), kept)
    for each in written:
        old = known.get(each.metadata.name)
        now = cluster.update(replace(old, spec=each.spec)) if old else cluster.create(each)
        kept = {**kept, content(each): content(now)}
    for name in known.keys() - {each.metadata.name for each in wanted}:
        with suppress(NotFoundError):
            cluster.delete(ResourceSlice, name)
    return {each: kept[each] for each in map(content, wanted) if each in kept}


def _write_device(cluster: Cluster, wanted: Device) -> None:
    try:
        existing = cluster.get(Device, wanted.metadata.name)
    except NotFoundError:
        if wanted.spec.devices:
            cluster.create(wanted)
        return
    merged = merged_device(existing, wanted)
    if merged != existing:
        cluster.update(merged)


def _undated(device: Device) -> Device:
    """Return the device without the transition times of its conditions."""
    devices = tuple(
        replace(
            info,
            conditions=tuple(replace(each, last_transition_time=None) for each in info.conditions),
        )
        for info in device.spec.devices
    )
    return replace(device, spec=replace(device.spec, devices=devices))
