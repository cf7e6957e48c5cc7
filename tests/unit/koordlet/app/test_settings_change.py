"""Settings of one NodeSLO are undone by the next one, immediately and without kernel errors."""

from typing import Any

import pytest
from tests.nodes import LAYOUT, V1, V2, pod, slo
from tests.unit.koordlet.app.world import ALL, World

from koordinator.api.meta import ObjectMeta
from koordinator.api.node_slo import NodeSlo
from koordinator.domain.cgroups.files import CgroupFile, CgroupVersion
from koordinator.foundation.errors import ClusterError
from koordinator.koordlet.hooks.pod_hooks import PodHooks
from koordinator.koordlet.intents import SetCgroup

ON = {"cpuQOS": {"enable": True}}
IDLE = {"cpuQOS": {"enable": True, "schedIdle": 1}}


def follow(world: World, **spec: Any) -> None:
    """Give the node another NodeSLO, and the agent a second."""
    node_slo = NodeSlo(metadata=ObjectMeta(name="n1"), spec=slo(**spec))
    try:
        world.cluster.create(node_slo)
    except ClusterError:
        world.cluster.update(node_slo)
    world.seconds(1)


def refusals(world: World) -> list[str]:
    """Return what the kernel refused."""
    return [event.message for event in world.agent.audit.events if event.error]


def without_group_identity(version: CgroupVersion) -> World:
    """Return a node with a mainline kernel."""
    world = World(version=version, gates=ALL | {"CoreSched"})
    for folder in (LAYOUT.kubepods, LAYOUT.burstable, LAYOUT.besteffort):
        world.tree.host.vanish(world.tree.path(CgroupFile.BVT_WARP, folder))
    shares = {LAYOUT.kubepods: 8192, LAYOUT.burstable: 1536, LAYOUT.besteffort: 2}
    for folder, value in shares.items():
        text = str(value) if version is V1 else {8192: "313", 1536: "59", 2: "1"}[value]
        world.tree.set(CgroupFile.CPU_SHARES, folder, text)
    world.add(pod("ls", "LS", requests={"cpu": "1500m"}))
    world.add(pod("done", "LS", requests={"cpu": 4}, phase="Succeeded"))
    world.add(pod("be", "BE"))
    return world


@pytest.mark.parametrize("version", [V1, V2])
def test_jobs_have_their_shares_again_when_they_no_longer_idle(version: CgroupVersion) -> None:
    """The kernel forgets them: a job would weigh as much as a service for good.

    Nor is it asked to change them before.
    """
    world = without_group_identity(version)
    batch: dict[str, str | int] = {"kubernetes.io/batch-cpu": 4000}
    job = world.add(pod("job", "BE", requests=batch, limits=batch))
    plain = world.add(pod("plain", "BE"))
    world.add(pod("first", "LS"))
    follow(world, resourceQOSStrategy={"lsClass": ON, "beClass": ON})
    assert world.tree.get(CgroupFile.CPU_IDLE, job.folder) == "1"
    assert world.tree.get(CgroupFile.CPU_IDLE, LAYOUT.besteffort) == "0"
    world.seconds(70)  # all values are checked again

    world.agent = world.start()  # without cached values
    world.seconds(2)
    follow(world)

    assert world.tree.get(CgroupFile.CPU_IDLE, job.folder) == "0"
    result = [world.tree.get(CgroupFile.CPU_SHARES, it.folder) for it in (job, plain)]
    assert result == (["4096", "2"] if version is V1 else ["157", "1"])
    assert refusals(world) == []


@pytest.mark.parametrize("version", [V1, V2])
def test_tiers_that_idle_have_the_shares_of_the_kubelet_again(version: CgroupVersion) -> None:
    """An agent of before left them so; who has ended counts for nothing."""
    world = without_group_identity(version)
    tiers = (LAYOUT.kubepods, LAYOUT.burstable, LAYOUT.besteffort)
    for tier in tiers:
        world.tree.host.write(world.tree.path(CgroupFile.CPU_IDLE, tier), "1")

    follow(world, resourceQOSStrategy={"policies": {"cpuPolicy": "coreSched"}, "beClass": IDLE})

    result = [world.tree.get(CgroupFile.CPU_SHARES, tier) for tier in tiers]
    assert result == (["8192", "1536", "2"] if version is V1 else ["313", "59", "1"])
    assert {world.tree.get(CgroupFile.CPU_IDLE, tier) for tier in tiers} == {"0"}
    assert refusals(world) == []


def test_shares_are_the_kubelets_while_nothing_idles() -> None:
    """Without idle pods the agent leaves cpu.shares of the tiers to the kubelet."""
    world = without_group_identity(V1)
    world.tree.set(CgroupFile.CPU_SHARES, LAYOUT.burstable, 777)
    follow(world)

    assert world.tree.get(CgroupFile.CPU_SHARES, LAYOUT.burstable) == "777"


@pytest.mark.parametrize("version", [V1, V2])
def test_from_cpu_sets_to_quota_nothing_is_refused(version: CgroupVersion) -> None:
    """Quotas of pods go before their tier gets a lower one, in the same second."""
    world = World(version=version)
    world.add(pod("ls", "LS", requests={"cpu": 1}))
    batch: dict[str, str | int] = {
        "kubernetes.io/batch-cpu": 4000,
        "kubernetes.io/batch-memory": "1Gi",
    }
    job = world.add(pod("be", "BE", requests=batch, limits=batch))
    on = {"enable": True, "cpuSuppressThresholdPercent": 20}
    follow(world, resourceUsedThresholdWithBE=on | {"cpuSuppressPolicy": "cpuset"})
    world.seconds(3, {job.folder: 0.1})
    assert world.tree.get(CgroupFile.CFS_QUOTA, job.folder).split()[0] == "400000"

    follow(world, resourceUsedThresholdWithBE=on | {"cpuSuppressPolicy": "cfsQuota"})

    assert refusals(world) == []
    assert 0 < int(world.tree.get(CgroupFile.CFS_QUOTA, LAYOUT.besteffort).split()[0]) < 200_000
    for folder in (job.folder, job.containers[0].folder):
        assert world.tree.get(CgroupFile.CFS_QUOTA, folder).split()[0] in {"-1", "max"}

    follow(world, resourceUsedThresholdWithBE=on | {"cpuSuppressPolicy": "cpuset"})
    assert refusals(world) == []
    assert world.tree.get(CgroupFile.CFS_QUOTA, job.folder).split()[0] == "400000"
    assert world.tree.get(CgroupFile.CFS_QUOTA, LAYOUT.besteffort).split()[0] in {"-1", "max"}


def test_services_without_requests_are_suppressed_with_their_tier() -> None:
    """The kernel rejects CPUs that the best-effort tier lacks; CPU suppress alone writes there."""
    world = World()
    service = world.add(pod("service", "LS"))
    threshold = {"enable": True, "cpuSuppressThresholdPercent": 30}
    follow(world, resourceUsedThresholdWithBE=threshold)

    world.seconds(25, {LAYOUT.burstable: 6.0})

    (container,) = service.containers
    assert world.tree.get(CgroupFile.CPUSET, container.folder) == "0-1"
    assert refusals(world) == []


def test_services_without_requests_share_cpus_where_their_tier_is_not_suppressed() -> None:
    """Without CPU suppress nothing else keeps them off the CPUs that other pods have."""
    world = World(gates=ALL - {"BECPUSuppress"})
    service = world.add(pod("service", "LS"))
    status = {"scheduling.koordinator.sh/resource-status": '{"cpuset":"2-3"}'}
    two: dict[str, str | int] = {"cpu": 2}
    world.add(pod("own", "LSR", requests=two, limits=two, annotations=status))

    world.seconds(12)

    (container,) = service.containers
    assert world.tree.get(CgroupFile.CPUSET, container.folder) == "0-1,4-7"
    hooks = PodHooks.of(world.tree.view(service), world.options.gates)
    hook = dict(hooks.hooks())["CPUSetAllocator"]
    assert [each.folder for each in hook(service) if isinstance(each, SetCgroup)] == [
        container.folder
    ]
    assert refusals(world) == []


def test_containers_give_exclusive_cpus_back_where_the_hook_has_the_cpu_sets() -> None:
    """An LSE pod comes: the tier loses its CPUs, so containers have to lose them first."""
    world = World(gates=ALL | {"BECPUManager"})
    batch: dict[str, str | int] = {"kubernetes.io/batch-cpu": 1000}
    job = world.add(pod("job", "BE", requests=batch, limits=batch))
    world.seconds(2)
    status = {"scheduling.koordinator.sh/resource-status": '{"cpuset":"2-3"}'}
    two: dict[str, str | int] = {"cpu": 2}
    world.add(pod("exclusive", "LSE", requests=two, limits=two, annotations=status))

    world.seconds(12)

    (container,) = job.containers
    for folder in (LAYOUT.besteffort, job.folder, container.folder):
        assert world.tree.get(CgroupFile.CPUSET, folder) == "0-1,4-7"
    assert refusals(world) == []
