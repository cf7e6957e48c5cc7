"""Cleanup of claims at the end of a test."""

from contextlib import suppress

from tests.e2e.controlplane import ApiError
from tests.e2e.controlplane.endpoint import Endpoint

PREFIX = "/apis/resource.k8s.io/v1"
_MERGE = "application/merge-patch+json"


def release_claims(api: Endpoint) -> None:
    """Free and delete all claims: one that is allocated can't be deleted."""
    for claim in api.request("GET", f"{PREFIX}/resourceclaims")["items"]:
        meta = claim["metadata"]
        path = f"{PREFIX}/namespaces/{meta['namespace']}/resourceclaims/{meta['name']}"
        free = {"status": {"allocation": None, "reservedFor": None}}
        with suppress(ApiError):  # the controller has been faster
            api.request("PATCH", f"{path}/status", free, content_type=_MERGE)
            api.request("DELETE", path)
            api.request("PATCH", path, {"metadata": {"finalizers": None}}, content_type=_MERGE)
