"""CPU topology of a node: sockets, NUMA nodes, cores.

Source: koordinator pkg/scheduler/plugins/nodenumaresource/cpu_topology.go.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from koordinator.api.annotations.numa import CPU_TOPOLOGY, CpuInfo
from koordinator.api.meta import ObjectMeta
from koordinator.foundation.cpu_list import CPU_LIMIT
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass

KEEP_LAYOUTS = 1024


@dataclass(frozen=True, slots=True, eq=False)
class CpuLayout:
    """All logical CPUs of a node.  Interned: nodes of equal hardware share one.

    A set of CPUs is a mask.  A set of *cores* is a mask of the lowest CPU of each: cores and CPUs
    share one bit space, and the other CPUs of a core are a few shifts away.
    """

    cpus: int
    cores: int
    numa_nodes: Mapping[int, int]  # id -> its CPUs, ascending by id
    sockets: tuple[int, ...]  # CPUs of each, ascending by id
    home_sockets: Mapping[int, int]  # NUMA node -> all CPUs of the socket of its first CPU
    cpus_per_core: int  # averages, rounded down
    cpus_per_numa_node: int
    cpus_per_socket: int
    #: Sets of cores whose concatenation, each in ascending order, is sorted by socket, then by core
    #: id.  Usually one set per socket.
    core_order: tuple[int, ...]
    #: (cores, offsets of their CPUs from the lowest one); one entry if all cores are alike.
    siblings: tuple[tuple[int, tuple[int, ...]], ...]

    def threads(self, cpus: int) -> list[int]:
        """Return, by rank, the cores whose CPU of that rank is among ``cpus``.

        The rank of a CPU is its index in its core, the lowest first.
        """
        ranks = [0] * max(len(distances) for _, distances in self.siblings)
        for cores, distances in self.siblings:
            for rank, distance in enumerate(distances):
                ranks[rank] |= (cpus >> distance) & cores
        return ranks

    def thread(self, cores: int, rank: int) -> int:
        """Return the CPUs of a rank of some cores."""
        cpus = 0
        for members, distances in self.siblings:
            if rank < len(distances):
                cpus |= (cores & members) << distances[rank]
        return cpus

    def cpus_of(self, cores: int) -> int:
        """Return all CPUs of some cores."""
        cpus = 0
        for members, distances in self.siblings:
            members_on_node = cores & members
            if members_on_node:
                for distance in distances:
                    cpus |= members_on_node << distance
        return cpus

    def cores_of(self, cpus: int) -> int:
        """Return the cores that contain any of the CPUs."""
        cores = 0
        for among in self.threads(cpus):
            cores |= among
        return cores

    def cores_by_count(self, cpus: int) -> list[int]:
        """Return, by number k, the cores that contain exactly k of the CPUs."""
        exactly = [self.cores]
        for among in self.threads(cpus):
            more = [cores & among for cores in exactly]
            exactly = [cores & ~among for cores in exactly] + [0]
            for number, cores in enumerate(more, start=1):
                exactly[number] |= cores
        return exactly

    def whole_cores(self, cpus: int) -> int:
        """Return the cores with exactly ``cpus_per_core`` CPUs among ``cpus``."""
        if len(self.siblings) == 1:  # all cores are alike
            ((cores, distances),) = self.siblings
            for distance in distances:
                cores &= cpus >> distance
            return cores
        by_count = self.cores_by_count(cpus)
        return by_count[self.cpus_per_core]


def read_layout(meta: ObjectMeta) -> CpuLayout | None:
    """Return the layout in a NodeResourceTopology; None if it has none.

    Equal texts are decoded once. Raises InputError for an annotation that can't be parsed or that
    is inconsistent.
    """
    text = meta.annotations.get(CPU_TOPOLOGY.key, "")
    return _decoded(text) if text else None


def layout_of(detail: Iterable[CpuInfo]) -> CpuLayout | None:
    """Return the layout of some CPUs; None if there are none.

    Raises InputError for a duplicate or invalid CPU, and for a core in two NUMA nodes.
    """
    places = tuple(sorted((cpu.id, cpu.core, cpu.socket, cpu.node) for cpu in detail))
    return _interned(places) if places else None


@lru_cache(maxsize=KEEP_LAYOUTS)
def _decoded(text: str) -> CpuLayout | None:
    topology = CPU_TOPOLOGY.read(ObjectMeta(annotations={CPU_TOPOLOGY.key: text}))
    try:
        return layout_of(topology.detail) if topology else None
    except InputError as error:
        raise error.within(path=CPU_TOPOLOGY.path) from None


@lru_cache(maxsize=KEEP_LAYOUTS)
def _interned(places: tuple[tuple[int, int, int, int], ...]) -> CpuLayout:
    cores: dict[tuple[int, int], list[int]] = defaultdict(list)
    sockets: dict[int, int] = defaultdict(int)
    nodes: dict[int, int] = defaultdict(int)
    node_of_core: dict[tuple[int, int], int] = {}
    seen = 0
    for cpu, core, socket, node in places:
        if not 0 <= cpu < CPU_LIMIT or seen >> cpu & 1:
            raise InputError(
                f"must be numbers in 0..{CPU_LIMIT - 1}, each only once, got {cpu}",
                path="detail.id",
            )
        seen |= 1 << cpu
        cores[socket, core].append(cpu)
        sockets[socket] |= 1 << cpu
        nodes[node] |= 1 << cpu
        if node_of_core.setdefault((socket, core), node) != node:
            raise InputError(
                f"CPU {cpu} of core {core} is in NUMA node {node}, another CPU of that core in "
                f"{node_of_core[socket, core]}; a core is in one NUMA node",
                path="detail.node",
            )
    by_socket = tuple(sockets[socket] for socket in sorted(sockets))
    parts = sum(1 for among in nodes.values() for all_cpus in by_socket if among & all_cpus)
    return CpuLayout(
        cpus=seen,
        cores=sum(1 << min(among) for among in cores.values()),
        numa_nodes={node: nodes[node] for node in sorted(nodes)},
        sockets=by_socket,
        home_sockets={
            node: next(all_cpus for all_cpus in by_socket if all_cpus & (among & -among))
            for node, among in nodes.items()
        },
        cpus_per_core=len(places) // len(cores),
        cpus_per_numa_node=len(places) // parts,
        cpus_per_socket=len(places) // len(sockets),
        core_order=_runs([min(cores[key]) for key in sorted(cores)]),
        siblings=_siblings(cores.values()),
    )


def _runs(first_cpus: Sequence[int]) -> tuple[int, ...]:
    """Return the maximal ascending runs as masks."""
    runs = [0]
    for cpu in first_cpus:
        if runs[-1] >> cpu:
            runs.append(0)
        runs[-1] |= 1 << cpu
    return tuple(runs)


def _siblings(cores: Iterable[Sequence[int]]) -> tuple[tuple[int, tuple[int, ...]], ...]:
    alike: dict[tuple[int, ...], int] = defaultdict(int)
    for cpus in cores:
        first = min(cpus)
        alike[tuple(cpu - first for cpu in sorted(cpus))] |= 1 << first
    return tuple((members, distances) for distances, members in alike.items())
