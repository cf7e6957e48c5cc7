"""A plain HTTP client over loopback, with TLS or without."""

import http.client
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PATIENCE_S = 60.0  # real time, never used up if the code is right
NO_HEADERS: Mapping[str, str] = {}


@dataclass(frozen=True)
class Reply:
    status: int
    headers: http.client.HTTPMessage
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


def ask(
    port: int,
    path: str,
    *,
    method: str = "GET",
    body: str | None = None,
    headers: Mapping[str, str] = NO_HEADERS,
    trusted: bytes | None = None,
) -> Reply:
    """Send one request; with ``trusted`` (PEM) over TLS to a server that it vouches for."""
    if trusted is None:
        connection = http.client.HTTPConnection("localhost", port, timeout=PATIENCE_S)
    else:
        context = ssl.create_default_context(cadata=trusted.decode())
        connection = http.client.HTTPSConnection(
            "localhost", port, timeout=PATIENCE_S, context=context
        )
    try:
        connection.request(method, path, body, dict(headers))
        response = connection.getresponse()
        return Reply(response.status, response.headers, response.read().decode())
    finally:
        connection.close()


def certificate_of(port: int) -> bytes:
    """Return the PEM certificate that the server shows."""
    return ssl.get_server_certificate(("localhost", port)).encode()
