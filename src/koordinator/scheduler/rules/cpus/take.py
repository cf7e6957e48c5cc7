"""Which CPUs a pod gets: the choice of the original, made on bit masks.

1. FullPCPUs, or CPUs without siblings: cores of which nothing is taken, from one NUMA node, else
   from one socket, else whole sockets and then core by core.
2. Every other policy: one NUMA node, else one socket; first one CPU per core and away from
   exclusive pods, then as it comes.
3. What is missing, from anywhere, near the CPUs taken so far.

Source: koordinator pkg/scheduler/plugins/nodenumaresource/cpu_accumulator.go, ``takeCPUs``,
``takePreferredCPUs``.  One difference: for an odd number of CPUs on three sockets or more, the
original can take one too many.
"""

from koordinator.api.annotations.numa import CpuBindPolicy
from koordinator.scheduler.rules.cpus.accumulator import CpuAccumulator, CpuPreference
from koordinator.scheduler.rules.cpus.free_cpus import FreeCpus
from koordinator.scheduler.rules.cpus.full_cores import take_full_cores
from koordinator.scheduler.rules.cpus.layout import CpuLayout
from koordinator.scheduler.rules.cpus.spread import (
    take_anywhere,
    take_spread_in_numa_node,
    take_spread_in_socket,
)


def take_cpus(
    layout: CpuLayout, free: FreeCpus, count: int, preference: CpuPreference
) -> int | None:
    """Return exactly ``count`` of the free CPUs; None if there are fewer."""
    if count > free.cpus.bit_count():
        return None
    taking = CpuAccumulator(layout, free, count, preference)
    full_cores = preference.bind_policy == CpuBindPolicy.FULL_PCPUS
    if taking.need > 0 and (full_cores or layout.cpus_per_core == 1):
        take_full_cores(taking)
    if taking.need > 0 and not full_cores:
        take_spread_in_numa_node(taking)
    if taking.need > 0 and not full_cores:
        take_spread_in_socket(taking)
    if taking.need > 0:
        take_anywhere(taking)
    return taking.taken


def take_preferred_cpus(
    layout: CpuLayout, free: FreeCpus, preferred: int, count: int, preference: CpuPreference
) -> int | None:
    """Return ``count`` of the free CPUs, as many as possible of them preferred; None if too few.

    The preferred ones are those of a reservation.
    """
    if not preferred & free.cpus:
        return take_cpus(layout, free, count, preference)
    reserved = free.within(preferred)
    taken = take_cpus(layout, reserved, min(count, reserved.cpus.bit_count()), preference) or 0
    others = take_cpus(layout, free.without(preferred), count - taken.bit_count(), preference)
    return None if others is None else taken | others
