"""Persistent connection to a web service of Hadoop.

Source: RFC 9112 by the standard library's ``http.client``; Hadoop's answers are JSON where they are
asked to be.
"""

import http.client
import json
import ssl
from typing import Any, Final, TypeVar
from urllib.parse import quote

import msgspec

from koordinator.foundation.decoders import decode_json
from koordinator.hadoop.configuration import Address
from koordinator.hadoop.port import NotActiveError, YarnError, YarnRefusedError

AnswerT = TypeVar("AnswerT")

LARGEST_ANSWER: Final = 64 << 20
_SHOWN: Final = 200  # characters of a refusal
_OK, _REDIRECTED, _REFUSED, _UNAUTHORIZED, _FAILED = 200, 300, 400, 401, 500


class WebService:
    """Client of ``http://address`` (https with ``tls``) with an optional ``user.name``."""

    def __init__(
        self,
        address: Address,
        *,
        timeout_s: float,
        user: str = "",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.name = f"{address[0]}:{address[1]}"
        self._user = user
        if tls is None:
            self._connection = http.client.HTTPConnection(*address, timeout=timeout_s)
        else:
            self._connection = http.client.HTTPSConnection(*address, timeout=timeout_s, context=tls)

    def get(self, path: str, answer: type[AnswerT]) -> AnswerT:
        """Return the decoded response of a path.  Raises YarnError; UnknownPathError for 404."""
        return self._decoded(self._ask("GET", path, None), answer)

    def post(self, path: str, body: Any, answer: type[AnswerT]) -> AnswerT:
        """Post JSON (None for an empty body) and return the response.  Raises YarnError."""
        text = b"" if body is None else json.dumps(body).encode()
        return self._decoded(self._ask("POST", path, text), answer)

    def close(self) -> None:
        self._connection.close()

    def _ask(self, method: str, path: str, body: bytes | None) -> bytes:
        if self._user:
            path += f"{'&' if '?' in path else '?'}user.name={quote(self._user)}"
        headers = {"Accept": "application/json"}
        if body:
            headers["Content-Type"] = "application/json"
        is_kept = self._connection.sock is not None
        try:
            return self._exchange(method, path, body, headers)
        except (http.client.RemoteDisconnected, ConnectionError) as error:
            if not is_kept:
                raise self._failure(method, path, error) from None
        except (OSError, http.client.HTTPException) as error:
            raise self._failure(method, path, error) from None
        try:  # the server may have closed the idle connection; a repeated request is harmless
            return self._exchange(method, path, body, headers)
        except (OSError, http.client.HTTPException) as error:
            raise self._failure(method, path, error) from None

    def _exchange(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str]
    ) -> bytes:
        try:
            self._connection.request(method, path, body, headers)
            answer = self._connection.getresponse()
            text = answer.read(LARGEST_ANSWER)
            is_whole = not answer.read(1)
        except BaseException:
            self._connection.close()
            raise
        if not is_whole:
            self._connection.close()
            raise YarnError(f"{self.name}{path}: answer larger than {LARGEST_ANSWER} bytes")
        if answer.status >= _FAILED:
            raise YarnError(f"{self.name}{path}: {answer.status} {_shown(text)}")
        if answer.status == _UNAUTHORIZED:
            wanted = answer.getheader("WWW-Authenticate", "")
            hint = " (Kerberos, which is not supported)" if "negotiate" in wanted.lower() else ""
            raise YarnRefusedError(f"{self.name}{path}: not authorized{hint}")
        if answer.status >= _REFUSED:
            kind = UnknownPathError if answer.status == http.client.NOT_FOUND else YarnRefusedError
            raise kind(f"{self.name}{path}: {answer.status} {_shown(text)}")
        if answer.status >= _REDIRECTED or "Refresh" in answer.headers:
            raise NotActiveError(f"{self.name}: redirects to another ResourceManager")
        return text

    def _failure(self, method: str, path: str, error: Exception) -> YarnError:
        self._connection.close()
        return YarnError(f"{method} {self.name}{path}: {error or type(error).__name__}")

    def _decoded(self, text: bytes, answer: type[AnswerT]) -> AnswerT:
        if answer is bytes:
            return text  # type: ignore[return-value]  # the caller requests bytes
        try:
            return decode_json(text, answer)
        except (msgspec.DecodeError, RecursionError) as error:
            raise YarnError(f"{self.name}: invalid response: {error}") from None


class UnknownPathError(YarnRefusedError):
    """Status 404: the object or the call does not exist."""


def _shown(text: bytes) -> str:
    """Return a refusal in one line: a RemoteException's message, or the start of the text."""
    try:
        message = json.loads(text)["RemoteException"]["message"]
    except (ValueError, LookupError, TypeError):
        message = text.decode(errors="replace")
    whole = (
        str(message).encode(errors="replace").decode()
    )  # JSON may have halves of surrogate pairs
    line = " ".join(whole.split())
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}…"
