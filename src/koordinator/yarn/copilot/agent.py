"""Tells of the containers of one NodeManager, and ends them.

A container is ended by the processes of its cgroup.  Where it has none, because the NodeManager
uses no cgroups, the ResourceManager is asked to signal it, if there is a way to one.
"""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from koordinator.api.copilot import CopilotContainer, CopilotResources
from koordinator.api.resource_names import CPU, MEMORY
from koordinator.domain.cgroups.files import CgroupFile, CgroupVersion, cgroup_path
from koordinator.foundation.errors import HostError, MissingFileError
from koordinator.foundation.quantity import Quantity
from koordinator.hadoop.amounts import NOTHING, BatchAmounts
from koordinator.hadoop.containers import choose_containers, container_age
from koordinator.hadoop.port import YarnContainer, YarnError, YarnRefusedError
from koordinator.host.port import Host

log = logging.getLogger(__name__)

_LOOKS: Final = 3  # at a cgroup: what is forked while its processes are ended


class ContainerSource(Protocol):
    """Who knows which containers run: a NodeManager."""

    def containers(self) -> Sequence[YarnContainer]:
        """Return the containers whose processes may run.  Raises YarnError."""


class ContainerSignaller(Protocol):
    """Who ends containers: a ResourceManager."""

    def signal_container(self, container_id: str) -> None:
        """End a container by force.  Raises YarnError."""


@dataclass(frozen=True, slots=True)
class ContainerCgroups:
    """Where the cgroups of containers are: ``folder`` is in its hierarchy, below ``root``."""

    root: str
    folder: str
    version: CgroupVersion


class YarnCopilot:
    """Belongs to one thread.  ``ended`` counts containers by how they were ended."""

    def __init__(
        self,
        source: ContainerSource,
        host: Host,
        cgroups: ContainerCgroups,
        signaller: ContainerSignaller | None = None,
    ) -> None:
        self.ended: Counter[str] = Counter()
        self._source, self._host = source, host
        self._cgroups, self._signaller = cgroups, signaller

    def containers(self) -> list[CopilotContainer]:
        """Return the containers that run.  Raises YarnError."""
        return [self._told(each) for each in self._source.containers()]

    def container(self, container_id: str) -> CopilotContainer:
        """Return one of them.  Raises YarnRefusedError if there is none of that id, YarnError."""
        return self._told(self._find(container_id))

    def kill(self, container_id: str, why: str = "asked for by its id") -> CopilotContainer:
        """End a container and return what it was.  Raises as ``container``, and HostError."""
        found = self._find(container_id)
        self._end(found, why)
        return self._told(found)

    def kill_by_resource(self, need: BatchAmounts, why: str) -> BatchAmounts:
        """End containers until so much is released; return how much was.

        One that can't be ended releases nothing, and the next one goes.  Raises YarnError if the
        containers aren't known, and for the last problem if none could be ended.
        """
        left = list(self._source.containers())
        released = NOTHING
        problem: YarnError | HostError | None = None
        while missing := _positive(need.minus(released)):
            chosen = choose_containers(
                left,
                missing,
                id_of=lambda each: each.container_id,
                amounts_of=lambda each: each.resource.batch(),
            )
            if not chosen:
                break
            for each in chosen:
                left.remove(each)
                try:
                    self._end(each, why)
                except (YarnError, HostError) as error:
                    problem = error
                    extra = {"container": each.container_id, "error": str(error)}
                    log.warning("container not ended", extra=extra)
                    break
                released = released.plus(each.resource.batch())
        if problem is not None and released == NOTHING:
            raise problem
        return released

    def _find(self, container_id: str) -> YarnContainer:
        for each in self._source.containers():
            if each.container_id == container_id:
                return each
        raise YarnRefusedError(f"container {container_id!r} not found")

    def _end(self, container: YarnContainer, why: str) -> None:
        container_id = container.container_id
        if container_age(container_id) is None:
            raise YarnRefusedError(f"must be the id of a container, got {container_id!r}")
        extra = {"container": container_id, "user": container.user, "why": why}
        log.warning("ending container", extra=extra)  # told also if this is killed right after
        way = "processes"
        if not self._end_processes(container_id):
            if self._signaller is None:
                raise YarnRefusedError(
                    f"{container_id} has no processes in {self._folder(container_id)}, and there "
                    "is no ResourceManager to ask"
                )
            way = "ResourceManager"
            self._signaller.signal_container(container_id)
        self.ended[way] += 1
        log.warning("container ended", extra={**extra, "by": way})

    def _end_processes(self, container_id: str) -> int:
        """End the processes of a container's cgroup; return how many there were."""
        cgroups, folder = self._cgroups, self._folder(container_id)
        below = cgroup_path(CgroupFile.PROCS, folder, cgroups.version)
        ended = 0
        for _ in range(_LOOKS):
            try:
                pids = [int(pid) for pid in self._host.read(f"{cgroups.root}/{below}").split()]
            except MissingFileError:
                break
            except ValueError as error:
                raise HostError(f"{cgroups.root}/{below}: {error}") from None
            if not pids:
                break
            ended += sum(self._host.kill(pid, folder) for pid in pids)
        return ended

    def _folder(self, container_id: str) -> str:
        return f"{self._cgroups.folder}/{container_id}"

    def _told(self, container: YarnContainer) -> CopilotContainer:
        amounts = container.resource.batch()
        resources = {
            CPU: Quantity.from_int(container.resource.vcores),
            MEMORY: Quantity.from_int(amounts.memory_bytes),
        }
        return CopilotContainer(
            name=container.container_id,
            uid=container.container_id,
            cgroup_dir=self._folder(container.container_id),
            resources=CopilotResources(limits=resources, requests=resources),
        )


def _positive(amounts: BatchAmounts) -> BatchAmounts | None:
    return amounts if amounts != NOTHING else None
