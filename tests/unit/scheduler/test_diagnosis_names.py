"""Suggestions for unknown names."""

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.examples import examples

from koordinator.scheduler.diagnosis import MOST_KNOWN, did_you_mean

words = st.text("abcdefghij", min_size=5, max_size=10)


@settings(max_examples=examples(20))
@given(words, st.data())
def test_swapped_letters_are_a_typo(name: str, data: st.DataObject) -> None:
    """A typo is found with and without a domain, and beside unrelated names."""
    at = data.draw(st.integers(0, len(name) - 2))
    written = name[:at] + name[at + 1] + name[at] + name[at + 2 :]
    assume(written != name)

    assert did_you_mean(written, ["xyzzy", name]) == name
    assert did_you_mean(f"example.com/{written}", [f"example.com/{name}"]) == f"example.com/{name}"


@settings(max_examples=examples(20))
@given(words, st.integers(0, 99), st.integers(0, 99))
def test_different_number_is_a_different_object(name: str, one: int, other: int) -> None:
    """Nodes and pools are numbered, so the next number is no suggestion."""
    assume(one != other)

    assert did_you_mean(f"{name}-{one}", [f"{name}-{other}"]) == ""


def test_similar_parts_of_names() -> None:
    """A common domain alone is not similar, and a missing domain does not matter."""
    assert did_you_mean("nvidia.com/gup", ["cpu", "memory", "nvidia.com/gpu"]) == "nvidia.com/gpu"
    assert did_you_mean("batch-cpu", ["kubernetes.io/batch-cpu"]) == "kubernetes.io/batch-cpu"
    assert did_you_mean("koordinator.sh/rdma", ["koordinator.sh/gpu-core"]) == ""
    assert did_you_mean("example.com/gpu", ["nvidia.com/gpu"]) == ""
    assert did_you_mean("zone-a", ["zone-b"]) == ""
    assert did_you_mean("A100", ["H100"]) == ""
    assert did_you_mean("gpu", []) == ""


def test_a_name_without_domain_means_only_an_equal_one_with_a_domain() -> None:
    """Resources of another vendor are no typing errors of cpu."""
    assert did_you_mean("gpu", ["cpu", "nvidia.com/gpu"]) == "nvidia.com/gpu"
    assert did_you_mean("amd.com/gpu", ["cpu", "memory"]) == ""


def test_names_that_tenants_make_in_any_number_are_not_compared() -> None:
    """An explanation takes no longer because of them."""
    names = [f"team-{chr(97 + n % 26)}{'x' * (n // 26)}" for n in range(MOST_KNOWN - 1)]

    assert did_you_mean("payment", [*names, "payments"]) == "payments"
    assert did_you_mean("payment", [*names, "payments", "one-more"]) == ""
