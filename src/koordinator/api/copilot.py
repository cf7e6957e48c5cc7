"""Messages to the agent of another runtime on the node, such as YARN, over its socket.

Fields without a value are written as well, as by the original.
Source: yarn-copilot pkg/copilot-agent/server/server.go; CopilotAgent of koordlet.
"""

import datetime as dt
from typing import Final

import msgspec
from msgspec import field

from koordinator.api.core import ResourceList
from koordinator.api.meta import ApiStruct

INFORMATION_PATH: Final = "/information"
HEALTH_PATH: Final = "/health"
CONTAINERS_PATH: Final = "/v1/containers"
CONTAINER_PATH: Final = "/v1/container"
KILL_PATH: Final = "/v1/killContainer"
KILL_BY_RESOURCE_PATH: Final = "/v1/killContainersByResource"

NO_TIME: Final = dt.datetime(1, 1, 1, tzinfo=dt.UTC)


class CopilotResources(msgspec.Struct, frozen=True, kw_only=True):
    """Resources of a container, in Kubernetes' names; requests and limits are equal."""

    limits: ResourceList
    requests: ResourceList


class CopilotContainer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A container of another runtime."""

    name: str
    namespace: str = "yarn"
    uid: str
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    priority: int = 1
    create_timestamp: dt.datetime = NO_TIME
    cgroup_dir: str
    host_network: bool = True
    resources: CopilotResources


class CopilotInformation(msgspec.Struct, frozen=True, kw_only=True):
    """Identity of a copilot."""

    name: str
    version: str


class CopilotKillRequest(ApiStruct, frozen=True, kw_only=True):
    """Container to end, or amounts to release.

    Of ``resources`` batch-cpu is milli-CPU and batch-memory bytes.  The ratios say how busy the
    node is, 0..1; -1: unknown.
    """

    container_id: str = field(name="containerID", default="")
    resources: ResourceList = {}
    node_cpu_ratio: float = 0.0
    node_memory_ratio: float = 0.0


class CopilotKilled(ApiStruct, frozen=True, kw_only=True):
    """Containers that were ended."""

    items: tuple[CopilotContainer, ...] = ()
