"""Ledger of the NUMA amounts and CPUs of a node."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.machines import GIB, machine, numa_node

from koordinator.api.annotations.numa import (
    RESOURCE_SPEC,
    RESOURCE_STATUS,
    CpuBindPolicy,
    CpuBindSpec,
    CpuExclusivePolicy,
)
from koordinator.api.meta import ObjectMeta
from koordinator.foundation.cpu_list import parse_cpu_list
from koordinator.foundation.errors import InputError
from koordinator.foundation.quantity import Notation
from koordinator.scheduler.rules.cpus.binding import CpuBinding
from koordinator.scheduler.rules.numa.align import ZoneState
from koordinator.scheduler.rules.numa.ledger import NumaAllocation, NumaLedger, read_allocation
from koordinator.scheduler.rules.numa.node import NOTHING, NumaRequest
from koordinator.scheduler.rules.numa.trial import NumaTrial

LAYOUT = machine(2, 2, 2, 2)
STATUS = RESOURCE_STATUS.key


def annotated(allocation: NumaAllocation) -> ObjectMeta:
    """Return a pod's metadata as the scheduler leaves it."""
    spec = CpuBindSpec(preferred_cpu_exclusive_policy=allocation.exclusive_policy)
    status = RESOURCE_STATUS.entry(allocation.status())
    return ObjectMeta(annotations={**status, **RESOURCE_SPEC.entry(spec)})


@st.composite
def filled(draw: st.DrawFn) -> NumaLedger:
    """Pods of all kinds, one after the other, as long as they find room."""
    ledger = NumaLedger()
    node = numa_node(LAYOUT, ledger, memory_gib=8)
    for number in range(draw(st.integers(1, 8))):
        count = draw(st.integers(1, 4))
        policy = draw(st.sampled_from((CpuBindPolicy.FULL_PCPUS, CpuBindPolicy.SPREAD_BY_PCPUS)))
        exclusive = draw(st.sampled_from((*CpuExclusivePolicy, "")))
        binding = CpuBinding(count, policy, draw(st.booleans()), exclusive)
        amounts = {"cpu": count * 1000, "memory": draw(st.integers(1, 6)) * GIB}
        request = NumaRequest(amounts, draw(st.sampled_from((None, binding))))
        got = NumaTrial(node, request).allocate(draw(st.sampled_from((None, 0b1, 0b110, 0b1111))))
        if isinstance(got, NumaAllocation):
            ledger.add(str(number), got)
    return ledger


@pytest.mark.slow
@given(filled(), st.data())
def test_a_ledger_is_rebuilt_from_annotations_in_any_order(
    ledger: NumaLedger, data: st.DataObject
) -> None:
    """The scheduler restarts and finds everything as it was."""
    again = NumaLedger()
    for uid in data.draw(st.permutations(list(ledger.allocations))):
        allocation = read_allocation(annotated(ledger.allocations[uid]), [])
        if allocation is not None:
            again.add(uid, allocation)

    again.validate()
    assert again.zones == ledger.zones
    before, after = (numa_node(LAYOUT, each) for each in (ledger, again))
    assert after.free_cpus(NOTHING) == before.free_cpus(NOTHING)
    assert after.machine == before.machine


@pytest.mark.slow
@given(filled())
def test_allocations_are_disjoint_and_released_completely(ledger: NumaLedger) -> None:
    """At every moment on the way back to empty the sums are right."""
    node = numa_node(LAYOUT, ledger, memory_gib=8)
    allocations = list(ledger.allocations.items())
    all_cpus = [allocation.cpus for _, allocation in allocations]
    assert sum(cpus.bit_count() for cpus in all_cpus) == ledger.cpus.in_use.bit_count()
    for zone, amounts in ledger.zones.items():
        assert all(amount <= node.zones[zone][name] for name, amount in amounts.items())

    for uid, _ in allocations:
        ledger.remove(uid)
        ledger.validate()

    assert (ledger.zones, ledger.cpus.in_use) == ({}, 0)
    assert node.available({}) == node.zones


def test_the_annotation_that_koordlet_reads() -> None:
    """Amounts as users write them; parts that are empty are left out."""
    allocation = NumaAllocation(
        parse_cpu_list("4-7"),
        {1: {"cpu": 3_500}, 0: {"cpu": 4_000, "memory": 8 * GIB, "kubernetes.io/batch-cpu": 500}},
    )

    assert RESOURCE_STATUS.write(allocation.status()) == (
        '{"cpuset":"4-7","numaNodeResources":['
        '{"node":0,"resources":{"cpu":"4","kubernetes.io/batch-cpu":"500","memory":"8Gi"}},'
        '{"node":1,"resources":{"cpu":"3500m"}}]}'
    )
    decimal = NumaAllocation(zones={0: {"memory": 8_000_000_000}})
    assert RESOURCE_STATUS.write(decimal.status({"memory": Notation.DECIMAL_SI})) == (
        '{"numaNodeResources":[{"node":0,"resources":{"memory":"8G"}}]}'
    )


def test_pods_by_numa_node() -> None:
    """Only CPUs of their own count; a pod on two NUMA nodes shares both."""
    ledger = NumaLedger()
    ledger.add("one", NumaAllocation(parse_cpu_list("0-1")))
    ledger.add("two", NumaAllocation(parse_cpu_list("4,8")))
    ledger.add("none", NumaAllocation(zones={3: {"cpu": 1_000}}))
    single, shared, idle = ZoneState.SINGLE, ZoneState.SHARED, ZoneState.IDLE

    assert ledger.states(LAYOUT, range(4)) == {0: single, 1: shared, 2: shared, 3: idle}
    ledger.add("one", NumaAllocation(parse_cpu_list("5")))
    assert ledger.states(LAYOUT, range(4)) == {0: idle, 1: shared, 2: shared, 3: idle}
    ledger.remove("two")
    assert ledger.states(LAYOUT, range(4)) == {0: idle, 1: single, 2: idle, 3: idle}
    assert ledger.states(None, range(2)) == {0: idle, 1: idle}


@pytest.mark.parametrize(
    "annotations",
    [
        {},
        {STATUS: "{}"},
        {STATUS: '{"cpuset":""}'},
        {STATUS: '{"numaNodeResources":[{"node":0},{"node":1,"resources":{"cpu":"0"}}]}'},
    ],
)
def test_a_pod_that_holds_nothing(annotations: dict[str, str]) -> None:
    """Most pods."""
    assert read_allocation(ObjectMeta(annotations=annotations), []) is None


def test_a_broken_annotation_is_named() -> None:
    """With the field."""
    problems: list[InputError] = []

    assert read_allocation(ObjectMeta(annotations={STATUS: '{"cpuset":"4-"}'}), problems) is None
    assert [problem.path for problem in problems] == [f"{RESOURCE_STATUS.path}.cpuset"]


def test_an_unused_numa_node_does_not_count() -> None:
    """Two pods that name it come and go."""
    ledger = NumaLedger()
    text = '{"cpuset":"4-7","numaNodeResources":[{"node":0}]}'
    allocation = read_allocation(ObjectMeta(annotations={STATUS: text}), [])
    assert allocation is not None
    for uid in "ab":
        ledger.add(uid, allocation)
    for uid in "ab":
        ledger.remove(uid)

    assert not ledger.zones


def test_cpus_are_in_use_with_any_policy() -> None:
    """No CPU is given to a second pod."""
    problems: list[InputError] = []
    meta = ObjectMeta(annotations={STATUS: '{"cpuset":"4-7"}', RESOURCE_SPEC.key: "broken"})

    assert read_allocation(meta, problems) == NumaAllocation(parse_cpu_list("4-7"))
    assert [problem.path for problem in problems] == [RESOURCE_SPEC.path]
