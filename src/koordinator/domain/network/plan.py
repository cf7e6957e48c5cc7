"""Placement of a job of identical members on nearby nodes.

The *headroom* of a domain is the number of members it can take. The job is placed in a domain of
the deepest level that has headroom for all members. Ties are broken by the most related pods, then
the fewest child domains used, then the tightest headroom. Within the domain the largest children
are filled first; the remainder goes to the child that fits it best.

Pure functions over arrays: a dry run without some pods passes other slots.

Source: koordinator pkg/scheduler/plugins/coscheduling/core/network_topology_solver.go;
apis/extension/network_topology.go (the index).  Different
here: the number of child domains counts; the last used domain of a layer is the best fitting one,
not the largest; placed members count (upstream requires that there are none); if the deepest level
has headroom but no division that respects the multiples, wider domains are tried.
"""

import re
from collections.abc import Iterator, Sequence

import numpy as np

from koordinator.api.annotations.gang import network_topology_index
from koordinator.api.meta import ObjectMeta
from koordinator.domain.network.tree import OUTSIDE, GatherRules, Level, NetworkTree
from koordinator.foundation.arrays import IntArray
from koordinator.foundation.lazy_dataclass import dataclass

COMPARED = 64  # maximum number of domains of one level that are planned in detail

Share = tuple[int, int]  # row of a node, number of members

_LAST = 1 << 31  # above every index
_NUMBERS = re.compile(r"(\d+)")

LISTED = 16  # maximum number of domains in the message


@dataclass(frozen=True, slots=True)
class OfferSlots:
    """Capacity and preferences of nodes for one job, arrays of shape ``(n_rows,)``."""

    slots: IntArray  # members that fit, added one by one
    existing: IntArray  # placed members of the gang group
    counted: IntArray  # placed members of the gang itself, for the multiples
    near: IntArray  # pods to be near to, including ``existing``
    score: IntArray  # tie-breaker, higher is better

    @classmethod
    def of(cls, slots: IntArray, existing: IntArray | None = None) -> "OfferSlots":
        """Return an offer whose only preference is proximity to the gang."""
        nothing = np.zeros_like(slots)
        own = nothing if existing is None else existing
        return cls(slots, own, own, own, nothing)


@dataclass(frozen=True, slots=True)
class DomainPlan:
    """A domain and the members on its nodes, in network order."""

    level: int
    domain: int
    shares: tuple[Share, ...]

    @property
    def rows(self) -> IntArray:
        """The row of each member's node."""
        rows = np.array([row for row, _ in self.shares], np.int64)
        return np.repeat(rows, [count for _, count in self.shares])


def plan(tree: NetworkTree, rules: GatherRules, offer: OfferSlots, count: int) -> DomainPlan | None:
    """Return a plan for ``count`` members; None if no allowed domain has headroom for them."""
    planner = Planner(tree, rules, offer)
    for level, domains in planner.candidates(count):
        result = planner.best(level, domains, count)
        if result is not None:
            return result
    return None


class Planner:
    """Headroom of every domain for one kind of member.

    Arrays are indexed by level; the last one is indexed by node row.
    """

    def __init__(self, tree: NetworkTree, rules: GatherRules, offer: OfferSlots) -> None:
        self.tree, self.rules = tree, rules
        self.levels: tuple[Level, ...] = tree.levels()
        self.domains = tree.domains(len(offer.slots))  # (depth, n_rows)
        inside = self.domains[0] != OUTSIDE
        self.existing = self._sums(offer.existing, inside)
        self.counted = self._sums(offer.counted, inside)
        self.near = self._sums(offer.near, inside)
        self.score = self._sums(offer.score, inside)
        self.headroom = self._headrooms(np.where(inside, offer.slots, 0))
        self._has_existing = bool(self.existing[0][0])

    def _sums(self, values: IntArray, inside: IntArray) -> list[IntArray]:
        """Return the sums over each domain, level by level."""
        values = np.where(inside, values, 0)
        if not values.any():
            return [np.zeros(len(level.names), np.int64) for level in self.levels] + [values]
        return [
            _total(self.domains[number][inside], values[inside], len(level.names))
            for number, level in enumerate(self.levels)
        ] + [values]

    def _headrooms(self, slots: IntArray) -> list[IntArray]:
        """Return the sums of the slots, each rounded down to the multiple of its level."""
        headrooms = [self._rounded(self.tree.depth, slots)]
        for number in range(self.tree.depth - 1, -1, -1):
            level = self.levels[number]
            parents = np.repeat(np.arange(len(level.names)), np.diff(level.starts))
            below = headrooms[0][level.children]
            sums = _total(parents, below, len(level.names))
            headrooms.insert(0, self._rounded(number, sums))
        return headrooms

    def _rounded(self, level: int, headroom: IntArray) -> IntArray:
        """Return the largest headroom that, with the placed members, is a multiple."""
        multiple = self.rules.multiples.get(level, 1)
        if multiple <= 1:
            return headroom
        counts = self.counted[level]
        rounded: IntArray = np.maximum((counts + headroom) // multiple * multiple - counts, 0)
        return rounded

    # -- domains -----------------------------------------------------------------------------

    def allowed(self) -> IntArray:
        """Return the domains of the must-gather level: all of them, or those with the gang.

        If the gang is spread over several domains, all of these are allowed.
        """
        level = self.rules.must
        exists = (
            self.domains[0] != OUTSIDE if level == self.tree.depth else self.levels[level].sizes > 0
        )
        members = self.existing[level]
        return np.flatnonzero(exists & (members > 0) if self._has_existing else exists)

    def best_headroom(self) -> int:
        """Return the largest headroom of the allowed domains of the must-gather level."""
        return int(self.headroom[self.rules.must][self.allowed()].max(initial=0))

    def candidates(self, count: int) -> Iterator[tuple[int, IntArray]]:
        """Yield the domains with headroom for all, deepest level first, best ones first."""
        level = self.rules.must
        domains = self.allowed()
        levels: list[tuple[int, IntArray]] = []
        while len(domains):
            domains = domains[self.headroom[level][domains] >= count]
            levels.append((level, domains))
            if level == self.tree.depth:
                break
            domains = self._below(level, self._completed(level, domains, count))
            level += 1
        for number, fitting in reversed(levels):
            if len(fitting):
                yield number, self.ordered(number, fitting)

    def _completed(self, level: int, domains: IntArray, count: int) -> IntArray:
        """Return the domains where the members would complete the multiple again."""
        multiple = self.rules.multiples.get(level, 1)
        if multiple <= 1 or not self._has_existing:
            return domains
        completed = domains[(self.counted[level][domains] + count) % multiple == 0]
        return completed if len(completed) else domains

    def _below(self, level: int, domains: IntArray) -> IntArray:
        lists = [self.levels[level].children_of(domain) for domain in domains.tolist()]
        return np.concatenate(lists) if lists else domains

    def ordered(self, level: int, domains: IntArray) -> IntArray:
        """Sort domains: more related pods, then less headroom, each compared up to the root."""
        near, headroom = [-self.near[level][domains]], [self.headroom[level][domains]]
        at = domains
        for number in range(level - 1, -1, -1):
            at = self._parents(number + 1, at)
            near.append(-self.near[number][at])
            headroom.append(self.headroom[number][at])
        keys = [*near, *headroom, -self.score[level][domains], self._names(level, domains)]
        return domains[np.lexsort(keys[::-1])]

    def _parents(self, level: int, domains: IntArray) -> IntArray:
        is_node = level == self.tree.depth
        parents: IntArray = (
            self.domains[level - 1][domains] if is_node else self.levels[level].parents[domains]
        )
        return parents

    def _names(self, level: int, domains: IntArray) -> IntArray:
        """Return integers in the order of the names."""
        if level < self.tree.depth:
            return self.levels[level].order[domains]
        return self.tree.node_order()[domains]

    # -- nodes -------------------------------------------------------------------------------

    def best(self, level: int, domains: IntArray, count: int) -> DomainPlan | None:
        """Return the plan with the fewest child domains; ties go to the first domain.

        Only domains with the same number of related pods as the first planned one are compared.
        """
        best: DomainPlan | None = None
        fewest: tuple[int, ...] = ()
        has_layers_below = level + 1 < self.tree.depth
        for domain in domains[:COMPARED].tolist():
            if best is not None and (
                self._chain(self.near, level, domain) != self._chain(self.near, level, best.domain)
            ):
                break
            if best is not None:
                least = self._fewest(level, domain, count)
                if least > fewest[0] or (least == fewest[0] and len(fewest) == 1):
                    continue  # the lower bound is already no better
            shares = self.shares(level, domain, count)
            if shares is None:
                continue
            candidate = DomainPlan(level, domain, shares)
            spread = self.spread(candidate)
            if best is None or spread < fewest:
                best, fewest = candidate, spread
            if not has_layers_below:
                break
        return best

    def _chain(self, values: Sequence[IntArray], level: int, domain: int) -> list[int]:
        """Return the values of a domain and its ancestors."""
        at, values_above = np.array([domain]), [int(values[level][domain])]
        for number in range(level, 0, -1):
            at = self._parents(number, at)
            values_above.append(int(values[number - 1][at[0]]))
        return values_above

    def _fewest(self, level: int, domain: int, count: int) -> int:
        """Return a lower bound of the number of child domains needed."""
        headrooms = np.sort(self.headroom[level + 1][self.levels[level].children_of(domain)])[::-1]
        return int(np.searchsorted(np.cumsum(headrooms), count)) + 1

    def spread(self, domain_plan: DomainPlan) -> tuple[int, ...]:
        """Return the number of domains used at each level below the plan's own, without nodes."""
        rows = np.array([row for row, _ in domain_plan.shares], np.int64)
        return tuple(
            len(np.unique(self.domains[level][rows]))
            for level in range(domain_plan.level + 1, self.tree.depth)
        )

    def shares(self, level: int, domain: int, count: int) -> tuple[Share, ...] | None:
        """Return the members per node of a domain for ``count`` members; None if not all fit."""
        shares: list[Share] = []
        placed = self._fill(level, domain, count, shares)
        return tuple(shares) if placed >= count else None

    def _fill(self, level: int, domain: int, count: int, shares: list[Share]) -> int:
        """Distribute members over the nodes of a domain, largest parts first; return the number."""
        most = min(int(self.headroom[level][domain]), count)
        multiple = self.rules.multiples.get(level, 1)
        if multiple > 1:
            counted = int(self.counted[level][domain])
            most = max((counted + most) // multiple * multiple - counted, 0)
        if level == self.tree.depth:
            if most:
                shares.append((domain, most))
            return most
        left = most
        children = self._inside(level, domain)
        if level + 1 < self.tree.depth and not self.rules.multiples:
            children = self._chosen(level + 1, children, most)
        for child in children:
            left -= self._fill(level + 1, child, left, shares)
            if left <= 0:
                break
        return most - left

    def _chosen(self, level: int, children: Sequence[int], count: int) -> list[int]:
        """Return the first children with headroom for all, the last one replaced by the best fit.

        This keeps the remaining headroom in one piece.
        """
        headrooms = self.headroom[level][children]
        number = int(np.searchsorted(np.cumsum(headrooms), count))
        if number >= len(children):
            return list(children)
        rest = count - int(headrooms[:number].sum())
        last = children[number]
        fitting = [
            child
            for child in children[number:]
            if self.headroom[level][child] >= rest
            and self.near[level][child] == self.near[level][last]
        ]
        best = min(fitting, key=lambda child: int(self.headroom[level][child]))
        return [*children[:number], best]

    def _inside(self, level: int, domain: int) -> Sequence[int]:
        """Return the child domains with headroom: more related pods first, then larger ones."""
        children = self.levels[level].children_of(domain)
        below = level + 1
        children = children[self.headroom[below][children] > 0]
        order = np.lexsort(
            (
                self._names(below, children),
                -self.score[below][children],
                -self.headroom[below][children],
                -self.near[below][children],
            )
        )
        chosen: list[int] = children[order].tolist()
        return chosen


def _total(domains: IntArray, values: IntArray, count: int) -> IntArray:
    """Return the sum of the values in each of ``count`` domains."""
    sums = np.zeros(count, np.int64)
    np.add.at(sums, domains, values)
    return sums


#: index, then alternating texts and numbers of the name, then namespace
RankKey = tuple[int, tuple[str | int, ...], str]


def rank_key(meta: ObjectMeta) -> RankKey:
    """Return the sort key of a member: index, then natural order of the name."""
    index = network_topology_index(meta)
    parts: list[str | int] = [*_NUMBERS.split(meta.name)]
    parts[1::2] = map(int, parts[1::2])
    return (_LAST if index is None else index, tuple(parts), meta.namespace)


def shortage(planner: Planner, count: int, why_nodes: str) -> str:
    """Return the reason why ``count`` members can't be gathered.

    ``why_nodes`` summarizes why nodes take no more members.
    """
    tree, level = planner.tree, planner.rules.must
    layer, headroom = tree.layer_names[level], planner.headroom[level]
    names: Sequence[str] = tree.node_names if level == tree.depth else planner.levels[level].names
    domains = sorted(planner.allowed().tolist(), key=lambda d: (-int(headroom[d]), names[d]))
    listed = sorted(
        f"topology topologyNode {layer}/{names[d]}: {headroom[d]}" for d in domains[:LISTED]
    )
    text = ";".join(listed)
    if len(domains) > LISTED:
        text += f";and {len(domains) - LISTED} with no more room"
    multiples = ", ".join(
        sorted(f"{tree.layer_names[at]}={n}" for at, n in planner.rules.multiples.items())
    )
    message = (
        f"no candidate topology nodes can accommodate job, desiredOfferSlot: {count}, "
        f"{text}, {why_nodes}"
    )
    if multiples:
        message += f"; podCountMultiple constraints: {multiples}"
    if domains:
        best = domains[0]
        name = f"{layer}/{names[best]}" if level else "the cluster"
        message += f"; best was {name} with room for {min(int(headroom[best]), count)} of {count}"
    return message
