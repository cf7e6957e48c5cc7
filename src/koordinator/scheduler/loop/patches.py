"""Changes of objects that are written in the background, and again if they don't show.

What an object should say is derived from the state anyway: a write that was lost costs nothing but
time.
"""

from dataclasses import dataclass

from koordinator.api.codec import merge_patch
from koordinator.api.meta import JsonObject, KubeObject
from koordinator.cluster.port import Cluster, ObjectPatch
from koordinator.foundation.clock import Clock

AGAIN_S = 30.0  # after which a change that has not shown is written again


@dataclass(slots=True)
class _Sent:
    patch: JsonObject
    at_s: float


class Patches:
    """Remembers, by key of the object, what has been sent and not been seen."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster, self._clock = cluster, clock
        self._sent: dict[str, _Sent] = {}  # in the order of the times

    def send(self, old: KubeObject, new: KubeObject, subresource: str = "") -> bool:
        """Have an object changed; False if just that is under way already.

        ``subresource``: only that is written, such as the status.
        """
        patch, now_s = merge_patch(old, new), self._clock.now_s()
        sent = self._sent.get(old.key)
        if sent is not None and sent.patch == patch and now_s < sent.at_s + AGAIN_S:
            return False
        self._sent.pop(old.key, None)
        self._sent[old.key] = _Sent(patch, now_s)
        meta = old.metadata
        report = ObjectPatch(
            type(old), meta.namespace, meta.name, patch, uid=meta.uid, subresource=subresource
        )
        self._cluster.report([report])
        return True

    def arrived(self, key: str) -> None:
        """Forget the change of an object that shows it, or was deleted."""
        self._sent.pop(key, None)

    def lost(self, now_s: float) -> list[str]:
        """Return the keys of objects whose change the watch has not shown for too long."""
        late_s = now_s - AGAIN_S
        late = []
        for key, sent in self._sent.items():
            if sent.at_s > late_s:
                break
            late.append(key)
        return late

    def next_wakeup_s(self) -> float | None:
        """Return when something may have been lost."""
        first = next(iter(self._sent.values()), None)
        return None if first is None else first.at_s + AGAIN_S
