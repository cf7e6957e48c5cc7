"""Quota counts are always right, and no decision exceeds a quota."""

from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.domain.quota.quotas import PREFIX
from tests.unit.scheduler.plugins.test_elastic_quota import config, of, team
from tests.worlds import embedded, node

from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.cluster.port import Binding
from koordinator.domain.quota import QuotaTrees, figures_of, limit_of
from koordinator.scheduler.assembly import build_scheduler
from koordinator.scheduler.loop import Bound, Scheduler, SchedulerOptions
from koordinator.scheduler.plugins.elastic_quota import ElasticQuotaPlugin, QuotaLedger, ledger
from koordinator.scheduler.profile import WATCHED, build_profiles
from koordinator.scheduler.snapshot import ClusterState, Snapshot
from koordinator.simulator import Embedded

NAMES = ("dept", "a", "b", "c")
PARENTS = {"a": "dept", "b": "dept"}
PODS = tuple(f"p{i}" for i in range(3))
NODES = ("n0", "n1")

EVENTS = st.one_of(
    st.tuples(
        st.just("quota"),
        st.sampled_from(NAMES),
        st.integers(0, 12),
        st.integers(0, 6),
        st.booleans(),
    ),
    st.tuples(st.just("no quota"), st.sampled_from(NAMES)),
    st.tuples(
        st.just("pod"),
        st.sampled_from(PODS),
        st.sampled_from((*NAMES, "")),
        st.integers(0, 4),
        st.booleans(),
        st.integers(0, 2),
        st.sampled_from(("", *NODES)),
    ),
    st.tuples(st.just("no pod"), st.sampled_from(PODS)),
    st.tuples(st.just("node"), st.sampled_from(NODES), st.integers(1, 12)),
    st.tuples(st.just("no node"), st.sampled_from(NODES)),
    st.tuples(st.just("work"), st.integers(0, 20)),
)


def plugin_of(scheduler: Scheduler) -> ElasticQuotaPlugin:
    (cycle,) = scheduler.cycles.values()
    (plugin,) = [a.plugin for a in cycle.limiting]
    assert isinstance(plugin, ElasticQuotaPlugin)
    return plugin


def ledger_of(scheduler: Scheduler) -> QuotaLedger:
    return plugin_of(scheduler).ledger(Snapshot(scheduler.state))


def figures(trees: QuotaTrees) -> dict[str, Any]:
    """Return all figures of every quota, without zero amounts."""
    return {
        name: {
            key: {r: amount for r, amount in amounts.items() if amount}
            for key, amounts in msgspec.to_builtins(figures_of(trees.tree_of(name), name)).items()
        }
        for name in trees.names
    }


def rebuilt(scheduler: Scheduler) -> QuotaTrees:
    """Return the quotas rebuilt from the state alone."""
    fresh = object()
    ledger = Snapshot(scheduler.state).ledger(
        fresh, lambda: QuotaLedger(plugin_of(scheduler).quotas)
    )
    return ledger.trees


def restarted(one: Embedded) -> Scheduler:
    state = ClusterState()
    profiles = build_profiles(config(), state.axis).profiles
    scheduler = build_scheduler(
        one.cluster, one.clock, profiles, state, WATCHED, options=SchedulerOptions(report=False)
    )
    scheduler.step(limit=0)
    return scheduler


def happen(one: Embedded, event: Sequence[Any]) -> None:
    """Apply a change to the cluster if it is possible."""
    cluster: MemoryCluster = one.cluster
    what, *arguments = event
    if what == "work":
        one.clock.advance_to(one.clock.now_s() + arguments[0])
        check_decisions(one)
        return
    kind: Any = {"quota": ElasticQuota, "pod": Pod, "node": Node}[what.rpartition(" ")[2]]
    namespace = {"quota": "tenants", "pod": "default", "node": ""}[what.rpartition(" ")[2]]
    existing = {obj.metadata.name for obj in cluster.list(kind).items}
    name = arguments[0]
    if what.startswith("no "):
        if name in existing:
            more: dict[str, Any] = {"grace_period_s": 0} if kind is Pod else {}
            cluster.delete(kind, name, namespace, **more)
        return
    new: Any
    if what == "quota":
        _, most, least, lends = arguments
        new = team(name, most, least, PARENTS.get(name, ""), lends=lends)
    elif what == "node":
        new = node(name, cpu=arguments[1])
    else:
        _, quota, cpu, preemptible, priority, on = arguments
        new = of(name, quota, cpu, preemptible=preemptible, priority=priority, on=on)
    if name not in existing:
        cluster.create(new)
    elif kind is not Pod:
        cluster.update(new)
    else:
        cluster.patch(
            Pod, name, namespace, {"metadata": {"labels": {PREFIX + "name": arguments[1]}}}
        )


def check_decisions(one: Embedded) -> None:
    """Schedule pod by pod, and check that no bound pod exceeded its quota."""
    scheduler = one.scheduler
    for _ in range(30):
        outcomes = scheduler.step(limit=1)
        trees = ledger_of(scheduler).trees
        for outcome in outcomes:
            if isinstance(outcome, Bound) and (name := trees.quota_of(outcome.pod)):
                tree = trees.tree_of(name)
                limit = limit_of(tree, name, plugin_of(scheduler).admission)
                used = tree.node(name).used
                assert all(used.get(r, 0) <= most for r, most in limit.items()), outcome
        if not outcomes:
            return


@given(st.lists(EVENTS, min_size=5, max_size=40))
@settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_quota_figures_equal_those_from_scratch(events: list[Sequence[Any]]) -> None:
    """After any events the figures equal those computed from the state and from the cluster."""
    one = embedded(node("n0", cpu=8), config=config(), report=False)
    for event in events:
        happen(one, event)
        ledger_of(one.scheduler)  # reads what has been taken in so far
    one.scheduler.step(limit=0)
    kept = figures(ledger_of(one.scheduler).trees)

    assert kept == figures(rebuilt(one.scheduler))
    assert kept == figures(ledger_of(restarted(one)).trees)


@given(
    st.lists(st.sampled_from(("a", "b", "c", "")), min_size=2, max_size=30),
    st.tuples(*[st.integers(0, 12)] * 4),
    st.integers(1, 3),
)
@settings(max_examples=examples(20), deadline=None)
def test_runs_end_where_a_quota_is_used_up(
    quotas: list[str], limits: tuple[int, ...], cpu: int
) -> None:
    """Decided in runs or one by one, the same pods are placed."""
    pods = [of(f"p{i:02}", quota, cpu) for i, quota in enumerate(sorted(quotas))]
    teams = [
        team(name, most, most // 2, PARENTS.get(name, ""))
        for name, most in zip(NAMES, limits, strict=True)
    ]
    result = []
    for merge in (True, False):
        one = embedded(
            node("n0", cpu=16), node("n1", cpu=9), *teams, *pods, config=config(), merge_runs=merge
        )
        outcomes = one.scheduler.step()
        result.append(sorted((o.pod, o.node) for o in outcomes if isinstance(o, Bound)))

    assert result[0] == result[1]


@given(
    st.lists(
        st.tuples(
            st.sampled_from([f"p{i}" for i in range(6)]),
            st.sampled_from((("a", 2, True), ("a", 2, False), ("b", 3, True), ("", 1, True))),
            st.sampled_from(("", *NODES)),
            st.booleans(),
        ),
        min_size=5,
        max_size=30,
    ),
    st.integers(0, 6),
)
@settings(max_examples=examples(40), deadline=None)
def test_sums_over_pods_of_a_class_equal_sums_pod_by_pod(
    events: list[tuple[str, tuple[str, int, bool], str, bool]], least: int
) -> None:
    """Changed pods are counted class by class, with the figures of counting them one by one."""
    teams = [team("dept", 9, 8), team("a", 5, least, "dept", lends=False), team("b", 9, 0, "dept")]
    one = embedded(node("n0", cpu=8), node("n1", cpu=8), *teams, config=config(), report=False)
    scheduler, cluster = one.scheduler, one.cluster
    with patch.object(ledger, "_MANY", 0):
        ledger_of(scheduler)
        for name, (quota, cpu, preemptible), on, is_read in events:
            known = {pod.metadata.name: pod for pod in cluster.list(Pod).items}.get(name)
            if known is None:
                cluster.create(of(name, quota, cpu, preemptible=preemptible, on=on))
            elif on and not known.spec.node_name:
                cluster.bind([Binding("default", name, on)])
            else:
                cluster.delete(Pod, name, "default", grace_period_s=0)
            scheduler.step(limit=0)
            if is_read:
                ledger_of(scheduler)
        by_class = figures(ledger_of(scheduler).trees)
    with patch.object(ledger, "_MANY", 1_000):
        assert by_class == figures(rebuilt(scheduler))
