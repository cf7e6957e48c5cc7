"""Authentication of requests that the API server proxies to an aggregated API.

The API server presents its front-proxy certificate and names the user in headers.  The ConfigMap
``extension-apiserver-authentication`` has the certificate authority and the names of the headers.
Headers of other clients are ignored; a client without that certificate must send a token.
Source: k8s.io/apiserver pkg/authentication/request/headerrequest,
pkg/server/options/authentication.go.
"""

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Final
from urllib.parse import unquote

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from koordinator.api.codec import decode
from koordinator.api.control_plane import NonResourceAttributes, ResourceAttributes, UserInfo
from koordinator.api.core import ConfigMap
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.process.authorization import Authorizer, Decision
from koordinator.process.connections import CLIENT_NAMES
from koordinator.process.guard import (
    ReviewQueue,
    bearer_token,
    is_allowed,
)

CONFIG_NAMESPACE: Final = "kube-system"
CONFIG_NAME: Final = "extension-apiserver-authentication"
AUTHENTICATED: Final = "system:authenticated"
_CA: Final = "requestheader-client-ca-file"
_LONGEST_PATH: Final = 3  # resource, name, subresource


@dataclass(frozen=True, slots=True)
class FrontProxy:
    """Identity of the API server; without ``names`` any certificate of ``ca`` is accepted."""

    ca: bytes
    names: frozenset[str] = frozenset()
    user_headers: tuple[str, ...] = ()
    group_headers: tuple[str, ...] = ()
    uid_headers: tuple[str, ...] = ()
    extra_prefixes: tuple[str, ...] = ()

    @classmethod
    def of(cls, config: ConfigMap) -> "FrontProxy":
        """Read the ConfigMap.  Raises InputError with the key that is missing."""
        ca = config.data.get(_CA, "")
        if not ca.strip():
            raise InputError("is required: the API server proxies nothing", path=_CA)
        return cls(
            ca.encode(),
            frozenset(_listed(config, "requestheader-allowed-names")),
            _listed(config, "requestheader-username-headers"),
            _listed(config, "requestheader-group-headers"),
            _listed(config, "requestheader-uid-headers"),
            _listed(config, "requestheader-extra-headers-prefix"),
        )

    def user_of(self, client_names: Collection[str], headers: Headers) -> UserInfo | None:
        """Return the user in the headers if the client is the front proxy; names are verified."""
        if not client_names or (self.names and not self.names & frozenset(client_names)):
            return None
        name = next(filter(None, (headers.get(each) for each in self.user_headers)), None)
        if name is None:
            return None
        groups = [value for each in self.group_headers for value in headers.getlist(each)]
        extra: dict[str, tuple[str, ...]] = {}
        for prefix in self.extra_prefixes:
            for key in dict.fromkeys(headers.keys()):
                if key.startswith(prefix.lower()):
                    extra[unquote(key[len(prefix) :])] = tuple(headers.getlist(key))
        if AUTHENTICATED not in groups:
            groups.append(AUTHENTICATED)
        uid = next(filter(None, (headers.get(each) for each in self.uid_headers)), "")
        return UserInfo(username=name, uid=uid, groups=tuple(groups), extra=extra)


class FrontProxyGuard:
    """ASGI middleware that authorizes requests to an aggregated API with the API server."""

    def __init__(
        self,
        app: ASGIApp,
        authorizer: Authorizer,
        front_proxy: Callable[[], FrontProxy],
        group_version: str,
    ) -> None:
        """``group_version`` is what is served, such as ``metrics.k8s.io/v1beta1``."""
        self._app, self._authorizer, self._front_proxy = app, authorizer, front_proxy
        self._group_version = group_version
        self._thread = ThreadPoolExecutor(1, "authorization")
        self._queue = ReviewQueue(self._thread)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, headers = scope["path"], Headers(scope=scope)
        if path in self._authorizer.always_allowed:
            await self._app(scope, receive, send)
            return
        attributes = request_attributes(scope["method"], path, self._group_version)
        names = scope.get("extensions", {}).get(CLIENT_NAMES, {}).get("names", ())
        user = self._front_proxy().user_of(names, headers)
        token = bearer_token(headers.get("authorization", ""))

        def review() -> Decision:
            if user is not None:
                return self._authorizer.decide_user(user, attributes)
            return self._authorizer.decide_token(token, attributes)

        # All users come from the address of the API server: each waits for itself.
        client = ("user", user.username) if user is not None else None
        if await is_allowed(self._queue, review, scope, receive, send, client=client):
            await self._app(scope, receive, send)


def request_attributes(
    method: str, path: str, group_version: str
) -> ResourceAttributes | NonResourceAttributes:
    """Return the verb of a request with its objects or its path."""
    verb = method.lower()
    below = path.removeprefix(f"/apis/{group_version}/")
    parts = below.split("/")
    if below == path or not all(parts) or len(parts) > _LONGEST_PATH:
        return NonResourceAttributes(path=path, verb=verb)
    resource, name, subresource = (*parts, "", "")[:_LONGEST_PATH]
    reads = "get" if name else "list"
    verbs = {"get": reads, "head": reads, "post": "create", "put": "update"}
    group, _, version = group_version.partition("/")
    return ResourceAttributes(
        verb=verbs.get(verb, verb),
        group=group,
        version=version,
        resource=resource,
        subresource=subresource,
        name=name,
    )


def _listed(config: ConfigMap, key: str) -> tuple[str, ...]:
    text = config.data.get(key, "")
    if not text:
        return ()
    try:
        return decode(text.encode(), tuple[str, ...])
    except InputError as error:
        raise error.within(path=key) from None
