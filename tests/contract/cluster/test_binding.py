"""Binding, graceful deletion and eviction of pods, over every adapter."""

import pytest
from msgspec.structs import replace
from tests.contract.cluster.conftest import Bed
from tests.contract.cluster.objects import budget, pod

from koordinator.api.kube_version import V1_35
from koordinator.api.meta import Condition
from koordinator.api.pod import Pod, PodSchedulingGate
from koordinator.api.policy import PodDisruptionBudget, PodDisruptionBudgetStatus
from koordinator.cluster.port import Binding, Cluster, EventType, WatchEvent
from koordinator.foundation.errors import (
    ClusterError,
    ConflictError,
    NotFoundError,
    TooManyRequestsError,
)


def bind(cluster: Cluster, name: str, node: str = "n1", **options: object) -> ClusterError | None:
    binding = Binding("default", name, node, **options)  # type: ignore[arg-type]  # by name
    (result,) = cluster.bind([binding]).results()
    return result


def running(cluster: Cluster, name: str, *, ready: bool = True) -> Pod:
    """Create a pod of app web that runs on a node."""
    cluster.create(pod(name, labels={"app": "web"}))
    assert bind(cluster, name) is None
    stored = cluster.get(Pod, name, "default")
    condition = Condition(type="Ready", status=str(ready))
    status = replace(stored.status, phase="Running", conditions=(condition,))
    return cluster.update_status(replace(stored, status=status))


def give_status(cluster: Cluster, name: str, status: PodDisruptionBudgetStatus) -> None:
    stored = cluster.get(PodDisruptionBudget, name, "default")
    generation = stored.metadata.generation
    cluster.update_status(replace(stored, status=replace(status, observed_generation=generation)))


def test_a_binding_is_one_write(bed: Bed) -> None:
    """Node, condition, annotations and labels arrive together; the nomination is cleared.

    An API server before 1.35 drops labels of bindings, so that the pod has them before; and leaves
    the nomination.
    """
    cluster, is_one_write = bed.cluster, bed.release >= V1_35
    created = cluster.create(pod("a", labels={"app": "web", "x": "old"}))
    nominated = replace(
        created.status,
        nominated_node_name="n2",
        conditions=(Condition(type="PodScheduled", status="False", reason="Unschedulable"),),
    )
    cluster.update_status(replace(created, status=nominated))
    watch = cluster.watch([Pod])
    while EventType.BOOKMARK not in [event.type for event in watch.poll()]:
        cluster.wait(60)

    assert (
        bind(cluster, "a", uid=created.metadata.uid, annotations={"k": "v"}, labels={"x": "y"})
        is None
    )

    events = list[WatchEvent]()
    while not (events and isinstance(bound := events[-1].object, Pod) and bound.spec.node_name):
        cluster.wait(60)
        events += watch.poll()
    assert len(events) == 1 or not is_one_write
    assert bound == cluster.get(Pod, "a", "default")
    assert bound.spec.node_name == "n1"
    assert bound.metadata.annotations == {"k": "v"}
    assert bound.metadata.labels == {"app": "web", "x": "y"}
    assert bound.status.nominated_node_name == ("" if is_one_write else "n2")
    (condition,) = bound.status.conditions
    assert (condition.type, condition.status, condition.reason) == ("PodScheduled", "True", "")
    assert condition.last_transition_time is not None


def test_a_bound_pod_is_not_bound_again(cluster: Cluster) -> None:
    """The first binding wins, even against another one to the same node."""
    cluster.create(pod("a"))
    assert bind(cluster, "a", "n1") is None

    for node in ("n1", "n2"):
        error = bind(cluster, "a", node)
        assert isinstance(error, ConflictError)
        assert 'already assigned to node "n1"' in str(error)
    assert cluster.get(Pod, "a", "default").spec.node_name == "n1"


def test_bindings_are_independent(cluster: Cluster) -> None:
    """Each binding has its own result, in the order of the request."""
    created = cluster.create(pod("a"))
    cluster.create(pod("b"))

    binds = cluster.bind(
        [
            Binding("default", "missing", "n1"),
            Binding("default", "a", "n1", uid="another"),
            Binding("default", "a", "n1", uid=created.metadata.uid),
            Binding("default", "b", "n2"),
        ]
    )
    results = binds.results()

    assert [type(result) for result in results] == [
        NotFoundError,
        ConflictError,
        type(None),
        type(None),
    ]
    assert cluster.get(Pod, "b", "default").spec.node_name == "n2"


def test_each_result_of_a_binding_is_polled_once(cluster: Cluster) -> None:
    """Polling returns ended bindings by index, and waiting returns all results again."""
    cluster.create(pod("a"))
    cluster.create(pod("b"))
    binds = cluster.bind([Binding("default", "a", "n1"), Binding("default", "b", "n1")])

    results = list(binds.finished())
    while len(results) < 2 and cluster.wait(60):
        results += binds.finished()
    assert sorted(results) == [(0, None), (1, None)]
    assert not binds.finished()
    assert list(binds.results()) == [None, None]


def test_a_pod_that_is_being_deleted_is_not_bound(cluster: Cluster) -> None:
    """A deletion before the binding wins."""
    cluster.create(pod("a", finalizers=("koordinator.sh/hold",)))
    cluster.delete(Pod, "a", "default")

    assert isinstance(bind(cluster, "a"), ConflictError)


def test_a_gated_pod_is_not_bound(cluster: Cluster) -> None:
    """A pod with scheduling gates isn't bound, and its condition has the reason."""
    created = cluster.create(pod("a", scheduling_gates=(PodSchedulingGate(name="x.y/z"),)))

    (condition,) = created.status.conditions
    assert (condition.type, condition.reason) == ("PodScheduled", "SchedulingGated")
    assert isinstance(bind(cluster, "a"), ConflictError)


def test_a_pod_on_a_node_ends_gracefully(cluster: Cluster) -> None:
    """The deletion marks the pod with its grace period; a deletion with period 0 removes it."""
    cluster.create(pod("a", termination_grace_period_seconds=60))
    bind(cluster, "a")
    cluster.delete(Pod, "a", "default")
    ending = cluster.get(Pod, "a", "default")

    assert ending.metadata.deletion_timestamp is not None
    assert ending.metadata.deletion_grace_period_seconds == 60
    cluster.delete(Pod, "a", "default", grace_period_s=0)
    with pytest.raises(NotFoundError):
        cluster.get(Pod, "a", "default")


def test_a_grace_period_only_shrinks(cluster: Cluster) -> None:
    """Deleting again may shorten the end, never prolong it."""
    cluster.create(pod("a"))
    bind(cluster, "a")
    periods = []
    for wanted in (None, 10, 20):
        cluster.delete(Pod, "a", "default", grace_period_s=wanted)
        stored = cluster.get(Pod, "a", "default")
        periods.append(stored.metadata.deletion_grace_period_seconds)

    assert periods == [30, 10, 10]


def test_unbound_pod_is_removed_immediately(cluster: Cluster) -> None:
    """Nothing runs yet, so nothing has to end."""
    cluster.create(pod("a"))
    cluster.delete(Pod, "a", "default")

    with pytest.raises(NotFoundError):
        cluster.get(Pod, "a", "default")


def test_eviction_uses_the_budget_up(cluster: Cluster) -> None:
    """Evictions succeed until no disruption is left; the pod's condition has the reason."""
    for name in ("a", "b"):
        running(cluster, name)
    cluster.create(budget("guard", "web", min_available=1))
    give_status(
        cluster,
        "guard",
        PodDisruptionBudgetStatus(
            disruptions_allowed=1, current_healthy=2, desired_healthy=1, expected_pods=2
        ),
    )

    cluster.evict("default", "a")

    evicted = cluster.get(Pod, "a", "default")
    assert evicted.metadata.deletion_timestamp is not None
    assert "DisruptionTarget" in {c.type for c in evicted.status.conditions}
    with pytest.raises(TooManyRequestsError, match="disruption budget"):
        cluster.evict("default", "b")
    left = cluster.get(PodDisruptionBudget, "guard", "default").status
    assert left.disruptions_allowed == 0
    assert set(left.disrupted_pods) == {"a"}
    assert cluster.get(Pod, "b", "default").metadata.deletion_timestamp is None


def test_pods_without_budget_are_evicted_freely(cluster: Cluster) -> None:
    """A budget covers the pods of its selector only."""
    running(cluster, "a")
    cluster.create(budget("guard", "db", min_available=1))

    cluster.evict("default", "a")

    assert cluster.get(Pod, "a", "default").metadata.deletion_timestamp is not None


def test_pending_and_finished_pods_need_no_budget(cluster: Cluster) -> None:
    """Nothing is disrupted by the end of what doesn't run."""
    cluster.create(budget("guard", "web", min_available=5))
    cluster.create(pod("pending", labels={"app": "web"}))
    done = running(cluster, "done")
    cluster.update_status(replace(done, status=replace(done.status, phase="Succeeded")))

    for name in ("pending", "done"):
        cluster.evict("default", name)
        with pytest.raises(NotFoundError):
            cluster.get(Pod, name, "default")


def test_an_unready_pod_may_go_while_the_budget_is_healthy(cluster: Cluster) -> None:
    """A pod that doesn't count as healthy costs the budget nothing."""
    running(cluster, "sick", ready=False)
    cluster.create(budget("guard", "web", min_available=1))
    give_status(
        cluster,
        "guard",
        PodDisruptionBudgetStatus(current_healthy=1, desired_healthy=1, expected_pods=2),
    )

    cluster.evict("default", "sick")

    assert cluster.get(Pod, "sick", "default").metadata.deletion_timestamp is not None


def test_two_budgets_forbid_eviction(cluster: Cluster) -> None:
    """The eviction of a pod that two budgets cover is not supported."""
    running(cluster, "a")
    cluster.create(budget("one", "web", min_available=0))
    cluster.create(budget("two", "web", min_available=0))

    with pytest.raises(ClusterError, match="more than one PodDisruptionBudget"):
        cluster.evict("default", "a")


def test_eviction_checks_the_uid(cluster: Cluster) -> None:
    """An eviction meant for one pod does not hit its successor."""
    running(cluster, "a")

    with pytest.raises(ConflictError):
        cluster.evict("default", "a", uid="another")
    with pytest.raises(NotFoundError):
        cluster.evict("default", "b")
