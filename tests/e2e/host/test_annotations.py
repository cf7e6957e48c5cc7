"""Every annotation that the agent reads, with hostile values, on real cgroups."""

import json
from typing import Any

import pytest
from tests.e2e.host.machine import SPIN, PodsMachine
from tests.nodes import slo

from koordinator.api.pod import Pod
from koordinator.koordlet.view.pods import PodView

_SLEEP = "import time\nwhile True: time.sleep(60)"
MIB = 1 << 20
_BATCH = {"kubernetes.io/batch-cpu": 500, "kubernetes.io/batch-memory": "200Mi"}
_HUGE = 2**53
_RANGE = {"schemata": {"range": [0, 100], "percent": 100}}

HOSTILE: dict[str, Any] = {
    "node.koordinator.sh/extended-resource-spec": {
        "containers": {
            "c0": {
                "requests": {"kubernetes.io/batch-cpu": "200000000"},
                "limits": {"kubernetes.io/batch-memory": "8Ei"},
            }
        }
    },
    "scheduling.koordinator.sh/resource-status": {
        "cpuset": "0-4095",
        "numaNodeResources": [{"node": 0, "resources": {"cpu": "64"}}],
    },
    "scheduling.koordinator.sh/device-allocated": {"gpu": [{"minor": 0}], "rdma": [{"minor": 0}]},
    "koordinator.sh/cpuBurst": {
        "policy": "auto", "cpuBurstPercent": 10_000, "cfsQuotaBurstPercent": 100_000,
    },
    "koordinator.sh/memoryQOS": {
        "policy": "auto", "minLimitPercent": _HUGE, "lowLimitPercent": _HUGE, "priority": 12,
        "wmarkMinAdj": -25,
    },
    "koordinator.sh/cpuQOS": {"enable": True, "groupIdentity": 2},
    "koordinator.sh/networkQOS": {"egressLimit": "1000G", "ingressLimit": "1000G"},
    "koordinator.sh/blkioQOS": {
        "enable": True,
        "blocks": [{"name": "/dev/sda", "type": "device", "ioCfg": {"ioWeightPercent": 100}}],
    },
    "node.koordinator.sh/resctrl": {"llc": _RANGE, "mb": _RANGE},
    "koordinator.sh/oom-score-adj": -1000,
    "koordinator.sh/oom-score-adj-spec": {"c0": -1000},
    "koordinator.sh/eviction-priority": 2**31 - 1,
    "koordinator.sh/eviction-policy": [],
}  # fmt: skip


@pytest.fixture
def node(machine: PodsMachine) -> PodsMachine:
    """Start an agent with all that needs no special kernel; quotas may burst to 150 %."""
    machine.slo(
        slo(
            cpuBurstStrategy={
                "policy": "auto", "cfsQuotaBurstPercent": 150, "cpuBurstPercent": 100,
                "sharePoolThresholdPercent": 100,
            }
        )
    )  # fmt: skip
    machine.agent.close()
    machine.agent = machine.start(
        CPUSetAllocator=True, CgroupReconcile=True, OOMScoreAdj=True, BlkIOReconcile=True
    )
    return machine


def files(node: PodsMachine, view: PodView) -> dict[str, str]:
    """Return what limits a pod's container, and the pod."""
    return {
        f"{place}/{file}": node.read(hierarchy, folder, file)
        for place, folder in (("pod", view.folder), ("container", view.containers[0].folder))
        for hierarchy, file in (
            ("cpu", "cpu.shares"),
            ("cpu", "cpu.cfs_quota_us"),
            ("memory", "memory.limit_in_bytes"),
            ("cpuset", "cpuset.cpus"),
        )
    }


def annotate(node: PodsMachine, view: PodView, annotations: dict[str, Any]) -> None:
    """Write annotations as the author of a running pod can."""
    texts = {key: json.dumps(value) for key, value in annotations.items()}
    patch = {"metadata": {"annotations": texts}}
    node.cluster.patch(Pod, view.pod.metadata.name, view.pod.metadata.namespace, patch)


def test_no_annotation_lifts_the_limits_of_a_pod(node: PodsMachine) -> None:
    """No combination of annotations raises a limit; pods of other tenants keep their share."""
    bank = node.run("bank", "LS", _SLEEP, requests={"cpu": 1}, limits={"cpu": 1})
    job = node.run("job", "BE", SPIN, requests=_BATCH, limits=_BATCH)
    small = node.run("small", "LS", SPIN, limits={"cpu": "200m"})
    assert node.live(
        20, lambda: files(node, job)["container/memory.limit_in_bytes"] == str(200 * MIB)
    )
    banks, jobs, smalls = (files(node, view) for view in (bank, job, small))

    for annotations in (*({key: value} for key, value in HOSTILE.items()), HOSTILE):
        annotate(node, job, annotations)
        annotate(node, small, annotations)
        node.live(2)
        assert files(node, bank) == banks, annotations
        assert files(node, job) == jobs, annotations
        actual = files(node, small)
        quotas = {int(actual.pop(f"{place}/cpu.cfs_quota_us")) for place in ("pod", "container")}
        assert all(0 < quota <= 30_000 for quota in quotas), (quotas, annotations)
        assert actual.items() <= smalls.items(), annotations
    assert node.cores(job, 2) < 0.6
    assert node.cores(small, 2) < 0.4
