"""One pod at a time: locks on nodes for device plugins that can't tell pods apart.

The scheduler locks, by an annotation of the node; the device plugin unlocks once it has served the
pod.
Source: koordinator pkg/scheduler/plugins/deviceshare/device_plugin_adapter.go, ``lockNode``.
"""

import datetime as dt
from collections.abc import Callable

from koordinator.foundation.errors import InputError

#: A lock that is older was forgotten.
TIMEOUT = dt.timedelta(minutes=5)


def lock_text(now: dt.datetime, namespace: str, pod: str) -> str:
    """Return the annotation of a node that waits for a pod; ``now`` has a time zone."""
    return f"{now.astimezone(dt.UTC):%Y-%m-%dT%H:%M:%SZ},{namespace},{pod}"


def locked(node: str) -> str:
    """Return what a pod is told that has to wait for another one."""
    return f'node "{node}" has been locked'


def is_locked(text: str, now: dt.datetime, exists: Callable[[str, str], bool]) -> bool:
    """Return whether the node still waits for the pod that its annotation names.

    ``exists`` answers for namespace and name of a pod.
    Raises InputError for a text that is no lock.
    """
    try:
        since, namespace, pod = text.split(",")
        locked = dt.datetime.fromisoformat(since)
        age = now - locked
    except (ValueError, TypeError):
        raise InputError(
            "must be a time such as 2024-05-01T08:00:00Z, a namespace and the name of a pod, "
            f"separated by commas, got {text!r}"
        ) from None
    return age <= TIMEOUT and exists(namespace, pod)
