"""Lists of CPUs as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.foundation.cpu_list import format_cpu_list, parse_cpu_list
from koordinator.foundation.errors import InputError
from koordinator.foundation.masks import bits_of, lowest

masks = st.integers(0, 1 << 200)


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("", []),
        ("5", [5]),
        ("1,2,3,4,5", [1, 2, 3, 4, 5]),
        ("3-5,1-2", [1, 2, 3, 4, 5]),
        ("0-3,8", [0, 1, 2, 3, 8]),
        ("4095", [4095]),
    ],
)
def test_lists_and_ranges_in_any_order(text: str, cpus: list[int]) -> None:
    """As Linux and kubelet write them."""
    assert list(bits_of(parse_cpu_list(text))) == cpus


@pytest.mark.parametrize(
    "text", ["1-3-4", "a", "1,", "-1", "3-1", "4096", "0-99999999", " 1", "\u0661"]
)
def test_invalid_list_is_rejected_and_shown(text: str) -> None:
    """The message shows the text; no text can cause endless work."""
    with pytest.raises(InputError) as refusal:
        parse_cpu_list(text)

    assert repr(text) in str(refusal.value)


@given(masks)
def test_a_printed_list_reads_as_the_same_cpus(mask: int) -> None:
    """Text is the way that allocations survive a restart."""
    assert parse_cpu_list(format_cpu_list(mask)) == mask


def test_the_shortest_list_is_printed() -> None:
    """Neighbours become a range, in ascending order."""
    assert format_cpu_list(0b1_0110_1110) == "1-3,5-6,8"


@given(masks, st.integers(0, 210))
def test_lowest_bits_of_a_mask_are_selected(mask: int, count: int) -> None:
    """A mask with fewer bits is selected as a whole."""
    assert list(bits_of(lowest(mask, count))) == list(bits_of(mask))[:count]
