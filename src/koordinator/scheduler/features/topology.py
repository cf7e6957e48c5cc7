"""Reports of the network topology.

The warning is reported as an event and a condition.
"""

import logging
from collections.abc import Sequence

from msgspec.structs import replace

from koordinator.api.cluster_network_topology import ClusterNetworkTopology
from koordinator.api.codec import merge_patch
from koordinator.cluster.port import WatchEvent
from koordinator.domain.network import status_of
from koordinator.foundation.errors import ClusterError
from koordinator.scheduler.loop.feature import Feature, Step
from koordinator.scheduler.loop.handle import SchedulerHandle
from koordinator.scheduler.snapshot import Network

log = logging.getLogger(__name__)

PERIOD_S = 10.0  # minimum interval of status writes, as in the original


class TopologyFeature(Feature):
    """Writer of the status of ClusterNetworkTopology."""

    def __init__(self, handle: SchedulerHandle) -> None:
        self._cluster, self._state = handle.cluster, handle.state
        self._reporter = handle.reporter
        self._warning = ""  # last reported warning
        self._seen: tuple[object, ...] = ()
        self._due_s = 0.0  # earliest time of the next write
        self._hooks = handle.hooks
        self.is_idle = True  # until the first ClusterNetworkTopology

    def on_object_event(self, event: WatchEvent) -> None:
        """End the idleness with the first ClusterNetworkTopology."""
        if self.is_idle and isinstance(event.object, ClusterNetworkTopology):
            self.is_idle = False
            self._hooks.refresh()

    def next_wakeup_s(self, *, synced: bool) -> float | None:
        """Return when the status must be written; None if it is current."""
        is_behind = synced and self._version(self._state.network) != self._seen
        return self._due_s if is_behind else None

    def steps(self) -> Sequence[Step]:
        """Return the writing of the status."""
        return (Step("network topology", self._write),)

    def _write(self, now_s: float) -> None:
        """Write the changed status, at most every ten seconds."""
        network = self._state.network
        version = self._version(network)
        if version == self._seen or now_s < self._due_s:
            return
        self._seen, self._due_s = version, now_s + PERIOD_S
        topology = network.topology
        if topology is None:
            return
        if network.warning != self._warning:
            self._warning = network.warning
            if network.warning:
                log.warning("network ignored", extra={"complaint": network.warning})
                self._reporter.warn_once(topology, network.warning)
        self._reporter.write_validity(topology, network.warning)
        if network.tree is None:
            return
        status = status_of(network.tree)
        if status.detail_status != topology.status.detail_status:
            status = replace(topology.status, detail_status=status.detail_status)
            self._patch(topology, replace(topology, status=status))

    def _patch(self, topology: ClusterNetworkTopology, wanted: ClusterNetworkTopology) -> None:
        name, patch = topology.metadata.name, merge_patch(topology, wanted)
        try:
            stored = self._cluster.patch(ClusterNetworkTopology, name, "", patch, "status")
        except ClusterError as error:
            log.warning("status not written", extra={"topology": name, "error": str(error)})
            self._seen = ()
            return
        self._state.objects.put(stored)

    @staticmethod
    def _version(network: Network) -> tuple[object, ...]:
        tree, topology = network.tree, network.topology
        if topology is None:
            return ()
        return (topology.spec, network.generation, None if tree is None else tree.version)
