"""Admission requests and denials.

Source: k8s.io/api admission/v1/types.go.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from koordinator.api.authentication import UserInfo
from koordinator.api.meta import JsonObject
from koordinator.api.pod import Pod
from koordinator.foundation.errors import KoordinatorError


class AdmissionOperation(StrEnum):
    """Operation of an admission request."""

    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionRequest:
    """An admission request: ``obj`` as it would be stored, ``old`` as it is stored.

    Hooks must not modify either object.
    """

    operation: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    obj: JsonObject
    old: JsonObject | None = None
    requester: UserInfo = field(default_factory=UserInfo)
    is_of_component: bool = False  # the requester is a component of Koordinator
    is_dry_run: bool = False

    @property
    def user(self) -> str:
        """The name of the requester."""
        return self.requester.username

    def service_account_of(self, pod: Pod) -> UserInfo:
        """Return the service account of a pod as a user."""
        name = pod.spec.service_account_name or "default"
        prefix = "system:serviceaccount"
        return UserInfo(
            username=f"{prefix}:{self.namespace}:{name}",
            groups=(f"{prefix}s", f"{prefix}s:{self.namespace}", "system:authenticated"),
        )


class Denial(KoordinatorError):  # noqa: N818 -- a regular response, not a failure
    """Denial of an admission request; ``code`` is the HTTP status that the client receives."""

    def __init__(self, message: str, code: int = 400) -> None:
        self.code = code
        super().__init__(message)
