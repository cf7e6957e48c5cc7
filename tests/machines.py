"""Machines with CPUs and NUMA nodes, for tests."""

from collections.abc import Iterator

from koordinator.api.annotations.numa import CpuInfo
from koordinator.foundation.cpu_list import parse_cpu_list
from koordinator.scheduler.rules.cpus.layout import CpuLayout, layout_of
from koordinator.scheduler.rules.numa.ledger import NumaLedger
from koordinator.scheduler.rules.numa.node import NumaNode

GIB = 1 << 30


def cpu_infos(
    sockets: int, numa_per_socket: int, cores_per_numa: int, threads: int, *, split: bool = False
) -> Iterator[CpuInfo]:
    """Yield the CPUs; siblings are neighbours, or, split, half the machine apart."""
    cores = sockets * numa_per_socket * cores_per_numa
    for core in range(cores):
        node = core // cores_per_numa
        for thread in range(threads):
            cpu = thread * cores + core if split else core * threads + thread
            yield CpuInfo(id=cpu, core=core, socket=node // numa_per_socket, node=node)


def machine(
    sockets: int,
    numa_per_socket: int,
    cores_per_numa: int,
    threads: int,
    *,
    split: bool = False,
    offline: str = "",
) -> CpuLayout:
    """Return a regular layout, without some CPUs."""
    missing = parse_cpu_list(offline)
    cpus = cpu_infos(sockets, numa_per_socket, cores_per_numa, threads, split=split)
    layout = layout_of(cpu for cpu in cpus if not missing >> cpu.id & 1)
    assert layout is not None
    return layout


def numa_node(
    layout: CpuLayout, ledger: NumaLedger | None = None, *, memory_gib: int = 64
) -> NumaNode:
    """Return a node whose NUMA nodes report their CPUs and some memory."""
    zones = {
        zone: {"cpu": cpus.bit_count() * 1000, "memory": memory_gib * GIB}
        for zone, cpus in layout.numa_nodes.items()
    }
    return NumaNode(layout, ledger or NumaLedger(), zones)
