"""Churn through the node agent: pods that come, are measured, kept in bounds, refused, and go."""

from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from tests.memory_host import MemoryHost
from tests.nodes import pod, slo
from tests.unit.koordlet.app.world import World

from koordinator.api.codec import decode, to_manifest
from koordinator.api.meta import ObjectMeta
from koordinator.api.node_slo import NodeSlo
from koordinator.api.pod import Pod
from koordinator.domain.cgroups.files import CgroupFile
from koordinator.foundation.errors import HostError
from koordinator.koordlet.app.metrics import NodeGauges
from koordinator.koordlet.app.options import OFF, ON, gates_of

_ON = {"enable": True}
_SLO = slo(
    resourceUsedThresholdWithBE={"enable": True, "cpuSuppressThresholdPercent": 65},
    cpuBurstStrategy={"policy": "auto"},
    resourceQOSStrategy={
        each: {"cpuQOS": _ON, "memoryQOS": _ON, "resctrlQOS": _ON, "blkioQOS": _ON}
        for each in ("lsrClass", "lsClass", "beClass")
    },
)


class RefusingHost(MemoryHost):
    """A machine that refuses what is written to some pods, each with words of its own."""

    def write(self, path: str, text: str) -> None:
        if "refusing" in path:
            raise HostError(f"cannot write {path}: Device or resource busy")
        super().write(path, text)


class AgentChurn:
    """An agent with every gate open, whose metrics are scraped."""

    name = "koordlet"

    def __init__(self) -> None:
        self.world = World(
            RefusingHost(),
            gates=gates_of(dict.fromkeys(ON | OFF, True)),
            pod_retention_s=60.0,
            forced_update_s=5.0,
            checkpoint_folder="/checkpoints",
            audit_folder="/audit",
        )
        self.registry = CollectorRegistry()
        self.world.agent.close()
        self.world.agent = self.world.start(gauges=NodeGauges(self.registry, "n1", 0.0))
        self.world.cluster.create(NodeSlo(metadata=ObjectMeta(name="n1"), spec=_SLO))

    @property
    def roots(self) -> tuple[object, ...]:
        """Everything that lives as long as the process."""
        return self.world.agent, self.registry, self.world.outbox

    @property
    def others(self) -> tuple[object, ...]:
        """Containers of cluster and machine, series of the node, and rings that fill slowly."""
        agent = self.world.agent
        series = [one for (_, owner), one in agent.store._series.items() if not owner]
        return self.world.cluster, agent._watch, self.world.tree.host, *series

    def round(self, number: int) -> None:
        """Create pods, run them, and delete them."""
        world = self.world
        amounts = {"cpu": "100m", "memory": "64Mi"}
        batch: dict[str, str | int] = {
            "kubernetes.io/batch-cpu": 200,
            "kubernetes.io/batch-memory": "64Mi",
        }
        pods = [
            pod(f"ls-{number}", "LS", requests=amounts, limits=amounts, containers=2),
            _with_claim(pod(f"be-{number}", "BE", requests=batch, limits=batch), number),
            pod(f"refusing-{number}", "BE", requests=batch, limits=batch),
            pod(f"grouped-{number}", "LS", labels={"koordinator.sh/coreSchedulingGroupID": "g"}),
        ]
        views = [world.add(each) for each in pods]
        for view in views:
            for index, folder in enumerate((view.folder, *(c.folder for c in view.containers))):
                world.tree.set(CgroupFile.PROCS, folder, 100 + 10 * number + index)
        world.seconds(3, {view.folder: 0.1 for view in views})
        world.outbox.deliver(world.cluster)
        generate_latest(self.registry)
        for view in views:
            meta = view.pod.metadata
            world.cluster.force_delete(world.cluster.get(Pod, meta.name, meta.namespace))
            world.used_s.pop(view.folder, None)
            for file in CgroupFile:
                path = world.tree.cgroups.path(file, view.folder)
                if path is not None:
                    world.tree.host.vanish(path.rpartition("/")[0])  # with its containers
        world.tree.host.written.clear()
        world.clock.advance_to(world.clock.now_s() + 600)  # after which they are forgotten
        world.seconds(2)
        world.outbox.deliver(world.cluster)


def _with_claim(made: Pod, number: int) -> Pod:
    """Return the pod with a claim whose bandwidth is limited."""
    manifest: dict[str, Any] = dict(to_manifest(made))
    claim = {"claimName": f"claim-{number}"}
    manifest["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": claim}]
    block = '{"blocks": [{"name": "v", "type": "podVolume", "ioCfg": {"readBPS": 1}}]}'
    manifest["metadata"].setdefault("annotations", {})["koordinator.sh/blkioQOS"] = block
    return decode(manifest, Pod)
