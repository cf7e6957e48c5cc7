"""Node locks: one pending pod at a time for device plugins that can't identify pods.

The scheduler locks a node by an annotation; the device plugin unlocks it after serving the pod.

Source: koordinator pkg/scheduler/plugins/deviceshare/device_plugin_adapter.go, ``lockNode``.
"""

import datetime as dt
from collections.abc import Callable

from koordinator.foundation.errors import InputError

#: Older locks are ignored as stale.
TIMEOUT = dt.timedelta(minutes=5)


def lock_text(now: dt.datetime, namespace: str, pod: str) -> str:
    """Return the lock annotation for a pod; ``now`` must have a time zone."""
    return f"{now.astimezone(dt.UTC):%Y-%m-%dT%H:%M:%SZ},{namespace},{pod}"


def locked(node: str) -> str:
    """Return the message for a pod that waits for another pod's lock."""
    return f'node "{node}" has been locked'


def is_locked(text: str, now: dt.datetime, exists: Callable[[str, str], bool]) -> bool:
    """Return whether the lock in the node's annotation is still in force.

    ``exists`` answers for namespace and name of a pod. Raises InputError for a text that is no
    lock.
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
