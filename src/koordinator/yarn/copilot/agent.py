"""Lists the containers of one NodeManager and ends them.

The agent kills the processes in the container's cgroup.  Without cgroups it has the ResourceManager
signal the container, if one is configured.
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

_ATTEMPTS: Final = 3  # to empty a cgroup, whose processes may fork meanwhile


class ContainerSource(Protocol):
    """Source of running containers, such as a NodeManager.

    Rule R2: only composition roots connect to YARN.
    """

    def containers(self) -> Sequence[YarnContainer]:
        """Return the containers whose processes may run.  Raises YarnError."""


class ContainerSignaller(Protocol):
    """Client that ends containers, such as a ResourceManager's.

    Rule R2: only composition roots connect to YARN.
    """

    def signal_container(self, container_id: str) -> None:
        """End a container by force.  Raises YarnError."""


@dataclass(frozen=True, slots=True)
class ContainerCgroups:
    """Location of the containers' cgroups: ``folder`` in a hierarchy below ``root``."""

    root: str
    folder: str
    version: CgroupVersion


class YarnCopilot:
    """Operations on containers, for one thread; ``ended`` counts ended containers by method."""

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
        """Return the running containers.  Raises YarnError."""
        return [self._as_data(each) for each in self._source.containers()]

    def container(self, container_id: str) -> CopilotContainer:
        """Return a container.  Raises YarnRefusedError for an unknown id, YarnError."""
        return self._as_data(self._find(container_id))

    def kill(self, container_id: str, why: str = "requested by id") -> CopilotContainer:
        """End a container and return it.  Raises as ``container``, and HostError."""
        container = self._find(container_id)
        self._end(container, why)
        return self._as_data(container)

    def kill_by_resource(self, need: BatchAmounts, why: str) -> BatchAmounts:
        """End containers until the amounts are released; return the released amounts.

        A container that cannot be ended is skipped.  Raises YarnError if the containers cannot be
        listed, and the last error if none could be ended.
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
        log.warning(
            "ending container", extra=extra
        )  # before the action, in case the agent is killed with it
        way = "processes"
        if not self._end_processes(container_id):
            if self._signaller is None:
                raise YarnRefusedError(
                    f"{container_id} has no processes in {self._folder(container_id)}, and no "
                    "ResourceManager is configured"
                )
            way = "ResourceManager"
            self._signaller.signal_container(container_id)
        self.ended[way] += 1
        log.warning("container ended", extra={**extra, "by": way})

    def _end_processes(self, container_id: str) -> int:
        """Kill the processes of a container's cgroup; return their number."""
        cgroups, folder = self._cgroups, self._folder(container_id)
        below = cgroup_path(CgroupFile.PROCS, folder, cgroups.version)
        ended = 0
        for _ in range(_ATTEMPTS):
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

    def _as_data(self, container: YarnContainer) -> CopilotContainer:
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
