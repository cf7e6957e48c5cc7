"""Names that do not exist: which existing one may be meant."""

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from koordinator.scheduler.diagnosis import did_you_mean

words = st.text("abcdefghij", min_size=5, max_size=10)


@settings(max_examples=20)
@given(words, st.data())
def test_two_letters_in_the_wrong_order_are_a_misspelling(name: str, data: st.DataObject) -> None:
    """With and without a domain, and beside a name that is not alike."""
    at = data.draw(st.integers(0, len(name) - 2))
    written = name[:at] + name[at + 1] + name[at] + name[at + 2 :]
    assume(written != name)

    assert did_you_mean(written, ["xyzzy", name]) == name
    assert did_you_mean(f"example.com/{written}", [f"example.com/{name}"]) == f"example.com/{name}"


@settings(max_examples=20)
@given(words, st.integers(0, 99), st.integers(0, 99))
def test_another_number_is_another_object(name: str, one: int, other: int) -> None:
    """Nodes and pools are numbered: the next one is not meant."""
    assume(one != other)

    assert did_you_mean(f"{name}-{one}", [f"{name}-{other}"]) == ""


def test_names_that_are_alike_in_a_part_only() -> None:
    """A common domain makes no two resources alike, and a lacking one is no matter."""
    assert did_you_mean("nvidia.com/gup", ["cpu", "memory", "nvidia.com/gpu"]) == "nvidia.com/gpu"
    assert did_you_mean("batch-cpu", ["kubernetes.io/batch-cpu"]) == "kubernetes.io/batch-cpu"
    assert did_you_mean("koordinator.sh/rdma", ["koordinator.sh/gpu-core"]) == ""
    assert did_you_mean("example.com/gpu", ["nvidia.com/gpu"]) == ""
    assert did_you_mean("zone-a", ["zone-b"]) == ""
    assert did_you_mean("A100", ["H100"]) == ""
    assert did_you_mean("gpu", []) == ""
