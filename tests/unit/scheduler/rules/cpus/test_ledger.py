"""Ledger of allocated CPUs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.machines import machine

from koordinator.api.annotations.numa import CpuBindPolicy, CpuExclusivePolicy
from koordinator.foundation.cpu_list import format_cpu_list, parse_cpu_list
from koordinator.scheduler.rules.cpus.ledger import CpuLedger, ExclusiveCpus, FreeCpus
from koordinator.scheduler.rules.cpus.take import CpuPreference, take_cpus

LAYOUT = machine(2, 1, 4, 2)
PODS = ("a", "b", "c", "d")

allocations = st.builds(
    ExclusiveCpus, st.integers(0, LAYOUT.cpus), st.sampled_from((*CpuExclusivePolicy, ""))
)


def ledger_of(pods: dict[str, ExclusiveCpus]) -> CpuLedger:
    ledger = CpuLedger()
    for uid, allocation in pods.items():
        ledger.add(uid, allocation)
    return ledger


def states(ledger: CpuLedger) -> list[FreeCpus]:
    """Return all that can be asked of a ledger."""
    return [
        ledger.free(LAYOUT, max_holders=holders, given_back=back)
        for holders in (1, 2, 3)
        for back in ((), (0b1111,), (0b0110, 0b0011))
    ]


@given(st.dictionaries(st.sampled_from(PODS), allocations), st.data())
def test_a_ledger_depends_on_holders_not_on_their_order(
    pods: dict[str, ExclusiveCpus], data: st.DataObject
) -> None:
    """Rebuilt in any order, after pods have come and left, it is the same."""
    order = data.draw(st.permutations(list(pods)))
    ledger = ledger_of({"gone": data.draw(allocations), **{uid: pods[uid] for uid in order}})
    for uid in order:
        ledger.add(uid, data.draw(allocations))
        ledger.add(uid, pods[uid])
    ledger.remove("gone")

    ledger.validate()
    assert states(ledger) == states(ledger_of(pods))


@given(st.dictionaries(st.sampled_from(PODS), allocations))
def test_what_all_pods_give_back_is_whole_again(pods: dict[str, ExclusiveCpus]) -> None:
    """Nothing leaks."""
    ledger = ledger_of(pods)
    for uid in pods:
        ledger.remove(uid)
        ledger.remove(uid)

    assert states(ledger) == states(CpuLedger())
    assert ledger.in_use == 0


@given(
    st.integers(1, 3),
    st.lists(st.tuples(st.integers(1, 9), st.sampled_from((*CpuBindPolicy,))), max_size=12),
)
def test_no_cpu_has_more_holders_than_allowed(
    max_holders: int, wishes: list[tuple[int, CpuBindPolicy]]
) -> None:
    """Pods come as long as there is room; every CPU is counted."""
    ledger, in_use = CpuLedger(), dict.fromkeys(range(16), 0)
    for number, (count, policy) in enumerate(wishes):
        free = ledger.free(LAYOUT, max_holders=max_holders)
        cpus = take_cpus(LAYOUT, free, count, CpuPreference(policy))
        if cpus is None:
            assert sum(n < max_holders for n in in_use.values()) < count
            continue
        ledger.add(str(number), ExclusiveCpus(cpus))
        for cpu in in_use:
            in_use[cpu] += cpus >> cpu & 1

    assert max(in_use.values()) <= max_holders


def test_a_holder_less_makes_room_for_a_pod_of_the_reservation() -> None:
    """CPU 1 is held twice, by a reservation and its owner: it has to be given back twice."""
    ledger = ledger_of({"reservation": ExclusiveCpus(0b111), "owner": ExclusiveCpus(0b010)})

    def free(*given_back: int) -> str:
        return format_cpu_list(ledger.free(LAYOUT, given_back=given_back).cpus)

    assert free() == "3-15"
    assert free(0b111) == "0,2-15"
    assert free(0b111, 0b010) == "0-15"
    assert format_cpu_list(ledger.in_use_without(0b111)) == "1"


def test_cpus_out_of_bounds_are_never_free() -> None:
    """Releasing such CPUs does not make them free."""
    ledger = ledger_of({"a": ExclusiveCpus(0b11)})

    free = ledger.free(LAYOUT, unusable=parse_cpu_list("0,4-15"), given_back=(0b11,))

    assert format_cpu_list(free.cpus) == "1-3"


@pytest.mark.parametrize(
    ("policy", "in_core", "in_numa_node"),
    [(CpuExclusivePolicy.PCPU_LEVEL, 0b11, 0), (CpuExclusivePolicy.NUMA_NODE_LEVEL, 0, 0b11)],
)
def test_exclusive_cpus_are_known_by_policy(
    policy: CpuExclusivePolicy, in_core: int, in_numa_node: int
) -> None:
    """As long as a pod uses them."""
    ledger = ledger_of({"a": ExclusiveCpus(0b11, policy), "b": ExclusiveCpus(0b1, "None")})

    free = ledger.free(LAYOUT)
    assert (free.core_exclusive, free.numa_exclusive) == (in_core, in_numa_node)
    back = ledger.free(LAYOUT, given_back=(0b10,))
    assert (back.core_exclusive, back.numa_exclusive) == (in_core & 1, in_numa_node & 1)
