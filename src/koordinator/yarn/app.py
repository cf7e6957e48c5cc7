"""Control loop of the YARN operator, which settles the accounts of nodes.

One ``step`` processes the events of Kubernetes and YARN and settles the affected nodes.  It never
blocks on YARN: a ``YarnFollower`` sends the limits and reports their outcome.
Its gauges of nodes have the original's names.

Source: yarn-copilot pkg/controller/noderesource, ``Reconcile``; pkg/yarn/metrics.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import field
from hashlib import sha256
from types import MappingProxyType
from typing import Final

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from koordinator.api.annotations.node import YARN_NODE_ID
from koordinator.api.event import Event, new_event, reference_to
from koordinator.api.meta import KubeObject
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.cluster.port import Cluster, EventType
from koordinator.cluster.reconcile import ReconcileQueue, SyncedWatch
from koordinator.foundation.clock import Clock
from koordinator.foundation.errors import (
    ClusterError,
    ConflictError,
    FaultHandler,
    NotFoundError,
    fault_of,
    raise_fault,
)
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.hadoop.amounts import BYTES_PER_MIB, NOTHING, BatchAmounts, YarnResource
from koordinator.hadoop.port import YarnLimit, YarnNode
from koordinator.yarn.account import (
    NodeAccount,
    NodeShares,
    YarnNodeReport,
    YarnPolicy,
    promise_patch,
    read_shares,
    settle,
)
from koordinator.yarn.follower import UNCONFIRMED_LIMIT_S, YarnChanges, YarnFollower
from koordinator.yarn.mirror import (
    AS_READ,
    NodeManagerRef,
    YarnClusterState,
    YarnMirror,
    node_as_read,
)

NodesByCluster = Mapping[str, Mapping[str, YarnNode]]  # by cluster, then by id
_LABELS = ("instance", "cluster")

log = logging.getLogger(__name__)

#: Minimum interval for changes of the largest pending request, which affect all nodes.
_WAITING_INTERVAL_S: Final = 1.0
_MILLIS: Final = 1000
_SELECTORS: Final[Mapping[type[KubeObject], str]] = {
    Pod: "status.phase!=Succeeded,status.phase!=Failed"
}
COMPONENT = "koord-yarn-operator"
BAD_REFERENCE = "YarnNodeManagerUnclear"  # Node: its pods name no or several NodeManagers
REFUSED = "YarnLimitRefused"  # Node: the ResourceManager refused the limit of its NodeManager
UNREADABLE = "YarnAccountUnreadable"  # Node: its batch resources or annotation are invalid
_REFUSED_AGAIN_S: Final = 5.0


class YarnMetrics(Collector):
    """Gauges of NodeManagers, collected at each scrape, and counters of writes."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._nodes: NodesByCluster = MappingProxyType({})
        self._readable: Mapping[str, bool] = MappingProxyType({})
        registry.register(self)
        self._limits = Counter(
            "koord_yarn_operator_limits",
            "Limits of NodeManagers: settled, refused, or failed, which may still take effect.",
            ("cluster", "status"),
            registry=registry,
        )
        self._promises = Counter(
            "koord_yarn_operator_promises",
            "Writes of the annotation thirdPartyAllocations.",
            ("status",),
            registry=registry,
        )

    def show(self, nodes: NodesByCluster, readable: Mapping[str, bool]) -> None:
        """Set the nodes to export; the caller must not modify them afterwards."""
        self._nodes, self._readable = nodes, readable

    def limited(self, cluster: str, status: str) -> None:
        """Count a limit."""
        self._limits.labels(cluster, status).inc()

    def promised(self, *, succeeded: bool) -> None:
        """Count a write of an annotation."""
        self._promises.labels("succeeded" if succeeded else "failed").inc()

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Return the metric families for a scrape."""
        cpu = _gauge("yarn_node_cpu_resource", "vcores that the NodeManager has")
        memory = _gauge("yarn_node_memory_resource", "bytes that the NodeManager has")
        used_cpu = _gauge("yarn_node_cpu_allocated_resource", "vcores that containers have")
        used = _gauge("yarn_node_memory_allocated_resource", "bytes that containers have")
        for cluster, nodes in self._nodes.items():
            for node in tuple(nodes.values()):
                labels = (node.node_id.rpartition(":")[0], cluster)
                cpu.add_metric(labels, node.limit.vcores)
                memory.add_metric(labels, node.limit.memory_mb * BYTES_PER_MIB)
                used_cpu.add_metric(labels, node.used.vcores)
                used.add_metric(labels, node.used.memory_mb * BYTES_PER_MIB)
        up = GaugeMetricFamily(
            "koord_yarn_operator_cluster_up",
            "Whether the cluster's active ResourceManager was read at the last attempt.",
            labels=("cluster",),
        )
        for cluster, readable in self._readable.items():
            up.add_metric((cluster,), float(readable))
        return (cpu, memory, used_cpu, used, up)


def _gauge(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=_LABELS)


@dataclass(frozen=True, slots=True, kw_only=True)
class YarnOptions:
    """Options of the operator.

    ``shrink_grace_s`` is the grace period of containers above a lower limit; a negative one never
    ends.  ``namespace`` is the namespace of NodeManager pods; empty means all.
    """

    policy: YarnPolicy = field(default_factory=YarnPolicy)
    shrink_grace_s: float = 30.0
    namespace: str = ""


class YarnOperator:
    """Controller of the accounts of nodes with NodeManagers."""

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        followers: Mapping[str, YarnFollower],
        options: YarnOptions | None = None,
        *,
        metrics: YarnMetrics | None = None,
        on_fault: FaultHandler = raise_fault,
    ) -> None:
        """``followers`` are by cluster id; the caller runs their rounds."""
        self.options = options or YarnOptions()
        self.mirror = YarnMirror(self.options.namespace)
        self._cluster, self._clock = cluster, clock
        self._clusters = {key: YarnClusterState(each) for key, each in followers.items()}
        self._metrics, self._on_fault = metrics, on_fault
        self._queue: ReconcileQueue[str] = ReconcileQueue()
        self._watch = SyncedWatch(lambda: cluster.watch((Node, Pod), _SELECTORS, AS_READ))
        self._references: dict[str, tuple[str, str]] = {}  # cluster and NodeManager by node
        self._unclear: set[str] = set()  # nodes whose NodeManager is not found by their host
        self._warned: dict[str, tuple[str, str]] = {}  # last warning by node
        self._waiting = NOTHING
        self._waiting_s = 0.0

    @property
    def is_synced(self) -> bool:
        """Whether the initial list has been processed."""
        return self._watch.is_synced

    def sync(self) -> None:
        """List and watch the cluster; a further call lists it again.

        Nothing is written before ``is_synced``.
        """
        self._watch.list_or_resync()
        for name in self.mirror.nodes:
            self._queue.add(name)
        for state in self._clusters.values():
            state.met.clear()
        self._process_events()

    def step(self, limit: int | None = None) -> int:
        """Process all events and settle the affected nodes; return the number of nodes."""
        self._process_events()
        if not self.is_synced:
            return 0
        return self._queue.reconcile_due(self._clock, self._reconcile, limit)

    def next_wakeup_s(self) -> float | None:
        """Return the time of the next due work without further events; None if there is none."""
        return self._queue.next_s()

    def problem(self) -> str:
        """Return the reason why the operator is not ready; empty if it is."""
        if not self.is_synced:
            return "the caches have not synced yet"
        return ""

    # -- events ------------------------------------------------------------------------------

    def _process_events(self) -> None:
        for event in self._watch.events():
            self._handle_isolated(event.object, is_deleted=event.type is EventType.DELETED)
        changed = [self._process_changes(key, each) for key, each in self._clusters.items()]
        if any(changed) and self._metrics is not None:
            self._metrics.show(
                {key: each.nodes for key, each in self._clusters.items()},
                {key: each.is_known and not each.problem for key, each in self._clusters.items()},
            )
        self._update_waiting()

    def _handle_isolated(self, obj: KubeObject, *, is_deleted: bool) -> None:
        """Handle an event; an object that causes a fault is treated as deleted."""
        try:
            affected = tuple(self.mirror.drop(obj) if is_deleted else self.mirror.put(obj))
        except Exception as error:  # noqa: BLE001 -- reported as a fault
            affected = tuple(self.mirror.drop(obj))
            self._on_fault(fault_of("news", error, obj.KIND, obj.key))
        for name in affected:
            self._queue.add(name)

    def _process_changes(self, cluster_id: str, state: YarnClusterState) -> bool:
        wakeup = state.follower.take_changes()
        if wakeup is None:
            return False
        self._note_requests(cluster_id, state, wakeup)
        has_others = wakeup.is_known is not state.is_known
        for node_id, node in wakeup.changed.items():
            has_others |= (node is None) is (node_id in state.nodes)
            state.put(node_id, node)
        for node_id in (*wakeup.changed, *wakeup.settled, *wakeup.failed):
            for name in state.owners.get(node_id, ()):
                self._queue.add(name)
        state.is_known = wakeup.is_known
        if has_others:
            for name in self._unclear:
                self._queue.add(name)
        if wakeup.problem != state.problem:
            state.set_problem(wakeup.problem, self._clock.now_s())
            for names in tuple(state.owners.values()):
                for name in names:
                    self._queue.add(name)
        return True

    def _note_requests(self, cluster_id: str, state: YarnClusterState, wakeup: YarnChanges) -> None:
        now_s = self._clock.now_s()
        state.drop_expired_limits(now_s)
        for node_id in wakeup.failed:
            state.record_unconfirmed_limit(
                node_id, state.pending.pop(node_id, YarnResource()), now_s
            )
            for name in state.owners.get(node_id, ()):
                self._queue.add_at(name, now_s + UNCONFIRMED_LIMIT_S)
        for node_id in wakeup.settled:
            state.pending.pop(node_id, None)
        for node_id, problem in wakeup.refused.items():
            extra = {"cluster": cluster_id, "node_manager": node_id, "error": problem}
            log.warning("limit not set", extra=extra)
            state.paused[node_id] = again_s = now_s + _REFUSED_AGAIN_S
            for name in state.owners.get(node_id, ()):
                self._queue.add_at(name, again_s)
                self._warn(name, REFUSED, f"NodeManager {node_id}: {problem}")
        if self._metrics is not None:
            for node_id in wakeup.settled:
                status = "refused" if node_id in wakeup.refused else "settled"
                self._metrics.limited(cluster_id, status)
            for _ in wakeup.failed:
                self._metrics.limited(cluster_id, "failed")

    def _update_waiting(self) -> None:
        now_s = self._clock.now_s()
        if self.mirror.largest_waiting == self._waiting or now_s < self._waiting_s:
            return
        self._waiting = self.mirror.largest_waiting
        self._waiting_s = now_s + _WAITING_INTERVAL_S
        for name in tuple(self.mirror.with_node_managers()):
            self._queue.add(name)

    # -- work --------------------------------------------------------------------------------

    def _reconcile(self, name: str) -> None:
        now_s = self._clock.now_s()
        try:
            again_s = self._settle(name, now_s)
        except ConflictError:
            self._queue.failed(name, now_s)  # the watch delivers the changed node
            return
        except NotFoundError:
            again_s = None
        except ClusterError as error:
            delay_s = self._queue.failed(name, now_s)
            extra = {"node": name, "error": str(error), "again_after_s": delay_s}
            log.warning("account not settled", extra=extra)
            return
        except Exception as error:  # noqa: BLE001 -- reported as a fault
            self._queue.failed(name, now_s)
            self._on_fault(fault_of("reconcile", error, "yarn", name))
            return
        self._queue.succeeded(name, again_s)

    def _settle(self, name: str, now_s: float) -> float | None:
        """Execute the next step of a node's account; return the time of the following one.

        A step depends only on the state in the API server and the ResourceManager, so a crash
        between the two writes loses nothing.
        """
        node = self.mirror.nodes.get(name)
        reference = self.mirror.node_manager(name) if node is not None else None
        if node is None or reference is None:
            self._refer(name, None)
            self._unclear.discard(name)
            self._warned.pop(name, None)
            if node is not None:
                self._release(node)
            return None
        shares = read_shares(node)
        if shares.problem:
            self._warn(name, UNREADABLE, shares.problem)
            return None
        state, node_id = self._find(name, node, reference)
        is_read = state is not None and state.is_known and not state.problem
        yarn = state.nodes.get(node_id) if state is not None and is_read else None
        if state is not None and yarn is not None:
            state.record_first_settlement(node_id, shares.promised, now_s)
        account = NodeAccount(
            origin=shares.origin,
            shown=shares.shown,
            promised=shares.promised,
            others=shares.others,
            requested=self.mirror.requested(name),
            waiting=self._waiting,
            yarn=YarnNodeReport(limit=yarn.limit, used=yarn.used) if yarn is not None else None,
            unconfirmed_limit=state.unconfirmed_limit(node_id, now_s)
            if state is not None
            else YarnResource(),
        )
        settlement = settle(account, self.options.policy)
        again_s = None
        # One request per node at a time: the ResourceManager may apply two in any order.
        if state is not None and settlement.limit is not None and node_id not in state.pending:
            again_s = state.paused.get(node_id)
            if again_s is None or again_s <= now_s:
                again_s = None
                state.paused.pop(node_id, None)
                self._request(state, node_id, settlement.limit, account, now_s)
        self._promise(node, shares, settlement.promise)
        until_s = state.unconfirmed.get(node_id, (None, now_s))[1] if state is not None else now_s
        return min(again_s or until_s, until_s) if until_s > now_s else again_s

    def _request(
        self,
        state: YarnClusterState,
        node_id: str,
        resource: YarnResource,
        account: NodeAccount,
        now_s: float,
    ) -> None:
        grace_s = self.options.shrink_grace_s
        if account.yarn is None or resource.covers(account.yarn.used):
            state.shrinking.pop(node_id, None)
        elif grace_s > 0:  # the ResourceManager restarts the timeout with each call
            since_s = state.shrinking.setdefault(node_id, now_s)
            grace_s = max(grace_s - (now_s - since_s), 0.0)
        timeout_ms = int(grace_s * _MILLIS) if grace_s >= 0 else -1
        state.pending[node_id] = resource
        state.follower.request(YarnLimit(node_id, resource, timeout_ms))

    def _promise(self, node: Node, shares: NodeShares, promise: BatchAmounts) -> None:
        if shares.has_entry and shares.promised == promise:
            return
        try:
            stored = self._cluster.patch(Node, node.metadata.name, "", promise_patch(node, promise))
        except ClusterError:
            if self._metrics is not None:
                self._metrics.promised(succeeded=False)
            raise
        if self._metrics is not None:
            self._metrics.promised(succeeded=True)
        for name in tuple(self.mirror.put(node_as_read(stored))):
            self._queue.add(name)

    def _release(self, node: Node) -> None:
        """Remove the promise of a node without a NodeManager."""
        shares = read_shares(node)
        if shares.promised != NOTHING:
            self._promise(node, shares, NOTHING)

    # -- NodeManagers ------------------------------------------------------------------------

    def _find(
        self, name: str, node: Node, reference: NodeManagerRef
    ) -> tuple[YarnClusterState | None, str]:
        """Return cluster and id of a node's NodeManager; no cluster if it is ambiguous."""
        state = self._clusters.get(reference.cluster_id)
        problem = reference.problem
        if state is None:
            known = ", ".join(sorted(self._clusters))
            problem = f"no configuration of YARN cluster {reference.cluster_id!r}; known: {known}"
        if problem or state is None:
            self._refer(name, None)
            self._warn(name, BAD_REFERENCE, problem)
            return None, ""
        node_id = reference.node_id
        if not node_id:
            hosts = {name, *(each.address for each in node.status.addresses)}
            matches = sorted(i for host in hosts for i in state.by_host.get(host, ()))
            self._unclear.add(name)
            if len(matches) != 1:
                self._refer(name, None)
                if state.is_known:
                    problem = (
                        f"no annotation {YARN_NODE_ID}, and {len(matches)} NodeManagers on the host"
                    )
                    self._warn(name, BAD_REFERENCE, problem)
                return None, ""
            node_id = matches[0]
        self._refer(name, (reference.cluster_id, node_id))
        first = min(state.owners[node_id])
        if first != name:
            self._warn(
                name, BAD_REFERENCE, f"NodeManager {node_id} already belongs to node {first}"
            )
            return None, ""
        return state, node_id

    def _refer(self, name: str, reference: tuple[str, str] | None) -> None:
        """Record the NodeManager of a node."""
        before = self._references.get(name)
        if before == reference:
            return
        if before is not None:
            state = self._clusters[before[0]]
            owners = state.owners.get(before[1], set())
            owners.discard(name)
            for other in owners:
                self._queue.add(other)
            if not owners:
                state.forget(before[1])
        if reference is None:
            self._references.pop(name, None)
            return
        self._references[name] = reference
        owners = self._clusters[reference[0]].owners.setdefault(reference[1], set())
        for other in owners:
            self._queue.add(other)
        owners.add(name)

    def _warn(self, name: str, reason: str, note: str) -> None:
        node = self.mirror.nodes.get(name)
        if node is None or self._warned.get(name) == (reason, note):
            return
        self._warned[name] = reason, note
        log.warning("node's YARN account", extra={"node": name, "reason": reason, "error": note})
        self._cluster.report([_node_warning(node, reason, note, self._clock.now_s())])


def _node_warning(node: Node, reason: str, note: str, now_s: float) -> Event:
    """Return a Warning about a node; a later one with the same reason and text replaces it."""
    digest = sha256(f"{reason} {note}".encode()).hexdigest()[:16]
    return new_event(
        reference_to(node),
        name=f"{node.metadata.name}.{digest}",
        reason=reason,
        action="Settling",
        note=note,
        component=COMPONENT,
        now_s=now_s,
    )
