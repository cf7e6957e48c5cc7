"""Writes of the manager, their rate limit, and events about failed ones.

Writes are idempotent, and reconciliation repeats a lost write.

Source: koordinator pkg/controller/colocationprofile/colocationprofile_controller.go.
"""

from collections.abc import Hashable

from msgspec.structs import replace

from koordinator.api.event import Event, new_event, reference_to
from koordinator.api.meta import JsonObject, KubeObject
from koordinator.foundation.lazy_dataclass import dataclass

COMPONENT = "koord-manager"
JOB_NOT_QUEUED = "JobNotQueued"  # job: it is invalid, so that it gets no QueueUnit
CREATE_QUOTA_FAILED = "CreateQuotaFailed"  # ElasticQuotaProfile: its root quota was refused
#: ElasticQuotaProfile: it is ignored, or a field of it
INVALID_QUOTA_PROFILE = "InvalidQuotaProfile"
UPDATE_QUOTA_FAILED = "UpdateQuotaFailed"  # ElasticQuotaProfile: a change of its quota was refused


@dataclass(frozen=True, slots=True)
class Create:
    """Creation of an object."""

    obj: KubeObject


@dataclass(frozen=True, slots=True)
class Patch:
    """A merge patch; ``subresource`` is empty or ``status``."""

    kind: type[KubeObject]
    name: str
    body: JsonObject
    namespace: str = ""
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletion of the object with that uid."""

    kind: type[KubeObject]
    name: str
    uid: str
    namespace: str = ""


Write = Create | Patch | Delete


@dataclass(frozen=True, slots=True, kw_only=True)
class ColocationProfileOptions:
    """The flags ``--colocation-profile-…``."""

    reconcile_by_default: bool = False
    interval_s: float = 30.0
    force_update_s: float = 300.0  # before a processed pod is processed again
    forget_every_s: float = 600.0
    qps: float = 10.0
    burst: int = 100


class RateLimiter:
    """Token bucket with a record of recently processed keys."""

    def __init__(self, options: ColocationProfileOptions) -> None:
        self._options = options
        self._tokens = float(options.burst)
        self._counted_s: float | None = None
        self._done: dict[Hashable, float] = {}  # time of the last processing, by key
        self._forgot_s = 0.0

    def is_done(self, key: Hashable, now_s: float) -> bool:
        """Return whether a key was processed less than ``force_update_s`` ago."""
        done_s = self._done.get(key)
        return done_s is not None and now_s - done_s < self._options.force_update_s

    def take(self, now_s: float) -> bool:
        """Take a token; return False if none is available."""
        options = self._options
        if self._counted_s is not None:
            earned = max(now_s - self._counted_s, 0.0) * options.qps
            self._tokens = min(self._tokens + earned, float(options.burst))
        self._counted_s = now_s
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def note(self, key: Hashable, now_s: float) -> None:
        """Record that a key was processed."""
        if now_s - self._forgot_s >= self._options.forget_every_s:
            self._done = {key: at_s for key, at_s in self._done.items() if self.is_done(key, now_s)}
            self._forgot_s = now_s
        self._done[key] = now_s


def warning(
    about: KubeObject, reason: str, note: str, *, action: str, name: str, now_s: float
) -> Event:
    """Return a Warning event about an object; an event of the same ``name`` replaces it."""
    regarding = replace(reference_to(about), resource_version=about.metadata.resource_version)
    return new_event(
        regarding,
        name=name,
        reason=reason,
        action=action,
        note=note,
        component=COMPONENT,
        now_s=now_s,
    )
