"""The cached load always equals the load computed from reports and pods."""

from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.measured_nodes import (
    ARGUMENTS,
    BAND,
    copies,
    measured_clusters,
    measured_nodes,
    measured_pods,
    reports,
)
from tests.worlds import (
    START_S,
    configuration,
    embedded,
    made,
    metric,
    node,
    placed_on,
    pod,
    renamed,
    used,
)

from koordinator.api.kube_version import V1_35, V1_37, KubeVersion
from koordinator.api.kubescheduler import FeatureGates, KubeSchedulerConfiguration
from koordinator.api.meta import Condition, JsonObject, KubeObject
from koordinator.api.node import Node
from koordinator.api.node_metric import NodeMetric
from koordinator.api.pod import Pod
from koordinator.foundation.clock import to_datetime
from koordinator.scheduler.cycle.score_table import UNFIT
from koordinator.scheduler.snapshot import nodes as node_table
from koordinator.simulator import Embedded

pytestmark = pytest.mark.slow

quickly = settings(
    max_examples=examples(20),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
arguments = st.sampled_from(ARGUMENTS)
GROUP = "pod-group.scheduling.sigs.k8s.io"


def load_aware(args: JsonObject, *more: str) -> KubeSchedulerConfiguration:
    """Return the default configuration with load-aware scheduling and more plugins."""
    plugins: JsonObject = {
        "multiPoint": {"enabled": [{"name": name} for name in ("LoadAwareScheduling", *more)]}
    }
    if "Coscheduling" in more:
        plugins["queueSort"] = {
            "disabled": [{"name": "*"}],
            "enabled": [{"name": "Coscheduling"}],
        }
    return configuration(
        pluginConfig=[{"name": "LoadAwareScheduling", "args": args}], plugins=plugins
    )


@quickly
@given(cluster=measured_clusters(), args=arguments, data=st.data())
def test_cached_load_equals_the_load_from_scratch(
    cluster: list[KubeObject], args: JsonObject, data: st.DataObject
) -> None:
    """Reports, pods and nodes are created, changed and deleted, one by one or in groups."""
    one = embedded(*cluster, config=load_aware(args), report=False)
    kinds = [data.draw(measured_pods()) for _ in range(3)]
    for attempt in range(data.draw(st.integers(2, 6))):
        for index in range(data.draw(st.sampled_from((1, 1, 3)))):
            change(one, f"{attempt}-{index}", data)
        one.scheduler.step()
        one.state.validate()
        for kind in kinds:
            kept_equals_computed(one, kind)


def change(one: Embedded, attempt: str, data: st.DataObject) -> None:
    """Apply a random change to the cluster."""
    cluster = one.cluster
    nodes = [node.metadata.name for node in cluster.list(Node).items]
    pods = [pod for pod in cluster.list(Pod).items if pod.spec.node_name]
    metrics = [metric.metadata.name for metric in cluster.list(NodeMetric).items]
    kind = data.draw(st.sampled_from(("pods", "report", "time", "node", "gone", "status")))
    if kind == "pods":
        one.load(copies(data.draw(measured_pods(f"new{attempt}")), data.draw(st.integers(1, 5))))
    elif kind == "report":
        name = data.draw(st.sampled_from(nodes))
        there = [pod.metadata.name for pod in pods if pod.spec.node_name == name]
        report(one, data.draw(reports(name, there)))
    elif kind == "time":
        one.clock.advance_to(one.clock.now_s() + data.draw(st.sampled_from((1.0, 60.0, 200.0))))
    elif kind == "node":
        again = data.draw(measured_nodes(data.draw(st.sampled_from(nodes))))
        stored = cluster.get(Node, again.metadata.name)
        meta = msgspec.structs.replace(
            stored.metadata, annotations=dict(again.metadata.annotations)
        )
        cluster.update(msgspec.structs.replace(stored, metadata=meta))
    elif kind == "gone" and data.draw(st.booleans()) and metrics:
        cluster.delete(NodeMetric, data.draw(st.sampled_from(metrics)))
    elif kind == "gone" and pods:
        meta = data.draw(st.sampled_from(pods)).metadata
        cluster.delete(Pod, meta.name, meta.namespace)
    elif kind == "status" and pods:
        placed = data.draw(st.sampled_from(pods))
        since = to_datetime(START_S - data.draw(st.integers(0, 300)))
        named = data.draw(st.sampled_from(("PodScheduled", "Initialized")))
        condition = Condition(type=named, status="True", last_transition_time=since)
        status = msgspec.structs.replace(placed.status, conditions=(condition,))
        cluster.update_status(msgspec.structs.replace(placed, status=status))


def report(one: Embedded, new: NodeMetric) -> None:
    """Write a NodeMetric."""
    name = new.metadata.name
    if all(known.metadata.name != name for known in one.cluster.list(NodeMetric).items):
        one.cluster.create(new)
    stored = one.cluster.get(NodeMetric, name)
    one.cluster.update(msgspec.structs.replace(stored, spec=new.spec))
    stored = one.cluster.get(NodeMetric, name)
    one.cluster.update_status(msgspec.structs.replace(stored, status=new.status))


def kept_equals_computed(one: Embedded, wanted: Pod) -> None:
    """Compare incremental evaluations with those from scratch."""
    (cycle,) = one.scheduler.cycles.values()
    pod_class = one.state.classes.of(wanted)
    best = cycle._evaluator.of(pod_class).totals
    card = cycle.scorecard(pod_class)
    computed = np.full(len(best), UNFIT)
    local = [active.name for active in cycle.profile.score if active.plugin.reads.name != "CLUSTER"]
    relative = {a.name for a in cycle.profile.score if hasattr(a.plugin, "normalize")}
    computed[card.feasible] = sum(
        card.scores[name] for name in local if name in card.scores and name not in relative
    )
    assert best.tolist() == computed.tolist()


@quickly
@given(
    cluster=measured_clusters(least=2),
    pending=st.lists(st.tuples(measured_pods(), st.integers(1, 8)), min_size=1, max_size=3),
    args=arguments,
)
def test_runs_equal_decisions_one_by_one(
    cluster: list[KubeObject], pending: Sequence[tuple[Pod, int]], args: JsonObject
) -> None:
    """Deciding identical pods in one step is only an optimisation."""
    pods = [
        renamed(pod, f"q{number}-{index}")
        for number, (pod, count) in enumerate(pending)
        for index in range(count)
    ]
    outcomes: list[dict[str, Any]] = []
    for merge in (True, False):
        one = embedded(*cluster, *pods, config=load_aware(args), report=False, merge_runs=merge)
        one.scheduler.step()
        one.state.validate()
        outcomes.append({pod.key: pod.spec.node_name for pod in one.cluster.list(Pod).items})

    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("large", [1, node_table.LARGE], ids=["compiled", "arrays"])
@settings(quickly, max_examples=examples(60), suppress_health_check=[*HealthCheck])
@given(
    cluster=measured_clusters(least=2),
    kinds=st.lists(measured_pods(), min_size=2, max_size=4),
    order=st.lists(st.integers(0, 3), min_size=8, max_size=30),
    args=arguments,
)
@pytest.mark.integration
def test_mixed_pods_in_batches_equal_decisions_one_by_one(
    cluster: list[KubeObject],
    kinds: Sequence[Pod],
    order: Sequence[int],
    args: JsonObject,
    large: int,
) -> None:
    """Nodes report or not, their reports are expired or not, with limits of their own or not."""
    pods = [renamed(kinds[at % len(kinds)], f"b{index}") for index, at in enumerate(order)]
    outcomes: list[dict[str, Any]] = []
    with patch.object(node_table, "LARGE", large):
        for merge in (True, False):
            one = embedded(*cluster, *pods, config=load_aware(args), report=False, merge_runs=merge)
            one.scheduler.step()
            one.state.validate()
            outcomes.append({pod.key: pod.spec.node_name for pod in one.cluster.list(Pod).items})

    assert outcomes[0] == outcomes[1]


@quickly
@given(
    nodes=st.lists(st.sets(st.integers(0, 7)), min_size=2, max_size=3),
    usage=st.tuples(st.sampled_from(("0", "500m", "2", "5")), st.sampled_from(("0", "1Gi", "6Gi"))),
    kind=measured_pods(),
    count=st.integers(2, 8),
    args=arguments,
    level=st.sampled_from((V1_35, V1_37)),
    is_gang=st.booleans(),
)
def test_pods_with_measured_names_are_decided_alike(
    *,
    nodes: Sequence[set[int]],
    usage: tuple[str, str],
    kind: Pod,
    count: int,
    args: JsonObject,
    level: KubeVersion,
    is_gang: bool,
) -> None:
    """Measurements count from the first decision on, for pods of a gang and others."""
    pods = [renamed(kind, f"run-{index}") for index in range(count)]
    cluster: list[KubeObject] = []
    for number, named in enumerate(nodes):
        of_pods = {f"run-{index}": used(*usage) for index in named}
        cluster += [node(f"n{number}", cpu=16), metric(f"n{number}", cpu=number, pods=of_pods)]
    if is_gang:
        pods = [labelled(one, {GROUP: "g"}) for one in pods]
        cluster.append(
            made(
                "PodGroup",
                "g",
                "scheduling.sigs.k8s.io/v1alpha1",
                metadata={"namespace": "default"},
                spec={"minMember": count},
            )
        )
    outcomes = []
    for merge in (True, False):
        gates = FeatureGates.parse("", level)
        config = load_aware(args, "Coscheduling")
        one = embedded(*cluster, *pods, config=config, gates=gates, report=False, merge_runs=merge)
        one.scheduler.step()
        one.state.validate()
        outcomes.append({pod.key: pod.spec.node_name for pod in one.cluster.list(Pod).items})

    assert outcomes[0] == outcomes[1]


def labelled(one: Pod, labels: dict[str, str]) -> Pod:
    """Return the pod with additional labels."""
    meta = msgspec.structs.replace(one.metadata, labels={**one.metadata.labels, **labels})
    return msgspec.structs.replace(one, metadata=meta)


def test_prod_pods_of_a_batch_are_refused_where_the_report_has_expired() -> None:
    """With limits of prod pods alone, pods of other bands are placed there."""
    bands = ("koord-prod", "koord-free") * 4
    pods = [pod(f"{band}-{at}", cpu=1, labels={BAND: band}) for at, band in enumerate(bands)]
    args = {"usageThresholds": {"cpu": 0}, "prodUsageThresholds": {"cpu": 40}}
    expired = metric("n", cpu=1, at="22:00:00")
    one = embedded(node("n", cpu=16), expired, *pods, config=load_aware(args), report=False)
    one.scheduler.step()

    assert {key.partition("-")[2][:4] for key in one.state.pods.by_key} == {"free"}
    assert len(one.state.pods.by_key) == 4


@pytest.mark.parametrize("deed", ["come", "run", "go", "renew", "time", "gone"])
def test_lazy_reports_are_applied_correctly(deed: str) -> None:
    """A report is applied at the next read, whatever happened on its node meanwhile."""
    there = [placed_on(pod(name, cpu=1), "n") for name in ("a", "b")]
    one = embedded(node("n"), metric("n", 1), *there, config=load_aware({}), report=False)
    kept_equals_computed(one, pod("asked"))  # loads are read from now on
    state, new = one.state, copies(pod("new", cpu=1), 3)
    state.objects.put(metric("n", 2, pods={"a": used(3), "new-1": used(2)}))
    state.set_load("n")
    items = [(it.key, it, state.classes.of(it), 0) for it in new]
    if deed == "come":
        state.place(*items[1])
    elif deed == "run":
        classes = [state.classes.of(it) for it in new]
        state.place_all([(it.key, it) for it in new], classes, np.zeros(len(new), np.int64))
    elif deed == "go":
        state.displace("default/a")
    elif deed == "renew":
        when = to_datetime(START_S - 90)
        condition = Condition(type="PodScheduled", status="True", last_transition_time=when)
        placed = state.pods.by_key["default/a"]
        status = msgspec.structs.replace(placed.pod.status, conditions=(condition,))
        state.renew(placed, msgspec.structs.replace(placed.pod, status=status))
    elif deed == "time":
        state.advance(START_S + 1000)
    else:
        state.drop_node("n")

    state.validate()
    kept_equals_computed(one, pod("asked"))
