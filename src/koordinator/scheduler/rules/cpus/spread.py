"""Take one CPU of each core before a second one of any."""

from collections.abc import Iterator, Sequence

from koordinator.foundation.cpu_list import lowest
from koordinator.scheduler.rules.cpus.accumulator import CpuAccumulator, first_of, with_and_without
from koordinator.scheduler.rules.cpus.layout import CpuLayout

#: CPUs by number of holders, as in ``FreeCpus.groups``.
Groups = Sequence[int]


def take_spread_in_numa_node(taking: CpuAccumulator) -> None:
    """Take all that is needed from one NUMA node, if one has enough."""
    layout, sign = taking.layout, taking.sign
    if taking.need > layout.cpus_per_numa_node:
        return
    for free, offered in _offers(taking, taking.barred_cores() | taking.barred_numa_nodes()):
        cpus, choice = _union(free), _union(offered)
        ranked = [
            (
                sign * (cpus & members).bit_count(),
                sign * (cpus & layout.home_sockets[node]).bit_count(),
                node,
            )
            for node, members in layout.numa_nodes.items()
            if (choice & members).bit_count() >= taking.need
        ]
        if ranked:
            _take_spread(taking, offered, layout.numa_nodes[min(ranked)[2]])
            return


def take_spread_in_socket(taking: CpuAccumulator) -> None:
    """Take all that is needed from one socket, if one has enough."""
    layout = taking.layout
    if taking.need > layout.cpus_per_socket:
        return
    for _, offered in _offers(taking, taking.barred_cores()):
        choice = _union(offered)
        enough = [
            socket for socket in layout.sockets if (choice & socket).bit_count() >= taking.need
        ]
        if enough:
            best = min(enough, key=lambda socket: taking.sign * (choice & socket).bit_count())
            _take_spread(taking, offered, best)
            return


def take_anywhere(taking: CpuAccumulator) -> None:
    """Take what is missing near what is taken, and from cores that are broken up already."""
    for barred in with_and_without(taking.barred_cores() | taking.barred_numa_nodes()):
        free = [cpus & ~barred for cpus in taking.free.groups]
        ordered = _cores_by_nearness(taking, _union(free))
        if _union(free).bit_count() <= taking.layout.cpus_per_core:
            taking.take(_core_after_core(taking, ordered, free))
            continue
        for groups in _rounds(taking.layout, free):
            cpus = _union(groups)
            for cores in ordered:
                among = taking.layout.cpus_of(cores) & cpus
                if among.bit_count() > taking.need:
                    first = lowest(taking.layout.cores_of(among), taking.need)
                    among &= taking.layout.cpus_of(first)
                taking.take(among)


def _offers(taking: CpuAccumulator, barred: int) -> Iterator[tuple[Groups, Groups]]:
    """Yield (free, offered): one CPU per core away from exclusive pods, then all that is free."""
    free = [cpus & ~barred for cpus in taking.free.groups]
    rounds = _rounds(taking.layout, free)
    if rounds:
        yield free, rounds[0]
    yield taking.free.groups, taking.free.groups


def _take_spread(taking: CpuAccumulator, groups: Groups, area: int) -> None:
    """Take what is needed of an area that has enough."""
    within = [cpus & area for cpus in groups]
    if _union(within).bit_count() <= taking.layout.cpus_per_core:
        taking.take(first_of(within, taking.need))
        return
    for attempt in _rounds(taking.layout, within):
        taking.take(first_of(attempt, taking.need))


def _rounds(layout: CpuLayout, free: Groups) -> list[list[int]]:
    """Return, by k, the k-th CPU of each core in order of holders and ids, as groups."""
    rounds: list[list[int]] = []
    seen = [layout.cores]  # by k: cores of which k CPUs have been seen
    for group, cpus in enumerate(free):
        for rank, among in enumerate(layout.threads(cpus)):
            for attempt in reversed(range(len(seen))):
                cores = seen[attempt] & among
                if cores:
                    if attempt == len(rounds):
                        rounds.append([0] * len(free))
                        seen.append(0)
                    rounds[attempt][group] |= layout.thread(cores, rank)
                    seen[attempt] ^= cores
                    seen[attempt + 1] |= cores
    return rounds


def _cores_by_nearness(taking: CpuAccumulator, cpus: int) -> list[int]:
    """Return the cores that have any of the CPUs, as sets that follow each other.

    First those of the socket of most CPUs taken, then by what is free on socket and NUMA node, then
    those with the fewest free CPUs.
    """
    layout, sign = taking.layout, taking.sign
    by_count = layout.cores_by_count(cpus)
    ranked: dict[tuple[int, ...], int] = {}
    for index, socket in enumerate(layout.sockets):
        if not cpus & socket:
            continue
        near = (taking.taken & socket).bit_count()
        on_socket = (cpus & socket).bit_count()
        for node in layout.numa_nodes.values():
            on_node = (cpus & node).bit_count()
            for count, cores in enumerate(by_count):
                among = cores & socket & node
                if count and among:
                    key = (-near, sign * on_socket, sign * on_node, count, index)
                    ranked[key] = ranked.get(key, 0) | among
    return [part for key in sorted(ranked) for part in taking.in_order(ranked[key])]


def _core_after_core(taking: CpuAccumulator, ordered: Sequence[int], free: Groups) -> int:
    """Return as many CPUs as needed; these few are not spread."""
    chosen = 0
    for cores in ordered:
        left = cores
        while left:
            core = left & -left
            left ^= core
            cpus = taking.layout.cpus_of(core)
            missing = taking.need - chosen.bit_count()
            chosen |= first_of([group & cpus for group in free], missing)
    return chosen


def _union(groups: Groups) -> int:
    everything = 0
    for cpus in groups:
        everything |= cpus
    return everything
