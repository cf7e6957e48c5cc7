"""Sums over topology domains: compiled loops and array code agree."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tests.examples import examples

from koordinator.scheduler.rules.topology_domains import crowding, domain_sums, pods_around


@st.composite
def clusters(draw: st.DrawFn) -> tuple[int, dict[str, Any]]:
    """Draw the number of domains, and columns of up to 12 nodes."""
    nodes, number = draw(st.integers(0, 12)), draw(st.integers(0, 4))
    columns = {
        "domains": draw(arrays(np.int32, nodes, elements=st.integers(-1, number - 1))),
        "pods": draw(arrays(np.int64, nodes, elements=st.integers(0, 1 << 40))),
        "counted": draw(arrays(np.bool_, nodes)),
        "feasible": np.flatnonzero(draw(arrays(np.bool_, nodes))),
    }
    columns["considered"] = draw(arrays(np.bool_, len(columns["feasible"])))
    return number, columns


@pytest.mark.slow
@settings(max_examples=examples(100), deadline=None)
@given(cluster=clusters())
def test_compiled_sums_equal_array_code(cluster: tuple[int, dict[str, Any]]) -> None:
    """Nodes without the label, domains without nodes and empty clusters included."""
    number, one = cluster
    domains, pods, counted = one["domains"], one["pods"], one["counted"]
    by_domain: Any = (domains, number, pods, counted)
    among: Any = (*by_domain, one["feasible"], one["considered"])

    kernels: Any = (
        (domain_sums, by_domain),
        (crowding, among),
        (pods_around, (domains, number, pods)),
    )
    for kernel, arguments in kernels:
        expected, compiled = kernel.reference(*arguments), kernel.compiled(*arguments)
        if kernel is pods_around:
            expected, compiled = (expected,), (compiled,)
        for own, other in zip(expected, compiled, strict=True):
            assert np.array_equal(own, other)


def test_pods_are_summed_over_the_domain_of_each_node() -> None:
    """A node without the label is in no domain, and has no pods around it."""
    domains, pods = np.array([0, 1, 0, -1], np.int32), np.array([1, 2, 4, 8])

    assert pods_around.reference(domains, 2, pods).tolist() == [5, 2, 5, 0]
    sums, present = domain_sums.reference(domains, 2, pods, np.array([True, False, True, True]))
    assert sums.tolist() == [5, 0, 0]
    assert present.tolist() == [True, False, False]
    counts, size = crowding.reference(
        *(domains, 2, pods, np.ones(4, bool), np.array([1, 2, 3]), np.array([True, True, False]))
    )
    assert counts.tolist() == [2, 5, 0]
    assert size == 2
