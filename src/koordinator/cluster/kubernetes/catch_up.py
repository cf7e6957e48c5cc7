"""Proof that a view has caught up with the API server.

A new leader must know everything that happened before it began to lead.  Lists of whole objects
would show it.  Lists of their versions show it too, at a fraction of the cost, since a stream has
nearly always delivered everything already: then nothing is left to decode, and no stream is
interrupted.
"""

from collections.abc import Callable, Mapping
from typing import Final

from koordinator.api.meta import KubeObject, is_newer_version
from koordinator.cluster.kubernetes.pages import ObjectVersion, VersionList

#: From the comparison on; a stream that is slower is replaced by a list.
PATIENCE_S: Final = 1.0


class CatchUp:
    """Comparison of a view with the versions of a list; begins before the list is requested.

    The versions may come at any time later.  Where they differ, the view has to receive events
    first.  An object that is newer than the list, or that was removed since the beginning,
    counts as received.
    """

    def __init__(self, refresh: int) -> None:
        self.refresh = refresh  # number of the request
        self._removed: set[str] = set()  # UIDs, since the beginning
        self._list_version = ""
        self._missing: dict[str, ObjectVersion] | None = None  # by key; None before the comparison
        self._stale: set[str] = set()  # keys of objects that the list does not have
        self._deadline_s = 0.0

    def note_removed(self, uid: str) -> None:
        """Remember that the view has received the removal of an object."""
        self._removed.add(uid)

    def compare(
        self,
        listed: VersionList,
        objects: Mapping[str, KubeObject],
        key_of: Callable[[ObjectVersion], str],
        now_s: float,
    ) -> None:
        """Find the differences between a list and the objects of the view."""
        self._list_version, self._deadline_s = listed.resource_version, now_s + PATIENCE_S
        self._missing = {key_of(each): each for each in listed.objects}
        self._stale = objects.keys() - self._missing.keys()

    def is_done(self, objects: Mapping[str, KubeObject]) -> bool:
        """Return whether the view has everything that was listed, and nothing that was not."""
        if self._missing is None:
            return False
        self._missing = {
            key: wanted
            for key, wanted in self._missing.items()
            if not self._has(objects.get(key), wanted)
        }
        self._stale = {key for key in self._stale if self._is_stale(objects.get(key))}
        return not (self._missing or self._stale)

    def is_overdue(self, now_s: float) -> bool:
        """Return whether the stream has not delivered the differences in time."""
        return self._missing is not None and now_s >= self._deadline_s

    def _has(self, known: KubeObject | None, wanted: ObjectVersion) -> bool:
        if wanted.uid in self._removed:
            return True
        if known is None:
            return False
        version = known.metadata.resource_version
        return version == wanted.resource_version or is_newer_version(
            version, wanted.resource_version
        )

    def _is_stale(self, known: KubeObject | None) -> bool:
        return known is not None and not is_newer_version(
            known.metadata.resource_version, self._list_version
        )
