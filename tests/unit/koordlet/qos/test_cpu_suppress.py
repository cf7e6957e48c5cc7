"""Best effort gets what others leave."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.nodes import LAYOUT, START_S, Tree, cpus, machine, pod, slo
from tests.unit.koordlet.intents import values

from koordinator.api.node_slo import NodeSloSpec
from koordinator.domain.cgroups.files import CgroupFile
from koordinator.foundation.cpu_list import parse_cpu_list
from koordinator.koordlet.metrics import Metric, MetricStore
from koordinator.koordlet.qos.cpu_suppress import (
    CpuDemand,
    choose_cpus,
    measure_demand,
    suppress,
    wanted_cpus,
    wanted_quota_us,
)
from koordinator.koordlet.qos.eviction import StrategyInputs
from koordinator.koordlet.view.machine import Machine
from koordinator.koordlet.view.pods import PodView

RESERVED = {"node.koordinator.sh/reservation": '{"resources":{"cpu":"2"}}'}
CPUSET = "scheduling.koordinator.sh/resource-status"


def on(**threshold: object) -> NodeSloSpec:
    """Return a NodeSLO that suppresses."""
    return slo(resourceUsedThresholdWithBE={"enable": True, **threshold})


def inputs(
    tree: Tree,
    pods: Iterable[tuple[PodView, float]],
    node: float,
    spec: NodeSloSpec,
    *,
    where: Machine | None = None,
    apps: float | None = None,
) -> StrategyInputs:
    """Return a node whose pods use so many cores each."""
    store = MetricStore(60, 1)
    store.add(Metric.NODE_CPU, "", START_S, node)
    views = []
    for view, used in pods:
        store.add(Metric.POD_CPU, view.uid, START_S, used)
        views.append(view)
    if apps is not None:
        store.add(Metric.HOST_APP_CPU, "app", START_S, apps)
    return StrategyInputs(tree.view(*views, machine_=where, slo=spec), store)


def test_headroom_below_the_threshold() -> None:
    """48 cores at 65 %, less 12.5 of pods, 0.7 of a program and 2.8 of the system: 15.2."""
    tree = Tree("0-47")
    spec = slo(
        resourceUsedThresholdWithBE={"enable": True, "cpuSuppressThresholdPercent": 65},
        hostApplications=[{"name": "app", "qos": "LS"}],
    )
    pods = [
        (tree.add_pod(pod("ls", "LS", requests={"cpu": "1"})), 12.5),
        (tree.add_pod(pod("be", "BE")), 4.0),
    ]
    where = machine(48, annotations=RESERVED)

    demand = measure_demand(inputs(tree, pods, 20.0, spec, where=where, apps=0.7))

    assert demand is not None
    assert demand == CpuDemand(capacity=48_000, pods=12_500, host_applications=700, system=2800)
    assert demand.headroom_milli(65, None) == 15_200
    assert demand.headroom_milli(30, 25) == 12_000


def test_usage_of_a_deleted_pod_is_not_best_effort() -> None:
    """Better too little for best effort than too much."""
    tree = Tree()
    made = inputs(tree, [(tree.add_pod(pod("be", "BE")), 1.0)], 3.0, on())
    made.store.add(Metric.POD_CPU, "gone", START_S, 1.5)

    demand = measure_demand(made)

    assert demand is not None
    assert (demand.pods, demand.system) == (1500, 500)


def test_pairs_of_threads_first_then_single_ones() -> None:
    """2 sockets of 4 cores of 2 threads (siblings n, n + 8), five wanted."""
    assert choose_cpus(5, cpus(16, sockets=2, threads=2)) == [0, 8, 4, 12, 1]


def test_too_few_cpus_are_none() -> None:
    """Nothing is applied then."""
    assert choose_cpus(3, cpus(2)) == []


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 2), st.integers(0, 40), st.integers(0))
def test_as_many_different_cpus_as_wanted(
    sockets: int, cores: int, threads: int, count: int, holes: int
) -> None:
    """Of whatever is there, in any machine."""
    whole = cpus(sockets * cores * threads, sockets=sockets, threads=threads)
    among = [cpu for cpu in whole if not holes >> cpu.id & 1]
    chosen = choose_cpus(count, among)

    if count > len(among):
        assert chosen == []
    else:
        assert len(chosen) == len(set(chosen)) == count
        assert set(chosen) <= {cpu.id for cpu in among}


@pytest.mark.parametrize(
    ("headroom", "current", "count"), [(16_000, 8, 13), (4000, 40, 4), (-9, 10, 2), (4001, 5, 5)]
)
def test_growth_is_limited_and_shrinking_is_not(headroom: int, current: int, count: int) -> None:
    """By a tenth of all CPUs in a round; never fewer than two."""
    assert len(wanted_cpus(Tree().view(machine_=machine(48)), headroom, current)) == count


def test_cpus_of_others_give_their_share_or_nothing() -> None:
    """CPUs of LSR pods contribute in proportion; CPUs of LSE pods and reserved ones do not."""
    tree = Tree("0-15")
    lsr = tree.add_pod(
        pod("r", "LSR", requests={"cpu": 4}, annotations={CPUSET: '{"cpuset":"8-11"}'})
    )
    lse = tree.add_pod(
        pod("e", "LSE", requests={"cpu": 4}, annotations={CPUSET: '{"cpuset":"12-15"}'})
    )
    where = machine(16, annotations={"node.koordinator.sh/reservation": '{"reservedCPUs":"0-1"}'})

    chosen = wanted_cpus(tree.view(lsr, lse, machine_=where), 8000, 8)

    assert len(chosen) == 8
    assert not set(chosen) & {0, 1, 12, 13, 14, 15}
    assert len(set(chosen) & {8, 9, 10, 11}) == 8 * 4 // 10


@given(st.integers(2, 16), st.integers(0, 2**16 - 1), st.integers(-2000, 20_000))
def test_best_effort_is_never_on_a_cpu_of_class_lse(count: int, owned: int, headroom: int) -> None:
    """The rule precedes the minimum of two CPUs for best effort, as on a node of two CPUs."""
    taken = owned & ((1 << count) - 1)
    if taken == 0:
        taken = 1
    tree = Tree(f"0-{count - 1}")
    text = ",".join(str(cpu) for cpu in range(count) if taken >> cpu & 1)
    amounts: dict[str, str | int] = {"cpu": taken.bit_count()}
    own = {CPUSET: f'{{"cpuset":"{text}"}}'}
    lse = tree.add_pod(pod("e", "LSE", requests=amounts, limits=amounts, annotations=own))

    chosen = wanted_cpus(tree.view(lse, machine_=machine(count)), headroom, count)

    assert not any(taken >> cpu & 1 for cpu in chosen)
    assert len(chosen) >= min(count - taken.bit_count(), 2)


def test_without_any_eligible_cpu_nothing_is_chosen() -> None:
    """The original divides by zero here."""
    tree = Tree("0-3")
    lse = tree.add_pod(
        pod("e", "LSE", requests={"cpu": 4}, annotations={CPUSET: '{"cpuset":"0-3"}'})
    )

    assert wanted_cpus(tree.view(lse, machine_=machine(4)), 2000, 4) == []


@pytest.mark.parametrize(
    ("capacity", "headroom", "current", "quota"),
    [
        (64_000, 14_500, 600_000, 1_240_000),
        (64_000, 6300, 600_000, None),  # less than 1 % of all
        (64_000, 14_500, -1, 1_450_000),
        (64_000, 500, -1, 50_000),  # none at all is no small difference
        (64_000, -5, 600_000, 2000),
        (64_000, 0, 2000, 2000),
        (64_000, 2000, 600_000, 200_000),
    ],
)
def test_quota_of_best_effort_grows_by_a_tenth_at_most(
    capacity: int, headroom: int, current: int, quota: int | None
) -> None:
    """At least 2 ms, growing by a tenth of all CPUs at most, unless there was none."""
    assert wanted_quota_us(capacity, headroom, current) == quota


def test_the_policy_cpuset_sets_the_whole_tier() -> None:
    """Tier, pods and containers; the quota is taken back."""
    tree = Tree("0-7")
    ls, be = tree.add_pod(pod("ls", "LS", requests={"cpu": "1"})), tree.add_pod(pod("be", "BE"))

    done = suppress(inputs(tree, [(ls, 2.0), (be, 3.0)], 5.0, on()))

    sets = values(done.intents, CgroupFile.CPUSET)
    assert set(sets) == {LAYOUT.besteffort, be.folder, be.containers[0].folder}
    assert {parse_cpu_list(text).bit_count() for text in sets.values()} == {4}  # 5.2 - 2: 3.2
    assert values(done.intents, CgroupFile.CFS_QUOTA) == {LAYOUT.besteffort: "-1"}
    assert (done.policy, done.be_cores, done.ls_used_cores) == ("cpuset", 4, 2.0)


def test_static_kubelet_policy_suppresses_containers_only() -> None:
    """The kubelet looks at the folders above."""
    tree = Tree("0-7")
    ls, be = tree.add_pod(pod("ls", "LS", requests={"cpu": "1"})), tree.add_pod(pod("be", "BE"))
    where = machine(8, kubelet_policy="static")

    done = suppress(inputs(tree, [(ls, 2.0), (be, 3.0)], 5.0, on(), where=where))

    sets = values(done.intents, CgroupFile.CPUSET)
    assert sets[LAYOUT.besteffort] == sets[be.folder] == "0-7"
    assert parse_cpu_list(sets[be.containers[0].folder]).bit_count() == 4


def test_the_policy_quota_limits_the_tier() -> None:
    """CPU sets are taken back."""
    tree = Tree("0-7")
    ls, be = tree.add_pod(pod("ls", "LS", requests={"cpu": "1"})), tree.add_pod(pod("be", "BE"))

    done = suppress(inputs(tree, [(ls, 2.0), (be, 3.0)], 5.0, on(cpuSuppressPolicy="cfsQuota")))

    assert values(done.intents, CgroupFile.CFS_QUOTA) == {LAYOUT.besteffort: "320000"}
    assert set(values(done.intents, CgroupFile.CPUSET).values()) == {"0-7"}


def test_switched_off_everything_is_taken_back() -> None:
    """Settings of another agent, or from before a restart, are removed as well."""
    tree = Tree("0-7")
    be = tree.add_pod(pod("be", "BE"))

    done = suppress(inputs(tree, [(be, 3.0)], 5.0, slo()))

    assert set(values(done.intents, CgroupFile.CPUSET).values()) == {"0-7"}
    assert values(done.intents, CgroupFile.CFS_QUOTA) == {LAYOUT.besteffort: "-1"}
    assert done.be_cores is None


def test_unmeasured_node_is_not_suppressed() -> None:
    """After a restart best effort keeps what it has until there are samples: no kick."""
    tree = Tree("0-7")
    made = inputs(tree, [(tree.add_pod(pod("be", "BE")), 3.0)], 5.0, on())
    blind = StrategyInputs(made.view, MetricStore(60, 1))

    assert suppress(blind).intents == ()
