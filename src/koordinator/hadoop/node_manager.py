"""Client of a NodeManager's web services, which lists its containers.

Source: Hadoop NMWebServices, ``getNodeContainers``; yarn-copilot pkg/copilot-agent/nm/client.go.
"""

from typing import Final

import msgspec

from koordinator.hadoop.amounts import YarnResource
from koordinator.hadoop.port import YarnContainer
from koordinator.hadoop.rest import WebService

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
