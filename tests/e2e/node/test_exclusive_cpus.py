"""Best-effort pods on the CPUs of pods of class LSE: off them, or with the least quota."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.e2e.node.conftest import StartAgent
from tests.e2e.real_node import RealNode
from tests.e2e.real_node.node import CGROUPS, Manifest, pod
from tests.e2e.waiting import eventually

from koordinator.foundation.cpu_list import format_cpu_list, parse_cpu_list

if not (CGROUPS / "cpuset").is_dir():
    pytest.skip("the files of cgroup v1 are read here", allow_module_level=True)

_TIER = "kubepods/besteffort"
_RESERVATION = "node.koordinator.sh/reservation"
_LEAST_US = 2000
_CPUS = len(os.sched_getaffinity(0))


def lse(name: str, cpus: int) -> Manifest:
    """Return a pod that the scheduler has given these CPUs alone; ``cpus`` is a mask."""
    count = {"cpu": str(cpus.bit_count()), "memory": "16Mi"}
    return pod(
        name,
        labels={"koordinator.sh/qosClass": "LSE"},
        annotations={
            "scheduling.koordinator.sh/resource-status": f'{{"cpuset":"{format_cpu_list(cpus)}"}}'
        },
        resources={"requests": count, "limits": count},
    )


def cpus_of(folder: Path) -> int:
    """Return the CPU set of a cgroup as a mask."""
    return parse_cpu_list((folder / "cpuset.cpus").read_text().strip())


@pytest.mark.skipif(_CPUS < 2, reason="one CPU must stay for best effort")
def test_best_effort_leaves_exclusive_cpus_of_a_small_node(
    start_agent: StartAgent, node: RealNode, kubectl: Callable[..., str]
) -> None:
    """While LSE pods have all CPUs but one it has that; while it is reserved, 2 ms of each 100."""
    start_agent()
    every = cpus_of(CGROUPS / "cpuset")
    last = 1 << (every.bit_length() - 1)
    (job,) = node.run(pod("job", labels={"koordinator.sh/qosClass": "BE"}))
    tier, quota = CGROUPS / "cpuset" / _TIER, CGROUPS / "cpu" / _TIER / "cpu.cfs_quota_us"
    places = [
        tier,
        *(it for it in (tier / f"pod{job['metadata']['uid']}").rglob("*") if it.is_dir()),
    ]

    node.run(lse("most", every & ~last))
    eventually(lambda: all(cpus_of(it) == last for it in places))

    reserved = f'{_RESERVATION}={{"reservedCPUs":"{format_cpu_list(last)}"}}'
    kubectl("annotate", "node", node.name, reserved)
    try:
        eventually(lambda: int(quota.read_text()) == _LEAST_US)
        kubectl("delete", "pod", "most")
        eventually(lambda: int(quota.read_text()) == -1)
        eventually(lambda: cpus_of(tier) == every & ~last)
    finally:
        kubectl("annotate", "node", node.name, f"{_RESERVATION}-")
    eventually(lambda: cpus_of(tier) == every)
