"""Waiting for what another party does, over every adapter."""

from collections.abc import Callable

from koordinator.cluster.port import Cluster


def eventually(cluster: Cluster, holds: Callable[[], bool]) -> bool:
    """Return whether it holds within a minute."""
    for _ in range(1200):
        if holds():
            return True
        cluster.wait(0.05)
    return False
