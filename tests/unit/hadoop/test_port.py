"""Order in which containers are ended."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.hadoop.amounts import (
    BatchAmounts,
    YarnResource,
    original_units,
    whole_units,
)
from koordinator.hadoop.port import choose_containers, container_age

MIB = 1 << 20
CLUSTER = "1700000000000"


def chosen(*numbers: str, cpu_milli: int = 0, mib: int = 0) -> list[str]:
    """Return who is chosen of containers of one vcore and 100 MiB each."""
    ids = [f"container_{CLUSTER}_{number}" for number in numbers]
    result = choose_containers(
        ids,
        BatchAmounts(cpu_milli, mib * MIB),
        id_of=lambda each: each,
        amounts_of=lambda _: YarnResource(1, 100).batch(),
    )
    return [each.removeprefix(f"container_{CLUSTER}_") for each in result]


def test_the_newest_go_first_and_no_more_than_needed() -> None:
    """By application, attempt and number, as numbers."""
    ids = ("0001_01_000009", "0002_01_000003", "0001_02_000002", "0001_01_000010")
    assert chosen(*ids, mib=150) == ["0002_01_000003", "0001_02_000002"]
    assert chosen(*ids, cpu_milli=1, mib=100) == ["0002_01_000003"]
    assert chosen(*ids, mib=1000) == [
        "0002_01_000003",
        "0001_02_000002",
        "0001_01_000010",
        "0001_01_000009",
    ]
    assert chosen(*ids) == []


def test_masters_of_applications_go_only_where_there_are_no_others() -> None:
    """With them the whole application would end."""
    assert chosen("0002_01_000001", "0001_01_000002", mib=500) == ["0001_01_000002"]
    assert chosen("0002_01_000001", "0001_01_000001", mib=50) == ["0002_01_000001"]


@given(
    st.lists(st.tuples(*[st.integers(0, 12)] * 4, st.integers(2, 12)), min_size=2, unique=True),
    st.integers(1, 1200),
)
def test_newest_containers_are_ended_first(ages: list[tuple[int, ...]], mib: int) -> None:
    """Containers of equal priority and size differ in age alone, whatever the amount."""
    ids = {_id(*age): age for age in ages}
    result = choose_containers(
        list(ids),
        BatchAmounts(0, mib * MIB),
        id_of=lambda each: each,
        amounts_of=lambda _: YarnResource(1, 100).batch(),
    )
    assert [ids[each] for each in result] == sorted(ages, reverse=True)[: -(-mib // 100)]


def _id(cluster: int, application: int, attempt: int, epoch: int, number: int) -> str:
    restarts = f"e{epoch:02}_" if epoch else ""
    return f"container_{restarts}{cluster}_{application:04}_{attempt:02}_{number:06}"


def test_ids_restart_with_the_resource_manager() -> None:
    """Containers of the restarted ResourceManager are newer, whatever their numbers."""
    ids = [_id(1, 1, 1, epoch, number) for epoch, number in ((0, 50), (1, 3), (10, 2))]
    for count in (1, 2):
        result = choose_containers(
            ids,
            BatchAmounts(0, count * MIB),
            id_of=lambda each: each,
            amounts_of=lambda _: BatchAmounts(1, MIB),
        )
        assert result == ids[: -count - 1 : -1]


@pytest.mark.parametrize(
    "text", ["", "container_1", "container_1_2_3_x", "../container_1_1_1_1", "container_1_1_1_1/.."]
)
def test_invalid_container_ids_are_never_chosen(text: str) -> None:
    """An invalid id would become a path."""
    assert container_age(text) is None
    assert container_age("container_e17_1700000000000_0003_01_000002") == (
        1700000000000,
        3,
        1,
        17,
        2,
    )
    assert chosen(text, mib=1) == []


def test_memory_is_counted_in_mebibytes() -> None:
    """The original promises some 4.9 % more memory than there is."""
    amounts = BatchAmounts(30_500, 64 << 30)
    assert whole_units(amounts) == YarnResource(30, 65536)
    assert original_units(amounts) == YarnResource(31, 68720)
    assert original_units(amounts).batch().memory_bytes == 72058142720
