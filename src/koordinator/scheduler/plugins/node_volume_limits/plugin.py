"""Filter by attachable volumes.

Source: kubernetes pkg/scheduler/framework/plugins/nodevolumelimits/csi.go.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import ClassVar

import numpy as np

from koordinator.api.kube_version import V1_37
from koordinator.api.kubescheduler import FeatureGates
from koordinator.api.kubescheduler.gates import VOLUME_LIMIT_SCALING
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.api.volume import CsiDriver, CsiNode, PersistentVolumeClaim
from koordinator.foundation.arrays import BoolArray
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.contract import (
    Action,
    ClusterEvent,
    EventHint,
    NoArgs,
    PluginExample,
    PluginHints,
    PluginSpec,
    QueueingHint,
    Reads,
    Rejections,
)
from koordinator.scheduler.plugins.node_volume_limits.attached_volumes import (
    Attachable,
    attached_volumes,
    behind_claim,
    countable,
    inline,
    may_count,
)
from koordinator.scheduler.rules.volumes import (
    claim_name,
    claim_not_found,
    claim_of_another,
    uses_claim,
)
from koordinator.scheduler.snapshot import PodClass, ResourceAxis, Snapshot

REASON = "node(s) exceed max volume count"


@dataclass(frozen=True, slots=True)
class NodeVolumeLimits:
    """Filter by the number of volumes per driver, and by required drivers."""

    requires_drivers: bool = False
    only_if_opted_in: bool = True  # in the driver's CSIDriver object

    reads: ClassVar = Reads.CLUSTER
    hints: ClassVar = PluginHints(filters=lambda _snapshot, pod: bool(countable(pod)))

    def with_gates(self, gates: FeatureGates) -> "NodeVolumeLimits":
        """Require installed drivers if the gate is on; from 1.37 on drivers opt in."""
        return replace(
            self,
            requires_drivers=VOLUME_LIMIT_SCALING in gates,
            only_if_opted_in=gates.level >= V1_37,
        )

    def applies(self, pod: PodClass) -> bool:
        return bool(pod.spec.volumes)

    def filter(self, snapshot: Snapshot, pod: PodClass) -> Rejections:
        """Reject nodes where new volumes of the pod would exceed a driver's limit."""
        reason = _unusable_claim(snapshot, pod)
        if reason:
            return Rejections.where(np.ones(len(snapshot), bool), reason, unresolvable=True)
        cluster = snapshot.cluster
        volumes = list(_volumes(cluster, pod))
        rejected = self._missing(cluster, volumes)
        rejected[REASON] = _exceeded(cluster, volumes)
        codes = np.zeros(len(cluster), np.int64)
        for number, mask in enumerate(rejected.values()):  # each node with its first reason
            codes[mask & (codes == 0)] = 1 << number
        if snapshot.rows is not None:
            codes = codes[snapshot.rows]
        return Rejections(codes, tuple(rejected))

    def _missing(self, cluster: Snapshot, volumes: Iterable[Attachable]) -> dict[str, BoolArray]:
        """Return per reason the rows without a required driver."""
        missing: dict[str, BoolArray] = {}
        for volume in volumes if self.requires_drivers else ():
            driver = cluster.objects.get(CsiDriver, volume.driver)
            if driver is None:
                continue  # may not be a CSI driver
            if self.only_if_opted_in and not driver.spec.prevent_pod_scheduling_if_missing:
                continue
            reason = f"{volume.driver} CSI driver is not installed on the node"
            is_missing = attached_volumes(cluster).missing_driver(volume, cluster)
            missing[reason] = missing[reason] | is_missing if reason in missing else is_missing
        return missing

    def detail(self, view: Snapshot, pod: PodClass) -> str:
        """Return per driver over its limit the attached and the new volumes."""
        cluster, row = view.cluster, int(view.row_numbers[0])
        return "; ".join(
            f"{driver}: {known} of {limit} volumes are attached, the pod needs {new} more"
            for driver, known, new, limit in _counts(cluster, row, list(_volumes(cluster, pod)))
            if known + new > limit
        )


def _exceeded(cluster: Snapshot, wanted: list[Attachable]) -> BoolArray:
    """Return ``(n,)``: some driver would exceed its limit."""
    attached = attached_volumes(cluster)
    exceeded = np.zeros(len(cluster), bool)
    by_driver: defaultdict[str, list[Attachable]] = defaultdict(list)
    for volume in wanted:
        by_driver[volume.driver].append(volume)
    for driver, volumes in by_driver.items():
        for row in attached.rows_near_limit(driver, len(volumes)):
            known, new = _on_row(cluster, row, driver, volumes)
            if new:
                exceeded[row] |= known + new > attached.limit(driver, row)
    return exceeded


def _on_row(cluster: Snapshot, row: int, driver: str, volumes: list[Attachable]) -> tuple[int, int]:
    """Return the volumes of a driver on a row, and how many of the given ones are new."""
    attached = attached_volumes(cluster)
    used = attached.of_pods(row, cluster)
    new = {volume.name for volume in volumes if attached.counts(volume, row)} - used
    if not new:
        return 0, 0
    all_used = used.union(attached.attached(row, cluster))
    return sum(name[0] == driver for name in all_used), len(new)


def _counts(
    cluster: Snapshot, row: int, wanted: list[Attachable]
) -> Iterator[tuple[str, int, int, int]]:
    """Yield per driver: name, volumes on a row, new volumes, limit."""
    attached = attached_volumes(cluster)
    for driver in dict.fromkeys(volume.driver for volume in wanted):
        volumes = [volume for volume in wanted if volume.driver == driver]
        known, new = _on_row(cluster, row, driver, volumes)
        if new:
            yield driver, known, new, attached.limit(driver, row)


def _volumes(cluster: Snapshot, pod: PodClass) -> Iterator[Attachable]:
    """Yield the pod's volumes; its claims exist."""
    for volume in countable(pod):
        name = claim_name(pod.name, volume)
        if name:
            claim = cluster.objects.get(PersistentVolumeClaim, f"{pod.namespace}/{name}")
            attachable = behind_claim(cluster.objects, claim) if claim else None
        else:
            attachable = inline(volume)
        if attachable is not None:
            yield attachable


def _unusable_claim(snapshot: Snapshot, pod: PodClass) -> str:
    """Return why some claim of the pod can't be used; empty if all can."""
    for volume in countable(pod):
        name = claim_name(pod.name, volume)
        if not name:
            continue
        key = f"{pod.namespace}/{name}"
        claim = snapshot.objects.get(PersistentVolumeClaim, key)
        if claim is None:
            return f"looking up PVC {key}: {claim_not_found(name)}"
        if volume.ephemeral and not claim.metadata.is_controlled_by(pod.uid):
            return claim_of_another(claim, pod.name)
    return ""


def _on_pod_deleted(_pod: KubeObject, event: ClusterEvent) -> QueueingHint:
    deleted = event.old
    helps = not isinstance(deleted, Pod) or any(map(may_count, deleted.spec.volumes))
    return QueueingHint.QUEUE if helps else QueueingHint.SKIP


def _on_pod_added(pod: KubeObject, event: ClusterEvent) -> QueueingHint:
    """Queue if another pod, which may share a volume, brings volumes to a node."""
    added = event.new
    if not isinstance(pod, Pod) or not isinstance(added, Pod):
        return QueueingHint.QUEUE
    brings = any(map(may_count, added.spec.volumes))
    helps = brings and pod.metadata.namespace == added.metadata.namespace
    return QueueingHint.QUEUE if helps else QueueingHint.SKIP


def _on_claim_added(pod: KubeObject, event: ClusterEvent) -> QueueingHint:
    claim = event.new
    helps = (
        isinstance(pod, Pod) and isinstance(claim, PersistentVolumeClaim) and uses_claim(pod, claim)
    )
    return QueueingHint.QUEUE if helps else QueueingHint.SKIP


def _on_csi_node(_pod: KubeObject, event: ClusterEvent) -> QueueingHint:
    old, new = event.old, event.new
    if not isinstance(old, CsiNode) or not isinstance(new, CsiNode):
        return QueueingHint.QUEUE
    if {driver.name for driver in new.spec.drivers} - {driver.name for driver in old.spec.drivers}:
        return QueueingHint.QUEUE
    before, after = _limits(old), _limits(new)
    raised = any(driver not in after or after[driver] > limit for driver, limit in before.items())
    return QueueingHint.QUEUE if raised else QueueingHint.SKIP


def _limits(node: CsiNode) -> dict[str, int]:
    return {
        driver.name: driver.allocatable.count
        for driver in node.spec.drivers
        if driver.allocatable is not None and driver.allocatable.count is not None
    }


def build(_args: NoArgs, _axis: ResourceAxis) -> NodeVolumeLimits:
    return NodeVolumeLimits()


EXAMPLE = PluginExample(
    pods=(
        {},
        *(
            {"spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]}}
            for name in ("a", "b")
        ),
    ),
    objects=tuple(
        manifest
        for name in ("a", "b")
        for manifest in (
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"volumeName": f"pv-{name}"},
            },
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": f"pv-{name}"},
                "spec": {"csi": {"driver": "csi.example.com", "volumeHandle": name}},
            },
        )
    ),
    node_objects=tuple(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSINode",
            "spec": {
                "drivers": [
                    {
                        "name": "csi.example.com",
                        "nodeID": "node",
                        "allocatable": {"count": count},
                    }
                ]
            },
        }
        for count in (0, 1, 9)
    ),
)

PLUGIN = PluginSpec(
    "NodeVolumeLimits",
    NoArgs,
    build,
    events=(
        EventHint("Node", Action.ADD),
        EventHint("CSINode", Action.ALL, _on_csi_node),
        EventHint("CSIDriver", Action.UPDATE | Action.DELETE),
        EventHint("AssignedPod", Action.DELETE, _on_pod_deleted),
        EventHint("AssignedPod", Action.ADD, _on_pod_added),
        EventHint("PersistentVolumeClaim", Action.ADD, _on_claim_added),
        EventHint("VolumeAttachment", Action.DELETE),
    ),
    example=EXAMPLE,
)
