"""Web services of YARN over HTTP: the ResourceManager, and the NodeManager with its containers.

The body of a change has no root element: with one, the ResourceManager responds with 200 and
changes nothing.

Source: RFC 9112 by the standard library's ``http.client``; Hadoop RMWebServices,
``updateNodeResource`` and ``signalToContainer``; ResourceOptionInfo; NMWebServices,
``getNodeContainers``; yarn-copilot pkg/copilot-agent/nm/client.go.
"""

import http.client
import json
import ssl
from typing import Any, Final, TypeVar
from urllib.parse import quote

import msgspec

from koordinator.foundation.decoders import decode_json
from koordinator.foundation.text import one_line
from koordinator.hadoop.amounts import YarnResource
from koordinator.hadoop.configuration import HostPort
from koordinator.hadoop.port import (
    NotActiveError,
    UnknownYarnNodeError,
    UnsupportedError,
    YarnContainer,
    YarnError,
    YarnLimit,
    YarnNode,
    YarnRefusedError,
    container_age,
)

AnswerT = TypeVar("AnswerT")

LARGEST_ANSWER: Final = 64 << 20
_SHOWN: Final = 200  # characters of a refusal
_OK, _REDIRECTED, _REFUSED, _UNAUTHORIZED, _FAILED = 200, 300, 400, 401, 500

_CLUSTER = "/ws/v1/cluster"
_LIVING = "RUNNING,UNHEALTHY,DECOMMISSIONING"
_ACTIVE = "ACTIVE"

#: States in which a container's processes are ending or have ended.
FINISHED_STATES: Final = frozenset(
    (
        "KILLING",
        "DONE",
        "LOCALIZATION_FAILED",
        "CONTAINER_RESOURCES_CLEANINGUP",
        "CONTAINER_CLEANEDUP_AFTER_KILL",
        "EXITED_WITH_FAILURE",
        "EXITED_WITH_SUCCESS",
    )
)


class WebService:
    """Client of ``http://address`` (https with ``tls``) with an optional ``user.name``."""

    def __init__(
        self,
        address: HostPort,
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
    # JSON may have halves of surrogate pairs.
    return one_line(str(message).encode(errors="replace").decode(), _SHOWN)


class _Resource(msgspec.Struct, gc=False):
    memory: int
    vcores: int = msgspec.field(name="vCores")

    def amounts(self) -> YarnResource:
        return YarnResource(max(self.vcores, 0), max(self.memory, 0))


class _Node(msgspec.Struct, gc=False):
    id: str
    state: str
    used_mb: int = msgspec.field(name="usedMemoryMB")
    used_vcores: int = msgspec.field(name="usedVirtualCores")
    total: _Resource | None = msgspec.field(name="totalResource", default=None)
    containers: int = msgspec.field(name="numContainers", default=0)


class _Nodes(msgspec.Struct, gc=False):
    node: list[_Node] = []


class _NodesAnswer(msgspec.Struct, gc=False):
    nodes: _Nodes | None = None


class _NodeAnswer(msgspec.Struct, gc=False):
    node: _Node


class _ChangeAnswer(msgspec.Struct, gc=False):
    resource: _Resource | None = msgspec.field(name="resourceInfo", default=None)


class _Info(msgspec.Struct, gc=False, rename="camel"):
    ha_state: str = ""
    resource_manager_version: str = ""


class _InfoAnswer(msgspec.Struct, gc=False, rename="camel"):
    cluster_info: _Info


class RestResourceManager:
    """``port.ResourceManager`` over HTTP."""

    def __init__(self, service: WebService) -> None:
        self._service = service

    def nodes(self) -> list[YarnNode]:
        answer = self._service.get(f"{_CLUSTER}/nodes?states={_LIVING}", _NodesAnswer)
        return [_node(each) for each in answer.nodes.node] if answer.nodes is not None else []

    def node(self, node_id: str) -> YarnNode | None:
        try:
            return _node(self._service.get(_path(node_id), _NodeAnswer).node)
        except UnknownPathError as error:
            raise UnknownYarnNodeError(str(error)) from None

    def set_limit(self, limit: YarnLimit) -> None:
        wanted = limit.resource
        body = {
            "resource": {"memory": wanted.memory_mb, "vCores": wanted.vcores},
            "overCommitTimeout": limit.overcommit_timeout_ms,
        }
        path = f"{_path(limit.node_id)}/resource"
        try:
            answer = self._service.post(path, body, _ChangeAnswer)
        except UnknownPathError as error:
            raise UnknownYarnNodeError(str(error)) from None
        if answer.resource is None:
            raise YarnError(f"{path}: the answer has no resourceInfo")

    def signal_container(self, container_id: str) -> None:
        if container_age(container_id) is None:
            raise YarnRefusedError(f"must be the id of a container, got {container_id!r}")
        path = f"{_CLUSTER}/containers/{container_id}/signal/FORCEFUL_SHUTDOWN"
        self._service.post(path, None, bytes)

    def is_active(self) -> bool:
        return self._info().ha_state == _ACTIVE

    def can_change_nodes(self) -> bool:
        """Return whether this version of Hadoop has the call.  Raises YarnError."""
        version = self._info().resource_manager_version
        parts = [int(part) for part in version.split("-")[0].split(".")[:2] if part.isdecimal()]
        if len(parts) < 2:  # noqa: PLR2004 -- major and minor
            raise UnsupportedError(f"invalid Hadoop version {version!r}")
        return tuple(parts) >= (3, 3)

    def close(self) -> None:
        self._service.close()

    def _info(self) -> _Info:
        return self._service.get(f"{_CLUSTER}/info", _InfoAnswer).cluster_info


def _path(node_id: str) -> str:
    return f"{_CLUSTER}/nodes/{quote(node_id, safe=':')}"


def _node(each: _Node) -> YarnNode:
    if each.total is None:
        raise UnsupportedError("nodes have no totalResource: Hadoop is older than 3.3")
    used = YarnResource(max(each.used_vcores, 0), max(each.used_mb, 0))
    return YarnNode(each.id, each.state, each.total.amounts(), used, each.containers)


class _Container(msgspec.Struct, gc=False, rename="camel"):
    id: str
    state: str = ""
    user: str = ""
    node_id: str = ""
    appid: str = ""
    total_memory_needed_mb: float = msgspec.field(name="totalMemoryNeededMB", default=0)
    total_vcores_needed: float = msgspec.field(name="totalVCoresNeeded", default=0)


class _Containers(msgspec.Struct, gc=False):
    container: list[_Container] = []


class _Answer(msgspec.Struct, gc=False):
    containers: _Containers | None = None


class NodeManager:
    """The NodeManager of one node."""

    def __init__(self, service: WebService) -> None:
        self._service = service

    def containers(self) -> list[YarnContainer]:
        """Return the containers whose processes may run.  Raises YarnError."""
        answer = self._service.get("/ws/v1/node/containers", _Answer)
        containers = answer.containers.container if answer.containers is not None else []
        return [
            YarnContainer(
                each.id,
                each.appid,
                each.state,
                YarnResource(int(each.total_vcores_needed), int(each.total_memory_needed_mb)),
                each.user,
                each.node_id,
            )
            for each in containers
            if each.state not in FINISHED_STATES
        ]

    def close(self) -> None:
        self._service.close()
