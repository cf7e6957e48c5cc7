"""CPUs that remain under a required bind policy."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.machines import machine

from koordinator.api.annotations.numa import CpuBindPolicy
from koordinator.foundation.cpu_list import format_cpu_list, parse_cpu_list
from koordinator.scheduler.rules.cpus.binding import obeys, usable_under

FULL, SPREAD = CpuBindPolicy.FULL_PCPUS, CpuBindPolicy.SPREAD_BY_PCPUS
LAYOUT = machine(2, 1, 4, 2)


@pytest.mark.parametrize(
    ("policy", "usable"), [(FULL, "2-3,6-7"), (SPREAD, "0,2,5-6"), ("", "0,2-3,5-7")]
)
def test_required_policy_limits_the_usable_cpus(policy: str, usable: str) -> None:
    """Full cores; the lowest free CPU of each core; any."""
    assert format_cpu_list(usable_under(policy, LAYOUT, parse_cpu_list("0,2-3,5-7"))) == usable


@pytest.mark.parametrize(
    ("policy", "cpus", "obeyed"),
    [
        (FULL, "0-3", True),
        (FULL, "0-2", False),
        (SPREAD, "0,2,5", True),
        (SPREAD, "0-1", False),
        ("", "0-2", True),
    ],
)
def test_a_choice_obeys_or_not(policy: str, cpus: str, obeyed: bool) -> None:
    """Whole cores, or one CPU each."""
    assert obeys(policy, LAYOUT, parse_cpu_list(cpus)) is obeyed


@given(st.integers(0, LAYOUT.cpus), st.sampled_from((FULL, SPREAD, "")))
def test_all_that_is_usable_obeys(free: int, policy: str) -> None:
    """Usable CPUs are free and satisfy the policy."""
    usable = usable_under(policy, LAYOUT, free)

    assert usable & ~free == 0
    assert obeys(policy, LAYOUT, usable)
