"""Our validation of manifests is the API server's."""

from http import HTTPStatus
from typing import Any

import pytest
from tests.e2e.controlplane import ApiError, ControlPlane
from tests.refused_manifests import ACCEPTED, REFUSED

from koordinator.api.registry import find_kind


def status_of(controlplane: ControlPlane, manifest: dict[str, Any]) -> tuple[int, str]:
    """Return what the server answers to the creation of an object that it does not keep."""
    version, kind = manifest["apiVersion"], find_kind(manifest["apiVersion"], manifest["kind"])
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    scope = "/namespaces/default" if kind.NAMESPACED else ""
    try:
        path = f"{root}{scope}/{kind.PLURAL}?dryRun=All"
        return HTTPStatus.CREATED, str(controlplane.api.request("POST", path, manifest))
    except ApiError as error:
        return error.status, str(error)


@pytest.mark.parametrize("name", REFUSED)
def test_api_server_rejects_rejected_manifests(controlplane: ControlPlane, name: str) -> None:
    """As invalid, or for a RuntimeClass that does not exist."""
    status, text = status_of(controlplane, REFUSED[name][0])

    if status == HTTPStatus.FORBIDDEN:
        assert "RuntimeClass" in text
    else:
        assert (status, "is invalid" in text) == (HTTPStatus.UNPROCESSABLE_ENTITY, True), text


@pytest.mark.parametrize("name", ACCEPTED)
def test_api_server_accepts_accepted_manifests(controlplane: ControlPlane, name: str) -> None:
    """Manifests pass except for objects that have to exist, such as a pod's service account."""
    status, text = status_of(controlplane, ACCEPTED[name])

    assert status == HTTPStatus.CREATED or "serviceaccount" in text, text
