"""ResourceSlices as pools of devices that a node can access.

Only the newest generation of a pool that the node sees counts. A pool is complete when the number
of slices of that generation, for any nodes, equals the published count. A pool that the node
sees only in part is left out while a newer generation exists elsewhere.

Administrators set taints of devices in addition to the taints of the drivers.

Slices and pools with binding conditions are sorted after the others.

Source: k8s.io/dynamic-resource-allocation structured/internal/experimental/pools_experimental.go;
resourceslice/tracker/tracker.go ``applyPatches``.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import field
from dataclasses import replace as replace_fields
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec.structs import replace

from koordinator.api.dynamic_resources import (
    CounterSet,
    DeviceAttribute,
    DeviceTaintRule,
    DeviceTaintSelector,
    PoolDevice,
    ResourceSlice,
    ResourceSliceSpec,
)
from koordinator.api.node import Node
from koordinator.domain.node_selection import matches_node_selector
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.lazy_module import lazy_module

if TYPE_CHECKING:
    from koordinator.domain.dynamic_resources import selectors
    from koordinator.foundation import cel
else:  # without selectors, nothing evaluates expressions
    selectors = lazy_module("koordinator.domain.dynamic_resources.selectors")
    cel = lazy_module("koordinator.foundation.cel")

ANSWERS_KEPT: Final = 16  # cached expression results per device
ALIKE_KEPT: Final = 1 << 14  # cached results shared by equal devices
_ALIKE: dict[Hashable, bool | str] = {}  # pure cache
DeviceId = tuple[str, str, str]  # driver, pool, device


@dataclass(slots=True, eq=False)
class InventoryDevice:
    """A device of a slice, with cached results of expressions."""

    id: DeviceId
    spec: PoolDevice
    slice: ResourceSliceSpec
    _variables: dict[str, Any] | None = None
    _answers: dict[str, bool | str] = field(default_factory=dict)

    def matches(self, program: "cel.CelProgram") -> bool:
        """Return whether an expression is true for the device.  Raises CelError."""
        answer = self._answers.get(program.text)
        if answer is None:
            answer = self._answer_of_alike(program)
            if len(self._answers) >= ANSWERS_KEPT:  # bounds the cache
                self._answers.clear()
            self._answers[program.text] = answer
        if isinstance(answer, str):
            raise cel.CelError(answer)
        return answer

    def _answer_of_alike(self, program: "cel.CelProgram") -> bool | str:
        """Return the result shared by all devices with the same values of the fields read."""
        parts = selectors.parts_read(program)
        values = None
        if parts is not None:
            values = selectors.values_read(parts, self.id[0], self.spec)
        key = (program.text, values)
        answer = _ALIKE.get(key) if values is not None else None
        if answer is None:
            try:
                answer = selectors.matches(program, self._known_variables())
            except cel.CelError as error:
                answer = str(error)
            if values is not None:
                if len(_ALIKE) >= ALIKE_KEPT:
                    _ALIKE.clear()
                _ALIKE[key] = answer
        return answer

    def _known_variables(self) -> dict[str, Any]:
        if self._variables is None:
            try:
                self._variables = selectors.device_variables(self.id[0], self.spec)
            except InputError as error:
                raise cel.CelError(str(error)) from None
        return self._variables

    def attribute(self, name: str) -> "selectors.ComparedAttribute | None":
        """Return what constraints compare of a qualified attribute; None if there is none."""
        attribute: DeviceAttribute | None = self.spec.attributes.get(name)
        domain, _, short = name.partition("/")
        if attribute is None and domain == self.id[0]:
            attribute = self.spec.attributes.get(short)
        return selectors.compared_attribute(attribute) if attribute is not None else None

    def reaches(self, node: Node) -> bool:
        """Return whether a node can access the device of a slice with per-device selection."""
        spec = self.spec
        if spec.all_nodes or spec.node_name == node.metadata.name:
            return True
        return spec.node_selector is not None and matches_node_selector(spec.node_selector, node)


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class SliceContent:
    """Identity of the content of a slice's devices; equal contents share one number."""

    number: int


@dataclass(slots=True, eq=False)
class InventorySlice:
    """The devices of one slice, in order."""

    name: str
    spec: ResourceSliceSpec
    devices: tuple[InventoryDevice, ...]
    has_conditions: bool  # a device has binding conditions
    counters_taken: frozenset[tuple[str, str]]  # (counter set, counter) consumed by devices
    has_groups: bool = False  # a device has compatibility groups, which are not supported
    contents: dict[Hashable, SliceContent | None] = field(default_factory=dict)  # by reading

    @classmethod
    def of(cls, item: ResourceSlice) -> "InventorySlice":
        """Convert a ResourceSlice."""
        spec = item.spec
        return cls(
            item.metadata.name,
            spec,
            tuple(
                InventoryDevice((spec.driver, spec.pool.name, device.name), device, spec)
                for device in spec.devices
            ),
            any(device.binding_conditions for device in spec.devices),
            frozenset(
                (part.counter_set, name)
                for device in spec.devices
                for part in device.consumes_counters
                for name in part.counters
            ),
            any(
                part.compatibility_groups
                for device in spec.devices
                for part in device.consumes_counters
            ),
        )

    @property
    def only_node(self) -> str:
        """The only node that can access it; empty if a selector or flag decides."""
        return self.spec.node_name or ""

    def seen_from(self, node: Node) -> "InventorySlice | None":
        """Return the part that a node can access; None if there is none."""
        spec = self.spec
        if spec.per_device_node_selection:
            devices = tuple(device for device in self.devices if device.reaches(node))
            return replace_fields(self, devices=devices, contents={}) if devices else None
        if (
            spec.all_nodes
            or spec.node_name == node.metadata.name
            or (spec.node_selector is not None and matches_node_selector(spec.node_selector, node))
        ):
            return self
        return None


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """The part of a pool that a node sees."""

    driver: str
    name: str
    slices: tuple[InventorySlice, ...]
    is_complete: bool
    is_valid: bool  # unique names; consumed counters exist
    counter_sets: Mapping[str, CounterSet] = field(default_factory=dict)  # of all slices

    @property
    def devices(self) -> Iterable[InventoryDevice]:
        """The devices, slice by slice."""
        return (device for part in self.slices for device in part.devices)


PoolKey = tuple[str, str]  # driver, pool
GroupT = TypeVar("GroupT", bound=Hashable)


class SliceIndex:
    """Index of all slices; pools of a node are sorted by driver and name, slices by name.

    Pools with binding conditions are sorted after the others. Slices with compatibility groups are
    invisible, so that their pools are incomplete. Without ``partitions``, slices with
    per-device node selection are invisible, and consumed counters are not checked.
    """

    def __init__(self, *, partitions: bool = True) -> None:
        self._partitions = partitions
        self._slices: dict[str, InventorySlice] = {}
        self._of_node: dict[str, dict[str, InventorySlice]] = {}
        self._shared: dict[str, InventorySlice] = {}  # slices without a single node
        self._by_pool: dict[PoolKey, dict[str, InventorySlice]] = {}  # all generations
        self._of_driver: Counter[str] = Counter()  # number of slices

    def put(self, item: ResourceSlice) -> None:
        """Add or update a slice."""
        name = item.metadata.name
        self.drop(name)
        part = self._slices[name] = InventorySlice.of(item)
        is_usable = self._partitions or not part.spec.per_device_node_selection
        if is_usable and not part.has_groups:
            self._visible(part)[name] = part
        self._by_pool.setdefault(_pool_key(part), {})[name] = part
        self._of_driver[part.spec.driver] += 1

    def drop(self, name: str) -> None:
        """Remove a slice if it exists."""
        known = self._slices.pop(name, None)
        if known is None:
            return
        _take_out(self._of_node, known.only_node, name)
        _take_out(self._by_pool, _pool_key(known), name)
        self._shared.pop(name, None)
        self._of_driver[known.spec.driver] -= 1
        if not self._of_driver[known.spec.driver]:
            del self._of_driver[known.spec.driver]

    def has_driver(self, driver: str) -> bool:
        """Return whether a driver has slices."""
        return driver in self._of_driver

    def has_pool(self, pool: PoolKey) -> bool:
        """Return whether a pool has slices."""
        return pool in self._by_pool

    def find(self, name: str) -> InventorySlice | None:
        """Return a slice by name."""
        return self._slices.get(name)

    def _visible(self, part: InventorySlice) -> dict[str, InventorySlice]:
        only = part.only_node
        return self._of_node.setdefault(only, {}) if only else self._shared

    def nodes(self) -> Iterable[str]:
        """Return the nodes that have slices of their own."""
        return self._of_node.keys()

    def device(self, wanted: DeviceId) -> InventoryDevice | None:
        """Return a device in its newest generation; None if it does not exist."""
        driver, pool, _ = wanted
        parts = self._by_pool.get((driver, pool), {}).values()
        newest = sorted(parts, key=lambda part: -part.spec.pool.generation)
        matches = (each for part in newest for each in part.devices if each.id == wanted)
        return next(matches, None)

    def nodes_of(self, pool: PoolKey) -> Iterable[str]:
        """Return the nodes with exclusive slices of a pool; "" is included for shared slices."""
        return {part.only_node for part in self._by_pool.get(pool, {}).values()}

    def pools(self, node: Node) -> tuple[Pool, ...]:
        """Return the pools that a node sees."""
        own = self._of_node.get(node.metadata.name, {})
        seen = list(own.values())
        for shared in self._shared.values():
            part = shared.seen_from(node)
            if part is not None:
                seen.append(part)
        seen.sort(key=lambda part: (*_pool_key(part), part.name))
        return self.pools_of(seen)

    def pools_of(self, seen: Sequence[InventorySlice]) -> tuple[Pool, ...]:
        """Return the pools of the slices that a node sees, in the order of their first slices."""
        newest: dict[tuple[str, str], list[InventorySlice]] = {}
        for one in seen:
            known = newest.setdefault((one.spec.driver, one.spec.pool.name), [])
            if known and known[0].spec.pool.generation != one.spec.pool.generation:
                if known[0].spec.pool.generation > one.spec.pool.generation:
                    continue
                known.clear()
            known.append(one)
        pools_or_none = [self._pool(key, parts) for key, parts in newest.items()]
        pools = [pool for pool in pools_or_none if pool is not None]
        return tuple(sorted(pools, key=lambda pool: any(p.has_conditions for p in pool.slices)))

    def _pool(self, key: PoolKey, parts: Sequence[InventorySlice]) -> Pool | None:
        about = parts[0].spec.pool
        everywhere: Iterable[InventorySlice] = parts
        if len(parts) != about.resource_slice_count:
            known = self._by_pool[key].values()
            if any(part.spec.pool.generation > about.generation for part in known):
                return None
            everywhere = [
                part
                for part in known
                if part.spec.pool.generation == about.generation and not part.has_groups
            ]
        everywhere = tuple(everywhere)
        is_complete = len(everywhere) == about.resource_slice_count
        names = [device.spec.name for part in parts for device in part.devices]
        return Pool(
            *key,
            tuple(parts),
            is_complete=is_complete,
            is_valid=not is_complete
            or (len(names) == len(set(names)) and self._has_counters(everywhere)),
            counter_sets={
                each.name: each for part in everywhere for each in part.spec.shared_counters
            },
        )

    def _has_counters(self, parts: Sequence[InventorySlice]) -> bool:
        """Return whether the consumed counters exist and counter sets are unique."""
        if not self._partitions:
            return True
        sets = [each for part in parts for each in part.spec.shared_counters]
        known = {(each.name, name) for each in sets for name in each.counters}
        return len({each.name for each in sets}) == len(sets) and all(
            part.counters_taken <= known for part in parts
        )


def _pool_key(part: InventorySlice) -> PoolKey:
    return part.spec.driver, part.spec.pool.name


def _take_out(groups: dict[GroupT, dict[str, InventorySlice]], group: GroupT, name: str) -> None:
    """Remove a slice from its group, and the group when it is empty."""
    known = groups.get(group)
    if known is not None and known.pop(name, None) is not None and not known:
        del groups[group]


_EVERY = DeviceTaintSelector()


def concerns(rule: DeviceTaintRule, spec: ResourceSliceSpec) -> bool:
    """Return whether a rule may select a device of a slice."""
    wanted = _selector(rule)
    return (
        wanted is not None
        and wanted.driver in {None, spec.driver}
        and wanted.pool in {None, spec.pool.name}
    )


def with_taints(item: ResourceSlice, rules: Iterable[DeviceTaintRule]) -> ResourceSlice:
    """Return a slice whose devices also have the taints of the rules, in order of the rules."""
    those = [rule for rule in rules if concerns(rule, item.spec)]
    if not those:
        return item
    devices = tuple(_tainted(device, those) for device in item.spec.devices)
    return replace(item, spec=replace(item.spec, devices=devices))


def _tainted(device: PoolDevice, rules: Iterable[DeviceTaintRule]) -> PoolDevice:
    added = tuple(
        rule.spec.taint
        for rule in rules
        if (wanted := _selector(rule)) is not None and wanted.device in {None, device.name}
    )
    return replace(device, taints=(*device.taints, *added)) if added else device


def _selector(rule: DeviceTaintRule) -> DeviceTaintSelector | None:
    """Return a rule's selector; None if it selects nothing.

    Before v1, a missing selector selects every device.
    """
    wanted = rule.spec.device_selector
    return _EVERY if wanted is None and type(rule) is not DeviceTaintRule else wanted
