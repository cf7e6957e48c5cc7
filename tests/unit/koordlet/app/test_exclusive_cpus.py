"""Best-effort pods and the CPUs of pods of class LSE, on small nodes; who limits best effort."""

from collections.abc import Collection

import pytest
from tests.nodes import LAYOUT, V1, V2, pod
from tests.unit.koordlet.app.world import ALL, World

from koordinator.api.pod import Pod
from koordinator.domain.cgroups.files import CgroupFile, CgroupVersion
from koordinator.foundation.cpu_list import parse_cpu_list
from koordinator.koordlet.view.pods import PodView

MANAGED = ALL | {"BECPUManager"}
BATCH: dict[str, str | int] = {"kubernetes.io/batch-cpu": 1000}


def lse(*cpus: int) -> Pod:
    """Return a pod that the scheduler has given these CPUs alone."""
    text = ",".join(str(cpu) for cpu in cpus)
    status = {"scheduling.koordinator.sh/resource-status": f'{{"cpuset":"{text}"}}'}
    amount: dict[str, str | int] = {"cpu": len(cpus)}
    return pod("exclusive", "LSE", requests=amount, limits=amount, annotations=status)


def folders(job: PodView) -> list[str]:
    """Return the cgroups of the tier, the pod and its container."""
    return [LAYOUT.besteffort, job.folder, job.containers[0].folder]


def refusals(world: World) -> list[str]:
    """Return what the kernel refused."""
    return [event.message for event in world.agent.audit.events if event.error]


@pytest.mark.parametrize("version", [V1, V2])
@pytest.mark.parametrize("gates", [ALL, MANAGED], ids=["suppressed", "managed"])
@pytest.mark.parametrize("policy", ["cpuset", "cfsQuota", ""])
def test_best_effort_leaves_the_cpu_of_class_lse_on_a_node_of_two(
    version: CgroupVersion, gates: Collection[str], policy: str
) -> None:
    """The rule holds without a threshold: exclusive CPUs do not depend on suppression."""
    world = World(version=version, cpu=2, gates=gates)
    if policy:
        world.slo(cpu_suppress_threshold_percent=65, cpu_suppress_policy=policy)
    job = world.add(pod("job", "BE", requests=BATCH, limits=BATCH))
    world.seconds(15)

    world.add(lse(1))
    world.seconds(15, {job.folder: 0.5})

    for folder in folders(job):
        assert parse_cpu_list(world.tree.get(CgroupFile.CPUSET, folder)) == 1
    assert refusals(world) == []


@pytest.mark.parametrize("version", [V1, V2])
@pytest.mark.parametrize("gates", [ALL, MANAGED], ids=["suppressed", "managed"])
@pytest.mark.parametrize("policy", ["cpuset", "cfsQuota", ""])
def test_best_effort_has_the_least_quota_while_class_lse_has_all_cpus(
    version: CgroupVersion, gates: Collection[str], policy: str
) -> None:
    """A CPU set can't be empty; quotas and limits return when a CPU is free again."""
    world = World(version=version, cpu=2, gates=gates)
    if policy:
        world.slo(cpu_suppress_threshold_percent=65, cpu_suppress_policy=policy)
    job = world.add(pod("job", "BE", requests=BATCH, limits=BATCH))
    world.seconds(15)
    exclusive = world.add(lse(0, 1))
    world.seconds(15, {job.folder: 0.5, exclusive.folder: 1.0})

    quotas = [world.tree.get(CgroupFile.CFS_QUOTA, it).split()[0] for it in folders(job)]
    assert quotas[0] == "2000"
    assert set(quotas[1:]) <= {"-1", "max"}
    assert refusals(world) == []

    world.cluster.delete(Pod, "exclusive", "default", grace_period_s=0)
    world.seconds(15, {job.folder: 0.1})
    tier, *own = (world.tree.get(CgroupFile.CFS_QUOTA, it).split()[0] for it in folders(job))
    if policy == "cfsQuota":
        assert tier in {"-1", "max"} or int(tier) > 2000
    else:
        assert tier in {"-1", "max"}
        assert own == ["100000", "100000"]
    assert refusals(world) == []


@pytest.mark.parametrize("version", [V1, V2])
@pytest.mark.parametrize(
    ("gates", "limits_tier"),
    [(ALL, True), (MANAGED, True), (ALL - {"BECPUSuppress"}, False)],
    ids=["suppressed", "managed", "no suppression"],
)
def test_best_effort_is_limited_as_a_tier_or_pod_by_pod(
    version: CgroupVersion, gates: Collection[str], *, limits_tier: bool
) -> None:
    """With the policy cfsQuota pods lose their own quotas only where the tier gets one."""
    world = World(version=version, gates=gates)
    world.slo(cpu_suppress_threshold_percent=65, cpu_suppress_policy="cfsQuota")
    job = world.add(pod("job", "BE", requests=BATCH, limits=BATCH))

    world.seconds(15, {job.folder: 0.5})

    tier, *own = (world.tree.get(CgroupFile.CFS_QUOTA, it).split()[0] for it in folders(job))
    assert (tier in {"-1", "max"}) is not limits_tier
    assert own == (["-1" if version is V1 else "max"] * 2 if limits_tier else ["100000"] * 2)
    assert refusals(world) == []
