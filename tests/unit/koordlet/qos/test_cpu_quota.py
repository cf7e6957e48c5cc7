"""CPU quotas: what the kubelet gives, divided by the CPU ratio, with burst on top of it."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.examples import examples
from tests.nodes import START_S, Tree, machine, pod, slo

from koordinator.api.annotations.numa import PodCpuAllocation
from koordinator.api.core import ResourceRequirements
from koordinator.api.meta import Condition
from koordinator.api.node_slo import NodeSloSpec
from koordinator.api.pod import Container, ContainerStatus, Pod
from koordinator.domain.cgroups.files import CgroupFile
from koordinator.foundation.quantity import Quantity
from koordinator.koordlet.intents import SetCgroup
from koordinator.koordlet.metrics import Metric, MetricStore
from koordinator.koordlet.qos.cpu_burst import CpuBurst
from koordinator.koordlet.qos.eviction import StrategyInputs
from koordinator.koordlet.view.machine import Machine
from koordinator.koordlet.view.pods import PodView

QUOTA, BURST = CgroupFile.CFS_QUOTA, CgroupFile.CFS_BURST
AUTO = slo(cpuBurstStrategy={"policy": "auto", "sharePoolThresholdPercent": 50})
NONE = slo(cpuBurstStrategy={"policy": "none"})


def cores(milli: int) -> ResourceRequirements:
    """Return a CPU limit; none for 0."""
    amounts = {"cpu": Quantity.from_milli(milli)} if milli else {}
    return ResourceRequirements(requests=amounts, limits=amounts)


def limited(
    *mains: int, inits: tuple[tuple[bool, int], ...] = (), whole: int = 0, overhead: int = 0
) -> Pod:
    """Return an LS pod whose containers have these limits in milli-CPU; all have been started.

    ``inits`` are init containers: whether they are sidecars, and their limits.
    """
    made = pod("web", "LS", containers=len(mains), qosClass="Burstable")
    containers = tuple(
        replace(each, resources=cores(milli))
        for each, milli in zip(made.spec.containers, mains, strict=True)
    )
    starting = tuple(
        Container(
            name=f"i{n}",
            resources=cores(milli),
            restart_policy="Always" if is_sidecar else None,
        )
        for n, (is_sidecar, milli) in enumerate(inits)
    )
    statuses = tuple(
        ContainerStatus(name=each.name, container_id=f"containerd://{each.name}")
        for each in starting
    )
    spec = replace(
        made.spec,
        containers=containers,
        init_containers=starting,
        resources=cores(whole) if whole else None,
        overhead={"cpu": Quantity.from_milli(overhead)} if overhead else {},
    )
    return replace(made, spec=spec, status=replace(made.status, init_container_statuses=statuses))


class Node:
    """A node with one pod, whose quotas are applied as the kernel (cgroup v1) takes them."""

    def __init__(self, made: Pod, *, ratio: str = "", spec: NodeSloSpec = NONE) -> None:
        self.tree = Tree()
        own = {"node.koordinator.sh/cpu-normalization-ratio": ratio} if ratio else {}
        self.machine = machine(8, annotations=own)
        self.slo = spec
        self.now_s = START_S
        self.burst = CpuBurst(np.random.default_rng(1), normalizes=True)
        self.throttled = False
        self.view = self.tree.add_pod(made)

    def kubelet(self, **quotas: int) -> None:
        """Write quotas as the kubelet does: of containers by name, then of the ``pod``."""
        of = {each.name: each.folder for each in self.view.containers} | {"pod": self.view.folder}
        for name, value in quotas.items():
            self._write(of[name], value)

    def change(self, made: Pod) -> None:
        """Deliver a changed pod from the API server."""
        self.view = PodView(made, self.view.folder, self._containers(made))

    def _containers(self, made: Pod) -> Any:
        specs = {each.name: each for each in (*made.spec.containers, *made.spec.init_containers)}
        return tuple(
            type(each)(each.name, each.id, each.folder, specs[each.name])
            for each in self.view.containers
        )

    def _write(self, folder: str, value: int) -> None:
        """Refuse what the kernel refuses: a parent with less than a child, a burst above it."""
        others = [each.folder for each in self.view.containers]
        is_pod = folder == self.view.folder
        if is_pod and value > 0:
            assert value >= max((self.quota(each) for each in others), default=0), "EINVAL"
        elif not is_pod:
            whole = self.quota(self.view.folder)
            assert whole < 0 or 0 < value <= whole, "EINVAL"
        assert value < 0 or int(self.tree.get(BURST, folder)) <= value, "EINVAL"
        self.tree.set(QUOTA, folder, value)

    def quota(self, folder: str) -> int:
        """Return a quota."""
        return int(self.tree.get(QUOTA, folder))

    def second(self) -> list[str]:
        """Advance the clock by a second; return the folders whose quotas changed."""
        self.now_s += 1
        store = MetricStore(60, 1)
        store.add(Metric.NODE_CPU, "", self.now_s, 1.0)
        for each in self.view.containers if self.throttled else ():
            store.add(Metric.CONTAINER_THROTTLED, each.id, self.now_s, 0.5)
        seen = self.tree.view(self.view, machine_=self.machine, slo=self.slo, now_s=self.now_s)
        planned = self.burst.plan(StrategyInputs(seen, store))
        wanted = {
            (it.file, it.folder): int(it.value) for it in planned if isinstance(it, SetCgroup)
        }
        quotas = {folder: value for (file, folder), value in wanted.items() if file is QUOTA}
        for (file, folder), value in wanted.items():
            if file is BURST:
                quota = quotas.get(folder, self.quota(folder))
                self.tree.set(BURST, folder, min(value, quota) if quota > 0 else value)
        grows = [f for f, v in quotas.items() if v < 0 or 0 < self.quota(f) < v]
        ordered = sorted(grows, key=len) + sorted(quotas.keys() - set(grows), key=len, reverse=True)
        for folder in ordered:
            self._write(folder, quotas[folder])
        return ordered

    def seconds(self, count: int) -> list[str]:
        """Advance the clock; return the changes of the last second."""
        return [self.second() for _ in range(count)][-1]

    @property
    def quotas(self) -> dict[str, int]:
        """The quotas of all cgroups of the pod."""
        result = {each.name: self.quota(each.folder) for each in self.view.containers}
        return result | {"pod": self.quota(self.view.folder)}


def kubelet_pod_milli(
    mains: list[int], inits: list[tuple[bool, int]], whole: int, overhead: int
) -> int:
    """Return the limit of a pod: of its busiest moment, unless stated; 0 if one has none."""
    if whole:
        return whole + overhead
    if not all([*mains, *(milli for _, milli in inits)]):
        return 0
    moments, running = [], 0
    for is_sidecar, milli in inits:
        moments.append(running + milli)
        running += milli if is_sidecar else 0
    return max([*moments, running + sum(mains)]) + overhead


millis = st.sampled_from([0, 300, 1000, 2500])


@pytest.mark.slow
@settings(max_examples=examples(25), deadline=None)
@given(
    mains=st.lists(millis, min_size=1, max_size=3),
    inits=st.lists(st.tuples(st.booleans(), millis), max_size=3),
    whole=st.sampled_from([0, 2500]),
    overhead=st.sampled_from([0, 200]),
    ratio=st.sampled_from(["", "1.00", "1.33", "2.00"]),
    bursts=st.booleans(),
)
def test_quotas_are_those_of_the_kubelet_by_the_ratio(
    *,
    mains: list[int],
    inits: list[tuple[bool, int]],
    whole: int,
    overhead: int,
    ratio: str,
    bursts: bool,
) -> None:
    """The kernel refuses none of the writes, and repeated rounds write nothing."""
    made = limited(*mains, inits=tuple(inits), whole=whole, overhead=overhead)
    node = Node(made, ratio=ratio, spec=AUTO if bursts else NONE)
    of_pod = kubelet_pod_milli(mains, inits, whole, overhead)
    given_ = {f"c{n}": milli or whole for n, milli in enumerate(mains)}
    given_ |= {f"i{n}": milli or whole for n, (_, milli) in enumerate(inits)}
    node.kubelet(pod=of_pod * 100 or -1)
    node.kubelet(**{name: milli * 100 or -1 for name, milli in given_.items()})

    node.second()

    worth = float(ratio or 1)
    expected = {name: math.ceil(milli * 100 / worth) or -1 for name, milli in given_.items()}
    expected["pod"] = math.ceil(of_pod * 100 / worth) or -1
    assert node.quotas == expected
    assert node.seconds(3) == []


def test_burst_is_on_top_of_the_normalized_quota() -> None:
    """Up to three times the base, and back to it when the policy goes."""
    node = Node(limited(2000), ratio="1.50", spec=AUTO)
    node.kubelet(pod=200_000, c0=200_000)
    node.throttled = True

    node.seconds(30)
    assert node.quotas == {"c0": 400_002, "pod": 400_002}

    node.slo = NONE
    node.second()
    assert node.quotas == {"c0": 133_334, "pod": 133_334}


def test_burst_moves_with_its_base() -> None:
    """A node whose CPUs are worth more keeps the share of burst."""
    node = Node(limited(2000), ratio="1.00", spec=AUTO)
    node.kubelet(pod=200_000, c0=200_000)
    node.throttled = True
    node.seconds(3)
    burst = node.quotas["c0"] / 200_000
    node.throttled = False

    node.machine = machine(8, annotations={"node.koordinator.sh/cpu-normalization-ratio": "2.00"})
    node.second()

    assert node.quotas == {"c0": int(100_000 * burst), "pod": int(100_000 * burst)}


def test_burst_of_containers_limited_by_their_pod_stays_within_its_share() -> None:
    """Two containers of 3 CPUs in a pod of 4: the pod gets three times its 4."""
    node = Node(limited(3000, 3000, whole=4000), spec=AUTO)
    node.kubelet(pod=400_000, c0=300_000, c1=300_000)
    node.throttled = True

    node.seconds(30)

    assert node.quotas == {"c0": 900_000, "c1": 900_000, "pod": 1_200_000}


@pytest.mark.parametrize("ratio", ["", "1.50"])
@pytest.mark.parametrize("knows", [True, False])
def test_the_kubelet_lowers_a_limit_while_burst_has_raised_it(*, ratio: str, knows: bool) -> None:
    """One second after the spec changed its writes are taken, in its order; then burst goes on."""
    node = Node(limited(2000, 1000), ratio=ratio, spec=AUTO)
    node.kubelet(pod=300_000, c0=200_000, c1=100_000)
    node.throttled = True
    node.seconds(30)
    assert node.quotas["c1"] > 100_000

    node.change(limited(1000, 1000))
    if not knows:
        node.burst = CpuBurst(np.random.default_rng(1), normalizes=True)
        resized = limited(1000, 1000)
        condition = Condition(type="PodResizeInProgress", status="True")
        status = replace(resized.status, conditions=(condition,))
        node.change(replace(resized, status=status))
    node.second()
    node.kubelet(c0=100_000, pod=200_000)
    node.second()
    assert node.quotas["c0"] == 100_000
    assert node.quotas["pod"] == 200_000

    node.throttled = False
    node.change(limited(1000, 1000))
    node.seconds(12)
    base = 100_000 if not ratio else 66_667
    assert node.quotas == {"c0": base, "c1": base, "pod": 200_000 if not ratio else 133_334}


def test_the_kubelet_resizes_requests_while_burst_has_raised_the_quotas() -> None:
    """The kubelet writes the pod's quota again, although no limit has changed."""
    made = limited(2000)
    node = Node(made, spec=AUTO)
    node.kubelet(pod=200_000, c0=200_000)
    node.throttled = True
    node.seconds(30)
    assert node.quotas["c0"] > 200_000

    (main,) = made.spec.containers
    less = ResourceRequirements(requests=cores(500).requests, limits=main.resources.limits)
    node.change(replace(made, spec=replace(made.spec, containers=(replace(main, resources=less),))))
    node.second()

    node.kubelet(pod=200_000)


def test_the_kubelet_raises_a_limit() -> None:
    """The pod first, then the container; the quotas follow when the limits have settled."""
    node = Node(limited(2000), ratio="1.50")
    node.kubelet(pod=200_000, c0=200_000)
    node.seconds(2)

    node.change(limited(3000))
    node.second()
    node.kubelet(pod=300_000, c0=300_000)
    node.seconds(12)

    assert node.quotas == {"c0": 200_000, "pod": 200_000}


def test_a_write_of_the_kubelet_counts_before_the_spec_is_known() -> None:
    """The API server may be away: what the kubelet wrote is not raised again."""
    node = Node(limited(2000), spec=AUTO)
    node.kubelet(pod=200_000, c0=200_000)
    node.seconds(2)
    for each in (node.view.folder, node.view.containers[0].folder):
        node.tree.set(BURST, each, 0)
    node.kubelet(c0=100_000, pod=100_000)

    node.seconds(30)

    assert node.quotas == {"c0": 100_000, "pod": 100_000}
    node.change(limited(1000))
    node.seconds(12)
    assert node.quotas == {"c0": 100_000, "pod": 100_000}


@pytest.mark.parametrize("is_seen_first", [True, False])
@pytest.mark.parametrize("reason", ["Deferred", "Infeasible"])
def test_a_pending_resize_changes_nothing(reason: str, *, is_seen_first: bool) -> None:
    """The quota follows the limit that the kubelet has granted."""
    node = Node(limited(2000), ratio="1.50")
    node.kubelet(pod=200_000, c0=200_000)
    if is_seen_first:
        node.seconds(2)
        node.change(limited(100_000))
        node.second()
    limited_pod = limited(100_000)
    granted = tuple(
        replace(each, resources=cores(2000)) for each in limited_pod.status.container_statuses
    )
    condition = Condition(type="PodResizePending", status="True", reason=reason)
    status = replace(limited_pod.status, container_statuses=granted, conditions=(condition,))
    node.change(replace(limited_pod, status=status))

    node.seconds(12)

    assert node.quotas == {"c0": 133_334, "pod": 133_334}


def pending(made: Pod, reason: str, cpu_us: int) -> Pod:
    """Return a pod whose resize the kubelet has not accepted; its cgroup has this quota.

    The kubelet reports the limit of a whole pod as it reads it from the cgroup.
    """
    condition = Condition(type="PodResizePending", status="True", reason=reason)
    reported = cores(cpu_us // 100)
    status = replace(made.status, resources=reported, conditions=(condition,))
    return replace(made, status=status)


@pytest.mark.parametrize("restarts", [True, False])
@pytest.mark.parametrize("reason", ["Deferred", "Infeasible"])
@pytest.mark.parametrize("whole", [500, 8000])
@pytest.mark.parametrize(("ratio", "spec"), [("1.50", NONE), ("", AUTO)], ids=["ratio", "burst"])
def test_a_pending_resize_of_a_whole_pod_changes_nothing(
    reason: str, *, whole: int, restarts: bool, ratio: str, spec: NodeSloSpec
) -> None:
    """An agent that starts meanwhile does not take the reported quota for the granted limit."""
    node = Node(limited(1000, 0, whole=2000), ratio=ratio, spec=spec)
    node.kubelet(pod=200_000, c0=100_000, c1=200_000)
    node.throttled = True
    node.seconds(30)
    before = node.quotas
    assert before["pod"] != 200_000

    for _ in range(2):
        if restarts:
            node.burst = CpuBurst(np.random.default_rng(1), normalizes=True)
        node.change(pending(limited(1000, 0, whole=whole), reason, node.quotas["pod"]))
        node.seconds(12)
        assert node.quotas == before


@pytest.mark.parametrize(("whole", "quota"), [(2000, 133_334), (1000, 66_667), (3000, 200_000)])
def test_an_agent_that_starts_during_a_pending_resize_follows_its_end(
    whole: int, quota: int
) -> None:
    """The resize is withdrawn, or the kubelet applies it."""
    node = Node(limited(500, 0, whole=2000), ratio="1.50")
    node.kubelet(pod=200_000, c0=50_000, c1=200_000)
    node.seconds(2)
    node.burst = CpuBurst(np.random.default_rng(1), normalizes=True)
    node.change(pending(limited(500, 0, whole=whole), "Deferred", node.quotas["pod"]))
    node.seconds(3)

    node.change(limited(500, 0, whole=whole))
    node.second()
    node.kubelet(pod=max(whole, 2000) * 100, c1=whole * 100, c0=50_000)
    node.kubelet(pod=whole * 100)
    node.seconds(14)

    assert node.quotas == {"c0": 33_334, "c1": quota, "pod": quota}


@pytest.mark.parametrize("knows", [True, False])
def test_the_kubelet_lowers_the_limit_of_a_whole_pod(*, knows: bool) -> None:
    """The kubelet's writes stay, also if the agent restarted while burst had raised the quotas."""
    node = Node(limited(1000, 0, whole=2000), spec=AUTO)
    node.kubelet(pod=200_000, c0=100_000, c1=200_000)
    node.throttled = True
    node.seconds(30)
    assert node.quotas["c1"] > 200_000

    resized = limited(1000, 0, whole=1500)
    condition = Condition(type="PodResizeInProgress", status="True")
    status = replace(resized.status, resources=cores(2000), conditions=(condition,))
    if not knows:
        node.burst = CpuBurst(np.random.default_rng(1), normalizes=True)
    node.change(replace(resized, status=status))
    node.second()
    node.kubelet(c1=150_000, pod=150_000)
    node.second()
    assert node.quotas == {"c0": 100_000, "c1": 150_000, "pod": 150_000}


def test_a_container_whose_start_was_refused_gets_room() -> None:
    """The kubelet starts it with its whole limit, above the normalized quota of its pod."""
    made = limited(2000)
    node = Node(made, ratio="1.50")
    node.kubelet(pod=200_000)
    node.seconds(2)
    assert node.quotas["pod"] == 133_334

    waiting = pod(
        "x",
        containerStatuses=[{"name": "c0", "state": {"waiting": {"reason": "RunContainerError"}}}],
    )
    state = waiting.status.container_statuses[0].state
    statuses = tuple(replace(each, state=state) for each in made.status.container_statuses)
    node.change(replace(made, status=replace(made.status, container_statuses=statuses)))
    node.tree.set(QUOTA, node.view.containers[0].folder, 0)
    node.second()

    assert node.quotas["pod"] == 200_000


@pytest.mark.parametrize(
    ("mains", "inits", "ratio", "expected"),
    [
        ((2000,), (), "1.50", 200_000),
        ((500, 1500), (), "2.00", 150_000),
        ((1000,), ((False, 3000),), "1.50", 300_000),
        ((1000,), ((True, 3000),), "2.00", 300_000),
        ((1000, 1000, 1000), (), "1.50", 200_000),
    ],
)
def test_containers_that_have_not_started_have_room(
    mains: tuple[int, ...], inits: tuple[tuple[bool, int], ...], ratio: str, expected: int
) -> None:
    """Each container starts with its whole limit, which a lower quota of its pod would reject."""
    made = limited(*mains, inits=inits)
    waiting = replace(made.status, container_statuses=(), init_container_statuses=())
    node = Node(replace(made, status=waiting), ratio=ratio)
    node.kubelet(pod=kubelet_pod_milli(list(mains), list(inits), 0, 0) * 100)

    node.seconds(3)

    assert node.quotas == {"pod": expected}


def test_completed_containers_need_no_room() -> None:
    """A finished init container does not start again, so it keeps no quota above the ratio."""
    made = limited(1000, inits=((False, 3000),))
    ended = pod("x", containerStatuses=[{"name": "i0", "state": {"terminated": {"exitCode": 0}}}])
    state = ended.status.container_statuses[0].state
    done = tuple(replace(each, state=state) for each in made.status.init_container_statuses)
    node = Node(
        replace(made, status=replace(made.status, init_container_statuses=done)), ratio="3.00"
    )
    node.kubelet(pod=300_000, c0=100_000)

    node.seconds(2)

    assert node.quotas == {"c0": 33_334, "pod": 100_000}


def test_a_period_of_the_kubelet_other_than_100_ms() -> None:
    """A quota is a share of the period that the cgroup has."""
    node = Node(limited(2000), ratio="2.00")
    for folder in (node.view.folder, node.view.containers[0].folder):
        node.tree.set(CgroupFile.CFS_PERIOD, folder, 20_000)
    node.kubelet(pod=40_000, c0=40_000)

    node.second()

    assert node.quotas == {"c0": 20_000, "pod": 20_000}


def test_the_ratio_is_taken_back() -> None:
    """A node without a ratio restores what the kubelet gave."""
    node = Node(limited(2000), ratio="2.00")
    node.burst = CpuBurst(np.random.default_rng(1), bursts=False, normalizes=True)
    node.kubelet(pod=200_000, c0=200_000)
    node.second()
    assert node.quotas == {"c0": 100_000, "pod": 100_000}

    node.machine = machine(8)
    node.second()

    assert node.quotas == {"c0": 200_000, "pod": 200_000}


def test_a_pod_with_cpus_of_the_kubelet_is_not_normalized() -> None:
    """The static CPU manager allocates whole CPUs, and sets no quota on them."""
    made = limited(2000)
    meta = replace(made.metadata, labels={})
    node = Node(replace(made, metadata=meta), ratio="2.00")
    own = (PodCpuAllocation(uid=meta.uid, cpuset="2-3", managed_by_kubelet=True),)
    node.machine = Machine(node.machine.node, node.machine.cpus, "static", own)

    node.seconds(2)

    assert node.quotas == {"c0": -1, "pod": -1}
