"""What is asked of admission, and the answers.

Source: k8s.io/api admission/v1/types.go.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from koordinator.api.authentication import UserInfo
from koordinator.api.meta import JsonObject
from koordinator.api.pod import Pod
from koordinator.foundation.errors import KoordinatorError


class AdmissionOperation(StrEnum):
    """What the request wants to do."""

    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionRequest:
    """An object as it would be stored, ``old`` as it is; objects are not to be changed."""

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
        """Return the user as which the containers of a pod act."""
        name = pod.spec.service_account_name or "default"
        prefix = "system:serviceaccount"
        return UserInfo(
            username=f"{prefix}:{self.namespace}:{name}",
            groups=(f"{prefix}s", f"{prefix}s:{self.namespace}", "system:authenticated"),
        )


class Denial(KoordinatorError):  # noqa: N818 -- it is an answer, not an error of anybody
    """The request is refused; ``code`` is the HTTP status that the user sees."""

    def __init__(self, message: str, code: int = 400) -> None:
        self.code = code
        super().__init__(message)
