"""The in-memory cluster beyond the port: worlds, options, derived budgets."""

import datetime as dt
import uuid

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from koordinator.api.core import Namespace
from koordinator.api.meta import KubeObject, LabelSelector, ObjectMeta, OwnerReference
from koordinator.api.node import Node
from koordinator.api.pod import Container, Pod, PodSpec, PodStatus
from koordinator.api.policy import (
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
    PriorityClass,
)
from koordinator.api.workload import Deployment, ReplicaSet, WorkloadSpec
from koordinator.cluster.memory.admission import DEFAULT_ADMISSION, WriteOperation
from koordinator.cluster.memory.fields import name_uuid
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.cluster.port import Binding, Cluster, EventType, Reader
from koordinator.foundation.clock import VirtualClock
from koordinator.foundation.errors import (
    AlreadyExistsError,
    InputError,
    InvalidError,
    NotFoundError,
    TooManyRequestsError,
)

START_S = 1_700_000_000


def new_cluster(
    *, immediate_pod_deletion: bool = True, strict_namespaces: bool = False
) -> MemoryCluster:
    return MemoryCluster(
        VirtualClock(START_S),
        immediate_pod_deletion=immediate_pod_deletion,
        strict_namespaces=strict_namespaces,
    )


def pod(name: str, node: str = "", **meta: object) -> Pod:
    return Pod(
        metadata=ObjectMeta(name=name, namespace="default", **meta),  # type: ignore[arg-type]  # by name
        spec=PodSpec(containers=(Container(name="main", image="i"),), node_name=node),
    )


def web(name: str, owner: KubeObject | None = None) -> Pod:
    """Return a running pod of app web, perhaps of a controller."""
    return pod(name, "n1", labels={"app": "web"}, owner_references=owned_by(owner))


def owned_by(owner: KubeObject | None) -> tuple[OwnerReference, ...]:
    if owner is None:
        return ()
    reference = OwnerReference(
        api_version=owner.API_VERSION,
        kind=owner.KIND,
        name=owner.metadata.name,
        uid=owner.metadata.uid,
        controller=True,
    )
    return (reference,)


def budget(
    min_available: int | str | None = None, max_unavailable: int | str | None = None
) -> PodDisruptionBudget:
    return PodDisruptionBudget(
        metadata=ObjectMeta(name="guard", namespace="default"),
        spec=PodDisruptionBudgetSpec(
            min_available=min_available,
            max_unavailable=max_unavailable,
            selector=LabelSelector(match_labels={"app": "web"}),
        ),
    )


def status_of(cluster: Cluster) -> PodDisruptionBudgetStatus:
    return cluster.get(PodDisruptionBudget, "guard", "default").status


def test_the_same_calls_give_the_same_world() -> None:
    """Uids, names, times and versions follow from the calls and the clock alone."""

    def world() -> list[Pod]:
        cluster = new_cluster()
        cluster.create(pod("a"))
        cluster.create(pod("", generate_name="job-"))
        return list(cluster.list(Pod).items)

    assert world() == world()
    assert world()[0].metadata.creation_timestamp == dt.datetime.fromtimestamp(START_S, dt.UTC)


def test_a_uid_does_not_depend_on_other_objects() -> None:
    """Adding an object elsewhere leaves the uids of all others as they were."""
    quiet, busy = new_cluster(), new_cluster()
    busy.create(pod("z"))

    assert quiet.create(pod("a")).metadata.uid == busy.create(pod("a")).metadata.uid
    other_seed = MemoryCluster(VirtualClock(START_S), seed=1)
    assert quiet.get(Pod, "a", "default").metadata.uid != other_seed.create(pod("a")).metadata.uid


def test_load_keeps_what_the_objects_have() -> None:
    """Loaded objects were there before: uid, status and node stay, and only gaps are filled."""
    born = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    known = pod("known", "n1", uid="u1", creation_timestamp=born, resource_version="77")
    known = replace(known, status=PodStatus(phase="Failed"))
    cluster = new_cluster()
    cluster.load([known, pod("bound", "n1"), pod("free")])

    loaded = cluster.get(Pod, "known", "default")
    assert (loaded.metadata.uid, loaded.metadata.creation_timestamp) == ("u1", born)
    assert (loaded.status.phase, loaded.spec.node_name) == ("Failed", "n1")
    assert cluster.get(Pod, "bound", "default").status.phase == "Running"
    assert cluster.get(Pod, "free", "default").status.phase == "Pending"
    assert [p.metadata.name for p in cluster.pods_on("n1")] == ["bound", "known"]


def test_load_refuses_a_name_twice() -> None:
    """Two objects of one name are a mistake in the input."""
    with pytest.raises(AlreadyExistsError):
        new_cluster().load([pod("a"), pod("a")])


def test_load_admits_on_request() -> None:
    """Admission fills defaults and priorities, wherever in the list the class stands."""
    classy = pod("a", "n1")
    classy = replace(classy, spec=replace(classy.spec, priority_class_name="high"))
    high = PriorityClass(metadata=ObjectMeta(name="high"), value=1000)
    plain, admitting = new_cluster(), new_cluster()
    plain.load([classy, high])
    admitting.load([classy, high], admit=True)

    assert plain.get(Pod, "a", "default").spec.priority is None
    admitted = admitting.get(Pod, "a", "default")
    assert (admitted.spec.priority, admitted.spec.scheduler_name) == (1000, "default-scheduler")
    assert admitted.status.phase == "Running"


def test_load_is_watched() -> None:
    """A world that grows by loading shows in open watches."""
    cluster = new_cluster()
    watch = cluster.watch([Pod])
    watch.poll()
    cluster.load([pod("a")])

    assert [event.type for event in watch.poll()] == [EventType.ADDED]


@pytest.mark.parametrize("as_bytes", [False, True])
def test_manifests_keep_unknown_fields(*, as_bytes: bool) -> None:
    """Loaded manifests may be JSON text or containers; status and unknown fields stay."""
    manifest = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1"},
        "spec": {"podCIDR": "10.0.0.0/24"},
        "status": {"capacity": {"cpu": "4"}, "daemonEndpoints": {"x": 1}},
    }
    cluster = new_cluster()
    cluster.load_manifests([msgspec.json.encode(manifest) if as_bytes else manifest])
    cluster.patch(Node, "n1", "", {"metadata": {"labels": {"a": "b"}}})

    raw = cluster.raw(Node, "n1")
    assert raw["spec"] == {"podCIDR": "10.0.0.0/24"}
    assert raw["status"]["daemonEndpoints"] == {"x": 1}
    assert raw["status"]["allocatable"] == {"cpu": "4"}
    assert raw["metadata"]["labels"] == {"a": "b"}
    assert raw["metadata"]["uid"] == cluster.get(Node, "n1").metadata.uid


def test_a_manifest_that_is_wrong_is_an_input_error() -> None:
    """The error is the author's, and no failure of the server."""
    with pytest.raises(InputError, match="containers"):
        new_cluster().load_manifests(
            [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {}}]
        )


def test_items_of_lists_keep_their_unknown_fields() -> None:
    """A changed condition leaves other conditions and their unknown fields unchanged."""
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a"},
        "spec": {"containers": [{"name": "main", "image": "i"}]},
        "status": {"conditions": [{"type": "Ready", "status": "True", "ours": 1}]},
    }
    cluster = new_cluster()
    cluster.load_manifests([manifest])
    assert cluster.bind([Binding("default", "a", "n1")]).results() == [None]

    ready, scheduled = cluster.raw(Pod, "a", "default")["status"]["conditions"]
    assert ready == {"type": "Ready", "status": "True", "ours": 1}
    assert scheduled["type"] == "PodScheduled"


def test_pods_are_removed_immediately_by_default() -> None:
    """An embedded cluster has no kubelet that would confirm their termination."""
    cluster = new_cluster()
    cluster.load([pod("a", "n1"), pod("b", "n1")])
    cluster.delete(Pod, "a", "default", grace_period_s=60)
    cluster.evict("default", "b")

    assert cluster.list(Pod).items == []
    assert cluster.pods_on("n1") == []


def test_a_graceful_end_is_at_the_virtual_time() -> None:
    """The deletion timestamp is when the grace period will be over."""
    cluster = new_cluster(immediate_pod_deletion=False)
    cluster.load([pod("a", "n1")])
    cluster.delete(Pod, "a", "default", grace_period_s=60)

    ending = cluster.get(Pod, "a", "default").metadata.deletion_timestamp
    assert ending == dt.datetime.fromtimestamp(START_S + 60, dt.UTC)


def test_namespaces_come_into_being_with_their_first_object() -> None:
    """An implied namespace has its name label; creating it explicitly still works."""
    cluster = new_cluster()
    cluster.create(pod("a"))
    implied = cluster.get(Namespace, "default")
    assert implied.metadata.labels == {"kubernetes.io/metadata.name": "default"}

    team = Namespace(metadata=ObjectMeta(name="default", labels={"team": "x"}))
    assert cluster.create(team).metadata.labels["team"] == "x"
    with pytest.raises(AlreadyExistsError):
        cluster.create(team)


def test_strict_namespaces_must_exist() -> None:
    """With the option, an object in a namespace that isn't there is refused."""
    cluster = new_cluster(strict_namespaces=True)
    with pytest.raises(NotFoundError, match='namespaces "default" not found'):
        cluster.create(pod("a"))
    cluster.create(Namespace(metadata=ObjectMeta(name="default")))

    cluster.create(pod("a"))


def test_admission_steps_run_in_order_and_read_the_cluster() -> None:
    """A step may change or refuse an object, knows the operation, and finds the old object."""
    calls: list[tuple[str, str]] = []

    def count_pods(operation: WriteOperation, obj: KubeObject, cluster: Reader) -> KubeObject:
        calls.append((operation.value, obj.metadata.name))
        if operation is WriteOperation.CREATE and len(cluster.list(Pod).items) >= 1:
            raise InvalidError("one pod is enough")
        return replace(obj, metadata=replace(obj.metadata, labels={"seen": operation.value}))

    cluster = MemoryCluster(VirtualClock(START_S), admission=(*DEFAULT_ADMISSION, count_pods))
    created = cluster.create(pod("a"))
    with pytest.raises(InvalidError, match="one pod is enough"):
        cluster.create(pod("b"))
    updated = cluster.patch(Pod, "a", "default", {"metadata": {"annotations": {"k": "v"}}})
    cluster.delete(Pod, "a", "default")

    assert created.metadata.labels == {"seen": "CREATE"}
    assert updated.metadata.labels == {"seen": "UPDATE"}
    assert calls == [("CREATE", "a"), ("CREATE", "b"), ("UPDATE", "a"), ("DELETE", "a")]


@pytest.mark.parametrize(
    ("guard", "allowed", "desired", "expected"),
    [
        (budget(min_available=1), 2, 1, 3),
        (budget(min_available=3), 0, 3, 3),
        (budget(min_available="50%"), 1, 2, 4),  # of the 4 that the Deployment wants
        (budget(max_unavailable=1), 0, 3, 4),  # one of 4 is missing already
        (budget(max_unavailable="50%"), 1, 2, 4),
    ],
)
def test_the_status_of_a_budget_follows_the_pods(
    guard: PodDisruptionBudget, allowed: int, desired: int, expected: int
) -> None:
    """Percentages and maxUnavailable count from the scale of the controllers, rounded up."""
    deployment = Deployment(
        metadata=ObjectMeta(name="web", namespace="default", uid="d"),
        spec=WorkloadSpec(replicas=4),
    )
    copies = ReplicaSet(
        metadata=ObjectMeta(
            name="web-1", namespace="default", uid="r", owner_references=owned_by(deployment)
        ),
        spec=WorkloadSpec(replicas=3),
    )
    cluster = new_cluster()
    cluster.load([deployment, copies, guard, *(web(name, copies) for name in "abc")])

    assert status_of(cluster) == PodDisruptionBudgetStatus(
        disruptions_allowed=allowed,
        current_healthy=3,
        desired_healthy=desired,
        expected_pods=expected,
    )


def test_bare_pods_have_no_scale() -> None:
    """As in Kubernetes, maxUnavailable allows nothing for pods without a controller."""
    cluster = new_cluster()
    cluster.load([budget(max_unavailable=1), web("a"), web("b")])

    assert status_of(cluster).disruptions_allowed == 0


def test_a_derived_status_limits_evictions_and_is_watched() -> None:
    """The budget shrinks with every eviction and grows when pods come; watchers see it."""
    cluster = new_cluster()
    cluster.load([budget(min_available=1), web("a"), web("b")])
    watch = cluster.watch([PodDisruptionBudget])
    watch.poll()

    cluster.evict("default", "a")
    with pytest.raises(TooManyRequestsError, match="needs 1 healthy pods and has 1 currently"):
        cluster.evict("default", "b")
    cluster.load([web("c")])
    cluster.evict("default", "b")

    event = watch.poll()[-1]
    assert isinstance(event.object, PodDisruptionBudget)
    assert event.object == cluster.get(PodDisruptionBudget, "guard", "default")
    assert event.object.status.current_healthy == 1


def test_given_budget_status_is_kept() -> None:
    """A budget that came with a status keeps it, whatever the pods are, and is charged."""
    given = replace(
        budget(min_available=100), status=PodDisruptionBudgetStatus(disruptions_allowed=1)
    )
    cluster = new_cluster()
    cluster.load([given, web("a"), web("b")])

    cluster.evict("default", "a")
    with pytest.raises(TooManyRequestsError):
        cluster.evict("default", "b")
    assert set(status_of(cluster).disrupted_pods) == {"a"}


@given(namespace=st.uuids(), name=st.text(st.characters(codec="utf-8")))
def test_uids_are_those_of_the_standard(namespace: uuid.UUID, name: str) -> None:
    """RFC 9562, version 5: computed here as the standard library does."""
    assert name_uuid(namespace, name) == str(uuid.uuid5(namespace, name))
