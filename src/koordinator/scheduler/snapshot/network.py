"""The network between the nodes, kept in step with their labels and ClusterNetworkTopology."""

import numpy as np

from koordinator.api.cluster_network_topology import DEFAULT_NAME, ClusterNetworkTopology
from koordinator.domain.network import DomainLayer, NetworkTree, layers_of
from koordinator.foundation.errors import InputError
from koordinator.scheduler.snapshot.log import ChangeLog
from koordinator.scheduler.snapshot.nodes import NodeTable
from koordinator.scheduler.snapshot.objects import ObjectTable


class Network:
    """Tree of the network, built on first use and updated by later changes."""

    def __init__(self) -> None:
        self.topology: ClusterNetworkTopology | None = None  # the object as it is now
        self.warning = ""  # why the object is of no use
        self.generation = 0  # grows whenever there are other layers
        self._tree: NetworkTree | None = None
        self._position = 0  # in the node log
        self._objects_version = -1

    @property
    def tree(self) -> NetworkTree | None:
        """The domains; None without a valid ClusterNetworkTopology."""
        return self._tree

    def refresh(self, nodes: NodeTable, log: ChangeLog, objects: ObjectTable) -> "Network":
        """Take in what has changed since the last time."""
        version = objects.version(ClusterNetworkTopology)
        if version != self._objects_version:
            self._objects_version = version
            self._read(objects.get(ClusterNetworkTopology, DEFAULT_NAME), nodes, log)
        if self._tree is None or self._position == log.position:
            return self
        rows = log.since(self._position)
        changed = range(len(nodes)) if rows is None else np.unique(rows).tolist()
        self._put(self._tree, changed, nodes)
        self._position = log.position
        return self

    def _read(
        self, topology: ClusterNetworkTopology | None, nodes: NodeTable, log: ChangeLog
    ) -> None:
        self.topology, self.warning = topology, ""
        layers: tuple[DomainLayer, ...] | None = None
        if topology is not None:
            try:
                layers = layers_of(topology)
            except InputError as error:
                self.warning = str(error)
        if layers == (None if self._tree is None else self._tree.layers):
            return
        self.generation += 1
        self._tree = None if layers is None else NetworkTree(layers)
        if self._tree is not None:
            self._put(self._tree, range(len(nodes)), nodes)
            self._position = log.position

    @staticmethod
    def _put(tree: NetworkTree, rows: "range | list[int]", nodes: NodeTable) -> None:
        for row in rows:
            node = nodes.objects[row]
            if node is None:
                tree.drop(row)
            else:
                tree.put(row, node.metadata.name, node.metadata.labels)
