"""Admission by quotas, and preemption inside them."""

from typing import Any

import pytest
from tests.unit.domain.quota.quotas import PREFIX, quota
from tests.unit.scheduler.conftest import NewEmbedded
from tests.worlds import budget, configuration, node, pod

from koordinator.api.elastic_quota import DEFAULT_QUOTA, ElasticQuota
from koordinator.api.kube_version import V1_35
from koordinator.api.kubescheduler import FeatureGates
from koordinator.api.kubescheduler.gates import GATES, OF_KOORDINATOR
from koordinator.api.kubescheduler.kubernetes_gates import served_levels
from koordinator.api.pod import Pod
from koordinator.foundation.errors import InputError
from koordinator.scheduler.loop import Bound, Evicted, Outcome, Unschedulable
from koordinator.simulator import Embedded

ENOUGH = node("n1", cpu=100, memory="100Gi")


def config(**args: Any) -> Any:
    """Return kube-scheduler's profile with quotas, whose preemption runs before the default one."""
    return configuration(
        plugins={
            "multiPoint": {"enabled": [{"name": "ElasticQuota"}]},
            "postFilter": {
                "disabled": [{"name": "*"}],
                "enabled": [{"name": "ElasticQuota"}, {"name": "DefaultPreemption"}],
            },
        },
        pluginConfig=[{"name": "ElasticQuota", "args": args}],
    )


def of(name: str, quota_name: str = "", cpu: int | str = 1, **more: Any) -> Pod:
    """Return a pod of a quota, preemptible or not."""
    labels = {PREFIX + "name": quota_name} if quota_name else {}
    if not more.pop("preemptible", True):
        labels[PREFIX + "preemptible"] = "false"
    return pod(name, cpu=cpu, labels=labels | more.pop("labels", {}), **more)


def team(name: str, most: int, least: int = 0, parent: str = "", **more: Any) -> ElasticQuota:
    """Return a quota of a number of cores."""
    return quota(name, parent, most={"cpu": most}, least={"cpu": least}, **more)


def bound(outcomes: list[Outcome]) -> list[str]:
    return sorted(o.pod.partition("/")[2] for o in outcomes if isinstance(o, Bound))


def why(outcomes: list[Outcome]) -> dict[str, str]:
    """Return the messages of pending pods, without their preemption part."""
    return {
        o.pod.partition("/")[2]: o.message.partition(" preemption:")[0]
        for o in outcomes
        if isinstance(o, Unschedulable)
    }


def put(one: Embedded, *quotas: ElasticQuota) -> None:
    """Create or update quotas."""
    for new in quotas:
        meta = new.metadata
        spec = {"max": {k: str(v) for k, v in new.spec.max.items()}}
        spec["min"] = {k: str(v) for k, v in new.spec.min.items()}
        one.cluster.patch(ElasticQuota, meta.name, meta.namespace, {"spec": spec})


def work(one: Embedded, seconds: float = 0.0) -> list[Outcome]:
    """Advance the clock and run the scheduler."""
    one.clock.advance_to(one.clock.now_s() + seconds)
    return one.scheduler.step()


# -- admission ---------------------------------------------------------------------------------


def test_pod_over_its_quota_waits_with_the_original_message(embedded: NewEmbedded) -> None:
    """The message gives the quota, its limits and usage, and the exceeded resources."""
    one = embedded(ENOUGH, team("a", 3), of("x", "a", 2), of("y", "a", 2), config=config())
    outcomes = one.scheduler.step()

    assert bound(outcomes) == ["x"]
    assert why(outcomes) == {
        "y": "0/1 nodes are available: Insufficient quotas, quotaName: a, runtime: cpu:3, "
        "used: cpu:2, pod's request: cpu:2, exceedDimensions: [cpu]."
    }


def test_the_outcome_names_the_plugin(embedded: NewEmbedded) -> None:
    """The preemption part reports once per reason that there are no victims."""
    one = embedded(ENOUGH, team("a", 1), of("x", "a", 2), config=config())
    (refused,) = one.scheduler.step()

    assert isinstance(refused, Unschedulable)
    assert refused.plugin == "ElasticQuota"
    assert refused.message.endswith(
        " preemption: 0/1 nodes are available: 1 No victims found for preemptor pod x., "
        "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
    )


def test_unused_quota_is_lent_to_another(embedded: NewEmbedded) -> None:
    """The borrower's maximum limits the loan; the two quotas do not exceed the total."""
    nodes = node("n1", cpu=10)
    one = embedded(
        nodes, team("a", 8, 5), team("b", 8, 5), *(of(f"a{i}", "a") for i in range(9)),
        config=config(),
    )  # fmt: skip
    assert len(bound(one.scheduler.step())) == 8

    one = embedded(
        nodes,
        team("a", 8, 5),
        team("b", 8, 5),
        *(of(f"a{i}", "a") for i in range(9)),
        *(of(f"b{i}", "b") for i in range(9)),
        config=config(),
    )
    done = bound(one.scheduler.step())
    assert [sum(name.startswith(team) for name in done) for team in "ab"] == [5, 5]


def test_pods_without_label_are_in_the_quota_of_their_namespace(embedded: NewEmbedded) -> None:
    """The quota is bound to the namespace; a label with an unknown name selects the default."""
    one = embedded(
        ENOUGH,
        team("a", 1, bound=("default",)),
        of("x"),
        of("y"),
        of("other", "unknown"),
        config=config(),
    )
    outcomes = one.scheduler.step()

    assert bound(outcomes) == ["other", "x"]
    assert "quotaName: a," in why(outcomes)["y"]


def test_the_default_quota_has_the_maximum_of_the_arguments(embedded: NewEmbedded) -> None:
    """The object of the default quota overrides the maximum of the arguments."""
    limited = config(defaultQuotaGroupMax={"cpu": "1"})
    one = embedded(ENOUGH, of("x"), of("y"), config=limited)
    assert bound(one.scheduler.step()) == ["x"]

    one = embedded(ENOUGH, team(DEFAULT_QUOTA, 2), of("x"), of("y"), config=limited)
    assert bound(one.scheduler.step()) == ["x", "y"]


def test_non_preemptible_pods_must_fit_into_the_minimum(embedded: NewEmbedded) -> None:
    """Together they may use the guaranteed part only."""
    one = embedded(
        ENOUGH,
        team("a", 9, 1),
        of("x", "a", preemptible=False),
        of("y", "a", preemptible=False),
        of("z", "a"),
        config=config(),
    )
    outcomes = one.scheduler.step()

    assert bound(outcomes) == ["x", "z"]
    assert "Insufficient non-preemptible quotas, quotaName: a, min: cpu:1," in why(outcomes)["y"]


@pytest.mark.parametrize(("checks", "places"), [(True, ["b", "x"]), (False, ["b", "x", "y"])])
def test_ancestors_count_if_they_are_checked(
    embedded: NewEmbedded, checks: bool, places: list[str]
) -> None:
    """A child may have more than its parent; ``enableCheckParentQuota`` looks at both."""
    one = embedded(
        ENOUGH,
        team("dept", 3, is_parent=True),
        team("a", 9, parent="dept"),
        team("b", 9, parent="dept"),
        of("b", "b", 1),
        of("x", "a", 2),
        of("y", "a", 1),
        config=config(enableCheckParentQuota=checks, enableRuntimeQuota=False),
    )
    outcomes = one.scheduler.step()

    assert bound(outcomes) == places
    if checks:
        assert "Insufficient quotas, quotaNameTopo: [dept a], runtime: cpu:3" in why(outcomes)["y"]


def test_without_runtime_the_maximum_is_the_limit(embedded: NewEmbedded) -> None:
    """With ``enableRuntimeQuota: false`` the unused part of others does not matter."""
    objects = (node("n1", cpu=4), team("a", 9), team("b", 9, 4), of("b", "b", 4, on="n1"))
    waiting = [of(f"x{i}", "a", "0.5") for i in range(2)]
    limited = embedded(*objects, *waiting, config=config())
    assert "runtime: cpu:0" in why(limited.scheduler.step())["x0"]
    free = embedded(*objects, *waiting, config=config(enableRuntimeQuota=False))
    assert "Insufficient cpu" in why(free.scheduler.step())["x0"]


# -- feature gates ---------------------------------------------------------------------------


def gated(*objects: Any, gates: str) -> list[Outcome]:
    """Schedule with some feature gates on."""
    one = Embedded(config(), gates=FeatureGates.parse(gates))
    one.load(objects)
    return one.scheduler.step()


def test_separate_tree_has_the_total_of_its_root() -> None:
    """Without MultiQuotaTree it is part of the default tree and shares the total."""
    root = team("root", 100, 4, tree="t", total={"cpu": 4}, is_parent=True)
    objects = (
        ENOUGH,
        root,
        team("a", 100, parent="root", tree="t"),
        team("b", 100),
        *(of(f"a{i}", "a", 3) for i in range(2)),
        *(of(f"b{i}", "b", 48) for i in range(2)),
    )

    assert bound(gated(*objects, gates="MultiQuotaTree=true")) == ["a0", "b0", "b1"]
    assert bound(gated(*objects, gates="")) == ["a0", "a1", "b0"]


def test_without_default_quota_only_labels_count() -> None:
    """With DisableDefaultQuota, neither the namespace nor the default quota limits a pod."""
    objects = (ENOUGH, team("a", 1, bound=("default",)), of("x", "", 2), of("y", "a", 2))

    assert bound(gated(*objects, gates="")) == []
    assert bound(gated(*objects, gates="DisableDefaultQuota=true")) == ["x"]


def test_usage_is_guaranteed_with_its_gate() -> None:
    """With ElasticQuotaGuaranteeUsage the guarantee of a sibling does not reduce it."""
    objects = (
        node("n1", cpu=60),
        team("x", 60, 10, weight={"cpu": 10}),
        team("y", 60, 10, weight={"cpu": 30}),
        of("runs", "x", 26, on="n1"),
        of("more", "x", 4),
        *(of(f"x{i}", "x", 10) for i in range(1)),
        of("y", "y", 40),
    )

    assert "more" in bound(gated(*objects, gates="ElasticQuotaGuaranteeUsage=true"))
    assert "more" not in bound(gated(*objects, gates=""))


def test_gates_are_read_as_the_original_reads_them() -> None:
    """Some gates are on by default; gates without effect here are known by name."""
    gates = FeatureGates.parse(
        "MultiQuotaTree=true,DisableDefaultQuota=false,ContextualLogging=true", V1_35
    )

    on = frozenset(
        {
            "DRASchedulerFilterTimeout",
            "GangPendingPodsConditionPatch",
            "MultiQuotaTree",
            "PodDisruptionBudget",
        }
    )
    assert (gates.enabled, gates.without_effect) == (
        on,
        (("ContextualLogging", "there is one behaviour here"),),
    )
    assert "PodDisruptionBudget" not in FeatureGates.parse("PodDisruptionBudget=false")
    known = {name for name in GATES if name in OF_KOORDINATOR or V1_35 in served_levels(name)}
    assert FeatureGates.parse("AllAlpha=true", V1_35).enabled == known
    none = FeatureGates.parse("AllBeta=False,AllAlpha=0", V1_35)
    assert none.enabled == {"PodDisruptionBudget"}
    with pytest.raises(InputError, match="got 'MultiQuotaTree'"):
        FeatureGates.parse("MultiQuotaTree")


# -- requeueing --------------------------------------------------------------------------------


def waiting(embedded: NewEmbedded, **args: Any) -> Embedded:
    """Return a world in which ``x`` is pending: its quota and that of ``y`` are used up."""
    one = embedded(
        ENOUGH,
        team("a", 2),
        team("b", 2),
        of("a1", "a", 2, on="n1"),
        of("b1", "b", 2, on="n1"),
        of("x", "a", 2),
        of("y", "b", 2),
        config=config(**args),
    )
    assert sorted(why(one.scheduler.step())) == ["x", "y"]
    return one


def test_finished_pod_requeues_pods_of_its_quota(embedded: NewEmbedded) -> None:
    """Pods of other quotas are not tried."""
    one = waiting(embedded)
    one.cluster.delete(Pod, "a1", "default", grace_period_s=0)
    outcomes = work(one, 60)

    assert bound(outcomes) == ["x"]
    assert why(outcomes) == {}


def test_larger_maximum_requeues_pods_of_the_quota(embedded: NewEmbedded) -> None:
    """A change that grants nothing requeues no pod."""
    one = waiting(embedded)
    put(one, team("a", 3))
    assert work(one, 60) == []
    put(one, team("b", 4))
    assert bound(work(one, 60)) == ["y"]


def test_deleting_a_pending_pod_of_a_sibling_requeues(
    embedded: NewEmbedded,
) -> None:
    """The deletion leaves more to share, although the pod never used anything."""
    one = embedded(
        node("n1", cpu=10),
        team("a", 10),
        team("b", 10),
        of("b1", "b", 6),
        of("a1", "a", 6),
        config=config(),
    )
    assert sorted(why(one.scheduler.step())) == ["a1", "b1"]  # five for each of the two

    one.cluster.delete(Pod, "b1", "default", grace_period_s=0)
    assert bound(work(one, 60)) == ["a1"]


# -- preemption ------------------------------------------------------------------------------


def evicted(outcomes: list[Outcome]) -> list[str]:
    return sorted(o.pod.partition("/")[2] for o in outcomes if isinstance(o, Evicted))


def full(**more: Any) -> tuple[Any, ...]:
    """Return a full quota with pods of 1 and 2 cores, and a pod of another quota."""
    return (
        ENOUGH,
        team("a", 3),
        team("b", 3),
        of("one", "a", 1, on="n1", priority=1, **more),
        of("two", "a", 2, on="n1", priority=2, **more),
        of("other", "b", 3, on="n1", priority=0),
    )


def test_least_important_pods_of_the_same_quota_are_victims(embedded: NewEmbedded) -> None:
    """There are as few victims as possible, and the pod follows once they have terminated."""
    one = embedded(*full(), of("x", "a", 1, priority=5), config=config())
    outcomes = one.scheduler.step()
    assert evicted(outcomes) == ["one"]
    assert bound(outcomes + work(one, 60)) == ["x"]

    one = embedded(*full(), of("x", "a", 2, priority=5), config=config())
    assert evicted(one.scheduler.step()) == ["two"]


@pytest.mark.parametrize(
    "pending",
    [
        of("x", "a", 1, priority=1),
        of("x", "a", 4, priority=5),
        of("x", "a", 1, priority=5, preemptionPolicy="Never"),
        of("x", "a", 1, priority=5, preemptible=False),
    ],
    ids=["not more important", "too large", "never", "beyond the minimum"],
)
def test_no_eviction_without_effect(embedded: NewEmbedded, pending: Pod) -> None:
    """Pods that their quota would still refuse, or that may not preempt, evict no pods.

    Nor does the default preemption evict pods for a pod that no node rejected.
    """
    one = embedded(*full(), pending, config=config())
    outcomes = one.scheduler.step()

    assert evicted(outcomes) == []
    assert list(why(outcomes)) == ["x"]


def test_non_preemptible_pods_are_no_victims(embedded: NewEmbedded) -> None:
    """The label protects a pod from pods of any priority."""
    one = embedded(*full(preemptible=False), of("x", "a", 1, priority=5), config=config())
    assert evicted(one.scheduler.step()) == []


@pytest.mark.parametrize("spares", [True, False])
def test_pods_without_quota_may_be_spared(embedded: NewEmbedded, spares: bool) -> None:
    """``disableDefaultQuotaPreemption``."""
    one = embedded(
        ENOUGH,
        of("low", "", 2, on="n1", priority=0),
        of("x", "", 2, priority=5),
        config=config(defaultQuotaGroupMax={"cpu": "2"}, disableDefaultQuotaPreemption=spares),
    )
    assert evicted(one.scheduler.step()) == ([] if spares else ["low"])


def test_pods_covered_by_a_budget_are_evicted_last(embedded: NewEmbedded) -> None:
    """The more important pod is evicted in place of the covered one."""
    protected = of("one", "a", 1, on="n1", priority=1, labels={"app": "db"})
    free = of("two", "a", 1, on="n1", priority=2)
    one = embedded(
        ENOUGH,
        team("a", 2),
        protected,
        free,
        budget("db", 0, app="db"),
        of("x", "a", 1, priority=5),
        config=config(),
    )
    assert evicted(one.scheduler.step()) == ["two"]


# -- bad objects -----------------------------------------------------------------------------


def test_invalid_quota_is_reported_and_ignored(
    embedded: NewEmbedded, caplog: pytest.LogCaptureFixture
) -> None:
    """One quota is below itself, and one has a duplicate name."""
    other = quota("a", namespace="zoo", most={"cpu": 9})
    one = embedded(ENOUGH, team("a", 1), other, team("b", 1, parent="b"), config=config())
    one.cluster.create(of("x", "a", 2))
    outcomes = one.scheduler.step()

    assert "runtime: cpu:1" in why(outcomes)["x"]
    warnings = [record.complaint for record in caplog.records if hasattr(record, "complaint")]
    assert len(warnings) == 2
    assert (
        "zoo/a: metadata.name: must be unique across namespaces, got the name of tenants/a"
        in warnings[1]
    )
    assert "neither the quota itself nor a descendant of it" in warnings[0]


def test_only_as_many_pods_are_requeued_as_fit(embedded: NewEmbedded) -> None:
    """The pod that has waited longest is requeued first; the others are not tried in vain."""
    one = embedded(
        node("n", cpu=20), team("a", 1), *(of(f"p{index}", "a") for index in range(10)),
        config=config(),
    )  # fmt: skip
    one.run_to_fixed_point()
    (first,) = [p.metadata.name for p in one.cluster.list(Pod).items if p.spec.node_name]
    tried = one.scheduler.attempts

    one.cluster.delete(Pod, first, "default")
    outcomes = one.run_to_fixed_point()

    assert bound(outcomes) == ["p1"]
    assert one.scheduler.attempts == tried + 1
