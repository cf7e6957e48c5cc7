"""Promises of the node agent on cgroup v2, as containers of a real kubelet see them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
import yaml
from tests.e2e.controlplane import ControlPlane
from tests.e2e.real_node.node import NAME, Manifest, pod
from tests.e2e.waiting import eventually
from tests.vm.machine import VirtualMachine
from tests.vm.node import CGROUPS, PATIENCE_S, NodeInside

MIB = 1 << 20
_PAGE = 4096
_QOS = "koordinator.sh/qosClass"
_DISK = {"type": "device", "name": "/dev/vda"}
_SPEC = {
    "resourceUsedThresholdWithBE": {
        "enable": True,
        "cpuSuppressThresholdPercent": 65,
        "cpuSuppressPolicy": "cpuset",
    },
    "cpuBurstStrategy": {"policy": "cpuBurstOnly", "cpuBurstPercent": 100},
    "resourceQOSStrategy": {
        "lsClass": {
            "memoryQOS": {
                "enable": True,
                "minLimitPercent": 50,
                "lowLimitPercent": 80,
                "throttlingPercent": 60,
            },
        },
        "beClass": {
            "cpuQOS": {"enable": True, "groupIdentity": -1},
            "blkioQOS": {
                "enable": True,
                "blocks": [
                    {
                        **_DISK,
                        "ioCfg": {"readBPS": MIB, "writeIOPS": 100, "ioWeightPercent": 60},
                    }
                ],
            },
        },
        "cgroupRoot": {
            "blkioQOS": {"enable": True, "blocks": [{**_DISK, "ioCfg": {"readLatency": 5000}}]}
        },
    },
}


def _becomes(read: Callable[[], str], wanted: str) -> None:
    """Wait until a file has a content."""
    eventually(lambda: read() == wanted or _report(read()), PATIENCE_S)


def _report(content: str) -> bool:
    raise AssertionError(f"the file has {content!r}")


@dataclass(frozen=True, slots=True)
class Pods:
    """One running pod of each class."""

    ls: Manifest
    lsr: Manifest
    be: Manifest
    batch: Manifest


@pytest.fixture(scope="module")
def pods(agent: NodeInside, controlplane: ControlPlane) -> Iterator[Pods]:
    """Configure the node and run the pods."""
    manifest = {
        "apiVersion": "slo.koordinator.sh/v1alpha1",
        "kind": "NodeSLO",
        "metadata": {"name": NAME},
        "spec": _SPEC,
    }
    controlplane.kubectl("apply", "--server-side", "--filename=-", stdin=yaml.safe_dump(manifest))
    batch = {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "64Mi"}
    controlplane.kubectl(
        "patch",
        "node",
        NAME,
        "--subresource=status",
        "--type=merge",
        f"--patch={yaml.safe_dump({'status': {'capacity': batch, 'allocatable': batch}})}",
    )
    one = {"cpu": "1", "memory": "64Mi"}
    made = Pods(
        ls=agent.run(
            pod(
                "ls",
                labels={_QOS: "LS"},
                resources={
                    "requests": {"cpu": "200m", "memory": "64Mi"},
                    "limits": {"cpu": "500m", "memory": "128Mi"},
                },
            )
        ),
        lsr=agent.run(
            pod(
                "lsr",
                labels={_QOS: "LSR"},
                annotations={"scheduling.koordinator.sh/resource-status": '{"cpuset":"3"}'},
                resources={"requests": one, "limits": one},
            )
        ),
        be=agent.run(pod("be", labels={_QOS: "BE"})),
        batch=agent.run(
            pod("batch", labels={_QOS: "BE"}, resources={"requests": batch, "limits": batch})
        ),
    )
    yield made
    for each in (made.ls, made.lsr, made.be, made.batch):
        agent.delete(each)


def test_the_hierarchy_is_unified(machine: VirtualMachine) -> None:
    """Everything below is about v2 only if v1 is not mounted."""
    assert machine.run("grep -c ' cgroup ' /proc/mounts || true").strip() == "0"
    assert "some avg10=" in machine.read("/proc/pressure/memory")


def test_memory_is_protected_and_throttled(agent: NodeInside, pods: Pods) -> None:
    """memory.min and memory.low of the request, memory.high between request and limit."""
    high = (64 * MIB + (128 - 64) * MIB * 60 // 100) // _PAGE * _PAGE
    for file, wanted in (
        ("memory.min", 32 * MIB),
        ("memory.low", 64 * MIB * 80 // 100 // _PAGE * _PAGE),
        ("memory.high", high),
    ):
        _becomes(lambda it=file: agent.inside(pods.ls, it), str(wanted))  # type: ignore[misc]
    tier = f"{CGROUPS}/kubepods/burstable/memory.min"
    assert agent.machine.read(tier) == str(32 * MIB)


def test_memory_above_the_throttling_limit_is_reclaimed(agent: NodeInside, pods: Pods) -> None:
    """A container that writes more files than memory.high is held there, and is not killed."""
    high = int(agent.inside(pods.ls, "memory.high"))
    agent.execute(pods.ls, "dd if=/dev/zero of=/tmp/file bs=1M count=120")

    eventually(lambda: int(agent.inside(pods.ls, "memory.current")) <= high, PATIENCE_S)
    events = dict(line.split() for line in agent.inside(pods.ls, "memory.events").splitlines())
    assert int(events["high"]) > 0
    assert events["oom_kill"] == "0"


def test_cpu_bursts_up_to_the_quota(agent: NodeInside, pods: Pods) -> None:
    """The kernel accepts a burst no larger than the quota."""
    _becomes(lambda: agent.inside(pods.ls, "cpu.max.burst"), "50000")
    assert agent.inside(pods.ls, "cpu.max") == "50000 100000"


def test_batch_resources_are_limits(agent: NodeInside, pods: Pods) -> None:
    """A batch pod is of the best-effort tier, and has the limits that it names."""
    _becomes(lambda: agent.inside(pods.batch, "cpu.max"), "50000 100000")
    _becomes(lambda: agent.inside(pods.batch, "memory.max"), str(64 * MIB))
    _becomes(lambda: agent.of_pod(pods.batch, "cpu.max"), "50000 100000")


def test_cpus_of_an_lsr_pod_are_its_own(agent: NodeInside, pods: Pods) -> None:
    """It runs on the CPU of its annotation without a quota, the others run elsewhere."""
    _becomes(lambda: agent.inside(pods.lsr, "cpuset.cpus.effective"), "3")
    assert agent.inside(pods.lsr, "cpu.max").startswith("max ")
    _becomes(lambda: agent.inside(pods.ls, "cpuset.cpus.effective"), "0-2")
    eventually(lambda: "3" not in agent.inside(pods.be, "cpuset.cpus.effective"), PATIENCE_S)


@pytest.mark.usefixtures("pods")
def test_disks_of_best_effort_pods_are_limited(agent: NodeInside) -> None:
    """In io.max and io.weight of the tier; the latency target is the node's."""
    machine = agent.machine
    tier, number = f"{CGROUPS}/kubepods/besteffort", machine.read("/sys/block/vda/dev")
    limits = f"{number} rbps={MIB} wbps=max riops=max wiops=100"
    _becomes(lambda: machine.read(f"{tier}/io.max"), limits)
    _becomes(lambda: machine.read(f"{tier}/io.weight"), f"default 100\n{number} 60")
    assert "rlat=5000" in machine.read(f"{CGROUPS}/io.cost.qos")


def test_pressure_of_containers_is_measured(agent: NodeInside, pods: Pods) -> None:
    """PSI of v2 becomes a metric."""

    def measured() -> bool:
        text = agent.metrics()
        uid = f'pod_uid="{pods.be["metadata"]["uid"]}"'
        return any(line.startswith("koordlet_container_psi{") and uid in line for line in text)

    eventually(measured, PATIENCE_S)


def test_pressure_of_a_throttled_container_is_its_own(agent: NodeInside, pods: Pods) -> None:
    """A container above its CPU quota reads its stalls, and the metric of its pod has them."""
    busy = "sh -c 'while :; do :; done'"
    agent.execute(pods.ls, f"for i in 1 2; do timeout 300 {busy} >/dev/null 2>&1 & done")
    try:
        eventually(lambda: _stalled(agent.inside(pods.ls, "cpu.pressure")) > 0, PATIENCE_S)
        uid = f'pod_uid="{pods.ls["metadata"]["uid"]}"'

        def measured() -> bool:
            text = agent.metrics()
            rows = [it for it in text if it.startswith("koordlet_container_psi{") and uid in it]
            some = [it for it in rows if 'cpu"' in it and "avg10" in it and 'some"' in it]
            return any(float(it.rpartition(" ")[2]) > 0 for it in some)

        eventually(measured, PATIENCE_S)
    finally:
        agent.execute(pods.ls, "pkill -f 'while :' || true")


def _stalled(pressure: str) -> float:
    """Return the percentage of the last ten seconds in which some task waited."""
    some = pressure.splitlines()[0].split()
    return float(some[1].removeprefix("avg10="))


def test_nothing_is_rejected_and_nothing_is_written_twice(agent: NodeInside, pods: Pods) -> None:
    """The kernel reads back what was written, so that a round without news writes nothing."""
    assert pods
    rows = [row for row in agent.audit() if row["type"] == "cgroup"]
    assert [row for row in rows if row.get("error")] == []
    assert [row for row in rows if row.get("before") == row.get("after")] == []
    memory = [row["target"] for row in rows if row["target"].endswith(("memory.min", "memory.low"))]
    own = [target for target in memory if pods.ls["metadata"]["uid"] in target]
    assert own
    assert len(own) == len(set(own))
    disks = [(row["target"], row["after"]) for row in rows if "/io." in row["target"]]
    assert disks
    assert len(disks) == len(set(disks))
