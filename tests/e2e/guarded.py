"""Pages that need authorization by the API server."""

import ssl
from dataclasses import replace

import pytest
from tests.e2e.controlplane.endpoint import Endpoint
from tests.e2e.controlplane.errors import ApiError


def unverified() -> ssl.SSLContext:
    """Return what takes the certificate that a component has made for itself."""
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    return tls


def assert_guarded(stranger: Endpoint, token: str) -> None:
    """Check that pages need authorization, and probes need none."""
    assert stranger.request("GET", "/livez") == "ok"
    pages = (("GET", "/metrics"), ("GET", "/debug/threads"), ("PUT", "/debug/flags/v"))
    for credentials, status in (("", 403), ("made-up", 401)):
        for method, path in pages:
            with pytest.raises(ApiError, match=f"HTTP {status}"):
                replace(stranger, token=credentials).request(method, path, 9)
    assert "process_cpu_seconds_total" in replace(stranger, token=token).request("GET", "/metrics")
