"""Preference for nodes that already have the pod's images.

Source: kubernetes pkg/scheduler/framework/plugins/imagelocality.
"""

from dataclasses import replace
from typing import ClassVar

import numpy as np

from koordinator.api.kube_version import DEFAULT_LEVEL, V1_36, V1_37, KubeVersion
from koordinator.api.kubescheduler import FeatureGates
from koordinator.foundation.arrays import IntArray
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.contract import MAX_SCORE, NoArgs, PluginHints, PluginSpec, Reads
from koordinator.scheduler.snapshot import PodClass, ResourceAxis, Snapshot

MIN_BYTES = 23 * 1024 * 1024
MAX_BYTES_PER_CONTAINER = 1000 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ImageLocality:
    """Score by the size of each image present times the share of nodes that have it.

    A rare image therefore counts less.  Images of volumes count from Kubernetes 1.36 on, and raise
    the upper bound from 1.37 on.
    """

    level: KubeVersion = DEFAULT_LEVEL
    reads: ClassVar = Reads.NODE

    def with_gates(self, gates: FeatureGates) -> "ImageLocality":
        """Count the images of volumes as the release does."""
        return replace(self, level=gates.level)

    @property
    def hints(self) -> PluginHints:
        return PluginHints(
            key=lambda pod: (pod.images, self._of_volumes(pod)),
            concerns=lambda snapshot, _pod: snapshot.has_images,
            # The number of nodes with an image affects the score of every node.
            version=lambda snapshot: snapshot.node_version,
        )

    def _of_volumes(self, pod: PodClass) -> tuple[str, ...]:
        if self.level < V1_36 or not pod.spec.volumes:
            return ()
        return tuple(each.image.reference for each in pod.spec.volumes if each.image is not None)

    def score(self, snapshot: Snapshot, pod: PodClass) -> IntArray:
        total = np.zeros(len(snapshot), np.int64)
        of_volumes = self._of_volumes(pod)
        for name in (*pod.images, *of_volumes):
            image = snapshot.image(normalized(name))
            if image is not None:
                present, size, nodes = image
                total += present * int(size * (nodes / snapshot.node_count))
        counted = len(pod.images) + (len(of_volumes) if self.level >= V1_37 else 0)
        most = MAX_BYTES_PER_CONTAINER * max(counted, 1)
        return MAX_SCORE * (np.clip(total, MIN_BYTES, most) - MIN_BYTES) // (most - MIN_BYTES)


def normalized(name: str) -> str:
    """Return the name with the tag ``latest`` if it has none (a digest counts as a tag)."""
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"


def build(_args: NoArgs, _axis: ResourceAxis) -> ImageLocality:
    return ImageLocality()


PLUGIN = PluginSpec("ImageLocality", NoArgs, build)
