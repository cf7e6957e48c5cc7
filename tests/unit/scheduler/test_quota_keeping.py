"""Statuses of quotas, and revocation of overuse."""

import json
from typing import Any

import pytest
from tests.unit.domain.quota.quotas import PREFIX
from tests.unit.scheduler.conftest import NewEmbedded
from tests.unit.scheduler.plugins.test_elastic_quota import config, evicted, of, put, team, work
from tests.worlds import START_S, budget, made, node, pod

from koordinator.api.elastic_quota import DEFAULT_QUOTA, ROOT_QUOTA, SYSTEM_QUOTA, ElasticQuota
from koordinator.api.event import Event
from koordinator.api.kubescheduler import FeatureGates
from koordinator.api.pod import Pod
from koordinator.scheduler.features.quotas import status
from koordinator.simulator import Embedded

NAMESPACE = made("Namespace", "koordinator-system")


def figures(one: Embedded, name: str, namespace: str = "tenants") -> dict[str, Any]:
    """Return request and usage in the object of a quota."""
    quota = one.cluster.get(ElasticQuota, name, namespace)
    written = {
        key.removeprefix(PREFIX): json.loads(text).get("cpu")
        for key, text in quota.metadata.annotations.items()
        if key.startswith(PREFIX)
    }
    return written | {"used": str(quota.status.used.get("cpu", ""))}


# -- status ----------------------------------------------------------------------------------


def test_quota_status_has_runtime_request_and_usage(embedded: NewEmbedded) -> None:
    """The ancestors have them, too."""
    one = embedded(
        node("n", cpu=10),
        team("dept", 8, 4, is_parent=True),
        team("a", 3, 1, parent="dept"),
        of("x", "a", 2),
        of("y", "a", 2),
        config=config(),
    )
    work(one)
    work(one, 2)

    a, dept = figures(one, "a"), figures(one, "dept")
    assert (a["runtime"], a["request"], a["child-request"], a["used"]) == ("3", "4", "4", "2")
    assert (dept["runtime"], dept["request"], dept["used"]) == ("3", "3", "2")


def test_unchanged_status_is_not_written(embedded: NewEmbedded) -> None:
    """Steps without events write nothing."""
    one = embedded(node("n", cpu=10), team("a", 3, 1), of("x", "a", 2), config=config())
    work(one)
    work(one, 2)
    version = one.cluster.get(ElasticQuota, "a", "tenants").metadata.resource_version
    for _ in range(5):
        work(one, 2)

    assert one.cluster.get(ElasticQuota, "a", "tenants").metadata.resource_version == version


def test_writes_are_rate_limited(embedded: NewEmbedded, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others follow in the next seconds."""
    limit = 20
    monkeypatch.setattr(status, "WRITES", limit)
    count = limit + 5
    one = embedded(
        node("n", cpu=count, pods=count),
        *(team(f"q{i}", 3) for i in range(count)),
        *(of(f"p{i}", f"q{i}") for i in range(count)),
        config=config(),
    )

    def written() -> int:
        return sum(figures(one, f"q{i}")["used"] == "1" for i in range(count))

    work(one)
    first = written()
    assert 0 < first <= limit
    work(one, 0.5)
    assert written() == first
    work(one, 1)
    assert written() == count


def test_sibling_status_follows_the_loan(embedded: NewEmbedded) -> None:
    """A sibling's runtime changes although its own pods do not."""
    one = embedded(
        node("n", cpu=10), team("a", 10), team("b", 10), of("x", "a", 8), config=config()
    )
    work(one)
    assert figures(one, "a")["runtime"] == "8"
    one.cluster.create(of("y", "b", 8))
    work(one, 1)
    work(one, 1)

    assert figures(one, "a")["runtime"] == "5"


def test_the_built_in_quotas_are_created(embedded: NewEmbedded) -> None:
    """Arguments set the maximums; the root has the total usage."""
    one = embedded(
        NAMESPACE,
        node("n", cpu=10),
        of("x", "", 2),
        config=config(systemQuotaGroupMax={"cpu": "7"}),
    )
    work(one)
    work(one, 2)

    assert figures(one, DEFAULT_QUOTA, "koordinator-system")["used"] == "2"
    assert figures(one, ROOT_QUOTA, "koordinator-system")["used"] == "2"
    root = one.cluster.get(ElasticQuota, ROOT_QUOTA, "koordinator-system")
    assert root.metadata.labels == {
        PREFIX + "is-parent": "true",
        PREFIX + "allow-lent-resource": "false",
    }
    system = one.cluster.get(ElasticQuota, SYSTEM_QUOTA, "koordinator-system")
    assert str(system.spec.max["cpu"]) == "7"


def test_invalid_quota_has_one_event(embedded: NewEmbedded) -> None:
    """Once."""
    one = embedded(node("n"), team("b", 1, parent="b"), config=config())
    work(one)
    work(one, 5)
    (event,) = one.cluster.list(Event).items

    assert (event.regarding.kind, event.regarding.name) == ("ElasticQuota", "b")
    assert event.type == "Warning"
    assert "nor a descendant of it" in event.note


# -- revoke ----------------------------------------------------------------------------------

MONITORED = {"monitorAllQuotas": True, "delayEvictTime": "10s"}


def lent(embedded: NewEmbedded, *more: Any, **labels: str) -> Embedded:
    """Return a world in which ``a`` uses eight cores, and five are another quota's guarantee."""
    one = embedded(
        node("n", cpu=8),
        team("a", 8, 3),
        team("b", 8, 5),
        *(
            of(f"a{i}", "a", 2, on="n", priority=i, labels=labels, started=f"0{i}:00")
            for i in range(4)
        ),
        *more,
        config=config(**MONITORED),
    )
    work(one)
    return one


def test_sustained_overuse_is_revoked(embedded: NewEmbedded) -> None:
    """The least important pods are evicted, as few as needed; then the owner's pods fit."""
    one = lent(embedded)
    one.cluster.create(of("y", "b", 5))
    assert evicted(work(one)) == []
    assert one.scheduler.next_wakeup_s() is not None
    assert evicted(work(one, 1)) == []
    assert evicted(work(one, 9)) == []
    outcomes = work(one, 3)

    assert evicted(outcomes) == ["a0", "a1", "a2"]


def test_quota_within_its_limits_is_left_alone(embedded: NewEmbedded) -> None:
    """The delay restarts with every overuse."""
    one = lent(embedded)
    one.cluster.create(of("y", "b", 5))
    work(one, 1)
    one.cluster.delete(Pod, "y", "default", grace_period_s=0)
    work(one, 9)
    one.cluster.create(of("z", "b", 5))
    work(one, 1)
    assert evicted(work(one, 9)) == []


@pytest.mark.parametrize(("allowed", "revoked"), [(0, []), (1, ["a0"])])
def test_revocation_respects_budgets(
    embedded: NewEmbedded, allowed: int, revoked: list[str]
) -> None:
    """No more pods are evicted than a disruption budget allows."""
    one = lent(embedded, budget("a", allowed, app="a"), app="a")
    one.cluster.create(of("y", "b", 5))
    work(one, 1)

    assert evicted(work(one, 12)) == revoked


def test_revocation_is_off_by_default(embedded: NewEmbedded) -> None:
    """``monitorAllQuotas`` enables it."""
    one = embedded(node("n", cpu=8), team("a", 4), of("x", "a", 4, on="n"), config=config())
    work(one)
    put(one, team("a", 1))
    work(one)
    assert evicted(work(one, 300)) == []


# -- feature gates ---------------------------------------------------------------------------


def gated(*objects: Any, gates: str) -> Embedded:
    one = Embedded(config(), now_s=START_S, gates=FeatureGates.parse(gates))
    one.load(objects)
    return one


def terminating(one: Embedded, name: str) -> None:
    """Delete a pod that terminates on demand."""
    one.cluster.patch(Pod, name, "default", {"metadata": {"finalizers": ["test/kept"]}})
    one.cluster.delete(Pod, name, "default")


@pytest.mark.parametrize(
    ("gates", "starts"),
    [
        ("", False),
        ("ElasticQuotaIgnoreTerminatingPod=true", True),
        ("ElasticQuotaImmediateIgnoreTerminatingPod=true", True),
    ],
)
def test_terminating_pod_leaves_its_quota_with_its_gates(gates: str, starts: bool) -> None:
    """The next pod of the quota need not wait for the deletion; counts stay right."""
    one = gated(node("n"), team("a", 1), of("x", "a"), of("y", "a"), gates=gates)
    one.run_to_fixed_point()

    terminating(one, "x")
    one.run_to_fixed_point()
    one.clock.advance_to(one.clock.now_s() + 60)
    one.run_to_fixed_point()

    assert bool(one.cluster.get(Pod, "y", "default").spec.node_name) == starts
    one.cluster.patch(Pod, "x", "default", {"metadata": {"finalizers": []}})
    one.load([of("x", "a")])
    one.run_to_fixed_point()
    nodes = [one.cluster.get(Pod, name, "default").spec.node_name for name in ("x", "y")]
    assert sorted(nodes) == ["", "n"]
    one.state.validate()


@pytest.mark.parametrize(("gates", "starts"), [("", 1), ("ElasticQuotaIgnorePodOverhead=true", 2)])
def test_the_overhead_of_pods_counts_unless_a_gate_is_on(gates: str, starts: int) -> None:
    """With the gate on, the overhead of the runtime class does not count."""
    label = {PREFIX + "name": "a"}
    pods = [pod(name, "500m", labels=label, overhead={"cpu": "500m"}) for name in ("x", "y")]
    one = gated(node("n"), team("a", 1), *pods, gates=gates)

    one.run_to_fixed_point()

    assert sum(bool(p.spec.node_name) for p in one.cluster.list(Pod).items) == starts
