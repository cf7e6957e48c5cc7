"""Prefer nodes that already have the pod's images, the more so the more nodes have them.

Source: kubernetes pkg/scheduler/framework/plugins/imagelocality.
"""

from typing import ClassVar

import numpy as np

from koordinator.scheduler.contract import MAX_SCORE, NoArgs, PluginSpec, Reads, Speed
from koordinator.scheduler.snapshot import IntArray, PodClass, ResourceAxis, Snapshot

MIN_BYTES = 23 * 1024 * 1024
MAX_BYTES_PER_CONTAINER = 1000 * 1024 * 1024


class ImageLocality:
    """An image counts with its size times the share of nodes that have it.

    So a rare one draws less.
    """

    reads: ClassVar = Reads.NODE
    speed: ClassVar = Speed(
        key=lambda pod: pod.images,
        # how many nodes have an image concerns every node
        version=lambda snapshot: snapshot.node_version if snapshot.has_images else None,
    )

    def score(self, snapshot: Snapshot, pod: PodClass) -> IntArray:
        total = np.zeros(len(snapshot), np.int64)
        for name in pod.images:
            image = snapshot.image(normalized(name))
            if image is not None:
                present, size, nodes = image
                total += present * int(size * (nodes / snapshot.node_count))
        most = MAX_BYTES_PER_CONTAINER * max(len(pod.images), 1)
        return MAX_SCORE * (np.clip(total, MIN_BYTES, most) - MIN_BYTES) // (most - MIN_BYTES)


def normalized(name: str) -> str:
    """Return the name with the tag ``latest`` if it has none (a digest counts as a tag)."""
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"


def build(_args: NoArgs, _axis: ResourceAxis) -> ImageLocality:
    return ImageLocality()


PLUGIN = PluginSpec("ImageLocality", NoArgs, build)
