"""Promises of the node agent on cgroup v2, as containers of a real kubelet see them."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
import yaml
from tests.e2e.controlplane import ControlPlane
from tests.e2e.real_node.node import NAME, Manifest, pod
from tests.e2e.waiting import eventually
from tests.vm.machine import VirtualMachine
from tests.vm.node import CGROUPS, PATIENCE_S, NodeInside

from koordinator.foundation.cpu_list import parse_cpu_list

MIB = 1 << 20
_PAGE = 4096
#: CPU time of a service divided by that of an idle pod; 1 without cpu.idle.
_PRECEDENCE = 1.5
#: Percent of time by which a throttled container waits more for its CPUs than others.
_LEAST_STALL = 5.0
_QOS = "koordinator.sh/qosClass"
_RESERVATION = "node.koordinator.sh/reservation"
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
                    "requests": {"cpu": "500m", "memory": "64Mi"},
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


def test_memory_above_the_throttling_limit_slows_a_container_down(
    agent: NodeInside, pods: Pods
) -> None:
    """Memory that cannot be reclaimed: the container waits, which its memory pressure shows."""
    script = "for i in $(seq 60); do dd if=/dev/zero of=/dev/null bs=112M count=1; done"
    with _running(agent, pods.ls, script):
        eventually(lambda: _stalled(agent.inside(pods.ls, "memory.pressure")) > 0, PATIENCE_S)
        for kind in ("pod", "container"):
            eventually(lambda it=kind: _measured(agent, it, pods.ls, "mem") > 0, PATIENCE_S)  # type: ignore[misc]
    events = dict(line.split() for line in agent.inside(pods.ls, "memory.events").splitlines())
    assert events["oom_kill"] == "0"


def test_cpu_bursts_up_to_the_quota(agent: NodeInside, pods: Pods) -> None:
    """The kernel accepts a burst no larger than the quota."""
    _becomes(lambda: agent.inside(pods.ls, "cpu.max.burst"), "50000")
    assert agent.inside(pods.ls, "cpu.max") == "50000 100000"


def test_cpu_time_of_idle_periods_is_used_in_bursts(agent: NodeInside, pods: Pods) -> None:
    """A container that works and pauses in turn exceeds its quota in single periods."""
    _becomes(lambda: agent.inside(pods.ls, "cpu.max.burst"), "50000")
    busy = "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done"
    with _running(agent, pods.ls, f"for j in $(seq 400); do {busy}; usleep 300000; done"):
        eventually(lambda: _statistics(agent, pods.ls)["nr_bursts"] > 0, PATIENCE_S)
    assert _statistics(agent, pods.ls)["burst_usec"] > 0


def test_batch_resources_are_limits(agent: NodeInside, pods: Pods) -> None:
    """A batch pod is of the best-effort tier, and has the limits that it names."""
    _becomes(lambda: agent.inside(pods.batch, "cpu.max"), "50000 100000")
    _becomes(lambda: agent.inside(pods.batch, "memory.max"), str(64 * MIB))
    _becomes(lambda: agent.of_pod(pods.batch, "cpu.max"), "50000 100000")


def test_batch_container_weighs_as_much_as_a_native_one(agent: NodeInside, pods: Pods) -> None:
    """Two containers request half a CPU; runtime and agent convert the shares alike."""
    weight = agent.inside(pods.ls, "cpu.weight")
    assert weight in {"20", "59"}  # of runc before 1.3.2, and from it on
    _becomes(lambda: agent.inside(pods.batch, "cpu.weight"), weight)
    assert agent.of_pod(pods.ls, "cpu.weight") == "20"
    _becomes(lambda: agent.of_pod(pods.batch, "cpu.weight"), "20")


def test_best_effort_pods_are_idle_beside_a_service(agent: NodeInside, pods: Pods) -> None:
    """The kernel has no group identity: a service of the same tier goes before them by cpu.idle."""
    spin = "for i in 1 2 3; do while :; do :; done & done; wait"
    service = agent.run(pod("service", labels={_QOS: "LS"}))  # without requests
    try:
        for each in (pods.be, pods.batch):
            _becomes(lambda it=each: agent.of_pod(it, "cpu.idle"), "1")  # type: ignore[misc]
        assert agent.of_pod(service, "cpu.idle") == "0"
        for tier in ("", "/burstable", "/besteffort"):
            assert agent.machine.read(f"{CGROUPS}/kubepods{tier}/cpu.idle") == "0"
        with _running(agent, pods.be, spin), _running(agent, service, spin):
            eventually(lambda: _ratio(agent, service, pods.be) > _PRECEDENCE, PATIENCE_S)
    finally:
        agent.delete(service)
    for each, weight in ((pods.be, "1"), (pods.batch, "20")):
        _becomes(lambda it=each: agent.of_pod(it, "cpu.idle"), "0")  # type: ignore[misc]
        _becomes(lambda it=each: agent.of_pod(it, "cpu.weight"), weight)  # type: ignore[misc]


def test_cpus_of_an_lsr_pod_are_its_own(agent: NodeInside, pods: Pods) -> None:
    """The pod runs on the CPU of its annotation without a quota, the others run on other CPUs."""
    _becomes(lambda: agent.inside(pods.lsr, "cpuset.cpus.effective"), "3")
    assert agent.inside(pods.lsr, "cpu.max").startswith("max ")
    _becomes(lambda: agent.inside(pods.ls, "cpuset.cpus.effective"), "0-2")
    eventually(lambda: "3" not in agent.inside(pods.be, "cpuset.cpus.effective"), PATIENCE_S)
    for each in (pods.lsr, pods.ls, pods.be):
        assert agent.inside(each, "cpuset.cpus.partition") == "member"


def test_best_effort_leaves_the_cpus_of_an_lse_pod(
    agent: NodeInside, pods: Pods, controlplane: ControlPlane
) -> None:
    """While all others are reserved, the tier has the least quota: no CPU set can be empty."""
    two = {"cpu": "2", "memory": "16Mi"}
    exclusive = agent.run(
        pod(
            "lse",
            labels={_QOS: "LSE"},
            annotations={"scheduling.koordinator.sh/resource-status": '{"cpuset":"0-1"}'},
            resources={"requests": two, "limits": two},
        )
    )
    tier = f"{CGROUPS}/kubepods/besteffort/cpu.max"
    try:
        _becomes(lambda: agent.inside(exclusive, "cpuset.cpus.effective"), "0-1")
        for each in (pods.be, pods.batch):
            eventually(
                lambda it=each: (  # type: ignore[misc]
                    not parse_cpu_list(agent.inside(it, "cpuset.cpus.effective")) & 0b11
                ),
                PATIENCE_S,
            )
        controlplane.kubectl("annotate", "node", NAME, f'{_RESERVATION}={{"reservedCPUs":"2-3"}}')
        _becomes(lambda: agent.machine.read(tier), "2000 100000")
    finally:
        controlplane.kubectl("annotate", "node", NAME, f"{_RESERVATION}-")
        agent.delete(exclusive)
    _becomes(lambda: agent.machine.read(tier), "max 100000")


@pytest.mark.usefixtures("pods")
def test_disks_of_best_effort_pods_are_limited(agent: NodeInside) -> None:
    """In io.max and io.weight of the tier; the latency target is the node's."""
    machine = agent.machine
    tier, number = f"{CGROUPS}/kubepods/besteffort", machine.read("/sys/block/vda/dev")
    limits = f"{number} rbps={MIB} wbps=max riops=max wiops=100"
    _becomes(lambda: machine.read(f"{tier}/io.max"), limits)
    _becomes(lambda: machine.read(f"{tier}/io.weight"), f"default 100\n{number} 60")
    assert "rlat=5000" in machine.read(f"{CGROUPS}/io.cost.qos")


def test_reads_of_a_best_effort_container_take_their_time(agent: NodeInside, pods: Pods) -> None:
    """At a MiB a second the container waits for its disk, which its I/O pressure shows."""
    tier = f"{CGROUPS}/kubepods/besteffort"
    eventually(lambda: f"rbps={MIB}" in agent.machine.read(f"{tier}/io.max"), PATIENCE_S)
    agent.execute(pods.be, "dd if=/dev/zero of=/tmp/file bs=1M count=4 conv=fsync")

    read = "dd if=/tmp/file of=/dev/null bs=64k iflag=direct"
    now = "cut -d. -f1 /proc/uptime"
    began_s, ended_s = agent.execute(pods.be, f"{now}; {read} 2>/dev/null; {now}").split()

    assert int(ended_s) - int(began_s) >= 3
    with _running(agent, pods.be, f"for i in $(seq 60); do {read}; done"):
        for kind in ("pod", "container"):
            eventually(lambda it=kind: _measured(agent, it, pods.be, "io") > 0, PATIENCE_S)  # type: ignore[misc]


def test_pressure_of_a_throttled_container_is_its_own(agent: NodeInside, pods: Pods) -> None:
    """A container above its CPU quota reads its stalls, and the metrics of its pod have them.

    Others wait for less: at most for the node's own processes, which run on all CPUs.
    """
    with _running(agent, pods.ls, "for i in 1 2; do while :; do :; done & done; wait"):
        eventually(lambda: _stalled(agent.inside(pods.ls, "cpu.pressure")) > 0, PATIENCE_S)
        for kind in ("pod", "container"):
            eventually(lambda it=kind: _measured(agent, it, pods.ls, "cpu") > 0, PATIENCE_S)  # type: ignore[misc]
        others = _measured(agent, "container", pods.lsr, "cpu")
        eventually(
            lambda: _measured(agent, "container", pods.ls, "cpu") > others + _LEAST_STALL,
            PATIENCE_S,
        )


@contextmanager
def _running(agent: NodeInside, pod_: Manifest, script: str) -> Iterator[None]:
    """Run a script in a pod's container meanwhile."""
    mark = f"/tmp/running-{os.urandom(4).hex()}"  # noqa: S108 -- in the container
    started = f"setsid sh -c 'echo $$ > {mark}; {script}' </dev/null >/dev/null 2>&1 &"
    agent.execute(pod_, started)
    try:
        yield
    finally:
        agent.execute(pod_, f"kill -9 -$(cat {mark}); rm {mark}")


def _statistics(agent: NodeInside, pod_: Manifest) -> dict[str, int]:
    lines = agent.inside(pod_, "cpu.stat").splitlines()
    return {name: int(value) for name, value in (line.split() for line in lines)}


def _ratio(agent: NodeInside, one: Manifest, other: Manifest) -> float:
    """Return the CPU time of one container divided by that of another one, over some seconds."""
    before = [_statistics(agent, each)["usage_usec"] for each in (one, other)]
    agent.machine.run("sleep 20")
    after = [_statistics(agent, each)["usage_usec"] for each in (one, other)]
    first, second = (then - now for now, then in zip(before, after, strict=True))
    return first / max(second, 1)


def _measured(agent: NodeInside, kind: str, pod_: Manifest, resource: str) -> float:
    """Return the highest average of pressure that the agent's metrics have; 0 without any."""
    series = f"koordlet_{kind}_psi{{"
    wanted = (
        f'pod_uid="{pod_["metadata"]["uid"]}"',
        f'psi_resource_type="{resource}"',
        'psi_degree="some"',
    )
    rows = [it for it in agent.metrics() if it.startswith(series)]
    values = [float(it.rpartition(" ")[2]) for it in rows if all(each in it for each in wanted)]
    return max(values, default=0.0)


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
