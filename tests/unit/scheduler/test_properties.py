"""Cached results equal results from scratch, and nothing is allocated twice."""

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.keywords import as_keywords
from tests.worlds import add, configuration, device, embedded, node, pod, renamed, world

from koordinator.api.annotations.devices import ALLOCATED
from koordinator.api.kubescheduler import KubeSchedulerConfiguration
from koordinator.api.meta import JsonObject, KubeObject
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.domain.amounts import canonical
from koordinator.domain.pod_requests import pod_requests
from koordinator.scheduler.contract import Profile
from koordinator.scheduler.cycle import NodeChoice, SchedulingCycle
from koordinator.scheduler.ingest import Ingest
from koordinator.scheduler.profile import build_profiles
from koordinator.scheduler.snapshot import ClusterState
from koordinator.simulator import Embedded
from koordinator.testing.strategies import clusters, devices, nodes, pods

RATIO = {"shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]}
STRATEGIES: dict[str, JsonObject] = {
    "LeastAllocated": {},
    "MostAllocated": {},
    "RequestedToCapacityRatio": {"requestedToCapacityRatio": RATIO},
}

pytestmark = pytest.mark.slow

quickly = settings(
    max_examples=examples(30),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def packing(strategy: str, *more: str) -> KubeSchedulerConfiguration:
    """Return the default configuration with another scoring strategy and more plugins."""
    args = {"scoringStrategy": {"type": strategy, **STRATEGIES[strategy]}}
    enabled = [{"name": name} for name in more]
    return configuration(
        pluginConfig=[{"name": "NodeResourcesFit", "args": args}],
        plugins={"multiPoint": {"enabled": enabled}},
    )


POLICIES = (
    "GPUBestFit",
    "GPUPacking",
    "GPUFragmentation",
    "GPUPrice",
    "GPURandom",
    "GPUDotProduct",
    "GPUClustering",
)
GPUS = packing("LeastAllocated", "DeviceShare", "GPUBestFit")
strategies = st.sampled_from(sorted(STRATEGIES))


# -- kept results ----------------------------------------------------------------------------


@settings(quickly, max_examples=examples(30))
@given(data=st.data())
def test_cached_results_equal_results_from_scratch(data: st.DataObject) -> None:
    """Pods and nodes of many kinds are created, changed and deleted in any order."""
    state = world(*data.draw(clusters(most=4, least=2)))
    policy = data.draw(st.sampled_from(POLICIES))
    config = packing(data.draw(strategies), "DeviceShare", policy)
    (profile,) = build_profiles(config, state.axis).profiles
    cycle = SchedulingCycle(profile, state)
    kinds = data.draw(st.lists(pods(), min_size=3, max_size=4))
    for kind in kinds:  # what policies learn from
        cycle.choose(kind, state.classes.of(kind), {})
    for step in range(data.draw(st.integers(4, 10))):
        _change(data, state, kinds, step)
        for kind in kinds:
            _assert_same_as_from_scratch(cycle, profile, state, kind)
    state.validate()


def _change(data: st.DataObject, state: ClusterState, kinds: Sequence[Pod], step: int) -> None:
    """Apply a random change to the cluster."""
    ingest, names = Ingest(state), sorted(state.nodes.rows)
    what = data.draw(
        st.sampled_from(("node", "place", "remove", "node", "place", "devices", "drop"))
    )
    if what == "place" and names:
        kind = data.draw(st.sampled_from(kinds))
        row = state.nodes.rows[data.draw(st.sampled_from(names))]
        state.place(f"default/s{step}", renamed(kind, f"s{step}"), state.classes.of(kind), row)
    elif what == "remove" and state.pods.by_key:
        state.displace(data.draw(st.sampled_from(sorted(state.pods.by_key))))
    elif what == "node":
        ingest.put(data.draw(nodes(data.draw(st.sampled_from([*names, f"new{step}"])))))
    elif what == "drop" and names:
        state.drop_node(data.draw(st.sampled_from(names)))
    elif what == "devices" and names:
        ingest.put(data.draw(devices(data.draw(st.sampled_from(names)))))


def _assert_same_as_from_scratch(
    cycle: SchedulingCycle, profile: Profile, state: ClusterState, kind: Pod
) -> None:
    """Compare the choice, and feasibility and totals of every node."""
    pod_class = state.classes.of(kind)
    card = cycle.scorecard(pod_class)
    choice = cycle.choose(kind, pod_class, {}, first_attempt=False)
    best = card.feasible[card.total == card.total.max(initial=0)]
    if not len(best):
        assert choice is None
        return
    assert isinstance(choice, NodeChoice)
    assert choice.row == best[np.argmin(state.nodes.rank[best])]
    evaluation = cycle._evaluator.of(pod_class)
    kept = np.zeros(len(card.feasible), np.int64)
    kept += evaluation.totals[card.feasible]
    assert (kept >= 0).all()
    for part, raw in zip(evaluation.program.relative, evaluation.raw, strict=True):
        kept += part.active.weight * part.active.plugin.normalize(raw[card.feasible])
    local = [a.name for a in profile.score if a.plugin.reads.name != "CLUSTER"]
    expected = sum((card.scores[name] for name in local if name in card.scores), np.int64(0))
    assert np.array_equal(kept, np.broadcast_to(expected, kept.shape))


@pytest.mark.parametrize("policy", POLICIES)
def test_a_larger_gpu_changes_what_bytes_of_memory_are_worth_everywhere(policy: str) -> None:
    """Nodes with unchanged devices are affected, too."""
    memory = "koordinator.sh/gpu-memory"
    cluster = [
        part
        for n in "ab"
        for part in (node(n, **as_keywords({memory: "640Gi"})), device(n, 4, "16Gi"))
    ]
    state = world(*cluster)
    (profile,) = build_profiles(
        packing("LeastAllocated", "DeviceShare", policy), state.axis
    ).profiles
    cycle, pending = SchedulingCycle(profile, state), pod("p", cpu=1, requests={memory: "8Gi"})
    _assert_same_as_from_scratch(cycle, profile, state, pending)

    add(state, device("b", 4, "640Gi"))
    _assert_same_as_from_scratch(cycle, profile, state, pending)


def test_prices_are_solved_with_an_overcommitted_node() -> None:
    """The node has negative free cpu, and pods require one of two models."""
    model = {"node.koordinator.sh/gpu-model": "A100"}
    share = {"koordinator.sh/gpu-memory-ratio": 50}
    gpus: dict[str, Any] = {"koordinator.sh/gpu-memory-ratio": 400}
    state = world(
        *(node("a", labels=model, **gpus), device("a"), pod("b", cpu=99, on="a")),
        *(node("c", **gpus), device("c")),
    )
    (profile,) = build_profiles(
        packing("LeastAllocated", "DeviceShare", "GPUPrice"), state.axis
    ).profiles
    cycle = SchedulingCycle(profile, state)
    for pending in (pod("p", requests=share), pod("q", requests=share, nodeSelector=model)):
        cycle.choose(pending, state.classes.of(pending), {})
        _assert_same_as_from_scratch(cycle, profile, state, pending)
        add(state, node(f"new-{pending.metadata.name}"))  # which means new prices
        _assert_same_as_from_scratch(cycle, profile, state, pending)


# -- runs ------------------------------------------------------------------------------------


def outcomes(one: Embedded) -> list[tuple[Any, ...]]:
    """Return the outcomes in order, without scorecards."""
    done = one.run_to_fixed_point()
    return [(type(o).__name__, o.pod, getattr(o, "node", getattr(o, "message", ""))) for o in done]


def equal(one: Pod) -> Pod:
    """Return the pod without its priority."""
    return msgspec.structs.replace(one, spec=msgspec.structs.replace(one.spec, priority=0))


@quickly
@given(
    cluster=clusters(gpus=False),
    kinds=st.lists(pods(plain=True, gpus=False) | pods(gpus=False), min_size=1, max_size=3),
    counts=st.lists(st.integers(1, 25), min_size=3, max_size=3),
    strategy=strategies,
)
def test_a_run_equals_one_by_one(
    cluster: list[KubeObject], kinds: list[Pod], counts: list[int], strategy: str
) -> None:
    """Pods, nodes, order and messages are equal; clusters fill up on the way.

    All pods have one priority: where pods evict others, the rest of a run sees it later.
    """
    cluster = [equal(obj) if isinstance(obj, Pod) else obj for obj in cluster]
    pending = [
        renamed(equal(kind), f"{index}-{number}")
        for index, (kind, count) in enumerate(zip(kinds, counts, strict=False))
        for number in range(count)
    ]
    merged, single = (
        embedded(*cluster, *pending, config=packing(strategy), merge_runs=merge)
        for merge in (True, False)
    )

    assert outcomes(merged) == outcomes(single)
    merged.state.validate()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_run_over_equal_nodes_equals_one_by_one(strategy: str) -> None:
    """There are ties everywhere, and more pods than fit."""
    cluster = [node(f"n{index}", cpu=2, memory="4Gi", pods=9) for index in range(7)]
    pending = [pod(f"p{index}", cpu="300m", memory="100Mi") for index in range(50)]
    merged, single = (
        embedded(*cluster, *pending, config=packing(strategy), merge_runs=merge)
        for merge in (True, False)
    )

    assert outcomes(merged) == outcomes(single)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_run_over_a_large_cluster_equals_one_by_one(strategy: str) -> None:
    """The compiled kernels are used."""
    cluster = [
        node(f"n{index}", cpu=2 + index % 5, memory=f"{4 + index % 7}Gi", pods=4)
        for index in range(1_200)
    ]
    pending = [pod(f"p{index}", cpu="700m", memory="900Mi") for index in range(2_500)]
    merged, single = (
        embedded(*cluster, *pending, config=packing(strategy), merge_runs=merge, report=False)
        for merge in (True, False)
    )

    assert outcomes(merged) == outcomes(single)


# -- nothing twice ---------------------------------------------------------------------------


@quickly
@given(
    cluster=clusters(with_pods=False),
    pending=st.lists(pods(), min_size=1, max_size=12),
    strategy=strategies,
)
def test_nothing_is_allocated_twice(
    cluster: list[KubeObject], pending: list[Pod], strategy: str
) -> None:
    """All resources, ports and GPUs are counted from the bound pods alone."""
    pending = [renamed(p, f"p{index}") for index, p in enumerate(pending)]
    one = embedded(*cluster, *pending, config=packing(strategy, "DeviceShare"))
    one.run_to_fixed_point()

    on_node: dict[str, list[Pod]] = {}
    for bound in one.cluster.list(Pod).items:
        on_node.setdefault(bound.spec.node_name, []).append(bound)
    for obj in cluster:
        if isinstance(obj, Node):
            _assert_fits(obj, on_node.get(obj.metadata.name, []))
    one.scheduler.validate()


def _assert_fits(where: Node, bound: Sequence[Pod]) -> None:
    allocatable = {n: canonical(n, q) for n, q in where.status.allocatable.items()}
    used: Counter[str] = Counter(pods=len(bound))
    for one in bound:
        used.update(pod_requests(one.spec))
    for name, amount in used.items():
        if not name.startswith("koordinator.sh/"):
            assert amount <= allocatable.get(name, 0), name
    ports = [
        (port.host_port, port.protocol, port.host_ip or "0.0.0.0")  # noqa: S104 (the wildcard of the API)
        for one in bound
        for container in one.spec.containers
        for port in container.ports
    ]
    for (number, protocol, ip), (other, other_protocol, other_ip) in itertools.combinations(
        ports, 2
    ):
        same = (number, protocol) == (other, other_protocol)
        assert not (same and (ip == other_ip or "0.0.0.0" in (ip, other_ip)))  # noqa: S104 (as above)
    shares: Counter[int] = Counter()
    for one in bound:
        for entry in (ALLOCATED.read(one.metadata) or {}).get("gpu", ()):
            shares[entry.minor] += entry.resources["koordinator.sh/gpu-memory-ratio"].value()
    assert all(share <= 100 for share in shares.values())


def test_gpus_are_shared_to_the_last_percent() -> None:
    """Two nodes with two GPUs each take eight halves and no ninth."""
    gpus: dict[str, Any] = {"koordinator.sh/gpu-memory-ratio": 200}
    cluster = [part for name in "ab" for part in (node(name, **gpus), device(name, gpus=2))]
    pending = [
        pod(f"p{index}", requests={"koordinator.sh/gpu-memory-ratio": 50}) for index in range(9)
    ]
    one = embedded(*cluster, *pending, config=packing("LeastAllocated", "DeviceShare"))
    one.run_to_fixed_point()

    assert one.state.nodes.gpus.used[:2, :2, 2].tolist() == [[100, 100], [100, 100]]
    assert one.scheduler.queue.get("default/p8") is not None


# -- repeatable ------------------------------------------------------------------------------


@quickly
@given(cluster=clusters(), pending=st.lists(pods(), min_size=1, max_size=8))
def test_the_same_world_has_the_same_outcome(cluster: list[KubeObject], pending: list[Pod]) -> None:
    """Uids, events and messages included."""
    pending = [renamed(p, f"p{index}") for index, p in enumerate(pending)]
    first, second = (embedded(*cluster, *pending, config=GPUS) for _ in range(2))

    assert outcomes(first) == outcomes(second)
    assert first.cluster.list(Pod).items == second.cluster.list(Pod).items


@quickly
@given(cluster=clusters(), pending=pods(), data=st.data())
def test_the_order_of_nodes_does_not_matter(
    cluster: list[KubeObject], pending: Pod, data: st.DataObject
) -> None:
    """Every node has the same verdict and the same score."""
    order = data.draw(st.permutations([obj for obj in cluster if isinstance(obj, Node)]))
    others = [obj for obj in cluster if not isinstance(obj, Node)]
    cards = []
    for objects in (cluster, [*order, *others]):
        state = world(*objects)
        (profile,) = build_profiles(GPUS, state.axis).profiles
        cards.append(SchedulingCycle(profile, state).scorecard(state.classes.of(pending)))

    assert cards[0].score_table() == cards[1].score_table()
    first, second = (
        {n: (plugin, sorted(why.split(", "))) for n, (plugin, why) in card.rejections().items()}
        for card in cards
    )
    assert first == second


@quickly
@given(data=st.data())
def test_orphans_count_when_their_node_comes_back(data: st.DataObject) -> None:
    """Nodes that are deleted and recreated, or arrive late, have the same sums."""
    cluster = data.draw(clusters(most=4))
    nodes_first, late = world(*cluster), ClusterState()
    add(late, *(obj for obj in cluster if not isinstance(obj, Node)))
    add(late, *(obj for obj in cluster if isinstance(obj, Node)))
    names = sorted(nodes_first.nodes.rows)
    for name in data.draw(st.lists(st.sampled_from(names), max_size=3)):
        again = next(o for o in cluster if isinstance(o, Node) and o.metadata.name == name)
        late.drop_node(name)
        late.validate()
        Ingest(late).put(again)
    late.validate()

    for name in names:
        a, b = nodes_first.nodes.rows[name], late.nodes.rows[name]
        width = len(nodes_first.axis)
        one = dict(
            zip(
                nodes_first.axis.names, nodes_first.nodes.requested[:width, a].tolist(), strict=True
            )
        )
        two = dict(
            zip(late.axis.names, late.nodes.requested[: len(late.axis), b].tolist(), strict=True)
        )
        assert {k: v for k, v in one.items() if v} == {k: v for k, v in two.items() if v}
        assert nodes_first.nodes.devices.known[a] == late.nodes.devices.known[b]
        assert np.array_equal(nodes_first.nodes.gpus.total[a], late.nodes.gpus.total[b])
    assert set(nodes_first.pods.by_key) == set(late.pods.by_key)
