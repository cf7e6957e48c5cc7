"""Layout of CPUs: cores, NUMA nodes, sockets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.machines import cpu_infos, machine

from koordinator.api.annotations.numa import CPU_TOPOLOGY, CpuInfo, CpuTopology
from koordinator.api.meta import ObjectMeta
from koordinator.foundation.cpu_list import format_cpu_list, parse_cpu_list
from koordinator.foundation.errors import InputError
from koordinator.foundation.masks import bits_of
from koordinator.scheduler.rules.cpus.layout import CpuLayout, layout_of, read_layout


@st.composite
def details(draw: st.DrawFn) -> list[CpuInfo]:
    """CPUs in any numbering, some of them offline."""
    shape = draw(st.sampled_from(((1, 1, 3, 2), (2, 2, 2, 2), (2, 1, 3, 1), (1, 2, 2, 4))))
    cpus = list(cpu_infos(*shape, split=draw(st.booleans())))
    ids = draw(st.permutations([cpu.id for cpu in cpus]))
    online = draw(st.integers(1, len(cpus)))
    return [
        CpuInfo(id=number, core=cpu.core, socket=cpu.socket, node=cpu.node)
        for number, cpu in list(zip(ids, cpus, strict=True))[:online]
    ]


@given(details(), st.integers(0, 1 << 16))
def test_cores_and_their_cpus_are_found_in_any_numbering(detail: list[CpuInfo], some: int) -> None:
    """Masks give what a walk over all CPUs would."""
    layout = layout_of(detail)
    assert layout is not None
    cpus = some & layout.cpus
    chosen = {cpu.core for cpu in detail if cpus >> cpu.id & 1}
    among: dict[int, int] = dict.fromkeys((cpu.core for cpu in detail), 0)
    for cpu in detail:
        among[cpu.core] += cpus >> cpu.id & 1

    cores = layout.cores_of(cpus)

    assert cores.bit_count() == len(chosen)
    assert set(bits_of(layout.cpus_of(cores))) == {c.id for c in detail if c.core in chosen}
    by_count = [cores.bit_count() for cores in layout.cores_by_count(cpus)]
    assert by_count == [list(among.values()).count(n) for n in range(len(by_count))]
    ranks = layout.threads(cpus)
    assert sum(layout.thread(part, rank) for rank, part in enumerate(ranks)) == cpus


def test_a_machine_with_hyper_threads() -> None:
    """Two sockets, a NUMA node each, four cores of two CPUs."""
    layout = machine(2, 1, 4, 2)

    assert {n: format_cpu_list(cpus) for n, cpus in layout.numa_nodes.items()} == {
        0: "0-7",
        1: "8-15",
    }
    assert (layout.cpus_per_core, layout.cpus_per_numa_node, layout.cpus_per_socket) == (2, 8, 8)
    assert format_cpu_list(layout.cpus_of(layout.cores_of(parse_cpu_list("1,14")))) == "0-1,14-15"


def test_core_ids_count_per_socket() -> None:
    """Core 0 of socket 0 and core 0 of socket 1 are two."""
    layout = layout_of(
        [CpuInfo(id=0, core=0, socket=0, node=0), CpuInfo(id=1, core=0, socket=1, node=0)]
    )

    assert layout is not None
    assert layout.cores == 0b11


def annotation(layout_shape: tuple[int, int, int, int]) -> ObjectMeta:
    """Return what koordlet writes."""
    detail = tuple(cpu_infos(*layout_shape))
    return ObjectMeta(annotations=CPU_TOPOLOGY.entry(CpuTopology(detail=detail)))


def test_equal_nodes_share_one_layout() -> None:
    """Nodes that list their CPUs in another order share it as well."""
    first: CpuLayout | None = read_layout(annotation((2, 1, 4, 2)))

    assert read_layout(annotation((2, 1, 4, 2))) is first
    assert layout_of(reversed([*cpu_infos(2, 1, 4, 2)])) is first
    assert read_layout(annotation((2, 1, 4, 1))) is not first


@pytest.mark.parametrize("meta", [ObjectMeta(), annotation((0, 0, 0, 0))])
def test_a_node_that_names_no_cpus_has_no_layout(meta: ObjectMeta) -> None:
    """The scheduler then binds no CPUs there."""
    assert read_layout(meta) is None


@pytest.mark.parametrize(
    ("detail", "path"),
    [
        ([(0, 0, 0, 0), (0, 1, 0, 0)], "detail.id"),
        ([(-1, 0, 0, 0)], "detail.id"),
        ([(0, 0, 0, 0), (1, 0, 0, 1)], "detail.node"),
    ],
)
def test_impossible_machines_are_refused(
    detail: list[tuple[int, int, int, int]], path: str
) -> None:
    """A CPU twice, a negative id, a core in two NUMA nodes."""
    cpus = [CpuInfo(id=i, core=c, socket=s, node=n) for i, c, s, n in detail]
    meta = ObjectMeta(annotations=CPU_TOPOLOGY.entry(CpuTopology(detail=tuple(cpus))))

    with pytest.raises(InputError) as refusal:
        read_layout(meta)

    assert refusal.value.path == f"{CPU_TOPOLOGY.path}.{path}"
