"""Possible GPU topologies of the openb machines."""

import pytest

from koordinator.api.annotations.devices import read_gpu_partitions
from koordinator.api.meta import ObjectMeta
from koordinator.domain.devices.partitions import check_partitions
from koordinator.simulator.sources.openb import partitions_entry, place_of


@pytest.mark.parametrize("gpus", [1, 2, 4, 8])
def test_every_gpu_is_in_one_group_of_each_size(gpus: int) -> None:
    """The table is one that the scheduler accepts."""
    table = read_gpu_partitions(ObjectMeta(annotations=partitions_entry(gpus)))

    assert table is not None
    check_partitions(table, (1 << gpus) - 1)
    for size, groups in table.items():
        assert sorted(m for group in groups for m in group.minors) == list(range(gpus))
        assert {len(group.minors) for group in groups} == {size}
    assert sorted(table) == [size for size in (1, 2, 4, 8) if size <= gpus]


def test_two_gpus_share_a_root_and_half_of_them_a_numa_node() -> None:
    """In the order of their minors."""
    places = [place_of(minor, 8) for minor in range(8)]

    assert [place.node_id for place in places] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert [place.pcie_id for place in places][:4] == ["pci0", "pci0", "pci1", "pci1"]
