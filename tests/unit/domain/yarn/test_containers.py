"""Which containers are ended, and in which order."""

import pytest

from koordinator.domain.yarn.amounts import (
    BatchAmounts,
    YarnResource,
    original_units,
    whole_units,
)
from koordinator.domain.yarn.containers import choose_containers, container_age

MIB = 1 << 20
CLUSTER = "1700000000000"


def chosen(*numbers: str, cpu_milli: int = 0, mib: int = 0) -> list[str]:
    """Return who is chosen of containers of one vcore and 100 MiB each."""
    ids = [f"container_{CLUSTER}_{number}" for number in numbers]
    found = choose_containers(
        ids,
        BatchAmounts(cpu_milli, mib * MIB),
        id_of=lambda each: each,
        amounts_of=lambda _: YarnResource(1, 100).batch(),
    )
    return [each.removeprefix(f"container_{CLUSTER}_") for each in found]


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


@pytest.mark.parametrize(
    "text", ["", "container_1", "container_1_2_3_x", "../container_1_1_1_1", "container_1_1_1_1/.."]
)
def test_what_is_no_id_is_never_chosen(text: str) -> None:
    """It would become a path."""
    assert container_age(text) is None
    assert container_age("container_e17_1700000000000_0003_01_000002") == (1700000000000, 3, 1, 2)
    assert chosen(text, mib=1) == []


def test_units() -> None:
    """The original promises some 4.9 % more memory than there is."""
    amounts = BatchAmounts(30_500, 64 << 30)
    assert whole_units(amounts) == YarnResource(30, 65536)
    assert original_units(amounts) == YarnResource(31, 68720)
    assert original_units(amounts).batch().memory_bytes == 72058142720
