"""Tree of network domains, and the rules of a gang for it.

Nodes are rows, as in the scheduler's snapshot.  *Levels* count from the root: level 0 is the
cluster, level ``depth`` are the nodes, and the levels between are the layers of the
ClusterNetworkTopology.  Unlike in the original, domains of one name under different parents are
distinct, and the cost of a node update does not depend on the size of the tree.

Source: koordinator pkg/scheduler/plugins/coscheduling/core/network_topology_types.go;
pkg/scheduler/frameworkext/networktopology/tree.go, tree_manager.go ``makeStatus``.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

import numpy as np

from koordinator.api.annotations.gang import (
    NETWORK_TOPOLOGY_SPEC,
    GatherStrategy,
    NetworkTopologySpec,
)
from koordinator.api.cluster_network_topology import (
    CLUSTER_LAYER,
    NODE_LAYER,
    ClusterNetworkTopology,
    ClusterNetworkTopologyStatus,
    TopologyDetail,
    TopologyInfo,
    validate_cluster_network_topology,
)
from koordinator.foundation.arrays import IntArray, extended
from koordinator.foundation.errors import BugError, InputError
from koordinator.foundation.lazy_dataclass import dataclass

OUTSIDE = -1  # domain number of a node without a domain


@dataclass(frozen=True, slots=True)
class DomainLayer:
    """A layer of domains; the first label of ``keys`` on a node names its domain."""

    name: str
    keys: tuple[str, ...]


def layers_of(topology: ClusterNetworkTopology) -> tuple[DomainLayer, ...]:
    """Return the layers from below the root to above the nodes.

    Raises InputError unless they form one chain.
    """
    validate_cluster_network_topology(topology)
    entries = {entry.topology_layer: entry for entry in topology.spec.network_topology_spec}
    layers: list[DomainLayer] = []
    name = entries[NODE_LAYER].parent_topology_layer
    while name and name != CLUSTER_LAYER:
        layers.append(DomainLayer(name, entries[name].label_key))
        name = entries[name].parent_topology_layer
    return tuple(reversed(layers))


@dataclass(frozen=True, slots=True)
class Level:
    """The domains of one level as arrays; domains without nodes may be included."""

    names: Sequence[str]
    parents: IntArray  # (n_domains,), domain numbers of the level above
    sizes: IntArray  # (n_domains,), number of nodes
    order: IntArray  # (n_domains,), rank of the domain's name in the level
    children: IntArray  # domains of the level below, grouped by parent
    starts: IntArray  # (n_domains + 1,), start of each domain's group in ``children``

    def children_of(self, domain: int) -> IntArray:
        """Return the numbers of the child domains, or the rows of the nodes."""
        return self.children[self.starts[domain] : self.starts[domain + 1]]


@dataclass(slots=True)
class _Domains:
    """The domains of one layer, with stable numbers."""

    names: list[str] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)  # number of nodes
    index: dict[tuple[int, str, bool], int] = field(default_factory=dict)
    keys: list[tuple[int, str, bool]] = field(default_factory=list)
    free: list[int] = field(default_factory=list)

    def number(self, parent: int, name: str, *, private: bool) -> int:
        """Return the number of a domain, created on first use.

        ``private``: the domain of a single node without a label.
        """
        key = (parent, name, private)
        known = self.index.get(key)
        if known is not None:
            return known
        if self.free:
            known = self.free.pop()
            self.names[known], self.parents[known], self.keys[known] = name, parent, key
        else:
            known = len(self.names)
            self.names.append(name)
            self.parents.append(parent)
            self.counts.append(0)
            self.keys.append(key)
        self.index[key] = known
        return known

    def change(self, domain: int, by: int) -> None:
        """Change the number of nodes; an empty domain is removed."""
        self.counts[domain] += by
        if not self.counts[domain]:
            del self.index[self.keys[domain]]
            self.free.append(domain)


class NetworkTree:
    """Domain of each node in every layer."""

    def __init__(self, layers: Sequence[DomainLayer]) -> None:
        self.layers = tuple(layers)
        self.version = 0  # incremented by every change
        self._domains = [_Domains() for _ in range(len(self.layers) + 1)]
        self._domains[0].number(0, "", private=False)
        self._nodes: list[str] = []  # by row
        self._of_row = np.full((len(self._domains), 0), OUTSIDE, np.int64)
        self._levels: tuple[int, tuple[Level, ...]] = (-1, ())
        self._node_order: tuple[int, IntArray] = (-1, np.zeros(0, np.int64))

    @property
    def depth(self) -> int:
        """The level of the nodes."""
        return len(self._domains)

    @property
    def layer_names(self) -> tuple[str, ...]:
        """The names of all levels, including the cluster and the nodes."""
        return (CLUSTER_LAYER, *(layer.name for layer in self.layers), NODE_LAYER)

    @property
    def node_names(self) -> Sequence[str]:
        """Names by row; undefined for rows outside the tree."""
        return self._nodes

    def domains(self, n_rows: int) -> IntArray:
        """Return ``(depth, n_rows)``: the domain of each node at each level, or ``OUTSIDE``."""
        self._reach(n_rows)
        return self._of_row[:, :n_rows]

    def of_row(self, level: int, n_rows: int) -> IntArray:
        """Return ``(n_rows,)``: the domain of each node at a level; rows at the last level."""
        domains = self.domains(n_rows)
        if level < self.depth:
            return np.asarray(domains[level])
        return np.where(domains[0] == OUTSIDE, OUTSIDE, np.arange(n_rows))

    def name(self, level: int, domain: int) -> str:
        """Return the name of a domain."""
        return self._domains[level].names[domain]

    def node_order(self) -> IntArray:
        """Return the rank of each row's node name."""
        if self._node_order[0] != self.version:
            self._node_order = (self.version, _places(self._nodes))
        return self._node_order[1]

    def put(self, row: int, node: str, labels: Mapping[str, str]) -> None:
        """Add or update a node.

        A node without the label of a layer is left out. If only the lowest layer's label is
        missing, the node gets a domain of its own there, with its own name.
        """
        self._reach(row + 1)
        before, known = self._of_row[:, row].copy(), self._nodes[row] == node
        path = self._path(node, labels)
        if known and np.array_equal(before, path):
            return
        for level, domain in enumerate(path):
            if domain != OUTSIDE:
                self._domains[level].change(domain, 1)
        self._leave(before)
        self._nodes[row] = node
        self._of_row[:, row] = path
        self.version += 1

    def drop(self, row: int) -> None:
        """Remove a node."""
        if row < self._of_row.shape[1] and self._of_row[0, row] != OUTSIDE:
            before = self._of_row[:, row].copy()
            self._of_row[:, row] = OUTSIDE
            self._leave(before)
            self.version += 1

    def levels(self) -> tuple[Level, ...]:
        """Return the domains of every level above the nodes."""
        if self._levels[0] != self.version:
            self._levels = (self.version, tuple(self._level(n) for n in range(self.depth)))
        return self._levels[1]

    def validate(self) -> None:
        """Recompute all derived state and raise BugError where it differs."""
        for level, domains in enumerate(self._domains):
            inside = self._of_row[level][self._of_row[level] != OUTSIDE]
            counts = np.bincount(inside, minlength=len(domains.names))
            if counts.tolist() != domains.counts:
                raise BugError(f"level {level} counts {domains.counts}. Has {counts.tolist()}.")
            if level and inside.size:
                rows = np.flatnonzero(self._of_row[level] != OUTSIDE)
                parents = np.array(domains.parents)[self._of_row[level][rows]]
                if not np.array_equal(parents, self._of_row[level - 1][rows]):
                    raise BugError(f"level {level} disagrees about parents.")

    # -- internals ---------------------------------------------------------------------------

    def _path(self, node: str, labels: Mapping[str, str]) -> list[int]:
        names = [next(filter(None, map(labels.get, layer.keys)), "") for layer in self.layers]
        if not all(names[:-1]):
            return [OUTSIDE] * self.depth
        path = [0]
        for domains, name in zip(self._domains[1:], names, strict=True):
            path.append(domains.number(path[-1], name or node, private=not name))
        return path

    def _leave(self, path: IntArray) -> None:
        for level in range(self.depth - 1, -1, -1):
            if path[level] != OUTSIDE:
                domain = int(path[level])
                if level or self._domains[0].counts[0] > 1:
                    self._domains[level].change(domain, -1)
                else:
                    self._domains[0].counts[0] = 0  # the root stays

    def _reach(self, n_rows: int) -> None:
        have = self._of_row.shape[1]
        if n_rows > have:
            more = max(n_rows, 2 * have) - have
            self._of_row = extended(self._of_row, more, axis=1, fill=OUTSIDE)
            self._nodes += [""] * more

    def _level(self, level: int) -> Level:
        domains = self._domains[level]
        if level + 1 < self.depth:
            below = self._domains[level + 1]
            parents = np.array(below.parents, np.int64)
            inside = np.flatnonzero(np.array(below.counts, np.int64))
        else:
            parents = self._of_row[level]
            inside = np.flatnonzero(parents != OUTSIDE)
        children = inside[np.argsort(parents[inside], kind="stable")]
        count = len(domains.names)
        sizes = np.bincount(parents[children], minlength=count)
        starts = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
        return Level(
            tuple(domains.names),
            np.array(domains.parents, np.int64),
            np.array(domains.counts, np.int64),
            _places(domains.names),
            children,
            starts,
        )


def _places(names: Sequence[str]) -> IntArray:
    """Return the place of each name among all of them."""
    places = np.empty(len(names), np.int64)
    places[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
    return places


def status_of(tree: NetworkTree) -> ClusterNetworkTopologyStatus:
    """Return all domains except nodes; the children of one parent are sorted by name."""
    return ClusterNetworkTopologyStatus(detail_status=tuple(_details(tree, 0, 0, None)))


def _details(
    tree: NetworkTree, level: int, domain: int, parent: TopologyInfo | None
) -> Iterator[TopologyDetail]:
    names, levels = tree.layer_names, tree.levels()
    info = TopologyInfo(topology_layer=names[level], topology_name=levels[level].names[domain])
    children = levels[level].children_of(domain).tolist()
    above_nodes = level + 1 == tree.depth
    below = [] if above_nodes else sorted((levels[level + 1].names[c], c) for c in children)
    yield TopologyDetail(
        topology_info=info,
        parent_topology_info=parent,
        child_topology_layer=names[level + 1] if children else "",
        child_topology_names=tuple(name for name, _ in below),
        node_num=int(levels[level].sizes[domain]),
    )
    for _, child in below:
        yield from _details(tree, level + 1, child, info)


@dataclass(frozen=True, slots=True)
class GatherRules:
    """Restriction of a job to one domain of level ``must``; 0, the cluster, does not restrict.

    ``multiples`` maps a level to the divisor of the number of members in each of its domains.
    """

    must: int = 0
    multiples: Mapping[int, int] = field(default_factory=dict)  # each above 1


def rules_of(spec: NetworkTopologySpec, layers: Sequence[str]) -> GatherRules:
    """Return the rules; ``layers`` are the names by level.  The deepest must-gather applies.

    Raises InputError if a mandatory rule names a layer that doesn't exist.
    """
    levels = {name: level for level, name in enumerate(layers)}
    must, multiples = 0, {}
    for index, rule in enumerate(spec.gather_strategy):
        multiple = rule.pod_count_multiple
        has_to_be_met = rule.strategy == GatherStrategy.MUST_GATHER or multiple > 1
        level = levels.get(rule.layer)
        if level is None and has_to_be_met:
            raise InputError(
                f"must be one of {', '.join(layers)}, got {rule.layer!r}",
                path=f"{NETWORK_TOPOLOGY_SPEC.path}.gatherStrategy[{index}].layer",
            )
        if level is None:
            continue
        if rule.strategy == GatherStrategy.MUST_GATHER:
            must = max(must, level)
        if multiple > 1:
            multiples[level] = multiple
    return GatherRules(must, multiples)


def warnings_about(spec: NetworkTopologySpec) -> Iterator[str]:
    """Yield warnings about values of a spec that are invalid for any layers."""
    path = f"{NETWORK_TOPOLOGY_SPEC.path}.gatherStrategy"
    seen: set[str] = set()
    for index, rule in enumerate(spec.gather_strategy):
        if rule.strategy not in tuple(GatherStrategy):
            yield (
                f"{path}[{index}].strategy: must be {' or '.join(GatherStrategy)}, got "
                f"{rule.strategy!r}. {GatherStrategy.PREFER_GATHER} is used"
            )
        if rule.pod_count_multiple < 0:
            yield (
                f"{path}[{index}].podCountMultiple: must be at least 0, got "
                f"{rule.pod_count_multiple}"
            )
        if rule.layer in seen:
            yield f"{path}[{index}].layer: must be unique, got {rule.layer!r} again"
        seen.add(rule.layer)
