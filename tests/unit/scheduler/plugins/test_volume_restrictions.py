"""Disks and claims with exclusive use."""

import pytest
from tests.unit.scheduler.plugins.volumes import (
    World,
    bound,
    claim,
    ephemeral,
    mount,
    owned,
    pod,
    pod_with,
)

from koordinator.api.meta import KubeObject, ObjectMeta
from koordinator.api.volume import AwsElasticBlockStore, GcePersistentDisk, Iscsi, Rbd, Volume
from koordinator.scheduler.contract import Action, ClusterEvent, NoArgs, QueueingHint
from koordinator.scheduler.plugins.volume_restrictions import PLUGIN, REASON_CLAIM, REASON_DISK
from koordinator.scheduler.snapshot import ResourceAxis

NODES: dict[str, dict[str, str]] = {"a": {}, "b": {}}
RESTRICTIONS = PLUGIN.build(NoArgs(), ResourceAxis())


def gce(name: str, *, read_only: bool = False) -> Volume:
    return Volume(
        name="disk", gce_persistent_disk=GcePersistentDisk(pd_name=name, read_only=read_only)
    )


def ebs(name: str, *, read_only: bool = False) -> Volume:
    source = AwsElasticBlockStore(volume_id=name, read_only=read_only)
    return Volume(name="disk", aws_elastic_block_store=source)


def iscsi(name: str, *, lun: int = 0, read_only: bool = False) -> Volume:
    return Volume(name="disk", iscsi=Iscsi(iqn=name, lun=lun, read_only=read_only))


def rbd(image: str, *monitors: str, pool: str = "rbd", read_only: bool = False) -> Volume:
    source = Rbd(monitors=monitors, image=image, pool=pool, read_only=read_only)
    return Volume(name="disk", rbd=source)


@pytest.mark.parametrize(
    ("wanted", "mounted", "conflict"),
    [
        (gce("x"), gce("x"), True),
        (gce("x", read_only=True), gce("x"), True),
        (gce("x", read_only=True), gce("x", read_only=True), False),
        (gce("x"), gce("y"), False),
        (ebs("x", read_only=True), ebs("x", read_only=True), True),
        (ebs("x"), gce("x"), False),
        (iscsi("x", lun=1), iscsi("x", lun=2), True),
        (iscsi("x", read_only=True), iscsi("x", read_only=True), False),
        (rbd("x", "m1", "m2"), rbd("x", "m2", "m3"), True),
        (rbd("x", "m1"), rbd("x", "m2"), False),
        (rbd("x", "m1"), rbd("x", "m1", pool="other"), False),
        (rbd("x", "m1", read_only=True), rbd("x", "m1", read_only=True), False),
    ],
)
def test_a_disk_in_use_on_a_node_keeps_pods_off_that_node_only(
    wanted: Volume, mounted: Volume, conflict: bool
) -> None:
    """Readers may share a disk, except Amazon's; Ceph images overlap in one monitor."""
    world = World(NODES)
    world.run(pod("first", mounted), "a")

    expected = {"a": REASON_DISK} if conflict else {}
    assert world.reasons(RESTRICTIONS, pod("second", wanted)) == expected


def test_disk_is_free_after_its_pod_is_deleted() -> None:
    """No trace of the pod remains, also after a conflict was found."""
    world = World(NODES)
    first, second = pod("first", gce("x")), pod("second", gce("x"))
    world.run(first, "a")
    assert world.reasons(RESTRICTIONS, second)

    world.stop(first)

    assert world.reasons(RESTRICTIONS, second) == {}


def test_a_read_write_once_pod_claim_in_use_rejects_all_nodes_and_preemption_may_help() -> None:
    """The claim is taken wherever its pod runs; it can be freed by removing that pod."""
    data = bound(claim("data", access_modes=("ReadWriteOncePod",)), "v")
    world = World(NODES, data)
    world.run(pod_with("first", "data"), "a")
    second = pod_with("second", "data")

    assert world.reasons(RESTRICTIONS, second) == {"a": REASON_CLAIM, "b": REASON_CLAIM}
    answer = RESTRICTIONS.filter(world.snapshot, world.pod_class(second))
    assert answer.unresolvable is False


def test_a_conflicting_disk_is_named_before_a_taken_claim() -> None:
    """A node has one reason even if both rules are violated."""
    world = World(NODES, claim("data", access_modes=("ReadWriteOncePod",)))
    world.run(pod("first", mount("data"), gce("x")), "a")

    reasons = world.reasons(RESTRICTIONS, pod("second", mount("data"), gce("x")))

    assert reasons == {"a": REASON_DISK, "b": REASON_CLAIM}


def test_claims_of_other_modes_and_of_other_namespaces_are_not_exclusive() -> None:
    """Only ReadWriteOncePod is about pods; other modes are about nodes."""
    other = pod_with("first", "data")
    other = type(other)(metadata=ObjectMeta(name="first", namespace="other"), spec=other.spec)
    world = World(NODES, claim("data", access_modes=("ReadWriteOncePod",)), claim("shared"))
    world.run(other, "a")
    world.run(pod_with("third", "shared"), "a")

    assert world.reasons(RESTRICTIONS, pod_with("second", "data", "shared")) == {}


def test_a_missing_claim_refuses_the_pod() -> None:
    """A missing claim has unknown access modes."""
    refusal = World(NODES).refusal(RESTRICTIONS, pod_with("first", "data"))

    assert refusal is not None
    assert refusal.reason == 'persistentvolumeclaim "data" not found'


def test_the_claim_of_an_ephemeral_volume_has_no_second_user() -> None:
    """As upstream, it is neither looked up nor taken: only its pod may use it."""
    world, job = World(NODES), pod("job", ephemeral())
    assert world.refusal(RESTRICTIONS, job) is None

    world.put(owned(claim("job-scratch", access_modes=("ReadWriteOncePod",)), job))
    world.run(job, "a")

    assert world.reasons(RESTRICTIONS, job) == {}


@pytest.mark.parametrize(
    ("deleted", "hint"),
    [
        (pod("gone", gce("x")), QueueingHint.QUEUE),
        (pod("gone", gce("y")), QueueingHint.SKIP),
        (pod_with("gone", "data"), QueueingHint.QUEUE),
        (pod("gone"), QueueingHint.SKIP),
    ],
)
def test_only_pods_with_the_same_disk_or_claim_requeue_a_pod(
    deleted: KubeObject, hint: QueueingHint
) -> None:
    """A deleted pod without a shared volume did not block it."""
    waiting = pod("waiting", mount("data"), gce("x"))
    ask = next(event.hint for event in PLUGIN.events if event.resource == "AssignedPod")
    assert ask is not None

    assert ask(waiting, ClusterEvent("AssignedPod", Action.DELETE, old=deleted)) is hint
