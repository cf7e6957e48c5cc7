"""JSON over HTTP to one loopback port: the least with which the control plane is looked after."""

import json
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any

from tests.e2e.controlplane.errors import ApiError, ControlPlaneError

_REQUEST_TIMEOUT_S = 60.0
#: CPU time in which the slowest program, kube-apiserver, starts several times over.
_START_CPU_S = 90.0
#: For a program that waits for something instead of working.  On two cores with a load average of
#: 16 an API server is ready after minutes.
_READY_TIMEOUT_S = 1800.0
_PROBE_TIMEOUT_S = 30.0
_POLL_S = 0.05
_FIRST_ERROR = 400


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server on 127.0.0.1; speaks TLS if there is a context."""

    port: int
    tls: ssl.SSLContext | None = None
    token: str = ""

    @property
    def url(self) -> str:
        """Scheme, host and port."""
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    def connect(self, timeout_s: float = _REQUEST_TIMEOUT_S) -> HTTPConnection:
        """Return a connection, which opens when it is used, and again after it was closed."""
        if self.tls is None:
            return HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        return HTTPSConnection("127.0.0.1", self.port, timeout=timeout_s, context=self.tls)

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        accept: str = "application/json",
        timeout_s: float = _REQUEST_TIMEOUT_S,
        over: HTTPConnection | None = None,
    ) -> Any:
        """Send ``body`` as JSON and return the answer: decoded if it is JSON, else its text.

        Uses and leaves open the connection ``over``, or one of its own.  A GET that the server
        asks to repeat, as while it fills the watch cache of a new kind, is repeated for
        ``timeout_s``.  Raises ApiError for another status of 400 and above, OSError and
        HTTPException if there is no answer.
        """
        connection = over or self.connect(timeout_s)
        headers = {"Content-Type": content_type, "Accept": accept}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        try:
            # As Go writes it: a server keeps opaque parts as they came, and patches compare them.
            content = None if body is None else json.dumps(body, separators=(",", ":"))
            connection.request(method, path, content, headers)
            response = connection.getresponse()
            text = response.read().decode()
        finally:
            if over is None:
                connection.close()
        wait_s = float(response.headers.get("Retry-After", "inf"))
        is_busy = response.status == HTTPStatus.TOO_MANY_REQUESTS
        if is_busy and method == "GET" and wait_s < timeout_s:
            time.sleep(wait_s)
            return self.request(
                method,
                path,
                content_type=content_type,
                accept=accept,
                timeout_s=timeout_s - wait_s,
                over=over,
            )
        if response.status >= _FIRST_ERROR:
            raise ApiError(response.status, text)
        is_json = response.headers.get_content_type() == "application/json"
        return json.loads(text) if is_json else text

    def wait_until_ready(self, path: str, read_cpu_s: Callable[[], float]) -> None:
        """Return when a GET of the path succeeds.

        ``read_cpu_s`` returns the CPU time that the server has used; it raises if the server has
        ended.  Raises ControlPlaneError with the last answer if CPU time that suffices for a start
        has not led to one.  How long that takes depends on the load of the machine.
        """
        give_up = time.monotonic() + _READY_TIMEOUT_S
        began_s = read_cpu_s()
        while True:
            cpu_s = read_cpu_s() - began_s
            try:
                self.request("GET", path, timeout_s=_PROBE_TIMEOUT_S)
            except (ApiError, OSError, HTTPException) as error:
                if cpu_s > _START_CPU_S or time.monotonic() > give_up:
                    raise ControlPlaneError(
                        f"{self.url}{path} is not ready after {cpu_s:.0f} s of CPU time: {error}"
                    ) from error
                time.sleep(_POLL_S)
            else:
                return


def free_port() -> int:
    """Return a loopback port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
