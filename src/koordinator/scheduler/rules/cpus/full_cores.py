"""Take cores of which nothing is taken."""

from koordinator.foundation.cpu_list import lowest
from koordinator.scheduler.rules.cpus.accumulator import CpuAccumulator, with_and_without


def take_full_cores(taking: CpuAccumulator) -> None:
    """Take full cores of one NUMA node, else of one socket, else of several sockets.

    What is still needed then is less than a core, or there are no full cores any more.
    """
    _take_in_numa_node(taking)
    if taking.need:
        _take_in_sockets(taking)


def _take_in_numa_node(taking: CpuAccumulator) -> None:
    layout, sign = taking.layout, taking.sign
    if taking.need > layout.cpus_per_numa_node:
        return
    for barred in with_and_without(taking.barred_numa_nodes()):
        cpus = taking.free.cpus & ~barred
        full = layout.whole_cores(cpus)
        ranked = []
        for node, members in layout.numa_nodes.items():
            cores = full & members
            if cores.bit_count() * layout.cpus_per_core >= taking.need:
                near = (cpus & layout.home_sockets[node]).bit_count()
                ranked.append((sign * cores.bit_count(), sign * near, node, cores))
        if ranked:
            taking.take(_first_cpus(taking, min(ranked)[3], taking.need))
            return


def _take_in_sockets(taking: CpuAccumulator) -> None:
    """Take from the one socket that has enough, else swallow the sockets with the most.

    The rest comes from the socket with the fewest, as long as it makes a core.
    """
    layout, per_core = taking.layout, taking.layout.cpus_per_core
    full = layout.whole_cores(taking.free.cpus)
    sockets = [cores for socket in layout.sockets if (cores := full & socket)]
    enough = [cores for cores in sockets if cores.bit_count() * per_core >= taking.need]
    if enough and taking.need <= layout.cpus_per_socket:
        best = min(enough, key=lambda cores: taking.sign * cores.bit_count())
        taking.take(_first_cpus(taking, best, taking.need))
        return
    left = []
    for cores in sorted(sockets, key=int.bit_count, reverse=True):
        if cores.bit_count() * per_core > taking.need:
            left.append(cores)
        else:
            taking.take(layout.cpus_of(cores) & taking.free.cpus)
    if left:
        fewest = min(left, key=int.bit_count)
        taking.take(_first_cpus(taking, fewest, taking.need - taking.need % per_core))


def _first_cpus(taking: CpuAccumulator, cores: int, count: int) -> int:
    """Return the first ``count`` free CPUs, core after core."""
    layout, free = taking.layout, taking.free.cpus
    chosen = 0
    for part in taking.in_order(cores):
        whole = lowest(part, count // layout.cpus_per_core)
        chosen |= layout.cpus_of(whole) & free
        count -= whole.bit_count() * layout.cpus_per_core
        rest = part & ~whole
        if rest:
            return chosen | lowest(layout.cpus_of(rest & -rest) & free, count)
    return chosen
