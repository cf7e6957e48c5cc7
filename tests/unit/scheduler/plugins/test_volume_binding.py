"""Placement of pods together with their volumes."""

import datetime as dt
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from tests.unit.scheduler.plugins.volumes import (
    DRIVER,
    EARLY,
    HOSTNAME,
    NAMESPACE,
    ZONE,
    World,
    bound,
    claim,
    ephemeral,
    meta,
    owned,
    pod,
    pod_with,
    storage_class,
    volume,
)

from koordinator.api.core import ObjectReference
from koordinator.api.kubescheduler import UtilizationShapePoint, VolumeBindingArgs
from koordinator.api.meta import KubeObject, LabelSelector, ObjectMeta
from koordinator.api.volume import (
    CsiDriver,
    CsiDriverSpec,
    CsiStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimStatus,
    TopologySelectorLabelRequirement,
    TopologySelectorTerm,
)
from koordinator.foundation.quantity import Quantity
from koordinator.scheduler.contract import (
    Action,
    AllocationResult,
    ClusterEvent,
    QueueingHint,
    Refusal,
)
from koordinator.scheduler.plugins.volume_binding import PLUGIN
from koordinator.scheduler.plugins.volume_binding.outcome import (
    REASON_AFFINITY,
    REASON_NONE,
    REASON_SPACE,
)
from koordinator.scheduler.rules.volumes import (
    BOUND_BY_CONTROLLER,
    NO_PROVISIONER,
    SELECTED_NODE,
    UNBOUND,
    VOLUME_MISSING,
    claim_not_created,
)
from koordinator.scheduler.snapshot import ResourceAxis

NODES = {"a": {ZONE: "z1"}, "b": {ZONE: "z1"}, "c": {ZONE: "z2"}}
BINDING = PLUGIN.build(VolumeBindingArgs(), ResourceAxis())
STATIC = storage_class("late", provisioner=NO_PROVISIONER)
DYNAMIC = storage_class("late")
POD = pod_with("db", "data")


def on(*nodes: str) -> Mapping[str, tuple[str, ...]]:
    return {HOSTNAME: nodes}


def changed(item: PersistentVolumeClaim, **fields: Any) -> PersistentVolumeClaim:
    return msgspec.structs.replace(item, **fields)


def reserved(world: World, node: str) -> dict[str, KubeObject]:
    """Return the objects that the pod reserves on the node, by kind and name."""
    allocation = world.reserve(BINDING, POD, node)
    assert isinstance(allocation, AllocationResult)
    return {item.metadata.name: item for item in allocation.objects}


# -- claims that can't be scheduled with ---------------------------------------------------------

DELETED = meta("data", deletion_timestamp=dt.datetime(2026, 1, 1, tzinfo=dt.UTC))


@pytest.mark.parametrize(
    ("objects", "reason"),
    [
        ((), 'persistentvolumeclaim "data" not found'),
        (
            (changed(claim("data"), metadata=DELETED), DYNAMIC),
            'persistentvolumeclaim "data" is being deleted',
        ),
        (
            (changed(bound(claim("data"), "v"), status=PersistentVolumeClaimStatus(phase="Lost")),),
            'persistentvolumeclaim "data" bound to non-existent persistentvolume "v"',
        ),
        (
            (claim("data"), storage_class("late", EARLY)),
            "pod has unbound immediate PersistentVolumeClaims",
        ),
        ((claim("data", None),), "pod has unbound immediate PersistentVolumeClaims"),
        ((claim("data"),), "pod has unbound immediate PersistentVolumeClaims"),
        (
            (claim("data", volume_name="v"), DYNAMIC),
            "pod has unbound immediate PersistentVolumeClaims",
        ),
        ((claim("data"), DYNAMIC), ""),
        ((bound(claim("data"), "v"),), ""),
    ],
)
def test_a_claim_must_be_bound_or_wait_for_the_pod(
    objects: tuple[KubeObject, ...], reason: str
) -> None:
    """In all other cases a controller must act first, on any node."""
    refusal = World(NODES, *objects).refusal(BINDING, POD)

    assert (refusal.reason if refusal else "") == reason


def test_pods_without_claims_are_skipped() -> None:
    """The plugin does not run and nothing is reserved."""
    world = World(NODES)

    assert world.refusal(BINDING, pod("web")) is None
    assert not BINDING.hints.filters(world.snapshot, world.pod_class(pod("web")))
    assert world.reserve(BINDING, pod("web"), "a") == AllocationResult()


# -- bound claims --------------------------------------------------------------------------------


def test_bound_volume_restricts_the_nodes() -> None:
    """The rejection is unresolvable: preemption cannot move a volume."""
    world = World(NODES, bound(claim("data"), "v"), volume("v", on={ZONE: ("z1",)}))

    assert world.reasons(BINDING, POD) == {"c": REASON_AFFINITY}
    assert BINDING.filter(world.snapshot, world.pod_class(POD)).unresolvable is True
    assert reserved(world, "a") == {}


def test_bound_claim_with_deleted_volume_rejects_every_node() -> None:
    """The claim cannot recover."""
    world = World(NODES, bound(claim("data"), "v"))

    assert world.reasons(BINDING, POD) == dict.fromkeys(NODES, VOLUME_MISSING)


# -- existing volumes for waiting claims ---------------------------------------------------------


def test_a_waiting_claim_takes_the_smallest_volume_that_fits_on_the_node() -> None:
    """Ties go to the first volume; the volume then references the claim."""
    world = World(
        NODES,
        STATIC,
        claim("data", size="10Gi"),
        volume("huge", size="50Gi"),
        volume("small", size="5Gi", on=on("a")),
        volume("fits", size="20Gi", on=on("a", "b")),
        volume("same", size="20Gi", on=on("a")),
    )

    assert world.reasons(BINDING, POD) == {}
    assert reserved(world, "a").keys() == {"fits"}
    assert reserved(world, "c").keys() == {"huge"}
    taken = reserved(world, "b")["fits"]
    assert isinstance(taken, PersistentVolume)
    assert taken.metadata.annotations == {BOUND_BY_CONTROLLER: "yes"}
    assert taken.spec.claim_ref == ObjectReference(
        api_version="v1",
        kind="PersistentVolumeClaim",
        namespace=NAMESPACE,
        name="data",
        uid="uid-of-data",
    )


OTHERS_REFERENCE = ObjectReference(namespace=NAMESPACE, name="other", uid="uid-of-other")


@pytest.mark.parametrize(
    "unfit",
    [
        volume("v", "another-class"),
        volume("v", size="9Gi"),
        volume("v", access_modes=("ReadOnlyMany",)),
        volume("v", volume_mode="Block"),
        volume("v", phase="Released"),
        volume("v", claimed_by=OTHERS_REFERENCE),
        volume("v", labels={"tier": "slow"}),
        msgspec.structs.replace(volume("v", labels={"tier": "fast"}), metadata=DELETED),
    ],
    ids=["class", "size", "access", "mode", "phase", "claimed", "selector", "deleted"],
)
def test_volume_must_be_available_and_match_the_claim(unfit: PersistentVolume) -> None:
    """One mismatch rejects the volume."""
    selector = LabelSelector(match_labels={"tier": "fast"})
    world = World(NODES, STATIC, claim("data", selector=selector), unfit)
    assert world.reasons(BINDING, POD) == dict.fromkeys(NODES, REASON_NONE)

    world.put(volume("good", labels={"tier": "fast"}, on=on("b")))

    assert world.reasons(BINDING, POD) == {"a": REASON_NONE, "c": REASON_NONE}


def test_prebound_volume_comes_first() -> None:
    """Where it is out of reach the claim gets no other volume."""
    reserved_for = ObjectReference(namespace=NAMESPACE, name="data")
    world = World(
        NODES,
        STATIC,
        claim("data"),
        volume("better"),
        volume("mine", size="90Gi", claimed_by=reserved_for, on=on("a"), phase="Pending"),
    )

    assert world.reasons(BINDING, POD) == {"b": REASON_NONE, "c": REASON_NONE}
    taken = reserved(world, "a")["mine"]
    assert isinstance(taken, PersistentVolume)
    assert taken.spec.claim_ref is not None
    assert taken.spec.claim_ref.uid == "uid-of-data"
    assert taken.metadata.annotations == {}  # a person set it aside, not a controller


def test_two_claims_of_a_pod_never_get_the_same_volume() -> None:
    """Each node needs a volume for each claim; the smaller claim chooses first."""
    world = World(
        NODES,
        STATIC,
        claim("big", size="20Gi"),
        claim("small", size="5Gi"),
        volume("v20", size="20Gi"),
        volume("v30", size="30Gi", on=on("b")),
        volume("v5", size="5Gi", on=on("c")),
    )
    both = pod_with("db", "big", "small")

    assert world.reasons(BINDING, both) == {"a": REASON_NONE}
    allocation = world.reserve(BINDING, both, "b")
    assert isinstance(allocation, AllocationResult)
    refs = {
        item.metadata.name: item.spec.claim_ref.name
        for item in allocation.objects
        if isinstance(item, PersistentVolume) and item.spec.claim_ref
    }
    assert refs == {"v20": "small", "v30": "big"}


def test_a_claim_that_is_mounted_twice_needs_one_volume() -> None:
    """A pod may mount a claim several times."""
    world = World(NODES, STATIC, claim("data"), volume("v"))

    assert world.reasons(BINDING, pod_with("db", "data", "data")) == {}


def test_no_volume_is_provisioned_for_a_claim_with_a_prebound_one() -> None:
    """The claim would bind to the volume that names it, whatever is provisioned."""
    reserved_for = ObjectReference(namespace=NAMESPACE, name="data")
    mine = volume("mine", claimed_by=reserved_for, on=on("a"))
    world = World(NODES, DYNAMIC, claim("data"), mine)

    assert world.reasons(BINDING, POD) == {"b": REASON_NONE, "c": REASON_NONE}


def test_reserved_volume_is_kept_for_its_claim() -> None:
    """Until the claim is bound, a second pod of the same claim must follow the volume."""
    world = World(
        NODES,
        STATIC,
        claim("data"),
        claim("more"),
        volume("v", on=on("a")),
        volume("w", on=on("b")),
    )
    world.schedule(BINDING, POD, "a")

    assert world.reasons(BINDING, pod_with("second", "data")).keys() == {"b", "c"}
    assert world.reasons(BINDING, pod_with("third", "more")).keys() == {"a", "c"}
    assert world.reserve(BINDING, pod_with("second", "data"), "a") == AllocationResult()
    assert world.reserve(BINDING, pod_with("third", "more"), "a") == Refusal(REASON_NONE)


# -- new volumes for waiting claims --------------------------------------------------------------


def zones(*values: str) -> tuple[TopologySelectorTerm, ...]:
    label = TopologySelectorLabelRequirement(key=ZONE, values=values)
    return (TopologySelectorTerm(match_label_expressions=(label,)),)


def test_volume_is_provisioned_where_the_class_allows_it() -> None:
    """The node is written to the claim, and afterwards no other node fits."""
    allowed = storage_class("late", allowed_topologies=zones("z1"))
    world = World(NODES, allowed, claim("data"))
    assert world.reasons(BINDING, POD) == {"c": REASON_NONE}

    annotated = reserved(world, "b")["data"]
    assert annotated.metadata.annotations == {SELECTED_NODE: "b"}
    world.put(annotated)

    assert world.reasons(BINDING, POD) == {"a": REASON_NONE, "c": REASON_NONE}
    assert world.reasons(BINDING, pod_with("second", "data")).keys() == {"a", "c"}
    assert reserved(world, "b") == {}


def test_an_existing_volume_goes_before_a_new_one() -> None:
    """Only nodes without one get a new one."""
    world = World(NODES, DYNAMIC, claim("data"), volume("v", on=on("a")))

    assert world.reasons(BINDING, POD) == {}
    assert reserved(world, "a").keys() == {"v"}
    assert reserved(world, "b").keys() == {"data"}


def capacity(
    name: str, size: str, topology: LabelSelector | None, largest: str | None = None
) -> CsiStorageCapacity:
    return CsiStorageCapacity(
        metadata=ObjectMeta(name=name, namespace="csi"),
        storage_class_name="late",
        node_topology=topology,
        capacity=Quantity.parse(size),
        maximum_volume_size=None if largest is None else Quantity.parse(largest),
    )


def csi_driver(*, storage_capacity: bool) -> CsiDriver:
    return CsiDriver(
        metadata=ObjectMeta(name=DRIVER), spec=CsiDriverSpec(storage_capacity=storage_capacity)
    )


Z1 = LabelSelector(match_labels={ZONE: "z1"})
Z2 = LabelSelector(match_labels={ZONE: "z2"})


@pytest.mark.parametrize(
    ("capacities", "short"),
    [
        ((), {"a", "b", "c"}),
        ((capacity("x", "10Gi", Z1),), {"c"}),
        ((capacity("x", "9Gi", Z1), capacity("y", "10Gi", Z2)), {"a", "b"}),
        ((capacity("x", "1Ti", Z1, largest="9Gi"),), {"a", "b", "c"}),
        ((capacity("x", "1Gi", Z1, largest="10Gi"),), {"c"}),
        ((capacity("x", "1Ti", None),), {"a", "b", "c"}),
        ((capacity("x", "1Ti", LabelSelector()),), set()),
    ],
)
def test_a_driver_that_publishes_capacity_needs_enough_in_one_place(
    capacities: tuple[CsiStorageCapacity, ...], short: set[str]
) -> None:
    """A known maximum volume size counts; capacity without topology is unreachable."""
    world = World(NODES, DYNAMIC, claim("data"), csi_driver(storage_capacity=True), *capacities)
    assert world.reasons(BINDING, POD) == dict.fromkeys(short, REASON_SPACE)

    world.put(csi_driver(storage_capacity=False))
    assert world.reasons(BINDING, POD) == {}


# -- ephemeral volumes ---------------------------------------------------------------------------

JOB = pod("job", ephemeral())
SCRATCH = owned(claim("job-scratch"), JOB)


@pytest.mark.parametrize(
    ("objects", "reason"),
    [
        (
            (),
            claim_not_created("job-scratch"),
        ),
        (
            (claim("job-scratch"),),
            "PVC shop/job-scratch was not created for pod shop/job (pod is not owner)",
        ),
        (
            (owned(claim("job-scratch"), pod("somebody")),),
            "PVC shop/job-scratch was not created for pod shop/job (pod is not owner)",
        ),
        (
            (changed(claim("job-scratch"), status=PersistentVolumeClaimStatus(phase="Lost")),),
            'persistentvolumeclaim "job-scratch" bound to non-existent persistentvolume ""',
        ),
        ((SCRATCH, storage_class("late", EARLY)), UNBOUND),
        ((SCRATCH, DYNAMIC), ""),
        ((bound(SCRATCH, "v"), storage_class("late", EARLY)), ""),
    ],
)
def test_the_claim_of_an_ephemeral_volume_must_belong_to_the_pod(
    objects: tuple[KubeObject, ...], reason: str
) -> None:
    """An existing claim of that name has data of others; a missing one will be created."""
    refusal = World(NODES, *objects).refusal(BINDING, JOB)

    assert (refusal.reason if refusal else "") == reason


def test_message_for_a_missing_ephemeral_claim() -> None:
    """The text equals upstream's."""
    refusal = World(NODES).refusal(BINDING, JOB)
    awaited = "waiting for ephemeral volume controller to create the persistentvolumeclaim"

    assert refusal == Refusal(f'{awaited} "job-scratch"')


def test_the_claim_of_an_ephemeral_volume_is_a_claim_like_any_other() -> None:
    """The claim takes an existing volume on one node, and is provisioned on others."""
    world = World(NODES, DYNAMIC, SCRATCH, volume("v", on=on("a")))
    taken = world.reserve(BINDING, JOB, "a")
    assert isinstance(taken, AllocationResult)
    (item,) = taken.objects
    assert isinstance(item, PersistentVolume)
    assert item.spec.claim_ref is not None
    assert item.spec.claim_ref.uid == "uid-of-job-scratch"

    world.schedule(BINDING, JOB, "b")

    stored = world.state.objects.get(PersistentVolumeClaim, f"{NAMESPACE}/job-scratch")
    assert stored is not None
    assert stored.metadata.annotations == {SELECTED_NODE: "b"}
    assert world.reasons(BINDING, JOB) == {"a": REASON_NONE, "c": REASON_NONE}


def test_equal_pods_have_separate_ephemeral_claims() -> None:
    """Results for one pod are not reused for the next."""
    world = World(NODES, DYNAMIC, volume("v", on=on("a")))
    first, second = pod("first", ephemeral()), pod("second", ephemeral())
    world.put(owned(bound(claim("first-scratch"), "v"), first))

    assert world.reasons(BINDING, first) == {"b": REASON_AFFINITY, "c": REASON_AFFINITY}
    assert world.refusal(BINDING, second) is not None
    world.put(owned(claim("second-scratch"), second))
    assert world.reasons(BINDING, second) == {}


def test_only_pods_with_ephemeral_volumes_are_distinguished_by_name() -> None:
    """Thousands of other pods share one class, and with it one result."""
    world = World(NODES)
    web = world.pod_class(pod_with("web-1", "data"))
    assert web is world.pod_class(pod_with("web-2", "data"))
    assert (web.name, web.uid) == ("", "")

    job, again = world.pod_class(JOB), pod("job", ephemeral())
    assert (job.name, job.uid) == ("job", "uid-of-job")
    assert job is world.pod_class(again)
    reborn = msgspec.structs.replace(again.metadata, uid="another")
    assert job is not world.pod_class(msgspec.structs.replace(again, metadata=reborn))


@pytest.mark.parametrize(
    ("name", "hint"), [("job-scratch", QueueingHint.QUEUE), ("scratch", QueueingHint.SKIP)]
)
def test_new_ephemeral_claim_requeues_its_pod(name: str, hint: QueueingHint) -> None:
    """The pod waits for no other event."""
    ask = next(event.hint for event in PLUGIN.events if event.resource == "PersistentVolumeClaim")
    assert ask is not None

    assert ask(JOB, ClusterEvent("PersistentVolumeClaim", Action.ADD, None, claim(name))) is hint


# -- scores and hints ----------------------------------------------------------------------------


def test_shape_scores_nodes_by_volume_utilisation() -> None:
    """Without a shape there is no score; storage classes are averaged and rounded."""
    rising = tuple(UtilizationShapePoint(utilization=u, score=u // 10) for u in (0, 100))
    scoring = PLUGIN.build(VolumeBindingArgs(shape=rising), ResourceAxis())
    world = World(
        NODES,
        STATIC,
        storage_class("other", provisioner=NO_PROVISIONER),
        claim("data", size="10Gi"),
        claim("logs", "other", size="1Gi"),
        volume("full", size="10Gi", on=on("a")),
        volume("half", size="20Gi", on=on("b")),
        volume("third", size="30Gi", on=on("c")),
        volume("logs", "other", size="2Gi"),
    )
    pod_class = world.pod_class(pod_with("db", "data", "logs"))

    assert not BINDING.hints.scores(world.snapshot, pod_class)
    assert scoring.hints.scores(world.snapshot, pod_class)
    assert scoring.score(world.snapshot, pod_class).tolist() == [75, 50, 42]


def test_provisioning_is_scored_by_capacity() -> None:
    """A node with unknown capacity scores 0."""
    rising = tuple(UtilizationShapePoint(utilization=u, score=u // 10) for u in (0, 100))
    scoring = PLUGIN.build(VolumeBindingArgs(shape=rising), ResourceAxis())
    world = World(
        NODES,
        DYNAMIC,
        claim("data", size="10Gi"),
        csi_driver(storage_capacity=True),
        capacity("x", "40Gi", Z1),
        capacity("y", "1Ti", Z2, largest="5Gi"),
    )

    assert scoring.score(world.snapshot, world.pod_class(POD)).tolist() == [25, 25, 0]


@pytest.mark.parametrize(
    ("old", "new", "hint"),
    [
        (None, claim("data"), QueueingHint.QUEUE),
        (None, claim("other"), QueueingHint.SKIP),
        (DYNAMIC, storage_class("late", allowed_topologies=zones("z1")), QueueingHint.QUEUE),
        (DYNAMIC, storage_class("late", parameters={"x": "y"}), QueueingHint.SKIP),
        (capacity("x", "1Gi", Z1), capacity("x", "2Gi", Z1), QueueingHint.QUEUE),
        (capacity("x", "2Gi", Z1), capacity("x", "1Gi", Z1), QueueingHint.SKIP),
        (csi_driver(storage_capacity=True), csi_driver(storage_capacity=False), QueueingHint.QUEUE),
        (csi_driver(storage_capacity=False), csi_driver(storage_capacity=True), QueueingHint.SKIP),
    ],
)
def test_only_helpful_changes_requeue_a_pod(
    old: KubeObject | None, new: KubeObject, hint: QueueingHint
) -> None:
    """Other claims, lower capacities and similar changes do not."""
    action = Action.ADD if old is None else Action.UPDATE_OTHER
    ask = next(event.hint for event in PLUGIN.events if event.resource == new.KIND)
    assert ask is not None

    assert ask(POD, ClusterEvent(new.KIND, action, old, new)) is hint
