"""Disks of the volumes of pods.

Source: koordinator pkg/koordlet/qosmanager/plugins/blkio/blkio_reconcile.go,
``getDiskNumberFromPodVolume``.
"""

from koordinator.api.volume import PersistentVolumeClaim
from koordinator.cluster.port import Cluster
from koordinator.foundation.errors import InputError, NotFoundError
from koordinator.foundation.path_component import path_component
from koordinator.koordlet.app.outbox import Outbox
from koordinator.koordlet.collectors.disks import Disks
from koordinator.koordlet.view.pods import PodView


class Volumes:
    """Implementation of ``qos.blkio.DiskLookup``.

    The volume name of a claim is requested from the API server once and available a moment later.
    """

    def __init__(self, disks: Disks, outbox: Outbox, kubelet_root: str) -> None:
        self._disks = disks
        self._outbox = outbox
        self._kubelet_root = kubelet_root
        self._names: dict[tuple[str, str], str] = {}
        self._used: set[tuple[str, str]] = set()  # claims looked up since the last ``expire``

    def of_device(self, name: str) -> str | None:
        return self._disks.of_device(name)

    def of_volume_group(self, group: str) -> str | None:
        return self._disks.of_volume_group(group)

    def of_pod_volume(self, pod: PodView, volume: str) -> str | None:
        for each in pod.pod.spec.volumes:
            if each.name != volume:
                continue
            name = volume
            if each.persistent_volume_claim is not None:
                claim = each.persistent_volume_claim.claim_name
                name = self._volume_name(pod.pod.metadata.namespace, claim)
            try:
                folder = path_component(name, path="spec.volumes[].name")
            except InputError:
                return None
            volumes = f"{self._kubelet_root}/pods/{pod.uid}/volumes/kubernetes.io~csi"
            return self._disks.of_mount(f"{volumes}/{folder}/mount")
        return None

    def expire(self) -> None:
        """Forget the claims that were not looked up since the last call."""
        self._names = {one: name for one, name in [*self._names.items()] if one in self._used}
        self._used = set()

    def _volume_name(self, namespace: str, claim: str) -> str:
        self._used.add((namespace, claim))
        known = self._names.get((namespace, claim), "")
        if not known:

            def look_up(cluster: Cluster) -> None:
                try:
                    volume_claim = cluster.get(PersistentVolumeClaim, claim, namespace)
                except NotFoundError:
                    return
                self._names[namespace, claim] = volume_claim.spec.volume_name

            self._outbox.put(f"volume of {namespace}/{claim}", look_up)
        return known
