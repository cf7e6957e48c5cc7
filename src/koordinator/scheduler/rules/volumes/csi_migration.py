"""Volumes of the old in-tree plugins, seen as the CSI volumes that serve them today.

Only what tells two volumes apart is translated: the driver and the handle.

Source: k8s.io/csi-translation-lib plugins: aws_ebs.go, gce_pd.go, azure_disk.go.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from koordinator.api.volume import CsiNode, PersistentVolume, Volume

MIGRATED_PLUGINS = "storage.alpha.kubernetes.io/migrated-plugins"

#: In-tree plugin -> CSI driver.
DRIVERS: Mapping[str, str] = {
    "kubernetes.io/aws-ebs": "ebs.csi.aws.com",
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
}
_ZONES = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
_UNKNOWN = "UNSPECIFIED"


@dataclass(frozen=True, slots=True)
class InTreeVolume:
    """A volume of an in-tree plugin and the handle that its CSI driver knows it by."""

    plugin: str
    handle: str

    @property
    def driver(self) -> str:
        """The CSI driver that took over."""
        return DRIVERS[self.plugin]


def in_tree_volume(item: Volume | PersistentVolume) -> InTreeVolume | None:
    """Return what the volume is to CSI; None if no driver took it over."""
    source = item.spec if isinstance(item, PersistentVolume) else item
    labels = item.metadata.labels if isinstance(item, PersistentVolume) else {}
    if source.aws_elastic_block_store is not None:
        volume_id = source.aws_elastic_block_store.volume_id
        handle = volume_id.rpartition("/")[2] if volume_id.startswith("aws://") else volume_id
        return InTreeVolume("kubernetes.io/aws-ebs", handle)
    if source.gce_persistent_disk is not None:
        disk = source.gce_persistent_disk.pd_name
        handle = f"projects/{_UNKNOWN}/{_gce_place(labels)}/disks/{disk}"
        return InTreeVolume("kubernetes.io/gce-pd", handle)
    if source.azure_disk is not None:
        return InTreeVolume("kubernetes.io/azure-disk", source.azure_disk.disk_uri)
    return None


def migrated_plugins(node: CsiNode) -> frozenset[str]:
    """Return the in-tree plugins whose volumes the node leaves to CSI."""
    listed = node.metadata.annotations.get(MIGRATED_PLUGINS, "")
    return frozenset(listed.split(",")) & DRIVERS.keys()


def _gce_place(labels: Mapping[str, str]) -> str:
    label = next((labels[key] for key in _ZONES if key in labels), _UNKNOWN)
    zones = label.split("__")
    if len(zones) > 1:  # a regional disk: zones are named region-letter
        return f"regions/{zones[0].rpartition('-')[0]}"
    return f"zones/{zones[0]}"
