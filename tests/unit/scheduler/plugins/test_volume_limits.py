"""Limits on attachable volumes."""

import pytest
from tests.unit.scheduler.plugins.volumes import (
    DRIVER,
    NAMESPACE,
    World,
    bound,
    claim,
    csi_node,
    ephemeral,
    owned,
    pod,
    pod_with,
    storage_class,
    volume,
)

from koordinator.api.meta import KubeObject, ObjectMeta
from koordinator.api.pod import Pod
from koordinator.api.volume import (
    AwsElasticBlockStore,
    HostPath,
    Volume,
    VolumeAttachment,
    VolumeAttachmentSource,
    VolumeAttachmentSpec,
)
from koordinator.scheduler.contract import Action, ClusterEvent, NoArgs, QueueingHint
from koordinator.scheduler.plugins.node_volume_limits import PLUGIN
from koordinator.scheduler.plugins.node_volume_limits.plugin import REASON
from koordinator.scheduler.rules.volumes import MIGRATED_PLUGINS
from koordinator.scheduler.snapshot import ResourceAxis

EBS = "ebs.csi.aws.com"
LIMITS = PLUGIN.build(NoArgs(), ResourceAxis())


def world_with(*objects: KubeObject, limit: int | None = 2) -> World:
    """Return two nodes, the first with a limit, and claims c0 … c4 bound to v0 … v4."""
    bound_claims = [bound(claim(f"c{i}"), f"v{i}") for i in range(5)]
    volumes = [volume(f"v{i}") for i in range(5)]
    nodes: dict[str, dict[str, str]] = {"a": {}, "b": {}}
    return World(nodes, csi_node("a", {DRIVER: limit}), *bound_claims, *volumes, *objects)


def ebs_disk(name: str) -> Volume:
    return Volume(name=name, aws_elastic_block_store=AwsElasticBlockStore(volume_id=name))


def attachment(name: str, node: str) -> VolumeAttachment:
    source = VolumeAttachmentSource(persistent_volume_name=name)
    return VolumeAttachment(
        metadata=ObjectMeta(name=f"{name}-on-{node}"),
        spec=VolumeAttachmentSpec(attacher=DRIVER, node_name=node, source=source),
    )


def test_node_takes_volumes_up_to_its_limit() -> None:
    """The limit itself fits, one more does not; a node without CSINode has no limit."""
    world = world_with()
    world.run(pod_with("first", "c0"), "a")

    assert world.reasons(LIMITS, pod_with("next", "c1")) == {}
    assert world.reasons(LIMITS, pod_with("next", "c1", "c2")) == {"a": REASON}
    assert world.reasons(LIMITS, pod_with("next", "c1", "c2", "c3")) == {"a": REASON}


def test_a_driver_without_a_count_has_no_limit() -> None:
    """Allocatable without a count does not mean zero."""
    world = world_with(limit=None)

    assert world.reasons(LIMITS, pod_with("next", "c0", "c1", "c2")) == {}


def test_a_volume_counts_once_however_many_pods_use_it() -> None:
    """A pod whose volumes are all attached already fits a full node."""
    world = world_with()
    for name in ("first", "second"):
        world.run(pod_with(name, "c0", "c1"), "a")

    assert world.reasons(LIMITS, pod_with("next", "c1", "c0")) == {}
    assert world.reasons(LIMITS, pod_with("next", "c1", "c2")) == {"a": REASON}


def test_volume_is_released_with_its_last_pod() -> None:
    """Deleting the first pod does not release it."""
    world = world_with(limit=1)
    first, second, following = (pod_with(n, "c0") for n in ("first", "second", "third"))
    world.run(first, "a")
    world.run(second, "a")
    other = pod_with("other", "c1")

    world.stop(first)
    assert world.reasons(LIMITS, other) == {"a": REASON}
    assert world.reasons(LIMITS, following) == {}
    world.stop(second)
    assert world.reasons(LIMITS, other) == {}


def test_a_claim_without_a_volume_counts_for_the_driver_of_its_class() -> None:
    """The volume is provisioned once the pod has a node."""
    waiting = [claim(f"w{i}") for i in range(3)]
    world = world_with(*waiting, storage_class("late"))
    world.run(pod_with("first", "w0", "c0"), "a")

    assert world.reasons(LIMITS, pod_with("next", "w1")) == {"a": REASON}
    assert world.reasons(LIMITS, pod_with("next", "w0")) == {}


def test_volumes_of_other_drivers_and_claims_without_a_class_do_not_count() -> None:
    """A claim that no driver will serve needs no attachment."""
    world = world_with(
        claim("other", "other"),
        claim("none", None),
        claim("gone", "unknown"),
        storage_class("other", provisioner="other.example.com"),
        limit=0,
    )

    for name in ("other", "none", "gone"):
        assert world.reasons(LIMITS, pod_with("next", name)) == {}


def test_attachments_without_a_pod_count() -> None:
    """A volume may still be attached after its pod was deleted; one with a pod counts once."""
    world = world_with(attachment("v0", "a"), attachment("v1", "a"), attachment("v2", "b"))
    assert world.reasons(LIMITS, pod_with("next", "c3")) == {"a": REASON}

    world.state.objects.drop(attachment("v1", "a"))
    assert world.reasons(LIMITS, pod_with("next", "c3")) == {}

    world.run(pod_with("first", "c0"), "a")
    assert world.reasons(LIMITS, pod_with("next", "c3")) == {}


def test_new_limit_applies_immediately() -> None:
    """Values derived from the old CSINode are dropped."""
    world = world_with()
    assert world.reasons(LIMITS, pod_with("next", "c0")) == {}

    world.put(csi_node("a", {DRIVER: 0}))

    assert world.reasons(LIMITS, pod_with("next", "c0")) == {"a": REASON}


def test_a_disk_of_an_in_tree_plugin_counts_where_the_node_has_migrated_it() -> None:
    """The driver serves inline disks there, and the same disk behind a claim is the same volume."""
    annotations = {MIGRATED_PLUGINS: "kubernetes.io/aws-ebs"}
    disk = AwsElasticBlockStore(volume_id="aws://zone/vol-1")
    world = World(
        {"migrated": {}, "not": {}},
        csi_node("migrated", {EBS: 1}, annotations=annotations),
        csi_node("not", {EBS: 1}),
        bound(claim("data"), "v"),
        volume("v", csi=None, aws_elastic_block_store=disk),
    )
    world.run(pod_with("first", "data"), "migrated")
    world.run(pod("second", ebs_disk("vol-2")), "not")

    assert world.reasons(LIMITS, pod("next", ebs_disk("vol-3"))) == {"migrated": REASON}
    assert world.reasons(LIMITS, pod("next", ebs_disk("vol-1"))) == {}


def test_an_ephemeral_volume_counts_as_the_claim_that_its_pod_owns() -> None:
    """A claim of that name with another owner does not count, and refuses a pending pod."""
    world = world_with(storage_class("late"), limit=1)
    first, second, following = (pod(name, ephemeral()) for name in ("first", "second", "next"))
    world.put(
        owned(claim("first-scratch"), first),
        owned(claim("second-scratch"), pod("somebody")),
        owned(claim("next-scratch"), following),
    )
    world.run(second, "a")
    assert world.reasons(LIMITS, following) == {}

    world.run(first, "a")
    assert world.reasons(LIMITS, following) == {"a": REASON}
    assert world.reasons(LIMITS, first) == {}
    foreign = "PVC shop/second-scratch was not created for pod shop/second (pod is not owner)"
    assert world.reasons(LIMITS, second) == {"a": foreign, "b": foreign}


def test_an_ephemeral_volume_may_be_bound_already() -> None:
    """The bound volume counts, not a provisioned one: here it is attached anyway."""
    world = world_with(limit=1)
    job = pod("job", ephemeral())
    world.put(owned(bound(claim("job-scratch"), "v0"), job))
    world.run(pod_with("first", "c0"), "a")

    assert world.reasons(LIMITS, job) == {}


@pytest.mark.parametrize("waiting", [pod_with("next", "lo-st"), pod("lo", ephemeral("st"))])
def test_missing_claim_is_unresolvable(waiting: Pod) -> None:
    """Preemption cannot create the claim."""
    world = world_with()
    reason = f'looking up PVC {NAMESPACE}/lo-st: persistentvolumeclaim "lo-st" not found'

    assert world.reasons(LIMITS, waiting) == {"a": reason, "b": reason}
    assert LIMITS.filter(world.snapshot, world.pod_class(waiting)).unresolvable is True


def test_pods_without_attachable_volumes_are_skipped() -> None:
    """The filter does not run."""
    world = world_with()
    web = pod("web", Volume(name="logs", host_path=HostPath(path="/var/log")))

    assert not LIMITS.hints.filters(world.snapshot, world.pod_class(web))


@pytest.mark.parametrize(
    ("before", "after", "hint"),
    [
        (1, 2, QueueingHint.QUEUE),
        (2, 1, QueueingHint.SKIP),
        (1, None, QueueingHint.QUEUE),
        (1, 1, QueueingHint.SKIP),
    ],
)
def test_only_raised_limits_requeue_a_pod(
    before: int, after: int | None, hint: QueueingHint
) -> None:
    """Other changes of a CSINode cannot help."""
    ask = next(event.hint for event in PLUGIN.events if event.resource == "CSINode")
    assert ask is not None
    old, new = csi_node("a", {DRIVER: before}), csi_node("a", {DRIVER: after})

    assert ask(pod("waiting"), ClusterEvent("CSINode", Action.UPDATE_OTHER, old, new)) is hint
