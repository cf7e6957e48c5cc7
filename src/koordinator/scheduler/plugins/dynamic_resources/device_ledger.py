"""Ledger of offered and allocated devices by row, in step with the cluster state.

Each row carries the number of the last change that may matter to it, so that caches of results by
row find the stale ones with one comparison.
"""

from collections.abc import Hashable
from itertools import count
from typing import ClassVar

import numpy as np

from koordinator.api.dynamic_resources import (
    TAINT_RULE_KINDS,
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceSlice,
)
from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Node
from koordinator.domain.dynamic_resources.allocation import devices_of
from koordinator.domain.dynamic_resources.allocator import AllocatorGates
from koordinator.domain.dynamic_resources.inventory import (
    DeviceId,
    InventoryDevice,
    Pool,
    PoolKey,
    SliceIndex,
    concerns,
    with_taints,
)
from koordinator.domain.dynamic_resources.node_gpus import DRIVER, device_id, usage_by_minor
from koordinator.domain.dynamic_resources.shapes import usage_of
from koordinator.domain.dynamic_resources.shares import CounterKey, DevicesInUse, consumption
from koordinator.foundation.arrays import IntArray, extended
from koordinator.scheduler.snapshot import ClusterState, LedgerChanges, ObjectTable

_ALL = ""  # in a set of node names: all nodes
USAGES = 1 << 14  # distinct usages of a node's devices; bounds memory
Consumed = dict[str, int] | None  # consumed capacity in nanos; None: the whole device
#: Counters taken by a device in use; None if it is offered no more and they are unknown.
CountersTaken = tuple[tuple[CounterKey, int], ...] | None


class DeviceLedger:
    """ResourceSlices and allocations, kept in step with a ``ClusterState``."""

    kinds: ClassVar = (ResourceSlice, ResourceClaim, DeviceClass, *TAINT_RULE_KINDS)

    def __init__(self, gates: AllocatorGates) -> None:
        self.gates = gates
        self.use = DevicesInUse()
        self.classes = 0  # number of changes of DeviceClasses
        self.changed_at: IntArray = np.zeros(0, np.int64)  # by row
        self.offered_at: IntArray = np.zeros(0, np.int64)  # by row, changes of offered devices only
        self.changes = 0
        self.shared_changes = 0  # usage changes of devices that several nodes see
        self._usages: IntArray = np.zeros(0, np.int64)  # usage number by row; -1 is stale
        self._usage_numbers: dict[Hashable, int] = {}
        self._next_usage = count()
        self._slices = SliceIndex(partitions=gates.counters)
        self._rules: dict[tuple[str, str], DeviceTaintRule] = {}  # by name and version
        self._allocated: dict[str, list[tuple[DeviceId, Consumed]]] = {}  # by key of a claim
        self._by_pods: dict[str, dict[DeviceId, Consumed]] = {}  # by node name
        self._stale_nodes: set[str] = set()  # nodes whose pods may have other GPUs now
        self._holders: dict[PoolKey, dict[DeviceId, set[str]]] = {}  # keys of claims
        self._counted: dict[DeviceId, CountersTaken] = {}
        self._pools: dict[int, tuple[Pool, ...]] = {}
        self._nodes: dict[int, Node] = {}  # names and labels, which slices select
        self._rows: dict[str, int] = {}
        self._position = 0  # in the node log
        self._usage_position = 0  # in the usage log of pods

    def catch_up(self, state: ClusterState, changed: LedgerChanges) -> None:
        """Apply the changes since the last call."""
        self._take_nodes(state)
        # Sorted by name: the iteration order of a set varies.
        for kind, key in sorted(changed.objects, key=lambda c: (c[0].KIND, c[1])):
            if kind is ResourceSlice:
                self._take_slice(key, state.objects.get(ResourceSlice, key))
            elif kind is ResourceClaim:
                self._take_claim(key, state.objects.get(ResourceClaim, key))
            elif issubclass(kind, DeviceTaintRule):
                self._take_rule(kind, key, state.objects)
            else:
                self.classes += 1
        self._take_pods(state)

    def pools(self, row: int, without: str = "") -> tuple[Pool, ...]:
        """Return the pools that the node of a row sees, ``without`` one driver's pools."""
        known = self._pools.get(row)
        if known is None:
            node = self._nodes.get(row)
            known = self._pools[row] = self._slices.pools(node) if node is not None else ()
        return tuple(pool for pool in known if pool.driver != without) if without else known

    def usages(self, rows: IntArray) -> IntArray:
        """Return ``(n,)``: equal numbers for nodes whose own devices are used alike."""
        if len(self._usage_numbers) > USAGES:
            self._usage_numbers.clear()  # numbers are never reused
        usages = self._usages[rows]
        for place in np.flatnonzero(usages < 0).tolist():
            row = int(rows[place])
            usage = usage_of(self.pools(row), self.use)
            number = self._usage_numbers.get(usage)
            if number is None:
                number = self._usage_numbers[usage] = next(self._next_usage)
            usages[place] = self._usages[row] = number
        return usages

    def device(self, wanted: DeviceId) -> InventoryDevice | None:
        """Return an offered device; None if it is offered no more."""
        return self._slices.device(wanted)

    def holders(self, device: DeviceId) -> list[str]:
        """Return the keys of the claims to which a device is allocated."""
        return sorted(self._holders.get(device[:2], {}).get(device, ()))

    def withdrawn(self, pool: PoolKey) -> list[DeviceId]:
        """Return the allocated devices of a pool that are offered no more."""
        return [one for one in self._holders.get(pool, ()) if self._counted.get(one, ()) is None]

    def is_with_pods(self, device: DeviceId) -> bool:
        """Return whether pods have a part of a device by their resource requests."""
        return device in self._by_pods.get(device[1], {})

    # -- nodes -------------------------------------------------------------------------------

    def _take_nodes(self, state: ClusterState) -> None:
        capacity = state.nodes.capacity
        if len(self.changed_at) < capacity:
            more = capacity - len(self.changed_at)
            self.changed_at = extended(self.changed_at, more, fill=self.changes)
            self.offered_at = extended(self.offered_at, more, fill=self.changes)
            self._usages = extended(self._usages, more, fill=-1)
        rows = state.node_log.since(self._position)
        self._position = state.node_log.position
        every = range(len(state.nodes)) if rows is None else dict.fromkeys(rows.tolist())
        for row in every:
            self._take_node(row, state.nodes.objects[row])

    def _take_node(self, row: int, node: Node | None) -> None:
        known = self._nodes.get(row)
        if node is not None and known is not None:
            old, new = known.metadata, node.metadata
            if old.name == new.name and old.labels == new.labels:
                return
        if known is not None and self._rows.get(known.metadata.name) == row:
            del self._rows[known.metadata.name]
        if node is None:
            self._nodes.pop(row, None)
        else:
            meta = ObjectMeta(name=node.metadata.name, labels=node.metadata.labels)
            self._nodes[row] = Node(metadata=meta)
            self._rows[meta.name] = row
            self._stale_nodes.add(meta.name)
        self._touch({row})

    def _touch(self, rows: set[int] | None) -> None:
        """Mark rows as changed; None marks all of them."""
        self._touch_use(rows)
        if rows is None:
            self._usages[:] = -1
            self.offered_at[:] = self.changes
            self._pools.clear()
            return
        for row in rows:
            self.offered_at[row] = self.changes
            self._pools.pop(row, None)

    def _touch_use(self, rows: set[int] | None) -> None:
        """Mark the usage of rows as changed, but not what their nodes see; None marks all."""
        self.changes += 1
        if rows is None:
            self.shared_changes += 1
            self.changed_at[:] = self.changes
            if self.gates.counters:
                self._usages[:] = -1  # pools that several nodes see have counters, too
            return
        for row in rows:
            self.changed_at[row] = self.changes
            self._usages[row] = -1

    def _rows_of(self, names: set[str]) -> set[int] | None:
        if _ALL in names:
            return None
        return {self._rows[name] for name in names if name in self._rows}

    # -- slices ------------------------------------------------------------------------------

    def _take_slice(self, name: str, item: ResourceSlice | None) -> None:
        known = self._slices.find(name)
        pools: set[PoolKey] = set()
        if known is not None:
            pools.add((known.spec.driver, known.spec.pool.name))
        if item is not None:
            pools.add((item.spec.driver, item.spec.pool.name))
        seen_by = {name for pool in pools for name in self._slices.nodes_of(pool)}
        if item is None:
            self._slices.drop(name)
        else:
            self._slices.put(with_taints(item, self._rules.values()))
        seen_by |= {name for pool in pools for name in self._slices.nodes_of(pool)}
        self._touch(self._rows_of(seen_by))
        self._stale_nodes.update(pool for driver, pool in pools if driver == DRIVER)
        if self.gates.counters:
            for pool in pools:
                for device in self._holders.get(pool, ()):
                    self._count(device)

    def _take_rule(self, kind: type[DeviceTaintRule], name: str, objects: ObjectTable) -> None:
        """Apply a taint rule to the slices that it matches or matched before."""
        if not self.gates.taint_rules:
            return
        key = (name, kind.API_VERSION)
        old, new = self._rules.pop(key, None), objects.get(kind, name)
        if new is not None:
            self._rules[key] = new
            self._rules = dict(sorted(self._rules.items()))
        for item in objects.all(ResourceSlice):
            if any(rule is not None and concerns(rule, item.spec) for rule in (old, new)):
                self._take_slice(item.metadata.name, item)

    # -- claims ------------------------------------------------------------------------------

    def _take_claim(self, key: str, claim: ResourceClaim | None) -> None:
        after: list[tuple[DeviceId, Consumed]] = []
        before = self._allocated.get(key, [])
        for device, result in devices_of(claim) if claim is not None else ():
            taken = {n: amount.nanos for n, amount in result.consumed_capacity.items()}
            after.append((device, taken if result.share_id else None))
        if before == after:
            return
        for device, consumed in before:
            self.use.charge(device, consumed, -1)
            self._holders[device[:2]][device].discard(key)
        for device, consumed in after:
            self.use.charge(device, consumed, 1)
            self._holders.setdefault(device[:2], {}).setdefault(device, set()).add(key)
        if after:
            self._allocated[key] = after
        else:
            self._allocated.pop(key, None)
        concerned = {device for device, _ in (*before, *after)}
        for device in concerned:
            if self.gates.counters:
                self._count(device)
            self._forget_if_free(device)
        pools = {device[:2] for device in concerned}
        self._touch_allocated({name for pool in pools for name in self._slices.nodes_of(pool)})

    # -- pods that request resources ---------------------------------------------------------

    def _take_pods(self, state: ClusterState) -> None:
        """Charge the GPUs of pods that claims could get, too."""
        rows = state.usage_log.since(self._usage_position)
        self._usage_position = state.usage_log.position
        if rows is None:
            self._stale_nodes.update(self._rows)
        elif len(rows) and self._slices.has_driver(DRIVER):
            names = (self._nodes.get(row) for row in dict.fromkeys(rows.tolist()))
            self._stale_nodes.update(node.metadata.name for node in names if node is not None)
        for name in self._stale_nodes:
            self._recount(state, name)
        self._stale_nodes.clear()

    def _recount(self, state: ClusterState, name: str) -> None:
        row, after = state.nodes.rows.get(name), dict[DeviceId, Consumed]()
        if row is not None and self._slices.has_pool((DRIVER, name)):
            usage = usage_by_minor(state.allocations_on(row))
            after = {device_id(name, minor): dict(has) or None for minor, has in usage.items()}
        before = self._by_pods.pop(name, {})
        if after:
            self._by_pods[name] = after
        if before == after:
            return
        for device, consumed in before.items():
            self.use.charge(device, consumed, -1)
        for device, consumed in after.items():
            self.use.charge(device, consumed, 1)
        self._touch_allocated(set(self._slices.nodes_of((DRIVER, name))))

    def _touch_allocated(self, names: set[str]) -> None:
        """Mark the usage as changed, of nodes' own devices and of shared ones."""
        own = self._rows_of(names - {_ALL})
        if own:
            self._touch_use(own)
        if _ALL in names:
            self._touch_use(None)

    def _forget_if_free(self, device: DeviceId) -> None:
        holders = self._holders[device[:2]]
        if not holders[device]:
            del holders[device]
        if not holders:
            del self._holders[device[:2]]

    def _count(self, device: DeviceId) -> None:
        """Charge the counters of a device once while any claim has it.

        Counters of a device that is offered no more are unknown, so that a restart gives the same
        result.
        """
        pool = device[:2]
        if device in self._counted:
            self.use.charge_counters(pool, self._counted.pop(device), -1)
        if self.holders(device):
            offered = self._slices.device(device)
            taken = tuple(consumption(offered)) if offered is not None else None
            self._counted[device] = taken
            self.use.charge_counters(pool, taken, 1)
