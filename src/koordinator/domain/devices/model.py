"""What kind of machine a node is, as far as its devices go.

Equal machines share one ``NodeModel``; ``NodeDevices`` has what each node has of its own.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from koordinator.api.device import NUMA_UNKNOWN, DeviceType, VirtualFunction
from koordinator.api.meta import LabelSelector
from koordinator.api.selectors import matches
from koordinator.domain.devices.amounts import NAMES, Amounts
from koordinator.domain.devices.partitions import PartitionTable
from koordinator.domain.devices.topology import Scopes
from koordinator.domain.masks import mask_of, subsets, zones_of
from koordinator.foundation.arrays import IntArray
from koordinator.foundation.errors import InputError

Labels = tuple[tuple[str, str], ...]  # sorted


@dataclass(frozen=True, slots=True)
class VirtualFunctions:
    """Virtual functions that are alike."""

    labels: Labels
    functions: tuple[VirtualFunction, ...]


@dataclass(frozen=True, slots=True)
class ModelDevice:
    """A device as every node of the model has it."""

    minor: int
    total: Amounts  # while it is healthy
    numa: int | None = None  # NUMA_UNKNOWN: on none in particular; None: nobody knows where it sits
    pcie: str | None = None  # the root; None: nobody knows
    labels: Labels = ()
    groups: tuple[VirtualFunctions, ...] = ()


@dataclass(frozen=True)
class DeviceGroup:
    """The devices of one type, ascending by minor, at least one."""

    kind: DeviceType
    devices: tuple[ModelDevice, ...]

    @cached_property
    def mask(self) -> int:
        """All of them."""
        return mask_of(device.minor for device in self.devices)

    @cached_property
    def by_minor(self) -> Mapping[int, ModelDevice]:
        return {device.minor: device for device in self.devices}

    @property
    def width(self) -> int:
        """Rows of arrays by minor."""
        return self.mask.bit_length()

    @cached_property
    def totals(self) -> IntArray:
        """``(width, n_amounts)`` while all are healthy; read only."""
        totals = np.zeros((self.width, len(NAMES[self.kind])), np.int64)
        for device in self.devices:
            totals[device.minor] = device.total
        totals.flags.writeable = False
        return totals

    @cached_property
    def by_numa(self) -> Mapping[int, int]:
        """The devices on each NUMA node; those on NUMA_UNKNOWN are on none in particular."""
        found: dict[int, int] = {}
        for device in self.devices:
            if device.numa is not None:
                found[device.numa] = found.get(device.numa, 0) | 1 << device.minor
        return found

    def on_numa(self, numa: Iterable[int]) -> int:
        """Return the devices on these NUMA nodes, and those on none in particular."""
        there = self.by_numa
        mask = there.get(NUMA_UNKNOWN, 0)
        for node in numa:
            mask |= there.get(node, 0)
        return mask

    def labelled(self, selector: LabelSelector | None) -> int:
        """Return the devices whose labels match; all of them without a selector."""
        if selector is None:
            return self.mask
        return mask_of(d.minor for d in self.devices if matches(selector, dict(d.labels)))

    def functions(self, minor: int, selector: LabelSelector) -> tuple[VirtualFunction, ...]:
        """Return the virtual functions in groups whose labels match, by bus id.

        One that is in several groups, or twice in one, is still one.
        """
        found: dict[str, VirtualFunction] = {}
        for group in self.by_minor[minor].groups:
            if matches(selector, dict(group.labels)):
                for function in group.functions:
                    found.setdefault(function.bus_id, function)
        return tuple(sorted(found.values(), key=attrgetter("bus_id")))


class NumaSet(NamedTuple):
    """Some NUMA nodes."""

    nodes: tuple[int, ...]  # ascending
    near: Mapping[DeviceType, int]  # the devices there, and those on no NUMA node in particular
    there: Mapping[DeviceType, int]  # how many of them are just there


@dataclass(frozen=True)
class NodeModel:
    """All that decides about devices but is the same on every node of its kind."""

    groups: tuple[DeviceGroup, ...] = ()  # at most one per type
    partitions: PartitionTable | None = None
    honors_partitions: bool = False  # whole GPUs are given out by partition only
    secondaries_planned: bool = False  # NICs go with GPUs by construction
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
        """Where the GPUs sit; None if there are none, or one of which nobody knows."""
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
        found = {device.numa for group in self.groups for device in group.devices}
        nodes = sorted(numa for numa in found if numa is not None and numa != NUMA_UNKNOWN)
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
    """Models by number; equal ones are one object.  No number is given twice."""

    def __init__(self) -> None:
        self._numbers: dict[NodeModel, int] = {}
        self._models: dict[int, NodeModel] = {}
        self._next = count()

    def number(self, model: NodeModel) -> int:
        """Return the number of the model, a new one if it is the first of its kind."""
        known = self._numbers.get(model)
        if known is None:
            known = self._numbers[model] = next(self._next)
            self._models[known] = model
        return known

    def keep_only(self, numbers: Collection[int]) -> None:
        """Forget all other models."""
        self._models = {number: self._models[number] for number in sorted(numbers)}
        self._numbers = {model: number for number, model in self._models.items()}

    def __getitem__(self, number: int) -> NodeModel:
        return self._models[number]

    def __len__(self) -> int:
        return len(self._models)


@dataclass(frozen=True)
class NodeDevices:
    """The devices of one node."""

    model: NodeModel
    healthy: Mapping[DeviceType, int] = field(default_factory=dict)  # as masks
    ids: Mapping[DeviceType, Mapping[int, str]] = field(default_factory=dict)  # by minor
    problems: tuple[InputError, ...] = ()  # what was left out of the report, and why

    @cached_property
    def health(self) -> tuple[tuple[DeviceType, int], ...]:
        """The healthy devices, to be compared and hashed."""
        return tuple(self.healthy.items())

    @cached_property
    def totals(self) -> Mapping[DeviceType, IntArray]:
        """``(width, n_amounts)`` by type; zero for devices that aren't healthy; read only."""
        totals = {}
        for group in self.model.groups:
            healthy = self.healthy.get(group.kind, 0)
            rows = np.array([healthy >> minor & 1 for minor in range(group.width)])
            totals[group.kind] = group.totals * rows[:, None]
            totals[group.kind].flags.writeable = False
        return totals
