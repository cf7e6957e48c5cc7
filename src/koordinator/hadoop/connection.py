"""Connections to a YARN cluster, built from its configuration."""

import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from koordinator.hadoop.active import ActiveResourceManager
from koordinator.hadoop.configuration import ResourceManagerAddresses, YarnClusterConfig
from koordinator.hadoop.http import WebService
from koordinator.hadoop.port import ResourceManager, UnsupportedError, YarnLimit, YarnNode
from koordinator.hadoop.rest import RestResourceManager
from koordinator.hadoop.rpc import RpcResourceManager


class YarnApi(StrEnum):
    """Protocol for ResourceManagers."""

    AUTO = "auto"  # REST from Hadoop 3.3 on, else RPC
    REST = "rest"
    RPC = "rpc"


@dataclass(frozen=True, slots=True, kw_only=True)
class YarnClientOptions:
    """Options of a connection; ``user`` must be in ``yarn.admin.acl``."""

    user: str
    api: YarnApi = YarnApi.AUTO
    timeout_s: float = 10.0
    tls: ssl.SSLContext | None = None


class NegotiatedResourceManager:
    """``port.ResourceManager`` over REST from Hadoop 3.3, over RPC for older versions.

    The version is determined at the first call, and again after ``close``.
    """

    def __init__(self, rest: RestResourceManager, rpc: RpcResourceManager) -> None:
        self._rest, self._rpc = rest, rpc
        self._chosen: ResourceManager | None = None

    def nodes(self) -> Sequence[YarnNode]:
        return self._choice().nodes()

    def node(self, node_id: str) -> YarnNode | None:
        return self._choice().node(node_id)

    def set_limit(self, limit: YarnLimit) -> None:
        self._choice().set_limit(limit)

    def signal_container(self, container_id: str) -> None:
        self._choice().signal_container(container_id)

    def is_active(self) -> bool:
        return self._choice().is_active()

    def close(self) -> None:
        self._chosen = None
        self._rest.close()

    def _choice(self) -> ResourceManager:
        if self._chosen is None:
            try:
                is_new = self._rest.can_change_nodes()
            except UnsupportedError:
                is_new = False
            self._chosen = self._rest if is_new else self._rpc
        return self._chosen


def connector(
    config: YarnClusterConfig, options: YarnClientOptions
) -> Callable[[], ResourceManager]:
    """Return a function that connects to a cluster, for the thread that uses the connection."""

    def connect() -> ResourceManager:
        return ActiveResourceManager([_one(each, options) for each in config.resource_managers])

    return connect


def _one(addresses: ResourceManagerAddresses, options: YarnClientOptions) -> ResourceManager:
    tls = None
    if addresses.uses_tls:
        tls = options.tls or ssl.create_default_context()
    service = WebService(addresses.web, timeout_s=options.timeout_s, user=options.user, tls=tls)
    rest = RestResourceManager(service)
    rpc = RpcResourceManager(
        addresses.client, addresses.admin, user=options.user, timeout_s=options.timeout_s
    )
    match options.api:
        case YarnApi.REST:
            return rest
        case YarnApi.RPC:
            return rpc
        case YarnApi.AUTO:
            return NegotiatedResourceManager(rest, rpc)
