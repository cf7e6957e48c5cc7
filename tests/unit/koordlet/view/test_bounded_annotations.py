"""No annotation of a pod gives it more than its spec, or takes anything from another pod."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.examples import examples
from tests.nodes import GIB, START_S, Tree, machine, pod, slo

import koordinator.koordlet
from koordinator.api.core import ResourceRequirements
from koordinator.api.meta import Condition
from koordinator.api.pod import INFEASIBLE, RESIZE_PENDING
from koordinator.domain.cgroups.files import CgroupFile
from koordinator.foundation.cpu_list import parse_cpu_list
from koordinator.foundation.errors import InputError
from koordinator.foundation.quantity import Quantity
from koordinator.koordlet.app.object_intents import plan_all
from koordinator.koordlet.app.rounds import PodIsolation
from koordinator.koordlet.intents import (
    Intent,
    SetBlockDevice,
    SetCgroup,
    SetCoreCookie,
    SetOomScore,
    SetResctrl,
)
from koordinator.koordlet.metrics import Metric, MetricStore
from koordinator.koordlet.qos.cpu_burst import CpuBurst
from koordinator.koordlet.qos.eviction import StrategyInputs
from koordinator.koordlet.qos.resctrl import ResctrlFacts
from koordinator.koordlet.view.cpus import CpuHolders
from koordinator.koordlet.view.node_view import NodeView
from koordinator.koordlet.view.pods import PodView

GATES = frozenset(
    (
        "CgroupReconcile", "GroupIdentity", "CPUNormalization", "BatchResource", "OOMScoreAdj",
        "BlkIOReconcile", "CPUSetAllocator", "RdtResctrl", "Resctrl", "CoreSched",
    )
)  # fmt: skip
CACHES = ResctrlFacts((0,), 0x3FF, "GenuineIntel")
ON: dict[str, Any] = {
    "cpuQOS": {"enable": True, "groupIdentity": 1},
    "memoryQOS": {"enable": True, "minLimitPercent": 40, "lowLimitPercent": 60},
    "resctrlQOS": {"enable": True, "catRangeStartPercent": 0, "catRangeEndPercent": 50},
}
STRATEGY = slo(
    cpuBurstStrategy={"policy": "auto", "cfsQuotaBurstPercent": 200, "cpuBurstPercent": 100},
    resourceQOSStrategy={"lsrClass": ON, "lsClass": ON, "beClass": ON},
)
STATUS = "scheduling.koordinator.sh/resource-status"
DEVICES = "scheduling.koordinator.sh/device-allocated"
BATCH = "node.koordinator.sh/extended-resource-spec"
SPECS: dict[str, dict[str, str | int]] = {
    "LS": {"cpu": "1500m", "memory": "1Gi"},
    "LSR": {"cpu": 2, "memory": "1Gi"},
    "BE": {"kubernetes.io/batch-cpu": 1500, "kubernetes.io/batch-memory": "1Gi"},
    "": {"cpu": "100m", "memory": "1Gi"},
}
CPUS_OF_BANK = "2-5"


class OneDisk:
    """A machine with one disk, whatever is asked."""

    def of_device(self, _name: str, /) -> str | None:
        return "8:0"

    def of_volume_group(self, _group: str, /) -> str | None:
        return "8:0"

    def of_pod_volume(self, _pod: PodView, _volume: str, /) -> str | None:
        return "8:0"


DISKS: Any = OneDisk()
HUGE = st.sampled_from([-(2**63), -1, 0, 1, 99, 100, 101, 100_000, 2**31 - 1, 2**53])
AMOUNT = st.sampled_from(["-1", "0", "1", "1500", "200000000", "2Gi", "8Ei", "9" * 30])


def fields(*names: str, values: st.SearchStrategy[Any] = HUGE) -> st.SearchStrategy[Any]:
    """Return objects that have some of these fields."""
    return st.fixed_dictionaries({}, optional=dict.fromkeys(names, values))


def _batch() -> st.SearchStrategy[Any]:
    amounts = fields("kubernetes.io/batch-cpu", "kubernetes.io/batch-memory", values=AMOUNT)
    container = st.fixed_dictionaries({}, optional={"requests": amounts, "limits": amounts})
    return st.fixed_dictionaries(
        {}, optional={"containers": st.dictionaries(st.sampled_from(["c0", "c1"]), container)}
    )


def _memory() -> st.SearchStrategy[Any]:
    names = (
        "minLimitPercent", "lowLimitPercent", "throttlingPercent", "wmarkRatio",
        "wmarkScalePermill", "wmarkMinAdj", "priorityEnable", "priority", "oomKillGroup",
        "pageCacheLimitSize",
    )  # fmt: skip
    policy = st.sampled_from([{}, *({"policy": p} for p in ("none", "auto", "default", "x"))])
    return st.builds(lambda a, b: {**a, **b}, fields(*names), policy)


def _burst() -> st.SearchStrategy[Any]:
    names = ("cpuBurstPercent", "cfsQuotaBurstPercent", "cfsQuotaBurstPeriodSeconds")
    policy = st.sampled_from(
        [{}, *({"policy": p} for p in ("none", "auto", "cpuBurstOnly", "cfsQuotaBurstOnly", "x"))]
    )
    return st.builds(lambda a, b: {**a, **b}, fields(*names), policy)


def _status() -> st.SearchStrategy[Any]:
    lists = st.sampled_from(["0", "0-1", "0-7", "2-5", "3,7", "0-4095", "x", ""])
    zone = {"node": 0, "resources": {"cpu": "64", "kubernetes.io/batch-cpu": "64000"}}
    zones = st.sampled_from([[], [zone]])
    return st.fixed_dictionaries({}, optional={"cpuset": lists, "numaNodeResources": zones})


def _resctrl() -> st.SearchStrategy[Any]:
    ranges = st.sampled_from([[0, 100], [40, 100], [60, 90], [50, 0], [1]])
    llc = st.fixed_dictionaries({}, optional={"range": ranges})
    return st.builds(
        lambda a, b: {"llc": {"schemata": a}, "mb": {"schemata": b}}, llc, fields("percent")
    )


#: What an author could write into each annotation or label that the agent reads.
HOSTILE: dict[str, st.SearchStrategy[Any]] = {
    BATCH: _batch(),
    STATUS: _status(),
    "koordinator.sh/memoryQOS": _memory(),
    "koordinator.sh/cpuBurst": _burst(),
    "koordinator.sh/cpuQOS": st.builds(
        lambda a, b: {**a, "enable": b}, fields("groupIdentity", "schedIdle"), st.booleans()
    ),
    "node.koordinator.sh/resctrl": _resctrl(),
    "koordinator.sh/oom-score-adj": HUGE,
    "koordinator.sh/oom-score-adj-spec": st.dictionaries(st.just("c0"), HUGE),
}


def _world(qos: str, annotations: dict[str, str]) -> tuple[Tree, NodeView, PodView, PodView]:
    """Return a node with a pod of the bank that has CPUs of its own, and one with annotations."""
    tree = Tree()
    own = {STATUS: json.dumps({"cpuset": CPUS_OF_BANK})}
    sizes: dict[str, Any] = {"cpu": 4, "memory": "4Gi"}
    bank = tree.add_pod(pod("bank", "LSR", requests=sizes, limits=sizes, annotations=own))
    spec = SPECS[qos]
    evil = tree.add_pod(pod("evil", qos, requests=spec, limits=spec, annotations=annotations))
    holders = CpuHolders()
    holders.resolved([bank])
    pods = holders.resolved([bank, evil])
    return tree, tree.view(*pods, slo=STRATEGY, machine_=machine(8, 32 * GIB)), bank, evil


def _plan(view: NodeView) -> list[Intent]:
    planned = plan_all(view, GATES, DISKS, CACHES, PodIsolation(None), keep_quota=False)
    store = MetricStore(60, 1)
    store.add(Metric.NODE_CPU, "", START_S, 0.5)
    for each in view.pods:
        for container in each.containers:
            store.add(Metric.CONTAINER_THROTTLED, container.id, START_S, 1.0)
    burst = CpuBurst(np.random.default_rng(1)).plan(StrategyInputs(view, store, 1.0))
    return [*planned, *burst]


def _most(file: CgroupFile, qos: str) -> tuple[int, int]:
    """Return the bounds of what a pod may have, by its spec and its class on the node."""
    milli = {"LS": 1500, "LSR": 2000, "BE": 1500, "": 100}[qos]
    protected = GIB * 60 // 100 if qos == "BE" else GIB
    bounds = {
        CgroupFile.CPU_SHARES: (2, max(milli * 1024 // 1000, 2)),
        CgroupFile.CFS_QUOTA: (1, milli * 100 * 2),  # bursts to 200 %
        CgroupFile.CFS_BURST: (0, milli * 100),
        CgroupFile.MEMORY_LIMIT: (1, GIB),
        CgroupFile.MEMORY_MIN: (0, protected),
        CgroupFile.MEMORY_LOW: (0, protected),
        CgroupFile.BVT_WARP: (-1, 1),
        CgroupFile.WMARK_MIN_ADJ: (50 if qos == "BE" else -25, 50),
        CgroupFile.MEMORY_PRIORITY: (0, 0),
    }
    return bounds.get(file, (-(2**63), 2**63 - 1))


def _is_within(intent: Intent, qos: str, bound_cpus: int) -> bool:
    """Return whether an intent about the attacker's own pod gives it no more than it may have."""
    match intent:
        case SetCgroup(file=CgroupFile.CPUSET, value=cpus):
            return not parse_cpu_list(cpus) & parse_cpu_list(CPUS_OF_BANK)
        case SetCgroup(file=CgroupFile.CFS_QUOTA, value="-1"):
            whole = {"LS": 1, "LSR": 2}.get(qos, 0)
            return 0 < bound_cpus.bit_count() <= whole
        case SetCgroup(file=file, value=value):
            least, most = _most(file, qos)
            return least <= int(value) <= most
        case SetOomScore(value=score):
            return (3 if qos == "BE" else -997) <= score <= 1000
        case SetResctrl(schemata=lines):
            masks = [int(line.rpartition("=")[2], 16) for line in lines if "L3" in line]
            return all(mask & ~0x1F == 0 for mask in masks)
        case _:
            return True


@settings(max_examples=examples(20))
@given(st.sampled_from([*SPECS]), st.fixed_dictionaries({}, optional=HOSTILE))
@pytest.mark.slow
def test_no_annotation_gives_more_than_the_spec(qos: str, annotations: dict[str, Any]) -> None:
    """The limit of the node's class applies, too; pods of other tenants keep their share."""
    texts = {key: json.dumps(value) for key, value in annotations.items()}
    tree, view, bank, evil = _world(qos, texts)
    for folder in (evil.folder, evil.containers[0].folder):  # of the kubelet
        tree.set(CgroupFile.CFS_QUOTA, folder, 150_000 if qos else 10_000)

    planned = _plan(view)

    bound = next(each.bound_cpus for each in view.pods if each.uid == evil.uid)
    mine = [it for it in planned if evil.uid in str(it) and not isinstance(it, SetCoreCookie)]
    assert [it for it in mine if not _is_within(it, qos, bound)] == []
    _, plain, _, _ = _world(qos, {})
    assert _of(bank, planned) == _of(bank, _plan(plain))


def _of(view: PodView, intents: list[Intent]) -> list[Intent]:
    return [
        intent
        for intent in intents
        if isinstance(intent, SetCgroup | SetBlockDevice) and intent.folder.startswith(view.folder)
    ]


@pytest.mark.parametrize("cpuset", ["0-7", "2", "2-5"])
def test_cpus_of_another_pod_are_not_taken(cpuset: str) -> None:
    """An older pod that names the CPUs later does not get them."""
    tree = Tree()
    cpu_request: dict[str, Any] = {"requests": {"cpu": 4}}
    status = {STATUS: json.dumps({"cpuset": "2-5"})}
    old: dict[str, Any] = {**cpu_request, "startTime": "2020-01-01T00:00:00Z"}
    bank = tree.add_pod(pod("bank", "LSR", annotations=status, **cpu_request))
    plain = tree.add_pod(pod("evil", "LSR", **old))
    evil = tree.add_pod(pod("evil", "LSR", annotations={STATUS: f'{{"cpuset":"{cpuset}"}}'}, **old))
    holders = CpuHolders()
    assert holders.resolved([bank, plain]) == (bank, plain)

    first, second = holders.resolved([bank, evil])

    assert first.bound_cpus == 0b111100
    assert not second.bound_cpus & first.bound_cpus
    assert holders.resolved([evil])[0].bound_cpus.bit_count() in (1, 4)  # once they are free


def test_pod_that_offers_its_cpus_shares_them() -> None:
    """Later pods use its resources, as with a reservation."""
    tree = Tree()
    made: dict[str, Any] = {
        "requests": {"cpu": 2}, "annotations": {STATUS: '{"cpuset":"2-3"}'},
    }  # fmt: skip
    mode = {"scheduling.koordinator.sh/operating-mode": "Reservation"}
    offer = tree.add_pod(pod("offer", "LSR", labels=mode, **made))
    user = tree.add_pod(pod("user", "LSR", **made))
    assert [each.bound_cpus for each in CpuHolders().resolved([offer, user])] == [0b1100, 0b1100]


def test_a_quota_that_was_lifted_comes_back() -> None:
    """Where CPUs that a pod named were believed before, by another version of the agent."""
    tree = Tree()
    one: dict[str, Any] = {"requests": {"cpu": "100m"}, "limits": {"cpu": "200m"}}
    view = tree.add_pod(pod("a", "LS", annotations={STATUS: '{"cpuset":"0-6"}'}, **one))
    planned = plan_all(
        tree.view(view), {"CPUSetAllocator"}, DISKS, None, PodIsolation(None), keep_quota=False
    )
    quotas = {
        intent.folder: intent.value
        for intent in planned
        if isinstance(intent, SetCgroup) and intent.file is CgroupFile.CFS_QUOTA
    }
    assert quotas == {view.folder: "20000", view.containers[0].folder: "20000"}


def test_a_resize_that_the_node_refuses_gives_nothing() -> None:
    """The author of a pod requests more than the machine has; quotas and protection stay."""
    one: dict[str, Any] = {"cpu": "200m", "memory": "1Gi"}
    made = pod("a", "LS", requests=one, limits=one)
    much = {"cpu": Quantity.parse("64"), "memory": Quantity.parse("1Ti")}
    resources = ResourceRequirements(requests=much, limits=much)
    (container,) = made.spec.containers
    spec = replace(made.spec, containers=(replace(container, resources=resources),))
    (status,) = made.status.container_statuses
    allocated_status = replace(status, resources=container.resources)
    refused = Condition(type=RESIZE_PENDING, status="True", reason=INFEASIBLE)
    statuses = replace(made.status, container_statuses=(allocated_status,), conditions=(refused,))
    tree = Tree()
    view = tree.add_pod(replace(made, spec=spec, status=statuses))
    for folder in (view.folder, view.containers[0].folder):
        tree.set(CgroupFile.CFS_QUOTA, folder, 20_000)

    planned = _plan(tree.view(view, slo=STRATEGY))

    assert view.requests == {"cpu": 200, "memory": GIB}
    assert view.containers[0].cpu_limit_milli == 200
    values = {
        file: max(int(it.value) for it in planned if isinstance(it, SetCgroup) and it.file is file)
        for file in (CgroupFile.CFS_QUOTA, CgroupFile.MEMORY_MIN)
    }
    assert values[CgroupFile.CFS_QUOTA] <= 40_000  # bursts to 200 %
    assert values[CgroupFile.MEMORY_MIN] <= GIB


def _card(**amounts: int) -> dict[str, Any]:
    resources = {f"koordinator.sh/{key.replace('_', '-')}": str(v) for key, v in amounts.items()}
    return {"minor": 0, "resources": resources}


@pytest.mark.parametrize(
    ("requests", "allocated", "problem"),
    [
        ({}, {"gpu": [_card()]}, "gpu: must be empty: the pod requests no such devices"),
        ({"nvidia.com/gpu": 1}, {"gpu": [_card(), _card()]}, "at most 1 devices as requested"),
        ({"nvidia.com/gpu": 1}, {"rdma": [_card()]}, "rdma: must be empty"),
        (
            {"koordinator.sh/gpu-core": 30, "koordinator.sh/gpu-memory-ratio": 30},
            {"gpu": [_card(gpu_core=31, gpu_memory_ratio=30)]},
            r"gpu\[0\].resources\[koordinator.sh/gpu-core\]: must be at most 30",
        ),
        (
            {"koordinator.sh/rdma": 20},
            {"rdma": [_card(rdma=100)]},
            r"rdma\[0\].resources\[koordinator.sh/rdma\]: must be at most 20",
        ),
        ({"koordinator.sh/gpu-core": 30, "nvidia.com/gpu": 1}, {"gpu": [_card()]}, "no devices"),
    ],
)
def test_a_pod_has_no_more_devices_than_it_requests(
    requests: dict[str, int], allocated: dict[str, Any], problem: str
) -> None:
    """An annotation with more devices is rejected as a whole."""
    made: dict[str, Any] = {"requests": requests, "annotations": {DEVICES: json.dumps(allocated)}}
    view = Tree().add_pod(pod("a", **made))
    with pytest.raises(InputError, match=problem):
        _ = view.devices


def test_devices_that_go_together_are_believed() -> None:
    """One card for each GPU, and all cards of a node where the pod applies for all of them."""
    requests: dict[str, str | int] = {"nvidia.com/gpu": 2, "koordinator.sh/rdma": 1}
    text = json.dumps({"gpu": [_card(), _card()], "rdma": [_card(rdma=1), _card(rdma=1)]})
    joint = {
        DEVICES: text,
        "scheduling.koordinator.sh/device-joint-allocate": '{"deviceTypes":["gpu","rdma"]}',
    }
    every = {
        DEVICES: json.dumps({"rdma": [_card(rdma=1)] * 8}),
        "scheduling.koordinator.sh/device-allocate-hint": (
            '{"rdma":{"allocateStrategy":"ApplyForAll"}}'
        ),
    }
    tree = Tree()
    assert len(tree.add_pod(pod("a", requests=requests, annotations=joint)).devices["rdma"]) == 2
    assert len(tree.add_pod(pod("b", requests=requests, annotations=every)).devices["rdma"]) == 8


@pytest.mark.parametrize(
    ("annotations", "order"),
    [
        ({"koordinator.sh/eviction-priority": "2147483647"}, ["evil", "prod"]),
        ({"koordinator.sh/eviction-priority": "-5"}, ["evil", "prod"]),
        ({}, ["evil", "prod"]),
    ],
)
def test_no_pod_outlives_those_of_a_higher_priority(
    annotations: dict[str, str], order: list[str]
) -> None:
    """By its own priority of eviction."""
    tree = Tree()
    views = [
        tree.add_pod(pod("prod", "LS", priority=9000)),
        tree.add_pod(pod("evil", "BE", priority=5500, annotations=annotations)),
    ]
    result = sorted(views, key=lambda each: each.eviction_order)
    assert [each.pod.metadata.name for each in result] == order


def test_core_groups_are_per_namespace() -> None:
    """The label of another tenant's pod gives no access to its cores."""
    labels = {"koordinator.sh/core-sched-group-id": "bank"}
    view = Tree().add_pod(pod("a", "LS", labels=labels))
    assert view.core_group == "default/bank"
    assert Tree().add_pod(pod("b", "LS")).core_group == ""


def test_annotations_of_pods_are_read_in_one_place() -> None:
    """A new annotation is read where it is bounded."""
    direct = re.compile(
        r"\bpod\.metadata\.(annotations|labels)|\.read\([\w.]*\bpod\.metadata\)"
        r"|read_\w+\([\w.]*\bpod\.metadata\)"
    )
    root = Path(koordinator.koordlet.__file__).parent
    result = [
        str(path.relative_to(root))
        for path in sorted(root.rglob("*.py"))
        if path.parent.name != "view" and direct.search(path.read_text())
    ]
    assert result == []
