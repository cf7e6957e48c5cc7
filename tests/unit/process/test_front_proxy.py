"""Users that the API server authenticated, and the attributes of their requests."""

import pytest
from starlette.datastructures import Headers

from koordinator.api.control_plane import NonResourceAttributes, ResourceAttributes
from koordinator.api.core import ConfigMap
from koordinator.api.meta import ObjectMeta
from koordinator.foundation.errors import InputError
from koordinator.process.front_proxy import AUTHENTICATED, FrontProxy, request_attributes

DATA = {
    "requestheader-client-ca-file": "-----BEGIN CERTIFICATE-----",
    "requestheader-allowed-names": '["front-proxy-client"]',
    "requestheader-username-headers": '["X-Remote-User"]',
    "requestheader-group-headers": '["X-Remote-Group"]',
    "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
}
NAMES = frozenset({"front-proxy-client"})


def proxy(**data: str) -> FrontProxy:
    meta = ObjectMeta(name="extension-apiserver-authentication", namespace="kube-system")
    return FrontProxy.of(ConfigMap(metadata=meta, data=DATA | data))


def headers(*pairs: tuple[str, str]) -> Headers:
    return Headers(raw=[(key.lower().encode(), value.encode()) for key, value in pairs])


def test_headers_of_the_api_server_name_the_user() -> None:
    """With groups and whatever else it knows."""
    user = proxy().user_of(
        NAMES,
        headers(
            ("X-Remote-User", "jane"),
            ("X-Remote-Group", "dev"),
            ("X-Remote-Group", "ops"),
            ("X-Remote-Extra-Example.com%2fscope", "a"),
        ),
    )
    assert user is not None
    assert (user.username, user.groups) == ("jane", ("dev", "ops", AUTHENTICATED))
    assert user.extra == {"example.com/scope": ("a",)}


@pytest.mark.parametrize("names", [frozenset(), frozenset({"kubelet"})])
def test_headers_of_other_clients_are_ignored(names: frozenset[str]) -> None:
    """A client with another certificate cannot impersonate a user."""
    assert proxy().user_of(names, headers(("X-Remote-User", "admin"))) is None


def test_any_certificate_of_the_authority_is_accepted_without_allowed_names() -> None:
    """An empty list accepts every name; headers without a user authenticate no user."""
    anyone = proxy(**{"requestheader-allowed-names": "[]"})
    assert anyone.user_of({"x"}, headers(("X-Remote-User", "jane"))) is not None
    assert anyone.user_of({"x"}, headers(("X-Remote-Group", "dev"))) is None
    assert anyone.user_of((), headers(("X-Remote-User", "jane"))) is None


def test_invalid_configuration_is_rejected_with_its_key() -> None:
    """With the key."""
    with pytest.raises(InputError, match="requestheader-client-ca-file: is required"):
        proxy(**{"requestheader-client-ca-file": ""})
    with pytest.raises(InputError, match="requestheader-allowed-names"):
        proxy(**{"requestheader-allowed-names": "{"})


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/apis/g/v1/queues", ("list", "queues", "", "")),
        ("/apis/g/v1/queues/a", ("get", "queues", "a", "")),
        ("/apis/g/v1/queues/a/queueunits", ("get", "queues", "a", "queueunits")),
        ("/apis/g/v1", None),
        ("/apis/g/v1/queues/", None),
        ("/apis/g/v1/queues//queueunits", None),
        ("/apis/g/v1/a/b/c/d", None),
        ("/openapi/v2", None),
    ],
)
def test_request_is_for_a_resource_or_a_path(
    path: str, expected: tuple[str, str, str, str] | None
) -> None:
    """As the API server would ask about it; what is no resource is judged as a path."""
    result = request_attributes("GET", path, "g/v1")
    if expected is None:
        assert result == NonResourceAttributes(path=path, verb="get")
        return
    verb, resource, name, subresource = expected
    assert result == ResourceAttributes(
        verb=verb, group="g", version="v1", resource=resource, name=name, subresource=subresource
    )


def test_other_methods_are_other_verbs() -> None:
    """Permission to read does not imply permission to write."""
    for method, verb in (("HEAD", "get"), ("POST", "create"), ("DELETE", "delete")):
        result = request_attributes(method, "/apis/g/v1/queues/a", "g/v1")
        assert isinstance(result, ResourceAttributes)
        assert result.verb == verb
