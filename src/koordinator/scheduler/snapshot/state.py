"""The state of the cluster as the scheduler knows it, and the one door through which it changes.

Every change is logged by row.  ``usage_log`` has rows on which pods came or went, ``node_log`` rows
whose node changed; a cached result is brought up to date from these.  ``layout`` counts changes of
the set of nodes, ``cluster`` changes that may concern every row (namespaces, the extra objects that
plugins read).
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence

import numpy as np
from msgspec.structs import replace

from koordinator.api.core import Service
from koordinator.api.device import Device
from koordinator.api.dynamic_resources import DeviceClass, ResourceClaim
from koordinator.api.meta import KubeObject
from koordinator.api.node import Node, NodeResourceTopology
from koordinator.api.node_metric import NodeMetric
from koordinator.api.pod import Pod
from koordinator.api.workload import ReplicaSet, ReplicationController, StatefulSet
from koordinator.domain.devices.allocation import Allocation
from koordinator.foundation.arrays import BoolArray, IntArray
from koordinator.foundation.errors import BugError, InputError
from koordinator.foundation.memo import Memo, Memory
from koordinator.scheduler.rules.numa.ledger import NumaAllocation
from koordinator.scheduler.snapshot.axis import CPU, MEMORY, PODS, ResourceAxis
from koordinator.scheduler.snapshot.classes import NEW_BYTES, NEW_CLASSES, PodClass, PodClasses
from koordinator.scheduler.snapshot.extended_resources import ClaimedGpuTable, ExtendedResources
from koordinator.scheduler.snapshot.holds import Hold, HoldTable
from koordinator.scheduler.snapshot.ledgers import LedgerChanges, Ledgers, ObjectKinds
from koordinator.scheduler.snapshot.load import LoadTable
from koordinator.scheduler.snapshot.nodes import Network, NodeTable
from koordinator.scheduler.snapshot.objects import ChangeLog, ObjectTable
from koordinator.scheduler.snapshot.pod_allocation import NO_ALLOCATION, PodAllocation
from koordinator.scheduler.snapshot.pods import PlacedPod, PodTable

__all__ = ["BoolArray", "ClusterState", "IntArray"]

#: Rows of nodes with the requested labels, by request and version of the nodes.
MASKS: Memo[dict[bytes, tuple[Hashable, BoolArray]]] = Memo()

#: Kinds whose selectors PodTopologySpread reads for pods without constraints of their own.
_POD_OWNERS = Service | ReplicationController | ReplicaSet | StatefulSet


class ClusterState:
    """Nodes, placed pods and the other objects that plugins read."""

    def __init__(
        self,
        axis: ResourceAxis | None = None,
        *,
        new_classes: int = NEW_CLASSES,
        new_bytes: int = NEW_BYTES,
    ) -> None:
        """``sweep`` is due after ``new_classes`` new classes of pods, or ``new_bytes`` of them."""
        self.axis = axis or ResourceAxis()
        self.nodes = NodeTable(self.axis)
        self.pods = PodTable()
        self.load = LoadTable(self.nodes, self.pods)
        self.holds = HoldTable(self.axis)
        self.extended = ExtendedResources()
        self.classes = PodClasses(
            self.axis,
            self.pods.intern_labels,
            self.extended,
            self.holds.named,
            new_classes=new_classes,
            new_bytes=new_bytes,
        )
        self.ledgers = Ledgers(self, self._everything)
        self.objects = ObjectTable(self._note_object)
        self.usage_log = ChangeLog()
        self.claimed_gpus = ClaimedGpuTable(self.nodes, self.usage_log)
        self.node_log = ChangeLog()
        self.ranked = False  # ranks differ from row order
        self.layout = 0
        self.cluster = 0
        self.now_s = 0.0  # the time at which measurements are valid or expired
        self.devices = 0  # number of applied device reports
        self.has_pod_owners = False  # whether there has been an object of ``_POD_OWNERS``
        self.memory: Memory = {}  # see ``Snapshot.shared``
        self.unbound: dict[str, tuple[Pod, PodClass]] = {}  # pods without node in the cluster
        self.unbound_changes = 0  # changes of ``unbound`` while a ledger reads it
        self._network = Network()
        self._orphans: dict[str, dict[str, PlacedPod]] = {}  # pods by missing node, by key

    @property
    def network(self) -> Network:
        """The current network topology of the nodes."""
        return self._network.refresh(self.nodes, self.node_log, self.objects)

    # -- nodes -------------------------------------------------------------------------------

    def put_node(self, node: Node) -> int:
        """Add or update a node; return its row."""
        new = node.metadata.name not in self.nodes.rows
        capacity = self.nodes.capacity
        row = self.nodes.put(node)
        if self.nodes.capacity != capacity:
            self.pods.grow(self.nodes.capacity)
            self.load.grow()
        self.load.set_node(row, node)
        self.node_log.append(row)
        if new:
            self.layout += 1
            for placed in self._orphans.pop(node.metadata.name, {}).values():
                self._put(placed, row)
            self.claimed_gpus.charge(node.metadata.name)
        return row

    def drop_node(self, name: str) -> None:
        """Remove a node.  Its pods become orphans, which count again if the node is added again."""
        row = self.nodes.rows[name]
        for placed in list(self.pods.on_row[row].values()):
            self.displace(placed.key)
            self._orphans.setdefault(name, {})[placed.key] = placed
        self.claimed_gpus.release(name)
        self.nodes.drop(name)
        self.load.set_node(row, None)
        self.node_log.append(row)
        self.layout += 1

    def set_devices(self, name: str) -> tuple[InputError, ...]:
        """Apply the device report of a known node.

        Returns the errors of invalid parts, which are ignored.
        """
        row = self.nodes.rows[name]
        node, device = self.nodes.objects[row], self.objects.get(Device, name)
        labels = node.metadata.labels if node else {}
        self.claimed_gpus.release(name)
        problems = self.nodes.devices.report(row, device, labels)
        self.claimed_gpus.charge(name)
        self.devices += 1
        self.usage_log.append(row)
        return problems

    def set_topology(self, name: str) -> InputError | None:
        """Apply NUMA settings and topology of a known node; return the error of an invalid one."""
        row = self.nodes.rows[name]
        topology = self.objects.get(NodeResourceTopology, name)
        problem = self.nodes.numa.report(row, self.nodes.objects[row], topology)
        self.usage_log.append(row)
        return problem

    def set_load(self, name: str) -> None:
        """Apply the NodeMetric of a known node."""
        row = self.nodes.rows[name]
        self.load.report(row, self.objects.get(NodeMetric, name))
        self.usage_log.append(row)

    def sweep(self) -> None:
        """Drop facts that only deleted pods, nodes and objects used; changes no decision.

        Only between decisions: arrays that were handed out may be invalid afterwards.
        """
        classes = self.classes.sweep()
        self.pods.sweep(classes)
        self.nodes.sweep()
        MASKS.forget(self)
        if self.axis.has_transient:
            used = {column for one in classes for column, _ in one.demand}
            generation = self.axis.generation
            self.axis.keep_only(used.union(self.nodes.columns_in_use))
            if self.axis.generation != generation:
                self.memory.clear()

    def advance(self, now_s: float) -> None:
        """Set the time: expire measurements, and drop facts that no pod or node refers to.

        Time may go back, when a clock is corrected.
        """
        if self.classes.is_due or self.pods.is_due:
            self.sweep()
        self.now_s = now_s
        expired = self.load.advance(now_s)
        if len(expired):
            self.usage_log.extend(expired)

    def set_ranks(self, ranks: dict[str, int]) -> None:
        """Set the tie-breaker of equally scored nodes: the lowest rank wins."""
        for name, rank in ranks.items():
            self.nodes.rank[self.nodes.rows[name]] = rank
        self.ranked = True
        self.layout += 1

    # -- pods --------------------------------------------------------------------------------

    def place(
        self,
        key: str,
        pod: Pod,
        pod_class: PodClass,
        row: int,
        pod_allocation: PodAllocation = NO_ALLOCATION,
    ) -> PlacedPod:
        """Put a pod on a row and charge its requests and allocation."""
        if pod_allocation.claimed:
            pod_class = self._with_claimed(pod, row, pod_allocation)
        placed = PlacedPod(
            key, pod, pod_class, pod_allocation=pod_allocation, assigned_s=self.now_s
        )
        self._put(placed, row)
        return placed

    def _with_claimed(self, pod: Pod, row: int, pod_allocation: PodAllocation) -> PodClass:
        """Return the class that the pod will have when it is bound with its claims."""
        spec = replace(pod.spec, node_name=self.nodes.names[row])
        claimed = pod_allocation.claimed
        status = replace(pod.status, node_allocatable_resource_claim_statuses=claimed)
        return self.classes.of(replace(pod, spec=spec, status=status))

    def put_back(self, placed: PlacedPod) -> None:
        """Put a displaced pod back on its row."""
        self._put(placed, placed.row)

    def _put(self, placed: PlacedPod, row: int) -> None:
        self.pods.add(placed, row)
        self._charge(placed, 1)
        self.usage_log.append(row)
        if self.ledgers.kept:
            self.ledgers.note_pod(placed.key)

    def place_on(
        self, key: str, pod: Pod, pod_class: PodClass, node: str, pod_allocation: PodAllocation
    ) -> None:
        """Put a bound pod on the node it names, known or not."""
        row = self.nodes.rows.get(node)
        if row is None:
            orphan = PlacedPod(
                key, pod, pod_class, pod_allocation=pod_allocation, assigned_s=self.now_s
            )
            self._orphans.setdefault(node, {})[key] = orphan
            self.ledgers.note_pod(key)
        else:
            self.place(key, pod, pod_class, row, pod_allocation)

    def place_all(
        self,
        pods: Iterable[tuple[str, Pod]],
        classes: Sequence[PodClass],
        rows: IntArray,
        allocations: Iterable[PodAllocation] = (),
    ) -> list[PlacedPod]:
        """Place many pods, none of them with ports, on rows; they are given by key.

        ``allocations``: the devices of each pod; none if no pod gets any.
        """
        now_s = self.now_s
        placed = [
            PlacedPod(key, pod, pod_class, assigned_s=now_s)
            for (key, pod), pod_class in zip(pods, classes, strict=True)
        ]
        for one, allocation in zip(placed, allocations, strict=False):
            one.pod_allocation = allocation
        if not placed:
            return placed
        kinds = [*dict.fromkeys(classes)]
        if len(kinds) == 1:
            kind = np.zeros(len(rows), np.int64)
        else:
            number = {pod_class: at for at, pod_class in enumerate(kinds)}
            kind = np.array([number[pod_class] for pod_class in classes], np.int64)
        self.pods.add_all(placed, rows, kinds, kind)
        nodes = self.nodes
        amounts = np.zeros((len(self.axis), len(kinds)), np.int64)
        for at, pod_class in enumerate(kinds):
            amounts[pod_class.columns, at] = pod_class.amounts
        requested = nodes.requested
        for column in np.flatnonzero(amounts.any(axis=1)).tolist():
            np.add.at(requested[column], rows, amounts[column, kind])
        for column, each in (
            (CPU, [pod_class.effective.nonzero_cpu for pod_class in kinds]),
            (MEMORY, [pod_class.effective.nonzero_memory for pod_class in kinds]),
        ):
            np.add.at(nodes.nonzero[column], rows, np.array(each, np.int64)[kind])
        self.load.charge_all(placed, rows, kinds, kind)
        for one in placed:
            if one.pod_allocation is not NO_ALLOCATION:
                nodes.devices.charge(one.row, one.pod_allocation.devices, 1)
        self.usage_log.extend(rows)
        self.ledgers.note_pods(one.key for one in placed)
        return placed

    def give_back(self, placed: PlacedPod) -> None:
        """Remove a pod from its row, unless it has been displaced or placed again since.

        Its node may have been deleted meanwhile, or deleted and created again.
        """
        if self.pods.by_key.get(placed.key) is placed or any(
            orphans.get(placed.key) is placed for orphans in self._orphans.values()
        ):
            self.displace(placed.key)

    def displace(self, key: str) -> PlacedPod | None:
        """Remove a pod from its row, unless it has been displaced or placed again since.

        Its node may have been deleted meanwhile, or deleted and created again.
        """
        placed = self.pods.by_key.get(key)
        self.ledgers.note_pod(key)
        if placed is None:
            for node in [node for node, waiting in self._orphans.items() if key in waiting]:
                waiting = self._orphans[node]
                del waiting[key]
                if not waiting:
                    del self._orphans[node]
            return None
        self.pods.remove(placed)
        self._charge(placed, -1)
        self.usage_log.append(placed.row)
        return placed

    def update_placed(self, placed: PlacedPod, pod: Pod, pod_class: PodClass) -> bool:
        """Update a placed pod in place; return False if its amounts or ports differ.

        Then nothing is changed.  The same applies to a pod that may have lost its reservation.
        """
        old = placed.pod_class
        if (
            (old.demand, old.host_ports) != (pod_class.demand, pod_class.host_ports)
            or (old.effective != pod_class.effective)
            or placed.priority != (pod.spec.priority or 0)
            or (placed.pod_allocation.uses and self.holds.is_strict)  # it may be no owner any more
        ):
            return False
        self.load.charge(placed, -1)
        self.pods.reclassify(placed, pod_class)
        placed.renew(pod)
        self.ledgers.note_pod(placed.key)
        self.load.charge(placed, 1)
        self.usage_log.append(placed.row)
        self.touch_cluster()
        return True

    def renew(self, placed: PlacedPod, pod: Pod) -> None:
        """Replace a placed pod by a version that plugins cannot distinguish from it."""
        if not placed.is_dated or placed.pod.status.conditions == pod.status.conditions:
            placed.renew(pod)
        elif self.load.renew(placed, pod):
            self.usage_log.append(placed.row)

    def _charge(self, placed: PlacedPod, sign: int) -> None:
        pod_class, allocation = placed.pod_class, placed.pod_allocation
        if self.load.charged:
            self.load.charge(placed, sign)
        if allocation.offer is not None:
            hold = self.holds.open(placed, allocation.offer) if sign > 0 else None
            self._charge_hold(hold or self.holds.close(allocation.offer.uid), sign)
            return
        counted = pod_class.effective
        self._charge_sums(
            placed.row, pod_class.demand, counted.nonzero_cpu, counted.nonzero_memory, sign
        )
        for port in pod_class.host_ports:
            self.nodes.port(port)[placed.row] += sign
        if allocation is not NO_ALLOCATION:
            self._charge_parts(placed, allocation.devices, allocation.numa, sign)
            if allocation.uses:
                self._use(placed, allocation.uses, sign)

    def _charge_sums(
        self, row: int, demand: Iterable[tuple[int, int]], cpu: int, memory: int, sign: int
    ) -> None:
        nodes = self.nodes
        requested = nodes.requested
        for column, amount in demand:
            requested[column, row] += sign * amount
        nodes.nonzero[0, row] += sign * cpu
        nodes.nonzero[1, row] += sign * memory

    def _charge_parts(
        self, placed: PlacedPod, devices: Allocation, numa: NumaAllocation | None, sign: int
    ) -> None:
        if devices:
            self.nodes.devices.charge(placed.row, devices, sign)
        if numa is not None:
            self.nodes.numa.charge(placed.row, placed.key, numa, sign)

    # -- holds -------------------------------------------------------------------------------

    def restore(self, hold: Hold) -> None:
        """Take a hold out of the sums; see ``Snapshot.restoring``."""
        self._charge_hold(hold, -1, is_restorable=True)
        hold.restored = True

    def undo_restore(self, hold: Hold) -> None:
        """Put a restored hold back into the sums."""
        hold.restored = False
        self._charge_hold(hold, 1, is_restorable=True)

    def _charge_hold(self, hold: Hold, sign: int, *, is_restorable: bool = False) -> None:
        if hold.restored:
            return
        left, placed, demand = hold.left, hold.placed, hold.left.demand
        ports = placed.pod_class.host_ports
        if (
            is_restorable and hold.offer.is_pod
        ):  # the pod keeps running, so its ports and its place in the pod count stay taken
            ports, demand = (), tuple(pair for pair in demand if pair[0] != PODS)
        self._charge_sums(placed.row, demand, left.nonzero_cpu, left.nonzero_memory, sign)
        for port in ports:
            self.nodes.port(port)[placed.row] += sign
        self._charge_parts(placed, left.devices, left.numa, sign)

    def _use(self, user: PlacedPod, uid: str, sign: int) -> None:
        hold = self.holds.hold_of(user, uid)
        if hold is not None:
            self._charge_hold(hold, -1)
        self.holds.use(user, uid, sign)
        if hold is not None:
            self._charge_hold(hold, 1)

    # -- pods without node, and what is derived from all pods --------------------------------

    def put_unbound(self, key: str, pod: Pod, pod_class: PodClass) -> bool:
        """Add a pod without a node in the cluster; return whether it is assumed on one here."""
        known = self.unbound.get(key)
        self.unbound[key] = (pod, pod_class)
        if known is None or known[1] is not pod_class:
            self._note_unbound(key)
        return self.placed(key) is not None

    def drop_unbound(self, key: str) -> None:
        """Remove a pod without node that has one now or was deleted; ignores an unknown one."""
        if self.unbound.pop(key, None) is not None:
            self._note_unbound(key)

    def confirm(self, placed: PlacedPod, pod: Pod) -> None:
        """Replace an assumed pod by its bound version, which plugins cannot distinguish from it."""
        self.unbound.pop(placed.key, None)  # its place counts already
        if placed.is_dated:
            self.renew(placed, pod)
        else:
            placed.pod = pod

    def _note_unbound(self, key: str) -> None:
        if self.ledgers.kept and key not in self.pods.by_key:  # else its place counts
            self.unbound_changes += 1
            self.ledgers.note_pod(key)

    def placed(self, key: str) -> PlacedPod | None:
        """Return a pod that has a node, even if the node has been deleted."""
        placed = self.pods.by_key.get(key)
        if placed is None and self._orphans:
            placed = next((pods[key] for pods in self._orphans.values() if key in pods), None)
        return placed

    def has_place(self, key: str) -> bool:
        """Return whether a pod has a node, even if the node has been deleted."""
        return self.placed(key) is not None

    def find_pod(self, key: str) -> tuple[PodClass, bool] | None:
        """Return a pod's class and whether it has a node, assumed or not; None if unknown."""
        placed = self.placed(key)
        if placed is not None:
            return placed.pod_class, True
        unbound = self.unbound.get(key)
        return None if unbound is None else (unbound[1], False)

    def find_pods(self, keys: Iterable[str]) -> Iterator[tuple[str, tuple[PodClass, bool] | None]]:
        """Yield the results of ``find_pod``, by key."""
        by_key, unbound, has_orphans = self.pods.by_key, self.unbound, bool(self._orphans)
        for key in keys:
            placed = by_key.get(key)
            if placed is not None:
                yield key, (placed.pod_class, True)
            elif has_orphans:
                yield key, self.find_pod(key)
            else:
                known = unbound.get(key)
                yield key, None if known is None else (known[1], False)

    def allocations_on(self, row: int) -> Iterable[Allocation]:
        """Yield the devices of the pods on a row; users of holds include their own."""
        for placed in self.pods.on_row[row].values():
            allocation = placed.pod_allocation
            if allocation.devices:
                yield (
                    self.holds.by_uid[allocation.offer.uid].left.devices
                    if allocation.offer
                    else allocation.devices
                )

    def pod_named(self, key: str) -> Pod | None:
        """Return a pod, with a node or without; None if unknown."""
        placed = self.placed(key)
        if placed is not None:
            return placed.pod
        unbound = self.unbound.get(key)
        return None if unbound is None else unbound[0]

    def _note_object(self, item: KubeObject) -> None:
        if isinstance(item, ResourceClaim):
            claim = self.objects.get(ResourceClaim, item.key)
            self.claimed_gpus.take(item.key, claim)
            self.extended.take_claim(item.key, claim)
        elif isinstance(item, _POD_OWNERS):
            self.has_pod_owners = True
        elif isinstance(item, DeviceClass):
            self.extended.take_class(item.key, self.objects.get(DeviceClass, item.key))
        self.ledgers.note_object(item)

    def _everything(self, kinds: ObjectKinds) -> LedgerChanges:
        pods = {*self.pods.by_key, *self.unbound, *(k for p in self._orphans.values() for k in p)}
        return LedgerChanges(
            pods, {(kind, item.key) for kind in kinds for item in self.objects.all(kind)}
        )

    # -- everything else ---------------------------------------------------------------------

    @property
    def traits(self) -> Hashable:
        """A value that changes seldom; hints of plugins may depend on it (see ``Snapshot``)."""
        surveyed, pods = self.nodes.numa.surveyed, self.pods
        return (
            self.nodes.numa.traits if surveyed is None else surveyed.traits,
            self.has_pod_owners,
            pods.has_terms,
            not self.nodes.images,
            not self.load.metrics,
        )

    def touch_cluster(self) -> None:
        """Note that something changed which any row's result may depend on."""
        self.cluster += 1

    def validate(self) -> None:
        """Derive every sum again from the pods and compare.  Raises BugError."""
        self.pods.validate()
        self.holds.validate()
        nodes = self.nodes
        requested = np.zeros_like(nodes.requested)
        nonzero = np.zeros_like(nodes.nonzero)
        left_of = {hold.placed.key: hold.left for hold in self.holds}
        for placed in self.pods.by_key.values():
            left, pod_class = left_of.get(placed.key), placed.pod_class
            for column, amount in (left or pod_class).demand:
                requested[column, placed.row] += amount
            nonzero[CPU, placed.row] += (left or pod_class.effective).nonzero_cpu
            nonzero[1, placed.row] += (left or pod_class.effective).nonzero_memory
        for name, kept, derived in (
            ("requested", nodes.requested, requested),
            ("non-zero requested", nodes.nonzero, nonzero),
        ):
            if not np.array_equal(kept, derived):
                raise BugError(f"{name} amounts differ from the sum over the pods")
        pods = self.pods.by_key.values()
        parts = [(p.row, p.key, left_of.get(p.key, p.pod_allocation)) for p in pods]
        self.load.validate()
        charged_devices = [(row, charged.devices) for row, _, charged in parts]
        nodes.devices.validate([*charged_devices, *self.claimed_gpus.charged()])
        nodes.numa.validate(
            (row, key, charged.numa) for row, key, charged in parts if charged.numa is not None
        )
