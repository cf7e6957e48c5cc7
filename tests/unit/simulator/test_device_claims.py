"""Claims between pods, as a cluster's controller keeps them."""

from msgspec.structs import replace
from tests.unit.scheduler.test_scheduling_pod_groups import member, pod_group
from tests.worlds import START_S, made, pod

from koordinator.api.dynamic_resources import (
    ClaimAllocation,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
)
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.api.pod_groups import SchedulingPodGroup
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.foundation.clock import VirtualClock
from koordinator.simulator.device_claims import DeviceClaimController


def use_of(name: str, uid: str) -> ResourceClaimStatus:
    """Return the status of a claim that a pod uses."""
    user = ResourceClaimConsumerReference(resource="pods", name=name, uid=uid)
    return ResourceClaimStatus(allocation=ClaimAllocation(), reserved_for=(user,))


def claim_in(cluster: MemoryCluster, name: str, status: ResourceClaimStatus) -> ResourceClaim:
    """Store a claim."""
    made_here = made("ResourceClaim", name, ResourceClaim.API_VERSION)
    assert isinstance(made_here, ResourceClaim)
    created = cluster.create(made_here)
    return cluster.update_status(replace(created, status=status))


def test_a_claim_reserved_for_a_deleted_pod_is_released() -> None:
    """A scheduler may see the deletion of the pod late; an existing pod keeps its claim."""
    cluster = MemoryCluster(VirtualClock(START_S), immediate_pod_deletion=True)
    here, deleted = cluster.create(pod("here")), cluster.create(pod("gone"))
    first, second = (claim_in(cluster, name, ResourceClaimStatus()) for name in ("c", "d"))
    controller = DeviceClaimController(cluster)
    controller.step()
    cluster.delete(Pod, "gone", "default")
    controller.step()

    cluster.update_status(replace(first, status=use_of("gone", deleted.metadata.uid)))
    kept = cluster.update_status(replace(second, status=use_of("here", here.metadata.uid)))
    controller.step()
    free = cluster.get(ResourceClaim, "c", "default").status
    assert (free.allocation, free.reserved_for) == (None, ())
    assert cluster.get(ResourceClaim, "d", "default").status == kept.status


def test_initially_reserved_claims_are_not_changed() -> None:
    """The claim's pod may be in a part of the cluster that is not simulated."""
    cluster = MemoryCluster(VirtualClock(START_S))
    kept = claim_in(cluster, "c", use_of("elsewhere", "uid"))
    controller = DeviceClaimController(cluster)
    controller.step()
    controller.step()
    assert cluster.get(ResourceClaim, "c", "default").status == kept.status


ENTRIES = [
    {"name": "a", "resourceClaimTemplateName": "t"},
    {"name": "b", "resourceClaimTemplateName": "late"},
]


def template(name: str) -> KubeObject:
    """Return a template of a claim for one device."""
    request = {"name": "r", "exactly": {"deviceClassName": "c"}}
    return made(
        "ResourceClaimTemplate",
        name,
        ResourceClaim.API_VERSION,
        metadata={"namespace": "default"},
        spec={"spec": {"devices": {"requests": [request]}}},
    )


def test_a_template_that_is_missing_makes_no_claim_twice() -> None:
    """The claims of the other entries are made, and once."""
    cluster = MemoryCluster(VirtualClock(START_S))
    cluster.create(template("t"))
    cluster.create(pod("p", resourceClaims=ENTRIES))
    controller = DeviceClaimController(cluster)
    for _ in range(4):
        controller.step()
    assert len(cluster.list(ResourceClaim).items) == 1

    cluster.create(template("late"))
    for _ in range(3):
        controller.step()

    assert len(cluster.list(ResourceClaim).items) == 2
    statuses = cluster.get(Pod, "p", "default").status.resource_claim_statuses
    assert sorted(status.name for status in statuses) == ["a", "b"]


def test_claims_of_a_deleted_group_are_deleted() -> None:
    """The claim belongs to the PodGroup and not to its pods."""
    cluster = MemoryCluster(VirtualClock(START_S), immediate_pod_deletion=True)
    cluster.create(template("t"))
    cluster.create(pod_group("g", 1, resourceClaims=ENTRIES[:1]))
    cluster.create(member("p", "g", resourceClaims=ENTRIES[:1]))
    controller = DeviceClaimController(cluster, SchedulingPodGroup)
    for _ in range(3):
        controller.step()
    cluster.delete(Pod, "p", "default")
    controller.step()
    assert len(cluster.list(ResourceClaim).items) == 1

    cluster.delete(SchedulingPodGroup, "g", "default")
    controller.step()

    assert not cluster.list(ResourceClaim).items
