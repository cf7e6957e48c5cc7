"""Record of recently admitted quota changes, shared by all replicas of the manager.

Two replicas could admit two requests at the same time that are valid separately but not together.
Each admission is therefore written into one ConfigMap before the response is sent, with optimistic
locking; after a conflict, the replica reads the ConfigMap and decides again.
"""

import hashlib
from typing import Final

import msgspec

from koordinator.api.codec import decode, encode_part
from koordinator.api.config_map import ConfigMap
from koordinator.api.meta import JsonObject, ObjectMeta
from koordinator.cluster.port import Cluster
from koordinator.foundation.clock import Clock
from koordinator.foundation.errors import (
    AlreadyExistsError,
    ConflictError,
    InputError,
    NotFoundError,
)
from koordinator.manager.admission.lookup import QuotaChange
from koordinator.manager.quota_view import ADMITTED_FOR_S

NAME: Final = "koordinator-quota-admissions"
#: Limits in bytes of one change, and of all changes of one namespace: a ConfigMap holds 1 MiB, and
#: the users of one namespace must not fill it.
LARGEST: Final = 16 << 10
SHARE: Final = 512 << 10


class RecordedChange(msgspec.Struct, frozen=True, rename="camel"):
    """A value of the ConfigMap; the time is in seconds since the epoch, by the writer's clock."""

    admitted_at: float
    change: QuotaChange


class QuotaRecord:
    """Copy of the ConfigMap as last read or written.  Methods raise ClusterError."""

    def __init__(self, cluster: Cluster, clock: Clock, namespace: str) -> None:
        self._cluster, self._clock, self._namespace = cluster, clock, namespace
        self._version = ""  # empty: the ConfigMap has not been read
        self._changes: dict[str, RecordedChange] = {}  # by key in the ConfigMap
        self._sizes: dict[str, int] = {}  # in bytes, by key in the ConfigMap

    def changes(self) -> tuple[RecordedChange, ...]:
        """Return the changes admitted by all replicas that have not expired."""
        now_s = self._clock.now_s()
        return tuple(each for each in self._changes.values() if not _is_over(each, now_s))

    def read(self) -> None:
        """Read the ConfigMap; create it if it does not exist."""
        try:
            stored = self._cluster.get(ConfigMap, NAME, self._namespace)
        except NotFoundError:
            meta = ObjectMeta(name=NAME, namespace=self._namespace)
            try:
                stored = self._cluster.create(ConfigMap(metadata=meta))
            except AlreadyExistsError:
                stored = self._cluster.get(ConfigMap, NAME, self._namespace)
        self._take(stored)

    def add(self, change: QuotaChange) -> None:
        """Write a change before its response is sent, and remove expired changes.

        Raises ConflictError if another replica has written since the last ``read``, and InputError
        if the change is too large, or its namespace has too many changes.
        """
        if not self._version:
            self.read()
            raise ConflictError("the changes admitted by other replicas were not known yet")
        now_s = self._clock.now_s()
        data: JsonObject = {
            key: None for key, each in self._changes.items() if _is_over(each, now_s)
        }
        text = encode_part(RecordedChange(now_s, change.shortened())).decode()
        self._check_size(change.key, text, now_s)
        data[_data_key(change.key)] = text
        patch: JsonObject = {"metadata": {"resourceVersion": self._version}, "data": data}
        try:
            self._take(self._cluster.patch(ConfigMap, NAME, self._namespace, patch))
        except NotFoundError:
            self._version = ""
            raise ConflictError(f"ConfigMap {self._namespace}/{NAME} was deleted") from None

    def _check_size(self, key: str, text: str, now_s: float) -> None:
        size, namespace = len(text.encode()), key.partition("/")[0]
        if size > LARGEST:
            raise InputError(
                f"quota {key}: its record must be at most {LARGEST} bytes, got {size}: use "
                "fewer resources in spec.min and spec.max, and shorter annotations"
            )
        others = sum(
            self._sizes[at]
            for at, each in self._changes.items()
            if each.change.quota.metadata.namespace == namespace
            and each.change.key != key
            and not _is_over(each, now_s)
        )
        if others + size > SHARE:
            raise InputError(
                f"quota {key}: too many quotas of namespace {namespace} were changed within "
                f"{ADMITTED_FOR_S:.0f} s; try again after that"
            )

    def _take(self, stored: ConfigMap) -> None:
        self._version = stored.metadata.resource_version
        self._changes, self._sizes = {}, {}
        for key, text in stored.data.items():
            try:
                self._changes[key] = decode(text.encode(), RecordedChange)
                self._sizes[key] = len(text.encode())
            except InputError:
                continue  # not written by a manager; it is kept unchanged


def _is_over(recorded: RecordedChange, now_s: float) -> bool:
    return abs(now_s - recorded.admitted_at) > ADMITTED_FOR_S


def _data_key(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()  # names may exceed the length limit of keys
