"""GPU partitions: sets of linked GPUs that are allocated together.

Source: koordinator pkg/scheduler/plugins/deviceshare/allocator_gpu.go, ``allocateByPartition``;
allocator_gpu_helper.go.
"""

from collections.abc import Mapping
from functools import cached_property

from koordinator.api.annotations.devices import GPU_PARTITIONS, GpuPartition, GpuPartitionTable
from koordinator.domain.devices.allocation import (
    NO_PARTITION,
    NO_PARTITION_OF_SIZE,
    NO_PARTITION_TABLE,
    DeviceShortage,
)
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.masks import bits_of, mask_of
from koordinator.foundation.quantity import Quantity

#: Value of an unused partition by size: a larger one outweighs all smaller ones.
_WORTH = {8: 10_000, 4: 100, 2: 1}


@dataclass(frozen=True, slots=True)
class Partition:
    """A set of linked GPUs."""

    minors: tuple[int, ...]
    mask: int
    score: int
    bandwidth: Quantity | None


@dataclass(frozen=True)
class PartitionTable:
    """Partitions by number of GPUs, in groups of equal score, lowest score first."""

    sizes: tuple[tuple[int, tuple[tuple[Partition, ...], ...]], ...]

    @cached_property
    def groups(self) -> Mapping[int, tuple[tuple[Partition, ...], ...]]:
        """The groups by size."""
        return dict(self.sizes)

    @cached_property
    def worths(self) -> Mapping[int, tuple[tuple[int, int], ...]]:
        """By size, (GPU mask, value while unused) of partitions of at least that size."""
        return {
            least: tuple(
                (partition.mask, worth * partition.score)
                for size, worth in _WORTH.items()
                if size >= least and size in self.groups
                for partition in self.groups[size][0]
            )
            for least in self.groups
        }


@dataclass(frozen=True, slots=True)
class PartitionRequest:
    """A pod's requirements for its partition."""

    restricted: bool = False  # only the first group of equal score is allowed
    bandwidth: Quantity | None = None  # at least


def partition_table(table: GpuPartitionTable) -> PartitionTable:
    """Return the table in the order in which partitions are considered."""
    sizes = []
    for size, partitions in sorted(table.items()):
        groups: dict[int, list[Partition]] = {}
        for each in partitions:
            groups.setdefault(each.allocation_score, []).append(_partition(each))
        # Ascending, as in the original, although its API documents the highest score first.
        if groups:
            sizes.append((size, tuple(tuple(groups[score]) for score in sorted(groups))))
    return PartitionTable(tuple(sizes))


def check_partitions(table: GpuPartitionTable, known: int) -> None:
    """Raise InputError for an invalid partition.

    Invalid are partitions with duplicate GPUs, with GPUs outside the ``known`` mask, with a size
    other than the one they are listed under, and duplicate partitions. Partitions may overlap.
    """
    for size, partitions in table.items():
        seen = set()
        for index, partition in enumerate(partitions):
            minors = partition.minors
            path = f"metadata.annotations[{GPU_PARTITIONS}][{size}][{index}].minors"
            if len(minors) != size or len(set(minors)) != size:
                raise _refusal(minors, f"{size} different minors", path)
            if any(minor < 0 or not known >> minor & 1 for minor in minors):
                accepted = f"minors of GPUs of the node: {list(bits_of(known))}"
                raise _refusal(minors, accepted, path)
            if frozenset(minors) in seen:
                raise _refusal(minors, "a unique set of GPUs", path)
            seen.add(frozenset(minors))


def choose_partition(
    table: PartitionTable | None,
    partition_request: PartitionRequest,
    count: int,
    fit: int,
    used: int,
) -> Partition | DeviceShortage:
    """Return the partition of ``count`` GPUs that preserves most value, the first among equals.

    All of its GPUs are in ``fit`` and none is in ``used``.
    """
    if table is None:
        return NO_PARTITION_TABLE
    groups = table.groups.get(count)
    if groups is None:
        return NO_PARTITION_OF_SIZE
    for group in groups[:1] if partition_request.restricted else groups:
        feasible = [
            partition
            for partition in group
            if not partition.mask & used
            and partition.mask & fit == partition.mask
            and (
                partition_request.bandwidth is None
                or _is_fast_enough(partition, partition_request.bandwidth)
            )
        ]
        if len(feasible) == 1:
            return feasible[0]
        if feasible:
            return max(feasible, key=lambda each: _worth_left(table, count, used | each.mask))
    return NO_PARTITION


def _worth_left(table: PartitionTable, count: int, used: int) -> int:
    """Return the value of unused partitions of at least ``count`` GPUs."""
    return sum([worth for mask, worth in table.worths[count] if not mask & used])


def _is_fast_enough(partition: Partition, wanted: Quantity) -> bool:
    return partition.bandwidth is not None and partition.bandwidth >= wanted


def _partition(given: GpuPartition) -> Partition:
    return Partition(
        minors=given.minors,
        mask=mask_of(given.minors),
        score=given.allocation_score,
        bandwidth=given.ring_bus_bandwidth,
    )


def _refusal(values: tuple[int, ...], accepted: str, path: str) -> InputError:
    return InputError(f"must be {accepted}, got {list(values)}", path=path)
