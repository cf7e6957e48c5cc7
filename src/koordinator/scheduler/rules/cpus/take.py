"""Choice of CPUs for a pod: the original's algorithm on bit masks.

1. FullPCPUs, or CPUs without siblings: entirely free cores, from one NUMA node, else from one
socket, else whole sockets and then core by core.

2. Every other policy: one NUMA node, else one socket; first one CPU per core and away from
exclusive pods, then any.

3. The missing CPUs, from anywhere, near the CPUs taken so far.

Source: koordinator pkg/scheduler/plugins/nodenumaresource/cpu_accumulator.go, ``takeCPUs``,
``takePreferredCPUs``.  One difference: for an odd number of CPUs on three sockets or more, the
original can take one too many.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from koordinator.api.annotations.numa import CpuBindPolicy, CpuExclusivePolicy
from koordinator.foundation.masks import lowest
from koordinator.scheduler.rules.cpus.layout import CpuLayout
from koordinator.scheduler.rules.cpus.ledger import FreeCpus


class CpuPreference(Struct, frozen=True):
    """CPU preferences of a pod."""

    bind_policy: str  # a CpuBindPolicy; any but FullPCPUs spreads
    exclusive_policy: str = ""  # a CpuExclusivePolicy; best effort
    pack: bool = False  # fullest NUMA node first (MostAllocated)


class CpuAccumulator:
    """Mutable state of one choice."""

    __slots__ = ("free", "layout", "need", "preference", "sign", "taken")

    def __init__(
        self, layout: CpuLayout, free: FreeCpus, need: int, preference: CpuPreference
    ) -> None:
        self.layout, self.free, self.preference, self.need = layout, free, preference, need
        self.taken = 0
        #: factor for numbers of free CPUs: ascending order is the order of filling
        self.sign = 1 if preference.pack else -1

    def take(self, cpus: int) -> None:
        """Move CPUs from free to taken."""
        self.taken |= cpus
        self.need -= cpus.bit_count()
        self.free = self.free.without(cpus)

    def barred_cores(self) -> int:
        """Return the CPUs of cores to avoid: exclusive pods of the same policy use them."""
        if self.preference.exclusive_policy != CpuExclusivePolicy.PCPU_LEVEL:
            return 0
        exclusive = self.free.core_exclusive | self.taken
        return self.layout.cpus_of(self.layout.cores_of(exclusive)) if exclusive else 0

    def barred_numa_nodes(self) -> int:
        """Return the CPUs of NUMA nodes to avoid: exclusive pods of the same policy use them."""
        if self.preference.exclusive_policy != CpuExclusivePolicy.NUMA_NODE_LEVEL:
            return 0
        exclusive = self.free.numa_exclusive | self.taken
        barred = 0
        for cpus in self.layout.numa_nodes.values():
            if cpus & exclusive:
                barred |= cpus
        return barred

    def in_order(self, cores: int) -> Iterator[int]:
        """Split cores into consecutive sets; within each, cores are in ascending order.

        Cores with fewer holders come first, then sockets and core ids ascending.
        """
        for _, alike in self.by_holders(cores):
            for run in self.layout.core_order:
                part = alike & run
                if part:
                    yield part

    def by_holders(self, cores: int) -> Sequence[tuple[int, int]]:
        """Return (holders of its free CPUs, cores) for each number of holders, ascending."""
        if len(self.free.groups) == 1:
            return ((0, cores),)
        classes = {0: cores}
        for holders, cpus in enumerate(self.free.groups):
            for among in self.layout.threads(cpus) if holders else ():
                split: dict[int, int] = {}
                for number, members in classes.items():
                    for key, part in (
                        (number, members & ~among),
                        (number + holders, members & among),
                    ):
                        if part:
                            split[key] = split.get(key, 0) | part
                classes = split
        return sorted(classes.items())


def with_and_without(barred: int) -> tuple[int, ...]:
    """Return the CPUs to exclude in each pass: the avoided ones first, then none."""
    return (barred, 0) if barred else (0,)


def first_of(groups: Sequence[int], count: int) -> int:
    """Return the first ``count`` CPUs, group by group, each ascending."""
    chosen = 0
    for cpus in groups:
        some = lowest(cpus, count)
        chosen |= some
        count -= some.bit_count()
    return chosen


def take_full_cores(taking: CpuAccumulator) -> None:
    """Take full cores of one NUMA node, else of one socket, else of several sockets.

    Afterwards less than a core is still needed, or no full cores are left.
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
    """Take from the one socket that has enough, else all cores of the sockets with the most.

    The rest comes from the socket with the fewest cores, in whole cores.
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
    """Return the first ``count`` free CPUs, core by core."""
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


#: CPUs by number of holders, as in ``FreeCpus.groups``.
Groups = Sequence[int]


def take_spread_in_numa_node(taking: CpuAccumulator) -> None:
    """Take all needed CPUs from one NUMA node, if one has enough."""
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
    """Take all needed CPUs from one socket, if one has enough."""
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


def take_nearest_cpus(taking: CpuAccumulator) -> None:
    """Take the missing CPUs near the taken ones, preferring partly used cores."""
    for barred in with_and_without(taking.barred_cores() | taking.barred_numa_nodes()):
        free = [cpus & ~barred for cpus in taking.free.groups]
        ordered = _cores_by_nearness(taking, _union(free))
        if _union(free).bit_count() <= taking.layout.cpus_per_core:
            taking.take(_core_after_core(taking, ordered, free))
            continue
        for groups in _rounds(taking.layout, free):
            cpus = _union(groups)
            for cores in ordered:
                near_cpus = taking.layout.cpus_of(cores) & cpus
                if near_cpus.bit_count() > taking.need:
                    first = lowest(taking.layout.cores_of(near_cpus), taking.need)
                    near_cpus &= taking.layout.cpus_of(first)
                taking.take(near_cpus)


def _offers(taking: CpuAccumulator, barred: int) -> Iterator[tuple[Groups, Groups]]:
    """Yield (free, offered): one CPU per core away from exclusive pods, then all free CPUs."""
    free = [cpus & ~barred for cpus in taking.free.groups]
    rounds = _rounds(taking.layout, free)
    if rounds:
        yield free, rounds[0]
    yield taking.free.groups, taking.free.groups


def _take_spread(taking: CpuAccumulator, groups: Groups, area: int) -> None:
    """Take the needed CPUs from an area that has enough."""
    within = [cpus & area for cpus in groups]
    if _union(within).bit_count() <= taking.layout.cpus_per_core:
        taking.take(first_of(within, taking.need))
        return
    for attempt in _rounds(taking.layout, within):
        taking.take(first_of(attempt, taking.need))


def _rounds(layout: CpuLayout, free: Groups) -> list[list[int]]:
    """Return, by k, the k-th CPU of each core in order of holders and ids, as groups."""
    rounds: list[list[int]] = []
    seen = [layout.cores]  # by k: cores with k CPUs seen so far
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
    """Return the cores that contain any of the CPUs, as consecutive sets.

    Sorted by taken CPUs on the socket (most first), then by free CPUs on socket and NUMA node, then
    by free CPUs of the core (fewest first).
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
    """Return the needed CPUs, core by core, without spreading."""
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
        take_nearest_cpus(taking)
    return taking.taken


def take_preferred_cpus(
    layout: CpuLayout, free: FreeCpus, preferred: int, count: int, preference: CpuPreference
) -> int | None:
    """Return ``count`` of the free CPUs with as many preferred ones as possible; None if too few.

    The preferred CPUs belong to a reservation.
    """
    if not preferred & free.cpus:
        return take_cpus(layout, free, count, preference)
    reserved = free.within(preferred)
    taken = take_cpus(layout, reserved, min(count, reserved.cpus.bit_count()), preference) or 0
    others = take_cpus(layout, free.without(preferred), count - taken.bit_count(), preference)
    return None if others is None else taken | others
