"""Questions to a component that is running, over the port on which it serves."""

from pathlib import Path
from ssl import SSLCertVerificationError
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from koordinator.cluster.kubernetes.connection import (
    ApiServer,
    Connection,
    Identity,
    find_connection,
)
from koordinator.cluster.kubernetes.credentials import Credentials
from koordinator.foundation.clock import SystemClock
from koordinator.foundation.errors import ClusterError, InputError
from koordinator.foundation.lazy_dataclass import dataclass

PATIENCE_S = 30.0
_HINTS = {
    401: "; the token has run out, or is of another cluster",
    403: (
        "; a bearer token is needed, of a user who may get this path: client certificates are not "
        "looked at (--token, kubectl create token)"
    ),
    404: "; is it started with --audit?",
    503: "; only the replica that leads answers",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentClient:
    """HTTP client with the credentials and CA certificates of a kubeconfig or of flags.

    Without ``certificate_authority`` it is the one of the kubeconfig, or any that the system
    trusts.
    """

    kubeconfig: str = ""
    context: str = ""
    in_cluster: bool = False
    token: str = ""
    certificate_authority: Path | None = None
    verifies: bool = True

    def get(self, server: str, path: str, parameters: dict[str, str]) -> bytes:
        """Return the answer of ``server``, a URL without path; empty parameters are left out.

        Raises InputError for an invalid address, ClusterError without a successful response.
        """
        connection = self._connection(server)
        access = Credentials(connection, SystemClock()).current()
        handlers: list[Any] = [_NoRedirects()]
        if access is not None and access.tls is not None:
            handlers.append(HTTPSHandler(context=access.tls))
        query = urlencode({name: value for name, value in parameters.items() if value})
        url = f"{connection.server.url}{path}" + (f"?{query}" if query else "")
        request = Request(url, headers=dict(access.headers if access else ()))  # noqa: S310 -- http or https, see _connection
        try:
            with build_opener(*handlers).open(request, timeout=PATIENCE_S) as answer:
                body: bytes = answer.read()
        except HTTPError as error:
            detail = error.read().decode(errors="replace").strip()[:300]
            hint = _HINTS.get(error.code, "")
            raise ClusterError(f"{url} answered {error.code}: {detail}{hint}") from None
        except (URLError, TimeoutError) as error:
            raise ClusterError(f"{url} does not answer: {error}{_tls_hint(error)}") from None
        return body

    def _connection(self, server: str) -> Connection:
        scheme = urlsplit(server).scheme
        if scheme not in ("http", "https"):
            text = f"must be an http or https URL, got {server!r}"
            raise InputError(text, source="--server")
        if scheme == "http" and self != ComponentClient():
            raise InputError(
                f"must be an https URL when credentials are set, got {server!r}",
                source="--server",
            )
        connection = Connection(ApiServer(server), Identity(), "--server")
        if self.kubeconfig or self.context or self.in_cluster:
            connection = find_connection(self.kubeconfig, self.context)
        identity = Identity(token=self.token) if self.token else connection.identity
        authority = self.certificate_authority or connection.server.ca
        target = ApiServer(server.rstrip("/"), authority, verified=self.verifies)
        return Connection(target, identity, connection.source)


class _NoRedirects(HTTPRedirectHandler):
    """Handler that refuses redirects, so that credentials reach no other server."""

    def redirect_request(self, *_: Any) -> None:
        """Return no further request."""


def _tls_hint(error: URLError | TimeoutError) -> str:
    if not isinstance(getattr(error, "reason", None), SSLCertVerificationError):
        return ""
    return (
        "; set its CA certificates (--certificate-authority), or, on a trusted network, skip the "
        "check (--insecure-skip-tls-verify)"
    )
