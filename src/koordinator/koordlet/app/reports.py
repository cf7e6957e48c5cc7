"""Reports of a node, and the forecasts in them.

The loop computes each report; the thread that delivers the outbox writes it.

Source: koordinator pkg/koordlet/prediction/predict_server.go, checkpoint.go.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from koordinator.api.annotations.numa import CpuBasicInfo
from koordinator.api.device import Device
from koordinator.api.dynamic_resources import ResourceSlice
from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Node, NodeResourceTopology
from koordinator.api.node_metric import NodeMetric, NodeMetricStatus
from koordinator.api.qos import PriorityBand
from koordinator.cluster.port import Cluster
from koordinator.domain.dynamic_resources.node_gpus import DRIVER
from koordinator.foundation.clock import to_datetime
from koordinator.foundation.decoders import decode_json
from koordinator.foundation.errors import ClusterError, HostError, InputError, NotFoundError
from koordinator.foundation.files import path_component
from koordinator.host.port import Files
from koordinator.koordlet.app.discovery import Hardware
from koordinator.koordlet.app.node_state import FILE as NODE_STATE
from koordinator.koordlet.app.node_state import PREPARED_CLAIMS
from koordinator.koordlet.app.outbox import Outbox, QueuedWrite
from koordinator.koordlet.metrics import Metric, MetricStore
from koordinator.koordlet.prediction.models import (
    NODE_MODELS,
    ModelCheckpoint,
    PeakModels,
    PredictionOptions,
    UsageSample,
)
from koordinator.koordlet.prediction.reclaimable import Prediction, predict_prod
from koordinator.koordlet.report.devices import (
    RdmaCard,
    device_of,
    merged_device,
    of_daemon,
    of_driver,
    with_gpus_of,
)
from koordinator.koordlet.report.gpu_slices import Content, content, renewed
from koordinator.koordlet.report.topology import NumaMemory, merged_topology, topology_of
from koordinator.koordlet.view.machine import Machine
from koordinator.koordlet.view.node_view import NodeView
from koordinator.koordlet.view.pods import PodView

_PERCENTILE = 0.9


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
        """Queue a write of the current topology if it has changed.

        No object is created while it is unknown which CPUs the kubelet has allocated: the scheduler
        would allocate them to other pods.
        """
        wanted = topology_of(view, basics, memory)
        if self._is_known(wanted, view.now_s):
            return
        self._last = (wanted, view.now_s)

        def write(cluster: Cluster) -> None:
            try:
                existing = cluster.get(NodeResourceTopology, wanted.metadata.name)
            except NotFoundError:
                if view.machine.knows_allocations:
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

    def _forgetting(self, write: QueuedWrite) -> QueuedWrite:
        def attempt(cluster: Cluster) -> None:
            try:
                write(cluster)
            except ClusterError:
                self._last = None  # retry in the next round
                raise

        return attempt


def device_of_hardware(node: Node, hardware: Hardware, now_s: float) -> Device:
    """Return the Device of the node; a device daemon's accelerators precede the driver's."""
    cards = [
        RdmaCard(
            minor,
            card.bus_id,
            card.numa_node,
            card.pcie_id,
            card.is_healthy,
            card.virtual_functions,
        )
        for minor, card in enumerate(hardware.cards)
    ]
    accelerators = of_daemon(hardware.xpus, now_s)
    if accelerators is None:
        accelerators = of_driver(hardware.gpus, hardware.driver_version, now_s)
    return device_of(node, accelerators, cards)


class DeviceReport:
    """Device, written when it changes and every minute."""

    _AGAIN_S = 60.0

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._last: tuple[tuple[Device, bool], float] | None = None

    def report(self, wanted: Device, now_s: float, *, keeps_gpus: bool = False) -> None:
        """Queue a write of the current devices; health conditions of other writers are kept.

        With ``keeps_gpus`` the accelerators are not known, and those that were reported stay.
        """
        known = (_undated(wanted), keeps_gpus)
        if (
            self._last is not None
            and self._last[0] == known
            and now_s - self._last[1] < self._AGAIN_S
        ):
            return
        self._last = (known, now_s)

        def write(cluster: Cluster) -> None:
            try:
                _write_device(cluster, wanted, keeps_gpus=keeps_gpus)
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


def _write_device(cluster: Cluster, wanted: Device, *, keeps_gpus: bool) -> None:
    try:
        existing = cluster.get(Device, wanted.metadata.name)
    except NotFoundError:
        if wanted.spec.devices:
            cluster.create(wanted)
        return
    if keeps_gpus:
        wanted = with_gpus_of(existing, wanted)
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


class Forecasts:
    """Predictions with checkpoints in ``folder``; an empty folder disables checkpoints."""

    def __init__(self, files: Files, folder: str, options: PredictionOptions) -> None:
        self._files = files
        self._folder = folder
        self._models = PeakModels(options)
        self.is_restored = False

    def restore(self, pods: Sequence[PodView]) -> None:
        """Restore the checkpoints; delete the checkpoints of pods that no longer exist."""
        self.is_restored = True
        if not self._folder:
            return
        checkpoints = []
        for name in self._files.names(self._folder):
            if name in (NODE_STATE, PREPARED_CLAIMS):
                continue
            try:
                text = self._files.read(f"{self._folder}/{name}")
                checkpoints.append(decode_json(text, ModelCheckpoint))
            except (HostError, msgspec.DecodeError, msgspec.ValidationError):
                self._remove(name)
        known = frozenset({*NODE_MODELS, *(pod.uid for pod in pods)})
        for uid in self._models.restore(checkpoints, known):
            self._remove(uid)

    def train(self, store: MetricStore, pods: Sequence[PodView], now_s: float) -> None:
        """Add the usage of the last interval to the models."""
        start_s = now_s - self._models.options.training_interval_s
        usages: dict[str, tuple[PriorityBand, UsageSample]] = {}
        for pod in pods:
            usage = _usage(store, (Metric.POD_CPU, Metric.POD_MEMORY), pod.uid, start_s, now_s)
            if usage is not None:
                usages[pod.uid] = (pod.band, usage)
        node = _usage(store, (Metric.NODE_CPU, Metric.NODE_MEMORY), "", start_s, now_s)
        self._models.train(usages, node, now_s)

    def save(self, now_s: float) -> None:
        """Write the checkpoints that are due, and delete the models of pods that have ended."""
        for uid in self._models.expire(now_s):
            self._remove(uid)
        for checkpoint in self._models.due(now_s) if self._folder else ():
            try:
                text = msgspec.json.encode(checkpoint).decode()
                self._files.replace(f"{self._folder}/{checkpoint.uid}", text)
            except HostError:
                return  # retried in the next round

    def predict(self, pods: Sequence[PodView], machine: Machine, now_s: float) -> Prediction | None:
        """Predict the reclaimable resources of prod pods; None without enough samples."""
        return predict_prod(self._models, pods, machine, now_s)

    def _remove(self, uid: str) -> None:
        if not self._folder:
            return
        with suppress(InputError):  # a file name that the agent did not write
            self._files.remove(f"{self._folder}/{path_component(uid)}")


def _usage(
    store: MetricStore, metrics: tuple[Metric, Metric], owner: str, start_s: float, now_s: float
) -> UsageSample | None:
    cpu, memory = (store.between(metric, owner, start_s, now_s) for metric in metrics)
    if cpu is None or memory is None:
        return None
    return UsageSample(cpu.percentile(_PERCENTILE), memory.percentile(_PERCENTILE))
