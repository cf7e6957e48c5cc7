"""CPUs and NUMA nodes of every node, and the allocations of pods.

Exact per row (``node``), and as arrays over many rows (``arrays``), which are updated when they are
read.  A cluster without reported topologies has none.
"""

from collections.abc import Hashable, Iterable
from functools import cached_property
from itertools import count
from typing import Final

import numpy as np

from koordinator.api.annotations.node import read_amplification_ratios
from koordinator.api.annotations.numa import CpuBindPolicy, NumaTopologyPolicy
from koordinator.api.labels import CPU_BIND_POLICY, NUMA_TOPOLOGY_POLICY
from koordinator.api.node import Node, NodeResourceTopology
from koordinator.api.resource_names import CPU
from koordinator.domain.amounts import ZoneAmounts
from koordinator.foundation.arrays import FloatArray, extended
from koordinator.foundation.errors import BugError, InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.masks import MAX_COMBINED, zones_of
from koordinator.scheduler.rules.cpus.binding import node_bind_policy, packs
from koordinator.scheduler.rules.numa.align import node_policy
from koordinator.scheduler.rules.numa.ledger import NumaAllocation, NumaLedger
from koordinator.scheduler.rules.numa.node import NodeTopology, NumaNode, read_topology
from koordinator.scheduler.rules.numa.rows import NumaRows

#: Meaning of the numbers in ``NumaTable.bind_policy`` and ``NumaTable.policy``.
BIND_POLICIES: Final = (None, CpuBindPolicy.FULL_PCPUS, CpuBindPolicy.SPREAD_BY_PCPUS)
POLICIES: Final = tuple(NumaTopologyPolicy)
KEEP_KINDS: Final = 1 << 12  # kinds of nodes that are known again


@dataclass(frozen=True)
class NumaFacts:
    """NUMA settings of a node, from its labels and its topology."""

    node: Node
    topology: NodeTopology | None

    @cached_property
    def ratios(self) -> dict[str, float] | None:
        """The amplification ratios of the node; None if they are invalid."""
        try:
            return read_amplification_ratios(self.node.metadata) or {}
        except InputError:
            return None

    @cached_property
    def cpu_ratio(self) -> float:
        """By how much CPU is amplified, as it counts for scores and NUMA nodes."""
        ratios = self.topology.ratios(self.ratios) if self.topology else (self.ratios or {})
        return max(ratios.get(CPU, 1.0), 1.0)

    @cached_property
    def zones(self) -> ZoneAmounts:
        """Allocatable amounts of the NUMA nodes."""
        return self.topology.amplified_zones(self.ratios) if self.topology else {}

    @cached_property
    def packs(self) -> tuple[bool, bool]:
        """Whether the fullest NUMA node is filled first, if the scheduler does (1) or not (0)."""
        labels = self.node.metadata.labels
        return packs(labels, default=False), packs(labels, default=True)

    @property
    def kind(self) -> Hashable:
        """Key that is equal for nodes that differ in their allocations only."""
        topology = self.topology
        layout, unusable = (topology.layout, topology.unusable) if topology else (None, 0)
        zones = tuple((zone, *amounts.items()) for zone, amounts in self.zones.items())
        return layout, unusable, self.cpu_ratio, self.packs, zones

    def numa_node(self, ledger: NumaLedger, *, pack: bool) -> NumaNode:
        """Return the node as a pod finds it; ``pack`` is the scheduler's default."""
        topology = self.topology
        layout, unusable = (topology.layout, topology.unusable) if topology else (None, 0)
        return NumaNode(layout, ledger, self.zones, unusable, self.cpu_ratio, self.packs[pack])


@dataclass(frozen=True, slots=True)
class SharedNumaTraits:
    """Properties that all nodes share."""

    traits: tuple[bool, bool, bool]  # see ``NumaTable.traits``
    alike: tuple[int, int] | None  # their bind policy and policy, if they have the same
    laid_out: bool  # the CPUs of each are known


class NumaTable:
    """Topologies and ledgers by row.  Written by ``ClusterState`` only."""

    def __init__(self) -> None:
        self.bind_policy = np.zeros(0, np.int8)  # (capacity,), see BIND_POLICIES
        self.policy = np.zeros(0, np.int8)  # (capacity,), see POLICIES
        self.present = np.zeros(0, bool)  # (capacity,): there is a node
        self.node_ratio: FloatArray = np.ones(0)  # (capacity,), of CPU; NaN if it can't be read
        self.layout = np.zeros(0, bool)  # (capacity,): the node's CPUs are known
        self.wide = np.zeros(0, bool)  # (capacity,): more NUMA nodes than the arrays have columns
        self.facts: dict[int, NumaFacts] = {}  # of rows with anything to say
        self._ledgers: dict[int, NumaLedger] = {}
        self._arrays = NumaRows.empty(0, (), 0)
        self._stale: set[int] = set()  # rows to be written to the arrays
        self._charged: set[int] = set()  # rows whose allocations alone are to be written
        self.any_wide = False  # some row is
        self._kinds: dict[Hashable, int] = {}  # the number of each
        self._kind: dict[int, int] = {}  # the number by row
        self._numbers = count()  # of kinds: none is given twice
        self.surveyed: SharedNumaTraits | None = None

    # -- reading -----------------------------------------------------------------------------

    @property
    def traits(self) -> tuple[bool, bool, bool]:
        """Whether any node has a NUMA policy, binds every pod's CPUs, shows more CPU than it has.

        Where none does, only pods that request it have anything to do with NUMA nodes and CPUs.
        """
        return self.survey.traits

    @property
    def survey(self) -> SharedNumaTraits:
        """Traits that all nodes have."""
        if self.surveyed is None:
            binds, policies = self.bind_policy[self.present], self.policy[self.present]
            same = (binds == binds[:1]).all() and (policies == policies[:1]).all()
            self.surveyed = SharedNumaTraits(
                traits=(
                    bool(self.policy.any()),
                    bool(self.bind_policy.any()),
                    bool((~(self.node_ratio == 1.0)).any()),
                ),
                alike=(int(binds[0]), int(policies[0])) if len(binds) and same else None,
                laid_out=bool(self.layout[self.present].all()),
            )
        return self.surveyed

    @property
    def arrays(self) -> NumaRows:
        """All rows, up to date."""
        if self._stale or len(self._arrays.exists) != len(self.policy):
            self._refresh()
        if self._charged:
            for row in self._charged:
                self._arrays.set_usage(row, self.node(row, pack=False))
            self._charged.clear()
        return self._arrays

    def ledger(self, row: int) -> NumaLedger:
        """Return the allocations of pods on a row; read only."""
        return self._ledgers.get(row) or NumaLedger()

    def node(self, row: int, *, pack: bool) -> NumaNode:
        """Return a row as a pod finds it; ``pack`` is the scheduler's default."""
        facts = self.facts.get(row)
        if facts is None:
            return NumaNode(None, self.ledger(row), {}, pack=pack)
        return facts.numa_node(self.ledger(row), pack=pack)

    def state(self, row: int, zones: int) -> Hashable:
        """Return a key: equal for rows on which a pod gets the same from these NUMA nodes.

        They have, and have left, the same CPUs and amounts there.  ``zones`` 0: as many CPUs are
        left anywhere; amounts don't matter where none are charged.
        """
        ledger, facts = self._ledgers.get(row), self.facts.get(row)
        if ledger is None or facts is None:
            return self._kind_of(row), None
        layout, among = facts.topology.layout if facts.topology else None, zones_of(zones)
        cpus = -1
        if among and layout is not None:
            cpus = sum([layout.numa_nodes.get(zone, 0) for zone in among])
        return self._kind_of(row), ledger.state(among, cpus)

    # -- writing -----------------------------------------------------------------------------

    def grow(self, more: int) -> None:
        """Make room for more rows."""
        self.bind_policy = extended(self.bind_policy, more)
        self.policy = extended(self.policy, more)
        self.present = extended(self.present, more)
        self.node_ratio = extended(self.node_ratio, more, fill=1.0)
        self.layout = extended(self.layout, more)
        self.wide = extended(self.wide, more)

    def arrive(self, row: int) -> None:
        """Add a node without a topology."""
        self.present[row] = True
        self.surveyed = None

    def report(
        self, row: int, node: Node | None, reported: NodeResourceTopology | None
    ) -> InputError | None:
        """Apply a node and its topology; None: the node was deleted.

        Returns the problem of the topology.  An invalid topology counts as none: a node with
        unknown reservations must not give out CPUs.
        """
        problem, topology = None, None
        try:
            topology = read_topology(reported) if reported is not None else None
        except InputError as error:
            problem = error.with_traceback(None)  # which refers to this frame
        had = self.facts.pop(row, None)
        self._charged.discard(row)
        self._kind.pop(row, None)
        self.present[row] = node is not None
        self.surveyed = None
        if node is not None and (topology is not None or _has_settings(node)):
            self._take_over(row, NumaFacts(node, topology))
        elif had is not None:
            self.bind_policy[row] = self.policy[row] = 0
            self.node_ratio[row], self.layout[row] = 1.0, False
        if had is not None or row in self.facts:
            self._stale.add(row)
        return problem

    def charge(self, row: int, key: str, allocation: NumaAllocation, sign: int) -> None:
        """Charge (1) or release (-1) the allocation of a pod."""
        ledger = self._ledgers.get(row)
        if ledger is None:
            ledger = self._ledgers[row] = NumaLedger()
        if sign > 0:
            ledger.add(key, allocation)
        else:
            ledger.remove(key)
        if not ledger.allocations:
            del self._ledgers[row]
        (self._charged if row in self.facts else self._stale).add(row)

    def validate(self, placed: Iterable[tuple[int, str, NumaAllocation]]) -> None:
        """Compare with the allocations of the pods.  Raises BugError."""
        derived: dict[int, dict[str, NumaAllocation]] = {}
        for row, key, allocation in placed:
            derived.setdefault(row, {})[key] = allocation
        if derived != {row: dict(ledger.allocations) for row, ledger in self._ledgers.items()}:
            raise BugError("what pods hold of CPUs and NUMA nodes differs from the ledgers")
        for ledger in self._ledgers.values():
            ledger.validate()

    def _kind_of(self, row: int) -> int:
        """Return the number of the kind of node, -1 if nothing is known of it."""
        number = self._kind.get(row)
        if number is None:
            facts = self.facts.get(row)
            number = self._kind[row] = self._number(facts.kind) if facts is not None else -1
        return number

    def _number(self, kind: Hashable) -> int:
        number = self._kinds.get(kind)
        if number is None:
            if len(self._kinds) >= KEEP_KINDS:
                self._kinds.clear()
            number = self._kinds[kind] = next(self._numbers)
        return number

    def _take_over(self, row: int, facts: NumaFacts) -> None:
        topology, labels = facts.topology, facts.node.metadata.labels
        kubelet = topology.kubelet if topology else None
        self.facts[row] = facts
        self.bind_policy[row] = BIND_POLICIES.index(node_bind_policy(labels, kubelet))
        reported = topology.policy if topology else NumaTopologyPolicy.NONE
        self.policy[row] = POLICIES.index(node_policy(labels, reported))
        ratios = facts.ratios
        self.node_ratio[row] = np.nan if ratios is None else max(ratios.get(CPU, 1.0), 1.0)
        self.layout[row] = topology is not None and topology.layout is not None

    def _refresh(self) -> None:
        rows = self._arrays
        stale = [row for row in self._stale if row in self.facts or row in self._ledgers]
        done = self._stale.difference(stale)
        # CPU has a column even if no NUMA node reports any: bound CPUs are looked for there.
        resources, zones = {CPU, *rows.resources}, rows.exists.shape[1]
        for row in stale:
            facts = self.facts.get(row)
            for zone, amounts in (facts.topology.zones if facts and facts.topology else {}).items():
                zones = max(zones, min(zone + 1, MAX_COMBINED))
                resources.update(amounts)
        names = (*rows.resources, *sorted(resources.difference(rows.resources)))
        capacity = len(self.policy)
        if (capacity, names, zones) != (len(rows.exists), rows.resources, rows.exists.shape[1]):
            rows = self._arrays = NumaRows.empty(capacity, names, zones)
            stale, done = list({*self.facts, *self._ledgers}), set()
        for row in (*stale, *done):
            node = self.node(row, pack=False)
            rows.set(row, node)
            self.wide[row] = not rows.holds(node)
        self.any_wide = bool(self.wide.any())
        self._stale.clear()


def _has_settings(node: Node) -> bool:
    """Return whether the node has settings for NUMA nodes and CPUs of its own."""
    meta = node.metadata
    if CPU_BIND_POLICY in meta.labels or NUMA_TOPOLOGY_POLICY in meta.labels:
        return True
    try:
        return bool(read_amplification_ratios(meta))
    except InputError:
        return True
