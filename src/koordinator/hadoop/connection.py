"""Connection to the active ResourceManager."""

import ssl
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TypeVar

from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.hadoop.configuration import ResourceManagerAddresses, YarnClusterConfig
from koordinator.hadoop.port import (
    ResourceManager,
    UnknownYarnNodeError,
    UnsupportedError,
    YarnError,
    YarnLimit,
    YarnNode,
)
from koordinator.hadoop.rest import RestResourceManager, WebService
from koordinator.hadoop.rpc import RpcResourceManager

AnswerT = TypeVar("AnswerT")


class ActiveResourceManager:
    """``port.ResourceManager`` that uses the active one of several candidates.

    The active one is determined at the first call and after every failure.  A single candidate is
    always used.
    """

    def __init__(self, candidates: Sequence[ResourceManager]) -> None:
        if not candidates:
            raise ValueError("a cluster has at least one ResourceManager")
        self._candidates = candidates
        self._active: ResourceManager | None = None

    def nodes(self) -> Sequence[YarnNode]:
        return self._ask(lambda active: active.nodes())

    def node(self, node_id: str) -> YarnNode | None:
        return self._ask(lambda active: active.node(node_id))

    def set_limit(self, limit: YarnLimit) -> None:
        self._ask(lambda active: active.set_limit(limit))

    def signal_container(self, container_id: str) -> None:
        self._ask(lambda active: active.signal_container(container_id))

    def is_active(self) -> bool:
        return self._find() is not None

    def close(self) -> None:
        for each in self._candidates:
            each.close()

    def _ask(self, question: Callable[[ResourceManager], AnswerT]) -> AnswerT:
        if self._active is None:
            self._active = self._find()
        try:
            return question(self._active)
        except UnknownYarnNodeError:
            raise
        except YarnError:
            self._active = None
            raise

    def _find(self) -> ResourceManager:
        if len(self._candidates) == 1:
            return self._candidates[0]
        problems = []
        for each in self._candidates:
            try:
                if each.is_active():
                    return each
                problems.append("stands by")
            except YarnError as error:
                problems.append(str(error))
        raise YarnError(f"no ResourceManager is active: {'; '.join(problems)}")


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
