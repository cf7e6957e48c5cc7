"""The cluster as arrays.

Plugins read it; only ``scheduler.transaction`` and ``scheduler.ingest`` write.

``nodes``           one row per node: amounts, labels, taints, images, ports; the domains of the
                    network between the nodes
``devices``         by row: devices of every type and their allocations
``numa``            by row: CPUs and NUMA nodes and their allocations
``load``            by row: measured usage of a node, and its pods that are not measured yet
``pod_allocation``  what a pod holds of both, and the reservation that it uses
``holds``           amounts that reservations hold, and their users
``restore``         holds that a pod may use, and their restore while nodes are evaluated for it
``pods``            which pod is on which row, and counts of pods by label selector or affinity term
``classes``         pods with the same scheduling-relevant fields share one ``PodClass``
``state``           all of these together with the log of changed rows
``ledgers``         what plugins add up over all pods, kept in step with the state
``view``            ``Snapshot``: what a plugin is given, the whole cluster or some rows of it
"""

from koordinator.scheduler.snapshot.axis import ResourceAxis
from koordinator.scheduler.snapshot.classes import PodClass, PodClasses
from koordinator.scheduler.snapshot.devices import DeviceTable
from koordinator.scheduler.snapshot.holds import Hold, HoldTable, standing_hold
from koordinator.scheduler.snapshot.ledgers import Ledger, LedgerChanges
from koordinator.scheduler.snapshot.nodes import Network
from koordinator.scheduler.snapshot.objects import ObjectChange, ObjectTable
from koordinator.scheduler.snapshot.pod_allocation import NO_ALLOCATION, PodAllocation
from koordinator.scheduler.snapshot.pods import PlacedPod
from koordinator.scheduler.snapshot.restore import RestorableHolds
from koordinator.scheduler.snapshot.state import ClusterState
from koordinator.scheduler.snapshot.view import Snapshot

__all__ = [
    "NO_ALLOCATION",
    "ClusterState",
    "DeviceTable",
    "Hold",
    "HoldTable",
    "Ledger",
    "LedgerChanges",
    "Network",
    "ObjectChange",
    "ObjectTable",
    "PlacedPod",
    "PodAllocation",
    "PodClass",
    "PodClasses",
    "ResourceAxis",
    "RestorableHolds",
    "Snapshot",
    "standing_hold",
]
