"""Mapping of failed responses (HTTP status and ``Status`` object) to errors.

Source: k8s.io/apimachinery pkg/api/errors/errors.go; pkg/apis/meta/v1/types.go ``Status``.
"""

from http import HTTPStatus

import msgspec

from koordinator.foundation.decoders import decode_json
from koordinator.foundation.errors import (
    AlreadyExistsError,
    ClusterError,
    ConflictError,
    GoneError,
    InvalidError,
    NotFoundError,
    TooManyRequestsError,
)

_SHOWN = 300  # characters of an answer that is no Status object


class UnreachableError(ClusterError):
    """There was no response.  If the request was ``sent``, it may have taken effect."""

    def __init__(self, message: str, *, sent: bool, hopeless: bool = False) -> None:
        super().__init__(message)
        self.sent = sent
        self.hopeless = hopeless  # trying again gives the same: a certificate isn't trusted


class FencedError(ClusterError):
    """The request was not sent: this process has lost its lease."""


class ForbiddenError(InvalidError):
    """The request is forbidden (HTTP 403) until the role is changed."""


_BY_STATUS: dict[int, type[ClusterError]] = {
    HTTPStatus.BAD_REQUEST: InvalidError,
    HTTPStatus.FORBIDDEN: ForbiddenError,
    HTTPStatus.NOT_FOUND: NotFoundError,
    HTTPStatus.CONFLICT: ConflictError,
    HTTPStatus.GONE: GoneError,
    HTTPStatus.UNPROCESSABLE_ENTITY: InvalidError,
    HTTPStatus.TOO_MANY_REQUESTS: TooManyRequestsError,
}


class StatusCause(msgspec.Struct, frozen=True):
    """One of several reasons."""

    reason: str | None = None
    message: str | None = None
    field: str | None = None


class _Details(msgspec.Struct, frozen=True):
    causes: tuple[StatusCause, ...] | None = None


class ServerStatus(msgspec.Struct, frozen=True):
    """The part of a ``Status`` object that is read."""

    message: str | None = None
    reason: str | None = None
    code: int | None = None
    details: _Details | None = None

    @property
    def causes(self) -> tuple[StatusCause, ...]:
        return (self.details.causes or ()) if self.details else ()


def read_status(body: bytes) -> ServerStatus:
    """Return the Status object of a response, or one with the text of another response."""
    try:
        return decode_json(body, ServerStatus)
    except (msgspec.DecodeError, UnicodeDecodeError):
        if body.lstrip()[:1] == b"<":
            return ServerStatus(message="a page came instead of an object: is it an API server?")
        return ServerStatus(message=body[:_SHOWN].decode(errors="replace").strip())


def error_of(code: int, status: ServerStatus, request: str, source: str = "") -> ClusterError:
    """Return the error for an answer with an HTTP status of 300 or more.

    The message names ``request`` (verb and path) and ``source`` of the credentials.
    """
    message = f"{status.message or HTTPStatus(code).phrase} ({request}: {code})"
    if code == HTTPStatus.UNAUTHORIZED:
        return ClusterError(
            f"{message}; the server doesn't know who we are: check token or client certificate "
            f"of {source}"
        )
    if code == HTTPStatus.CONFLICT and status.reason == "AlreadyExists":
        return AlreadyExistsError(message)
    if any(cause.field == "metadata.uid" for cause in status.causes):
        return ConflictError(message)  # of a patch: its uid differs from the object's
    return _BY_STATUS.get(code, ClusterError)(message)
