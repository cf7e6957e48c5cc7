"""The original's choice of nodes for a job, as its description defines it, domain by domain.

Nothing of ``koordinator.domain.network`` is used: tests and benchmarks compare the two.  Source:
koordinator pkg/scheduler/plugins/coscheduling/core/network_topology_solver.go.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(eq=False)
class Domain:
    """A domain or a node; ``level`` counts from the root."""

    name: str
    level: int
    parent: "Domain | None" = None
    children: list["Domain"] = field(default_factory=list)
    slots: int = 0
    near: int = 0

    def leaves(self) -> list["Domain"]:
        if not self.children:
            return [self]
        return [leaf for child in self.children for leaf in child.leaves()]

    def inside(self, level: int) -> list["Domain"]:
        """Return the domains of a level that are in this one."""
        if self.level == level:
            return [self]
        return [one for child in self.children for one in child.inside(level)]

    def up(self) -> list["Domain"]:
        return [self, *(self.parent.up() if self.parent else [])]


def cluster(paths: Mapping[str, Sequence[str]]) -> Domain:
    """Return the root; ``paths`` are the names above each node, from the top."""
    root = Domain("", 0)
    for node, path in paths.items():
        at = root
        for name in (*path, node):
            child = next((c for c in at.children if c.name == name), None)
            if child is None:
                child = Domain(name, at.level + 1, at)
                at.children.append(child)
            at = child
    return root


def place(
    root: Domain,
    slots: Mapping[str, int],
    count: int,
    *,
    must: int = 0,
    multiples: Mapping[int, int] | None = None,
    near: Mapping[str, int] | None = None,
) -> list[tuple[str, int]] | None:
    """Return (node, members) in the original's order; None if it finds no place."""
    multiples = multiples or {}
    _sum(root, slots, near or {}, multiples)
    level = root.inside(must)
    fitting: list[Domain] = []
    while level:
        level = [one for one in level if one.slots >= count]
        fitting = level or fitting
        level = [child for one in level for child in one.children]
    for candidate in sorted(fitting, key=lambda one: _key(one, 1)):
        shares: list[tuple[str, int]] = []
        if _fill(candidate, count, multiples, shares) >= count:
            return [(node, number) for node, number in shares if number]
    return None


def _sum(
    one: Domain, slots: Mapping[str, int], near: Mapping[str, int], multiples: Mapping[int, int]
) -> None:
    for child in one.children:
        _sum(child, slots, near, multiples)
    if one.children:
        one.slots = sum(child.slots for child in one.children)
        one.near = sum(child.near for child in one.children)
    else:
        one.slots, one.near = slots.get(one.name, 0), near.get(one.name, 0)
    multiple = multiples.get(one.level, 1)
    one.slots = one.slots // multiple * multiple


def _key(one: Domain, sign: int) -> tuple[list[int], list[int], str]:
    chain = one.up()
    return [-up.near for up in chain], [sign * up.slots for up in chain], one.name


def _fill(
    one: Domain, count: int, multiples: Mapping[int, int], shares: list[tuple[str, int]]
) -> int:
    most = min(one.slots, count)
    multiple = multiples.get(one.level, 1)
    most = most // multiple * multiple
    if not one.children:
        shares.append((one.name, most))
        return most
    left = most
    for child in sorted(one.children, key=lambda child: _key(child, -1)):
        left -= _fill(child, left, multiples, shares)
    return most - left
