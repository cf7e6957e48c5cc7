"""Latency-sensitive pods may burst while the node has room."""

import numpy as np
import pytest
from tests.nodes import START_S, Tree, machine, pod, slo

from koordinator.api.node_slo import CpuBurstSettings, NodeSloSpec
from koordinator.domain.cgroups.files import CgroupFile
from koordinator.koordlet.intents import SetCgroup
from koordinator.koordlet.metrics import Metric, MetricStore
from koordinator.koordlet.qos.cpu_burst import (
    OVERRIDES,
    BurstLimiter,
    CfsQuotaOperation,
    CpuBurst,
    SharePoolState,
    burst_us,
    node_state,
    target_quota,
)
from koordinator.koordlet.qos.eviction import StrategyInputs
from koordinator.koordlet.view.pods import PodView

AUTO = slo(cpuBurstStrategy={"policy": "auto", "sharePoolThresholdPercent": 50})


def inputs(
    tree: Tree,
    view: PodView,
    *,
    node: float | None = 1.0,
    throttled: float | None = 0.5,
    spec: NodeSloSpec = AUTO,
) -> StrategyInputs:
    """Return a node of eight CPUs that uses so many of them."""
    store = MetricStore(60, 1)
    if node is not None:
        store.add(Metric.NODE_CPU, "", START_S, node)
    if throttled is not None:
        store.add(Metric.CONTAINER_THROTTLED, view.containers[0].id, START_S, throttled)
    return StrategyInputs(tree.view(view, machine_=machine(8), slo=spec), store)


def limited(tree: Tree, name: str = "a", quota: int = 250_000, **kwargs: object) -> PodView:
    """Add a pod with a limit of 2.5 CPUs."""
    made = pod(name, "LS", limits={"cpu": "2500m"}, **kwargs)  # type: ignore[arg-type]
    view = tree.add_pod(made, cfs_quota=quota)
    tree.set(CgroupFile.CFS_QUOTA, view.folder, quota)
    return view


def quotas(situation_: StrategyInputs) -> list[tuple[str, str]]:
    """Return folders and their quotas."""
    planned = CpuBurst(np.random.default_rng(1)).plan(situation_)
    return [
        (intent.folder, intent.value)
        for intent in planned
        if isinstance(intent, SetCgroup) and intent.file is CgroupFile.CFS_QUOTA
    ]


@pytest.mark.parametrize(
    ("current", "operation", "percent", "target"),
    [
        (250_000, CfsQuotaOperation.UP, 300, 300_000),
        (300_000, CfsQuotaOperation.UP, 300, 360_000),
        (700_000, CfsQuotaOperation.UP, 300, 750_000),
        (300_000, CfsQuotaOperation.DOWN, 300, 250_000),
        (400_000, CfsQuotaOperation.DOWN, 300, 320_000),
        (400_000, CfsQuotaOperation.RESET, 300, 250_000),
        (400_000, CfsQuotaOperation.REMAIN, 300, 400_000),
        (400_000, CfsQuotaOperation.REMAIN, 100, 250_000),
        (-1, CfsQuotaOperation.REMAIN, 300, 250_000),
        (250_001, CfsQuotaOperation.UP, 300, 300_001),
    ],
)
def test_quota_moves_in_steps_between_base_and_ceiling(
    current: int, operation: CfsQuotaOperation, percent: int, target: int
) -> None:
    """A fifth up or down, cut to whole microseconds; base is 250000."""
    assert target_quota(current, 250_000, operation, percent) == target


def test_a_throttled_container_on_an_idle_node_goes_up_with_its_pod() -> None:
    """The quotas of container and pod rise by the same amount."""
    tree = Tree()
    view = limited(tree)

    assert dict(quotas(inputs(tree, view))) == {
        view.containers[0].folder: "300000",
        view.folder: "300000",
    }


def test_a_pod_without_quota_keeps_none() -> None:
    """Burst raises the quota of the container alone."""
    tree = Tree()
    view = limited(tree)
    tree.set(CgroupFile.CFS_QUOTA, view.folder, -1)

    assert dict(quotas(inputs(tree, view))) == {view.containers[0].folder: "300000"}


@pytest.mark.parametrize(
    ("node", "throttled", "expected"),
    [
        (1.0, 0.5, "480000"),  # idle: up
        (1.0, 0.0, None),
        (1.0, None, None),
        (3.7, 0.5, None),  # cooling: remain
        (4.0, 0.5, "320000"),  # overload: down
        (4.0, 0.0, "320000"),
        (None, 0.5, None),  # unknown: remain
    ],
)
def test_the_node_overrides_the_container(
    node: float | None, throttled: float | None, expected: str | None
) -> None:
    """Half of eight CPUs is the threshold, nine tenths of that begin to cool."""
    tree = Tree()
    view = limited(tree, quota=400_000)

    result = dict(quotas(inputs(tree, view, node=node, throttled=throttled)))

    assert result.get(view.containers[0].folder) == expected


def test_every_operation_in_every_state_is_decided() -> None:
    """Down and reset are never overridden; quotas grow on an idle node only."""
    for state in SharePoolState:
        assert (
            OVERRIDES.get((state, CfsQuotaOperation.DOWN), CfsQuotaOperation.DOWN)
            is CfsQuotaOperation.DOWN
        )
        assert (
            OVERRIDES.get((state, CfsQuotaOperation.RESET), CfsQuotaOperation.RESET)
            is CfsQuotaOperation.RESET
        )
        up = OVERRIDES.get((state, CfsQuotaOperation.UP), CfsQuotaOperation.UP)
        assert (up is CfsQuotaOperation.UP) is (state is SharePoolState.IDLE)


def test_switched_off_quotas_go_back_to_the_limit() -> None:
    """Raised quotas return to the pod's limit."""
    tree = Tree()
    view = limited(tree, quota=600_000)

    assert dict(quotas(inputs(tree, view, spec=slo())))[view.containers[0].folder] == "250000"


@pytest.mark.parametrize("qos", ["LSE", "LSR", "BE"])
def test_pods_with_cpus_of_their_own_and_best_effort_never_burst(qos: str) -> None:
    """Nothing is written for them."""
    tree = Tree()
    view = tree.add_pod(pod("a", qos, limits={"cpu": "1"}))

    assert CpuBurst(np.random.default_rng(1)).plan(inputs(tree, view)) == []


def test_a_pod_overrides_the_node_field_by_field() -> None:
    """A pod that sets the policy only keeps the percentages of the node."""
    tree = Tree()
    own = {"koordinator.sh/cpuBurst": '{"policy":"cpuBurstOnly"}'}
    view = limited(tree, annotations=own)
    planned = CpuBurst(np.random.default_rng(1)).plan(inputs(tree, view))

    assert {(i.file, i.value) for i in planned if isinstance(i, SetCgroup)} == {
        (CgroupFile.CFS_BURST, "2500000")
    }


@pytest.mark.parametrize(
    ("limit", "policy", "expected"),
    [(1500, "auto", 1_500_000), (1500, "cfsQuotaBurstOnly", 0), (0, "auto", 0)],
)
def test_burst_is_a_multiple_of_the_limit(limit: int, policy: str, expected: int) -> None:
    """1000 % of 1.5 CPUs are 1.5 s."""
    settings = CpuBurstSettings(policy=policy, cpu_burst_percent=1000)
    assert burst_us(limit, settings) == expected


def test_the_share_pool_is_without_pods_that_have_cpus_of_their_own() -> None:
    """6 of 8 CPUs are used, 3 by an LSR pod that requests 4: 3 of 4 shared CPUs are overload."""
    tree = Tree()
    view = tree.add_pod(pod("r", "LSR", requests={"cpu": "4"}))
    store = MetricStore(60, 1)
    for second in range(5):
        store.add(Metric.NODE_CPU, "", START_S - second + 4, 5.0)
        store.add(Metric.POD_CPU, view.uid, START_S - second + 4, 3.0)
    strategy_inputs = StrategyInputs(tree.view(view, now_s=START_S + 4), store)

    assert node_state(strategy_inputs, 50) is SharePoolState.OVERLOAD
    assert node_state(strategy_inputs, 55) is SharePoolState.COOLING
    assert node_state(strategy_inputs, 60) is SharePoolState.IDLE


def test_the_limiter_saves_and_spends() -> None:
    """Capacity 12000; 250 % for 10 s costs 1500, 30 % for 10 s earns 700; between is free."""
    limiter = BurstLimiter(60, 300, 0.0, 0.0)
    assert limiter.capacity == 12_000
    assert not limiter.allows(80, 1)

    assert limiter.allows(30, 11)
    assert limiter.tokens == 700
    assert not limiter.allows(250, 21)
    assert limiter.tokens == -800
    assert not limiter.allows(60, 31)
    assert not limiter.allows(99, 41)
    assert limiter.tokens == -800
    assert not limiter.allows(100, 51)
    assert limiter.allows(0, 1051)
    assert limiter.tokens == 12_000
    assert limiter.is_expired(1172)


def test_a_limiter_without_tokens_brings_the_quota_down() -> None:
    """Period 0 never allows; -1 always does."""
    tree = Tree()
    view = limited(tree, quota=400_000)
    spec = slo(cpuBurstStrategy={"policy": "auto", "cfsQuotaBurstPeriodSeconds": 0})

    assert dict(quotas(inputs(tree, view, spec=spec)))[view.containers[0].folder] == "320000"
