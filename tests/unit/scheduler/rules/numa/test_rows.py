"""Many nodes at once give the answers of one after the other."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.machines import GIB, machine, numa_node
from tests.unit.scheduler.rules.numa.holding_score import score_allocation

from koordinator.api.annotations.numa import CpuBindPolicy, NumaTopologyPolicy
from koordinator.scheduler.rules.cpus.binding import CpuBinding
from koordinator.scheduler.rules.numa.align import align
from koordinator.scheduler.rules.numa.align_kernel import align_and_score, kernel_request
from koordinator.scheduler.rules.numa.ledger import NumaAllocation, NumaLedger
from koordinator.scheduler.rules.numa.node import NumaNode, NumaRequest
from koordinator.scheduler.rules.numa.rows import NumaRows, fits_of
from koordinator.scheduler.rules.numa.rows_align import OtherHints, align_rows, score_rows
from koordinator.scheduler.rules.numa.trial import NumaTrial
from koordinator.scheduler.rules.numa.zone_scorer import ZoneScorer, resource_hints

RESOURCES = ("cpu", "memory", "hugepages-2Mi")
RESTRICTED, SINGLE = NumaTopologyPolicy.RESTRICTED, NumaTopologyPolicy.SINGLE_NUMA_NODE
FULL, SPREAD = CpuBindPolicy.FULL_PCPUS, CpuBindPolicy.SPREAD_BY_PCPUS
SCORER = ZoneScorer({"cpu": 1, "memory": 2, "hugepages-2Mi": 1}, pack=True)


@st.composite
def numa_nodes(draw: st.DrawFn) -> NumaNode:
    """One to four NUMA nodes, partly taken, some amplified, some with huge pages."""
    layout = machine(
        *draw(st.sampled_from(((1, 1, 4, 2), (2, 1, 4, 2), (1, 2, 4, 1), (2, 2, 2, 2))))
    )
    ledger, free = NumaLedger(), layout.cpus
    for number in range(draw(st.integers(0, 3))):
        cpus = draw(st.integers(0, layout.cpus)) & free & draw(st.integers(0, layout.cpus))
        free &= ~cpus
        zones = {
            zone: {"cpu": (cpus & own).bit_count() * 1000, "memory": draw(st.integers(0, 20)) * GIB}
            for zone, own in layout.numa_nodes.items()
        }
        ledger.add(str(number), NumaAllocation(cpus, zones))
    node = numa_node(layout, ledger)
    zones = {
        zone: {**here, "hugepages-2Mi": 8 << 21} if draw(st.booleans()) else dict(here)
        for zone, here in node.zones.items()
    }
    unusable = draw(st.sampled_from((0, 0b1001)))
    return replace(
        node, zones=zones, unusable=unusable, cpu_ratio=draw(st.sampled_from((1.0, 1.5)))
    )


@st.composite
def requests(draw: st.DrawFn) -> NumaRequest:
    count, policy = draw(st.integers(1, 8)), draw(st.sampled_from((FULL, SPREAD)))
    bindings = (None, CpuBinding(count, policy, True), CpuBinding(count, policy, False))
    amounts = {"cpu": count * 1000, "memory": draw(st.integers(1, 80)) * GIB}
    more = draw(st.sampled_from(({}, {"hugepages-2Mi": 2 << 21}, {"example.com/x": 1})))
    return NumaRequest({**amounts, **more}, draw(st.sampled_from(bindings)))


@pytest.mark.slow
@given(
    st.lists(numa_nodes(), min_size=1, max_size=6),
    requests(),
    st.sampled_from((RESTRICTED, SINGLE)),
    st.sampled_from(("", "Required")),
)
def test_rows_answer_as_trials_do(
    nodes: list[NumaNode], request: NumaRequest, policy: NumaTopologyPolicy, exclusive: str
) -> None:
    """Fitting sets, chosen set and score are equal; SingleNUMANode needs single sets only."""
    rows = NumaRows.of(nodes, RESOURCES)
    fits = fits_of(rows, request)
    got = align_rows(rows, request, fits, policy, SCORER, exclusive=exclusive)
    scores = score_rows(rows, request, fits, got, SCORER)

    for row, node in enumerate(nodes):
        trial = NumaTrial(node, request)
        for fit in fits.sets:
            exists = fit.zones & ~node.machine.all_zones == 0
            assert bool(fit.fits[row]) == (exists and trial.fits(fit.zones))
        want = align(policy, [resource_hints(trial, policy, SCORER)], node.machine, exclusive)
        assert bool(got.admitted[row]) == want.admitted
        assert int(got.zones[row]) == (want.zones or 0)
        if want.zones:
            allocation = trial.allocate(want.zones)
            assert isinstance(allocation, NumaAllocation)
            assert scores[row] == score_allocation(trial, allocation, SCORER)
    if policy is SINGLE:
        few = align_rows(
            rows, request, fits_of(rows, request, largest=1), policy, SCORER, exclusive=exclusive
        )
        assert np.array_equal(few.admitted, got.admitted)
        assert np.array_equal(few.zones, got.zones)


@st.composite
def opinions(draw: st.DrawFn, rows: int, sets: int) -> OtherHints | None:
    """Return what a plugin with devices might say."""
    if draw(st.booleans()):
        return None
    flags = st.lists(
        st.lists(st.booleans(), min_size=sets, max_size=sets), min_size=rows, max_size=rows
    )
    prefers = np.array(draw(flags), bool).reshape(rows, sets)
    named = np.repeat(np.array([[draw(st.booleans())] for _ in range(rows)]), sets, axis=1)
    return OtherHints(prefers | ~named, named, (prefers & named) * 500)


@pytest.mark.slow
@settings(deadline=None)
@given(
    st.lists(numa_nodes(), min_size=1, max_size=6),
    requests(),
    st.sampled_from((RESTRICTED, SINGLE)),
    st.sampled_from(("", "Required")),
    st.data(),
)
def test_the_compiled_loop_agrees(
    nodes: list[NumaNode],
    request: NumaRequest,
    policy: NumaTopologyPolicy,
    exclusive: str,
    data: st.DataObject,
) -> None:
    """With the array code: who is admitted, which set, which score; for any choice of rows."""
    table = NumaRows.of(nodes, RESOURCES)
    chosen = np.array(
        data.draw(st.lists(st.integers(0, len(nodes) - 1), min_size=1, max_size=8)), np.int64
    )
    rows = table.select(chosen)
    fits = fits_of(rows, request, largest=1 if policy is SINGLE else 8)
    others = data.draw(opinions(len(chosen), len(fits.sets)))
    want = align_rows(rows, request, fits, policy, SCORER, exclusive=exclusive, others=others)
    scorer = ZoneScorer(SCORER.weights, pack=data.draw(st.booleans()))

    prepared = kernel_request(table, request, policy, (SCORER, scorer), exclusive)
    got = align_and_score(table, chosen, prepared, others)

    assert got.admitted.tolist() == want.admitted.tolist()
    assert got.zones.tolist() == want.zones.tolist()
    assert got.scores.tolist() == score_rows(rows, request, fits, want, scorer).tolist()


def test_devices_have_a_say() -> None:
    """A GPU prefers NUMA node 0 on the first row, node 1 on the second, none on the third."""
    nodes = [numa_node(machine(2, 1, 4, 2)) for _ in range(3)]
    rows, request = NumaRows.of(nodes, RESOURCES), NumaRequest({"cpu": 1000})
    fits = fits_of(rows, request, largest=1)
    prefers = np.array([[True, False], [False, True], [False, False]])

    got = align_rows(
        rows, request, fits, SINGLE, SCORER, others=OtherHints(prefers, prefers, prefers * 500)
    )

    assert got.admitted.tolist() == [True, True, False]
    assert got.zones.tolist() == [0b01, 0b10, 0]


def test_a_row_is_rewritten_when_its_node_changes() -> None:
    """Nothing of the node before is left."""
    small, large = numa_node(machine(1, 1, 4, 2)), numa_node(machine(2, 2, 2, 2))
    rows = NumaRows.of([large, small], RESOURCES)
    rows.set(0, small)

    assert rows.exists.tolist() == [[True, False, False, False]] * 2
    assert np.array_equal(rows.capacity[0], rows.capacity[1])


@pytest.mark.slow
@given(numa_nodes())
def test_what_pods_hold_is_written_as_if_the_row_were_new(node: NumaNode) -> None:
    """Earlier allocations on the row have no influence."""
    layout = node.layout
    assert layout is not None
    before = NumaLedger()
    for zone, cpus in layout.numa_nodes.items():
        before.add(f"{zone}", NumaAllocation(cpus, {zone: {"cpu": 1000, "memory": 3 * GIB}}))
    before.add("all", NumaAllocation(layout.cpus))
    rows = NumaRows.of([replace(node, ledger=before)], RESOURCES)

    rows.set_usage(0, node)

    new = NumaRows.of([node], RESOURCES)
    assert rows.numbers.tolist() == new.numbers.tolist()
    assert rows.flags.tolist() == new.flags.tolist()


def test_a_node_with_too_many_numa_nodes_has_no_row() -> None:
    """The node is evaluated alone."""
    many = numa_node(machine(1, 12, 1, 1))
    rows = NumaRows.of([many], RESOURCES)

    assert not rows.holds(many)
    request = NumaRequest({"example.com/x": 1})
    fits = fits_of(rows, request, largest=1)
    assert not align_rows(rows, request, fits, SINGLE, SCORER).admitted.any()
