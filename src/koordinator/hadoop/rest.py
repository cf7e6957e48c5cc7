"""Client of a ResourceManager's web services, which can change nodes since Hadoop 3.3.0.

Source: Hadoop RMWebServices, ``updateNodeResource`` and ``signalToContainer``; ResourceOptionInfo.
The body of a change has no root element: with one, the answer is 200 and the node has nothing.
"""

from urllib.parse import quote

import msgspec

from koordinator.hadoop.amounts import YarnResource
from koordinator.hadoop.containers import container_age
from koordinator.hadoop.http import UnknownPathError, WebService
from koordinator.hadoop.port import (
    UnknownYarnNodeError,
    UnsupportedError,
    YarnError,
    YarnLimit,
    YarnNode,
    YarnRefusedError,
)

_CLUSTER = "/ws/v1/cluster"
_LIVING = "RUNNING,UNHEALTHY,DECOMMISSIONING"
_ACTIVE = "ACTIVE"


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
