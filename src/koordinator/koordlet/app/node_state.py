"""State of this node from the API server, with a local checkpoint: node, pods, NodeSLO, NodeMetric.

During an outage of the server the last state stays in effect; an agent that starts during an outage
uses the checkpoint.
"""

import logging
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from koordinator.api.codec import decode_lines, encode_lines, subject_of
from koordinator.api.meta import KubeObject
from koordinator.api.node import Node
from koordinator.api.node_metric import NodeMetric, NodeMetricSpec
from koordinator.api.node_slo import NodeSlo, NodeSloSpec
from koordinator.api.pod import Pod
from koordinator.cluster.port import EventType, Watch, WatchEvent
from koordinator.domain.cgroups.layout import CgroupLayout
from koordinator.foundation.errors import HostError, InputError
from koordinator.host.port import Files
from koordinator.koordlet.app.rounds import PodIsolation
from koordinator.koordlet.view.cpus import CpuHolders
from koordinator.koordlet.view.pods import PodView, pod_view, pods_of_node
from koordinator.koordlet.view.slo import effective_slo

log = logging.getLogger(__name__)

FILE: Final = "node-state.json"
PREPARED_CLAIMS: Final = "prepared-claims.json"  # in the same folder: ``device_claims``
_PERIOD_S: Final = 10.0


class NodeCheckpoint:
    """Checkpoint in ``folder``; an empty folder disables it."""

    def __init__(self, files: Files, folder: str) -> None:
        self._files = files
        self._path = f"{folder}/{FILE}" if folder else ""
        self._saved: Sequence[KubeObject] = ()
        self._next_s = 0.0

    def read(self) -> list[KubeObject]:
        """Return the objects of the checkpoint; empty if it is missing or unreadable."""
        if not self._path:
            return []
        try:
            return decode_lines(self._files.read(self._path))
        except (HostError, InputError) as error:
            log.info("no checkpoint of the node restored", extra={"error": str(error)})
            return []

    def save(self, objects: Sequence[KubeObject], now_s: float) -> None:
        """Write the objects if they have changed, at most every ten seconds."""
        if not self._path or now_s < self._next_s or _are_same(objects, self._saved):
            return
        self._next_s = now_s + _PERIOD_S
        try:
            self._files.replace(self._path, encode_lines(objects))
        except HostError as error:
            log.warning("checkpoint not written", extra={"error": str(error)})
            return
        self._saved = objects


def _are_same(objects: Sequence[KubeObject], others: Sequence[KubeObject]) -> bool:
    """Compare by identity and order: objects are frozen."""
    return len(objects) == len(others) and all(map(operator.is_, objects, others))


KINDS: Sequence[type[KubeObject]] = (Node, NodeSlo, NodeMetric, Pod)


def selectors(node_name: str) -> Mapping[type[KubeObject], str]:
    """Return the selectors of the objects that belong to a node, by kind."""
    by_name = f"metadata.name={node_name}"
    return {
        Node: by_name,
        NodeSlo: by_name,
        NodeMetric: by_name,
        Pod: f"spec.nodeName={node_name}",
    }


class NodeState:
    """State of the node, kept up to date by ``update``.

    ``slo_problem`` is why the newest NodeSLO is not applied; empty if it is applied.
    """

    def __init__(self, layout: CgroupLayout, isolation: PodIsolation | None = None) -> None:
        self._isolation = isolation or PodIsolation(None)
        self.node: Node | None = None
        self._slo_spec = NodeSloSpec()
        self.slo = effective_slo(self._slo_spec, layout)
        self.slo_problem = ""
        self.metric_spec: NodeMetricSpec | None = None
        self.is_synced = False
        self._objects: dict[type[KubeObject], KubeObject] = {}  # by kind, without pods
        self._is_restored = False
        #: Objects that only the checkpoint has; dropped when the first list is complete.
        self._unconfirmed: set[tuple[type[KubeObject], str]] = set()
        self._layout = layout
        self._pods: dict[str, PodView] = {}
        self._sorted: tuple[PodView, ...] | None = None
        self._cpu_holders = CpuHolders()

    @property
    def pods(self) -> tuple[PodView, ...]:
        """Pods bound to this node, by key."""
        if self._sorted is None:
            pods = pods_of_node(self._pods.values(), self._layout)
            self._sorted = self._cpu_holders.resolved(pods)
        return self._sorted

    @property
    def is_known(self) -> bool:
        """Whether the node is known from the API server or a checkpoint."""
        return self.node is not None and (self.is_synced or self._is_restored)

    @property
    def objects(self) -> list[KubeObject]:
        """The node, its NodeSLO and NodeMetric, and its pods."""
        return [*self._objects.values(), *(view.pod for view in self.pods)]

    def restore(self, objects: Sequence[KubeObject], exists: Callable[[str], bool]) -> None:
        """Restore a checkpoint, without pods whose cgroup no longer ``exists``.

        Objects that the API server has listed already stay; those that it does not list later are
        dropped.
        """
        self._is_restored = True
        for each in objects:
            self._isolated("checkpoint", each, partial(self._restore_object, each, exists))

    def _restore_object(self, obj: KubeObject, exists: Callable[[str], bool]) -> bool:
        if isinstance(obj, Pod):
            try:
                if obj.key in self._pods or not exists(pod_view(obj, self._layout).folder):
                    return False
            except InputError:
                return False
        elif type(obj) in self._objects:
            return False
        self._unconfirmed.add((type(obj), obj.key))
        return self._apply(WatchEvent(EventType.ADDED, obj))

    def _drop_unconfirmed(self) -> None:
        for kind, key in tuple(self._unconfirmed):
            self._objects.pop(kind, None)
            if kind is Pod:
                self._pods.pop(key, None)
            elif kind is NodeSlo:
                self._apply_slo(key, NodeSloSpec())
            elif kind is NodeMetric:
                self.metric_spec = None
        self._unconfirmed.clear()
        self._sorted = None

    def set_layout(self, layout: CgroupLayout) -> None:
        """Use a layout for the cgroup folders of pods and host applications."""
        self._layout = layout
        self.slo = effective_slo(self._slo_spec, layout)
        self._pods = {key: pod_view(view.pod, layout) for key, view in self._pods.items()}
        self._sorted = None

    def update(self, watch: Watch) -> bool:
        """Apply the events; return whether a rejected NodeSLO is among them."""
        is_refused = False
        for event in watch.poll():
            if event.type is EventType.BOOKMARK:
                if not self.is_synced:
                    self._drop_unconfirmed()
                self.is_synced = True
                continue
            self._unconfirmed.discard((type(event.object), event.object.key))
            apply = partial(self._apply, event)
            is_refused = self._isolated("watch events", event.object, apply) or is_refused
        return is_refused

    def _isolated(self, part: str, obj: KubeObject, work: Callable[[], bool]) -> bool:
        """Return what ``work`` does; report an object that causes a fault."""
        try:
            return work()
        except Exception as error:  # noqa: BLE001 -- reported
            self._pods.pop(obj.key, None)
            self._isolation.report(part, error, subject_of(obj))
            return False

    def _apply(self, event: WatchEvent) -> bool:
        if not isinstance(event.object, Pod):
            if event.type is EventType.DELETED:
                self._objects.pop(type(event.object), None)
            else:
                self._objects[type(event.object)] = event.object
        match event.object:
            case Pod():
                self._update_pod(event)
            case Node() if event.type is not EventType.DELETED:
                self.node = event.object
            case NodeSlo():
                is_deleted = event.type is EventType.DELETED
                spec = NodeSloSpec() if is_deleted else event.object.spec
                return not self._apply_slo(event.object.metadata.name, spec)
            case NodeMetric():
                is_deleted = event.type is EventType.DELETED
                self.metric_spec = None if is_deleted else event.object.spec
        return False

    def _update_pod(self, event: WatchEvent) -> None:
        pod = event.object
        if not isinstance(pod, Pod):
            return
        self._sorted = None
        if event.type is EventType.DELETED:
            self._pods.pop(pod.key, None)
        else:
            try:
                self._pods[pod.key] = pod_view(pod, self._layout)
            except InputError as error:
                self._pods.pop(pod.key, None)
                log.warning("pod ignored", extra={"pod": pod.key, "error": error})

    def _apply_slo(self, name: str, spec: NodeSloSpec) -> bool:
        try:
            self.slo = effective_slo(spec, self._layout)
        except InputError as error:
            self.slo_problem = str(error.within(subject=f"NodeSLO {name}"))
            log.warning("NodeSLO rejected; the previous one stays", extra={"error": error})
            return False
        self._slo_spec = spec
        if self.slo_problem:
            log.info("NodeSLO applied again")
        self.slo_problem = ""
        return True
