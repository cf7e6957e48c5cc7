"""Device model of a node: groups of devices, their topology, and templates of virtual devices.

Equal machines share one ``NodeModel``; ``NodeDevices`` holds the state of one node.  Templates are
the fixed sizes into which cards of some models can be divided.

Source: koordinator pkg/scheduler/plugins/deviceshare: allocator_gpu.go ``allocateFromScope``;
allocator_gpu_helper.go ``GetGPUTopologyScope``; gpu_shared_resource_templates_cache.go.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from itertools import count
from operator import attrgetter
from typing import NamedTuple

import msgspec
import numpy as np

from koordinator.api.annotations.devices import DeviceTopologyScope
from koordinator.api.codec import decode
from koordinator.api.core import ConfigMap, ResourceList
from koordinator.api.device import NUMA_UNKNOWN, DeviceType, VirtualFunction
from koordinator.api.meta import LabelSelector
from koordinator.api.selectors import matches
from koordinator.domain.devices.allocation import NAMES, DeviceAmounts
from koordinator.domain.devices.partitions import PartitionTable
from koordinator.foundation.arrays import IntArray
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.masks import bits_of, lowest, mask_of, subsets, zones_of
from koordinator.foundation.yaml_documents import yaml_document

#: Levels from the largest scope to the smallest; level 4 has no scopes and can't be satisfied.
LEVELS = {
    DeviceTopologyScope.NODE: 1,
    DeviceTopologyScope.NUMA_NODE: 2,
    DeviceTopologyScope.PCIE: 3,
    DeviceTopologyScope.DEVICE: 4,
}

DATA_KEY = "data.yaml"  # key in the ConfigMap


@dataclass(frozen=True, slots=True)
class Scope:
    """A part of the machine with its GPUs."""

    mask: int
    around: tuple[int, ...]  # masks of its enclosing scopes, then its own

    def used_around(self, used: int) -> int:
        """Return the number of enclosing scopes, itself included, with a used GPU."""
        number = len(self.around)
        for mask in reversed(self.around):
            if mask & used:  # all enclosing scopes have one too
                break
            number -= 1
        return number


class Scopes:
    """All scopes of a node by level, in order of preference."""

    def __init__(self, places: Sequence[tuple[int, int, str]]) -> None:
        """``places`` are (minor, NUMA node, PCIe root) of every GPU, at least one."""
        node = 0
        numa: dict[int, int] = {}
        pcie: dict[tuple[int, str], int] = {}
        for minor, numa_node, root in places:
            bit = 1 << minor
            node |= bit
            numa[numa_node] = numa.get(numa_node, 0) | bit
            pcie[numa_node, root] = pcie.get((numa_node, root), 0) | bit
        self.levels: tuple[tuple[Scope, ...], ...] = (
            (Scope(node, (node,)),),
            tuple(Scope(mask, (node, mask)) for _, mask in sorted(numa.items())),
            tuple(
                Scope(mask, (node, numa[numa_node], mask))
                for (numa_node, _), mask in sorted(pcie.items())
            ),
        )
        self._most: dict[int, tuple[int, ...]] = {}

    def most(self, fit: int) -> tuple[int, ...]:
        """Return the maximum number of these GPUs in one node, one NUMA node and one PCIe root.

        Results are cached by ``fit``.
        """
        known = self._most.get(fit)
        if known is None:
            known = self._most[fit] = tuple(
                max((scope.mask & fit).bit_count() for scope in level) for level in self.levels
            )
        return known

    def choose(self, count: int, level: int, fit: int, used: int) -> int | None:
        """Return ``count`` GPUs of ``fit`` in the smallest scope that has them; None if none has.

        Scopes larger than level ``level`` are excluded. Among scopes of one level, the one with the
        most ``used`` enclosing scopes wins, the first among equals; of its GPUs the lowest are
        taken.
        """
        able = self._able(count, level, fit)
        if not able:
            return None
        return lowest(max(able, key=lambda scope: scope.used_around(used)).mask & fit, count)

    def choose_with(self, kept: int, count: int, level: int, fit: int) -> int | None:
        """Return ``count`` GPUs of ``fit``, with as many ``kept`` ones as possible.

        They are in the smallest scope that has enough GPUs and all kept ones; None if there is
        none.
        """
        kept &= fit
        if kept.bit_count() >= count:
            return self.choose(count, level, kept, 0)
        for scopes in reversed(self.levels[level - 1 :]):
            for scope in scopes:
                if not kept & ~scope.mask and (scope.mask & fit).bit_count() >= count:
                    return kept | lowest(scope.mask & fit & ~kept, count - kept.bit_count())
        return None

    def for_share(self, level: int, fit: int, used: int) -> list[int]:
        """Return the minors of equally good GPUs for a share; the first is the default.

        They are the GPUs of ``fit`` in the scopes that ``choose`` would rank equal.
        """
        most = -1
        minors: list[int] = []
        for scope in self._able(1, level, fit):
            number = scope.used_around(used)
            if number > most:
                most, minors = number, []
            if number == most:
                minors += bits_of(scope.mask & fit)
        return minors

    def _able(self, count: int, level: int, fit: int) -> list[Scope]:
        """Return the scopes with enough GPUs at the deepest level that has any."""
        for depth in range(len(self.levels), level - 1, -1):
            if self.most(fit)[depth - 1] >= count:
                scopes = self.levels[depth - 1]
                return [scope for scope in scopes if (scope.mask & fit).bit_count() >= count]
        return []


Labels = tuple[tuple[str, str], ...]  # sorted


@dataclass(frozen=True, slots=True)
class VirtualFunctions:
    """Virtual functions with equal labels."""

    labels: Labels
    functions: tuple[VirtualFunction, ...]


@dataclass(frozen=True, slots=True)
class ModelDevice:
    """A device as on every node of the model."""

    minor: int
    total: DeviceAmounts  # while healthy
    numa: int | None = None  # NUMA_UNKNOWN: no specific node; None: not reported
    pcie: str | None = None  # PCIe root; None: not reported
    labels: Labels = ()
    groups: tuple[VirtualFunctions, ...] = ()


@dataclass(frozen=True)
class DeviceGroup:
    """The devices of one type in order of minor, at least one."""

    kind: DeviceType
    devices: tuple[ModelDevice, ...]

    @cached_property
    def mask(self) -> int:
        """All devices of the group."""
        return mask_of(device.minor for device in self.devices)

    @cached_property
    def by_minor(self) -> Mapping[int, ModelDevice]:
        return {device.minor: device for device in self.devices}

    @property
    def width(self) -> int:
        """Number of rows of arrays by minor."""
        return self.mask.bit_length()

    @cached_property
    def totals(self) -> IntArray:
        """``(width, n_amounts)`` while all are healthy; read-only."""
        totals = np.zeros((self.width, len(NAMES[self.kind])), np.int64)
        for device in self.devices:
            totals[device.minor] = device.total
        totals.flags.writeable = False
        return totals

    @cached_property
    def by_numa(self) -> Mapping[int, int]:
        """The devices on each NUMA node; NUMA_UNKNOWN maps to devices without a specific node."""
        masks: dict[int, int] = {}
        for device in self.devices:
            if device.numa is not None:
                masks[device.numa] = masks.get(device.numa, 0) | 1 << device.minor
        return masks

    def on_numa(self, numa: Iterable[int]) -> int:
        """Return the devices on these NUMA nodes, and devices without a specific node."""
        numa_counts = self.by_numa
        mask = numa_counts.get(NUMA_UNKNOWN, 0)
        for node in numa:
            mask |= numa_counts.get(node, 0)
        return mask

    def labelled(self, selector: LabelSelector | None) -> int:
        """Return the devices whose labels match; all without a selector."""
        if selector is None:
            return self.mask
        return mask_of(d.minor for d in self.devices if matches(selector, dict(d.labels)))

    def functions(self, minor: int, selector: LabelSelector) -> tuple[VirtualFunction, ...]:
        """Return the virtual functions in groups with matching labels, by bus id.

        A function that is listed several times is returned once.
        """
        by_bus_id: dict[str, VirtualFunction] = {}
        for group in self.by_minor[minor].groups:
            if matches(selector, dict(group.labels)):
                for function in group.functions:
                    by_bus_id.setdefault(function.bus_id, function)
        return tuple(sorted(by_bus_id.values(), key=attrgetter("bus_id")))


class NumaSet(NamedTuple):
    """A set of NUMA nodes."""

    nodes: tuple[int, ...]  # ascending
    near: Mapping[DeviceType, int]  # masks: devices on them or without a specific node
    counts: Mapping[DeviceType, int]  # number of devices on exactly these nodes


@dataclass(frozen=True)
class NodeModel:
    """Properties of devices that are equal on every node of one kind."""

    groups: tuple[DeviceGroup, ...] = ()  # at most one per type
    partitions: PartitionTable | None = None
    honors_partitions: bool = False  # whole GPUs are allocated by partition only
    secondaries_planned: bool = False  # NICs are paired with GPUs by hardware design
    vendor: str = ""  # of the GPUs
    gpu_model: str = ""

    def group(self, kind: DeviceType) -> DeviceGroup | None:
        """Return the devices of a type, None if there are none."""
        return self._by_kind.get(kind)

    @cached_property
    def _by_kind(self) -> Mapping[DeviceType, DeviceGroup]:
        return {group.kind: group for group in self.groups}

    @cached_property
    def scopes(self) -> Scopes | None:
        """The topology of the GPUs; None without GPUs or if a location is not reported."""
        gpus = self.group(DeviceType.GPU)
        places = [
            (device.minor, device.numa, device.pcie)
            for device in (gpus.devices if gpus else ())
            if device.numa is not None and device.pcie is not None
        ]
        return Scopes(places) if gpus and len(places) == len(gpus.devices) else None

    @cached_property
    def numa_sets(self) -> tuple[NumaSet, ...]:
        """Sets of NUMA nodes that have devices: by size, then in lexicographic order."""
        known = {device.numa for group in self.groups for device in group.devices}
        nodes = sorted(numa for numa in known if numa is not None and numa != NUMA_UNKNOWN)
        return tuple(
            NumaSet(
                chosen,
                {group.kind: group.on_numa(chosen) for group in self.groups},
                {
                    group.kind: sum(group.by_numa.get(node, 0).bit_count() for node in chosen)
                    for group in self.groups
                },
            )
            for chosen in map(zones_of, subsets(tuple(nodes)))
        )


class NodeModels:
    """Models by number; equal ones are one object.  Numbers are never reused."""

    def __init__(self) -> None:
        self._numbers: dict[NodeModel, int] = {}
        self._models: dict[int, NodeModel] = {}
        self._next = count()

    def number(self, model: NodeModel) -> int:
        """Return the number of the model; a new one on its first use."""
        known = self._numbers.get(model)
        if known is None:
            known = self._numbers[model] = next(self._next)
            self._models[known] = model
        return known

    def keep_only(self, numbers: Collection[int]) -> None:
        """Remove all other models."""
        self._models = {number: self._models[number] for number in sorted(numbers)}
        self._numbers = {model: number for number, model in self._models.items()}

    def __getitem__(self, number: int) -> NodeModel:
        return self._models[number]

    def __contains__(self, number: int) -> bool:
        return number in self._models

    def __len__(self) -> int:
        return len(self._models)


@dataclass(frozen=True)
class NodeDevices:
    """The devices of one node."""

    model: NodeModel
    healthy: Mapping[DeviceType, int] = field(default_factory=dict)  # as masks
    ids: Mapping[DeviceType, Mapping[int, str]] = field(default_factory=dict)  # by minor
    problems: tuple[InputError, ...] = ()  # errors of the report

    @cached_property
    def health(self) -> tuple[tuple[DeviceType, int], ...]:
        """The healthy devices as a hashable value."""
        return tuple(self.healthy.items())

    @cached_property
    def totals(self) -> Mapping[DeviceType, IntArray]:
        """``(width, n_amounts)`` by type, read-only; zero for unhealthy devices."""
        totals = {}
        for group in self.model.groups:
            healthy = self.healthy.get(group.kind, 0)
            rows = np.array([healthy >> minor & 1 for minor in range(group.width)])
            totals[group.kind] = group.totals * rows[:, None]
            totals[group.kind].flags.writeable = False
        return totals


@dataclass(frozen=True, slots=True)
class TemplateTable:
    """Amounts by resource name, by template name, by ``<vendor>-<model>``."""

    models: Mapping[str, Mapping[str, Mapping[str, int]]] = field(default_factory=dict)

    def matching(self, amounts: Mapping[str, int]) -> dict[str, tuple[str, ...]]:
        """Return the templates of each model with exactly these amounts, without empty entries."""
        by_model = {
            model: tuple(name for name, template in templates.items() if template == amounts)
            for model, templates in self.models.items()
        }
        return {model: names for model, names in by_model.items() if names}


def model_key(vendor: str, gpu_model: str) -> str:
    """Return the table's key for a model."""
    return f"{vendor}-{gpu_model}"


def read_templates(config_map: ConfigMap) -> TemplateTable:
    """Parse the templates in a ConfigMap.

    Raises InputError with the path of the invalid value.
    """
    path = f"data[{DATA_KEY}]"
    try:
        tables = yaml_document(config_map.data.get(DATA_KEY, ""), "")
    except InputError as error:
        raise InputError(f"is not YAML: {error}", subject=_name(config_map), path=path) from None
    try:
        known = dict[str, dict[str, ResourceList]]
        tree = decode(msgspec.json.encode({} if tables is None else tables), known)
    except InputError as error:
        raise error.within(subject=_name(config_map), path=path) from None
    return TemplateTable({model: dict(_templates(each)) for model, each in tree.items()})


def _templates(templates: Mapping[str, ResourceList]) -> Iterator[tuple[str, dict[str, int]]]:
    for name, resources in templates.items():
        yield name, {resource: amount.value() for resource, amount in resources.items()}


def _name(config_map: ConfigMap) -> str:
    return f"ConfigMap {config_map.key}"
