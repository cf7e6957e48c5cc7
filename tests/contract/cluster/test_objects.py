"""Create, read, update, patch and delete, over every adapter."""

from itertools import count

import pytest
from msgspec.structs import replace
from tests.contract.cluster.conftest import Bed
from tests.contract.cluster.objects import budget, node, pod, pod_manifest
from tests.contract.cluster.waiting import eventually

from koordinator.api.elastic_quota import ElasticQuota, ElasticQuotaStatus
from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.policy import PriorityClass
from koordinator.cluster.port import Cluster
from koordinator.foundation.errors import (
    AlreadyExistsError,
    ConflictError,
    InvalidError,
    NotFoundError,
)
from koordinator.foundation.quantity import Quantity


def annotated(original: Pod, **annotations: str) -> Pod:
    return replace(original, metadata=replace(original.metadata, annotations=annotations))


def with_phase(original: Pod, phase: str) -> Pod:
    return replace(original, status=replace(original.status, phase=phase))


def wait_for_class(cluster: Cluster, priority: int, **spec: str) -> None:
    """Create pods until admission, which watches the classes, gives them this priority."""
    names = (f"probe-{priority}-{number}" for number in count())

    def is_known() -> bool:
        try:
            return cluster.create(pod(next(names), **spec)).spec.priority == priority
        except InvalidError:
            return False

    assert eventually(cluster, is_known)


def test_create_returns_what_get_returns(cluster: Cluster) -> None:
    """A created object has a uid, a version and a creation time, and can be read back."""
    created = cluster.create(pod("a"))

    assert created.metadata.uid
    assert created.metadata.resource_version
    assert created.metadata.creation_timestamp is not None
    assert cluster.get(Pod, "a", "default") == created


def test_a_name_is_taken_once(cluster: Cluster) -> None:
    """Creating an object whose name is taken is refused."""
    cluster.create(pod("a"))

    with pytest.raises(AlreadyExistsError, match=r'pods "(default/)?a" already exists'):
        cluster.create(pod("a"))


def test_a_recreated_object_has_another_uid(cluster: Cluster) -> None:
    """An object of the same name as a deleted one is a different object."""
    first = cluster.create(pod("a"))
    cluster.delete(Pod, "a", "default", grace_period_s=0)
    second = cluster.create(pod("a"))

    assert first.metadata.uid != second.metadata.uid


def test_generate_name_makes_distinct_names(cluster: Cluster) -> None:
    """Objects with generateName get names that start with it and differ."""
    names = {cluster.create(pod("", generate_name="job-")).metadata.name for _ in range(20)}

    assert len(names) == 20
    assert all(name.startswith("job-") and len(name) > 4 for name in names)


def test_created_objects_have_no_version_of_their_own(cluster: Cluster) -> None:
    """An object that was read can't be created again as it is."""
    created = cluster.create(node("n"))
    cluster.delete(Node, "n")

    with pytest.raises(InvalidError, match="resourceVersion"):
        cluster.create(created)


def test_missing_objects_are_reported_by_name(cluster: Cluster) -> None:
    """Reading, writing and deleting what isn't there fails with its name."""
    with pytest.raises(NotFoundError, match=r'pods "(default/)?x" not found'):
        cluster.get(Pod, "x", "default")
    with pytest.raises(NotFoundError, match=r'nodes "x" not found'):
        cluster.delete(Node, "x")
    with pytest.raises(NotFoundError):
        cluster.update(pod("x"))
    with pytest.raises(NotFoundError):
        cluster.patch(Pod, "x", "default", {})


def test_update_of_an_old_version_conflicts(cluster: Cluster) -> None:
    """A writer of an object that changed since it was read must read it again."""
    read = cluster.create(pod("a"))
    cluster.update(annotated(read, by="another"))

    with pytest.raises(ConflictError, match="the object has been modified"):
        cluster.update(annotated(read, by="me"))
    assert cluster.get(Pod, "a", "default").metadata.annotations == {"by": "another"}


def test_update_without_version_overwrites(cluster: Cluster) -> None:
    """Without a resourceVersion the last writer wins."""
    created = cluster.create(pod("a"))
    cluster.update(annotated(created, by="another"))
    unversioned = replace(created, metadata=replace(created.metadata, resource_version=""))

    assert cluster.update(annotated(unversioned, by="me")).metadata.annotations == {"by": "me"}


def test_update_of_another_uid_conflicts(cluster: Cluster) -> None:
    """A write meant for a deleted object does not hit its successor."""
    first = cluster.create(node("n"))
    cluster.delete(Node, "n")
    cluster.create(node("n"))

    with pytest.raises(ConflictError):
        cluster.update(replace(first, metadata=replace(first.metadata, resource_version="")))


def test_update_without_changes_is_not_written(cluster: Cluster) -> None:
    """The version stays when nothing changes."""
    created = cluster.create(pod("a"))

    assert cluster.update(created) == created


def test_generation_counts_changes_of_the_spec(cluster: Cluster) -> None:
    """Metadata and status leave the generation alone, the spec counts it up."""
    created = cluster.create(budget("b", "web", min_available=1))
    labelled = cluster.update(
        replace(created, metadata=replace(created.metadata, labels={"a": "b"}))
    )
    changed = cluster.update(replace(labelled, spec=replace(labelled.spec, min_available=2)))

    assert (created.metadata.generation, labelled.metadata.generation) == (1, 1)
    assert changed.metadata.generation == 2


def test_update_leaves_the_status_alone(cluster: Cluster) -> None:
    """Status is a subresource: only its own verb writes it, and that verb writes nothing else."""
    created = cluster.create(pod("a"))
    updated = cluster.update(with_phase(annotated(created, a="1"), "Running"))
    reported = cluster.update_status(with_phase(annotated(updated, a="2"), "Running"))

    assert (updated.metadata.annotations, updated.status.phase) == ({"a": "1"}, "Pending")
    assert (reported.metadata.annotations, reported.status.phase) == ({"a": "1"}, "Running")


def test_a_created_pod_is_pending(cluster: Cluster) -> None:
    """A status given at creation is dropped."""
    assert cluster.create(with_phase(pod("a"), "Running")).status.phase == "Pending"


def test_status_without_subresource_is_an_ordinary_field(cluster: Cluster) -> None:
    """Elastic quotas: one write takes annotations and status, and nothing is at ``/status``."""
    meta = ObjectMeta(name="a", namespace="default")
    created = cluster.create(ElasticQuota(metadata=meta))
    used = {"cpu": Quantity.from_int(2)}
    patch = {"metadata": {"annotations": {"a": "b"}}, "status": {"used": {"cpu": "2"}}}
    patched = cluster.patch(ElasticQuota, "a", "default", patch)
    updated = cluster.update(replace(patched, status=ElasticQuotaStatus()))

    assert created.status.used == updated.status.used == {}
    assert (patched.metadata.annotations, patched.status.used) == ({"a": "b"}, used)
    with pytest.raises(NotFoundError):
        cluster.patch(ElasticQuota, "a", "default", patch, subresource="status")


def test_status_of_an_old_version_conflicts(cluster: Cluster) -> None:
    """Status writes are checked as other writes are."""
    read = cluster.create(pod("a"))
    cluster.update_status(with_phase(read, "Running"))

    with pytest.raises(ConflictError):
        cluster.update_status(with_phase(read, "Failed"))


def test_an_update_does_not_bind(cluster: Cluster) -> None:
    """Only a binding gives a pod its node."""
    created = cluster.create(pod("a"))

    with pytest.raises(InvalidError):
        cluster.update(replace(created, spec=replace(created.spec, node_name="n")))


def test_patch_changes_only_its_own_fields(cluster: Cluster) -> None:
    """A merge patch sets keys, removes those that are null and leaves the others."""
    cluster.create(pod("a", labels={"keep": "1", "drop": "1"}))

    patch = {"metadata": {"labels": {"drop": None, "new": "1"}}}
    patched = cluster.patch(Pod, "a", "default", patch)

    assert patched.metadata.labels == {"keep": "1", "new": "1"}
    assert cluster.get(Pod, "a", "default") == patched


def test_patch_of_one_subresource_ignores_the_other(cluster: Cluster) -> None:
    """The main resource takes no status and the status takes nothing else."""
    cluster.create(pod("a"))
    both = {"metadata": {"labels": {"a": "b"}}, "status": {"phase": "Running"}}

    reported = cluster.patch(Pod, "a", "default", both, subresource="status")
    assert (reported.metadata.labels, reported.status.phase) == ({}, "Running")

    failed = both | {"status": {"phase": "Failed"}}
    patched = cluster.patch(Pod, "a", "default", failed)
    assert (patched.metadata.labels, patched.status.phase) == ({"a": "b"}, "Running")


def test_status_patch_of_a_node_may_change_labels(cluster: Cluster) -> None:
    """Labels and annotations of a node change in the same write as its status; its spec doesn't."""
    cluster.create(node("n"))
    patch = {
        "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
        "spec": {"unschedulable": True},
        "status": {"capacity": {"example.com/x": "3"}},
    }

    reported = cluster.patch(Node, "n", "", patch, subresource="status")

    assert (reported.metadata.labels["a"], reported.metadata.annotations["c"]) == ("b", "d")
    assert str(reported.status.capacity["example.com/x"]) == "3"
    assert not reported.spec.unschedulable
    assert cluster.get(Node, "n") == reported


def test_patch_may_have_preconditions(cluster: Cluster) -> None:
    """A resourceVersion or uid in the patch must equal the object's."""
    created = cluster.create(pod("a"))
    for wrong in ({"resourceVersion": "1"}, {"uid": "1"}):
        with pytest.raises(ConflictError):
            cluster.patch(Pod, "a", "default", {"metadata": wrong})

    right = {"resourceVersion": created.metadata.resource_version, "labels": {"a": "b"}}
    assert cluster.patch(Pod, "a", "default", {"metadata": right}).metadata.labels == {"a": "b"}


def test_a_patch_to_something_invalid_is_refused(cluster: Cluster) -> None:
    """The patched object must be valid; otherwise nothing is written."""
    created = cluster.create(pod("a"))

    with pytest.raises(InvalidError):
        cluster.patch(Pod, "a", "default", {"spec": {"containers": "none"}})
    with pytest.raises(InvalidError):
        cluster.patch(Pod, "a", "default", {"metadata": {"labels": {"not a key!": "x"}}})
    assert cluster.get(Pod, "a", "default") == created


def test_unknown_fields_survive_every_write(bed: Bed) -> None:
    """Fields that our types don't have outlive update, status, patch and defaulting."""
    cluster = bed.cluster
    created = bed.create_manifest(pod_manifest("a"))
    assert isinstance(created, Pod)

    updated = cluster.update(annotated(created, a="1"))
    cluster.update_status(with_phase(updated, "Running"))
    cluster.patch(Pod, "a", "default", {"metadata": {"annotations": {"b": "2"}}})

    raw = bed.raw(Pod, "a", "default")
    container = raw["spec"]["containers"][0]
    assert raw["spec"]["dnsPolicy"] == "ClusterFirst"
    assert container["env"] == [{"name": "A", "value": "1"}]
    assert container["command"] == ["sleep"]
    assert container["resources"]["requests"] == {"cpu": "1"}  # defaulted from the limit
    assert raw["metadata"]["annotations"] == {"a": "1", "b": "2"}
    assert raw["metadata"]["managedFields"]
    assert raw["status"]["phase"] == "Running"


def test_unknown_fields_can_be_patched_onto_any_object(bed: Bed) -> None:
    """A patch may bring fields that our types don't have; that is a write like any other."""
    created = bed.cluster.create(node("n"))
    patched = bed.cluster.patch(Node, "n", "", {"spec": {"podCIDR": "10.1.0.0/24"}})

    assert bed.raw(Node, "n", "")["spec"]["podCIDR"] == "10.1.0.0/24"
    assert patched.metadata.resource_version != created.metadata.resource_version


def test_finalizers_hold_a_deleted_object(cluster: Cluster) -> None:
    """An object is marked when deleted and goes when the last finalizer is taken off."""
    created = cluster.create(pod("a", finalizers=("koordinator.sh/hold",)))
    cluster.delete(Pod, "a", "default")
    terminating = cluster.get(Pod, "a", "default")

    assert terminating.metadata.deletion_timestamp is not None
    assert terminating.metadata.uid == created.metadata.uid
    cluster.update(replace(terminating, metadata=replace(terminating.metadata, finalizers=())))
    with pytest.raises(NotFoundError):
        cluster.get(Pod, "a", "default")


def test_a_deleted_object_gets_no_new_finalizers(cluster: Cluster) -> None:
    """Finalizers can't be added after the deletion timestamp is set."""
    cluster.create(pod("a", finalizers=("koordinator.sh/hold",)))
    cluster.delete(Pod, "a", "default")

    with pytest.raises(InvalidError, match="finalizers"):
        cluster.patch(
            Pod, "a", "default", {"metadata": {"finalizers": ["koordinator.sh/hold", "x.y/z"]}}
        )


def test_delete_checks_the_uid(cluster: Cluster) -> None:
    """A deletion meant for one object does not hit another of the same name."""
    created = cluster.create(node("n"))

    with pytest.raises(ConflictError):
        cluster.delete(Node, "n", uid="another")
    cluster.delete(Node, "n", uid=created.metadata.uid)
    with pytest.raises(NotFoundError):
        cluster.get(Node, "n")


def test_cluster_scoped_kinds_have_no_namespace(cluster: Cluster) -> None:
    """A namespace in the request is ignored."""
    cluster.create(node("n"))

    assert cluster.get(Node, "n", "anything").metadata.namespace == ""


def test_invalid_objects_are_refused(cluster: Cluster) -> None:
    """An object that violates a rule of the API is not stored; the error names the field."""
    with pytest.raises(InvalidError, match=r"metadata\.name"):
        cluster.create(pod("Not_A_Name"))
    with pytest.raises(InvalidError, match=r"metadata\.name"):
        cluster.create(pod(""))


def test_priority_comes_from_the_class(cluster: Cluster) -> None:
    """A pod gets the number of its class, of the global default, or 0."""
    high = PriorityClass(metadata=ObjectMeta(name="high"), value=1000, preemption_policy="Never")
    cluster.create(high)
    wait_for_class(cluster, 1000, priority_class_name="high")

    spec = cluster.create(pod("a", priority_class_name="high")).spec
    assert (spec.priority, spec.preemption_policy) == (1000, "Never")
    spec = cluster.create(pod("b", priority_class_name="system-node-critical")).spec
    assert (spec.priority, spec.preemption_policy) == (2_000_001_000, "PreemptLowerPriority")
    spec = cluster.create(pod("c")).spec
    assert (spec.priority, spec.preemption_policy) == (0, "PreemptLowerPriority")

    usual = PriorityClass(metadata=ObjectMeta(name="usual"), value=5, global_default=True)
    cluster.create(usual)
    wait_for_class(cluster, 5)
    spec = cluster.create(pod("d")).spec
    assert (spec.priority, spec.priority_class_name) == (5, "usual")


def test_an_unknown_priority_class_is_refused(cluster: Cluster) -> None:
    """A pod can't name a class that isn't there, nor a number other than that of its class."""
    with pytest.raises(InvalidError, match="no PriorityClass with name x was found"):
        cluster.create(pod("a", priority_class_name="x"))
    with pytest.raises(InvalidError, match="the integer value of priority"):
        cluster.create(pod("a", priority=7))
