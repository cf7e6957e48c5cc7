"""Guarantees of the agent, measured in the CPU time and memory of real processes."""

from typing import Any

import pytest
from tests.e2e.host.machine import SPIN, PodsMachine
from tests.nodes import LAYOUT, slo

from koordinator.api.meta import ObjectMeta
from koordinator.api.node_slo import NodeSlo
from koordinator.foundation.errors import HostError

_SLEEP = "import time\nwhile True: time.sleep(60)"
_HOG = "import time\nheld = b'x' * (900 << 20)\nwhile True: time.sleep(60)"


def suppressing(**changes: object) -> object:
    """Return a NodeSLO that keeps the node at 90 % by quota."""
    return slo(
        resourceUsedThresholdWithBE={
            "enable": True,
            "cpuSuppressThresholdPercent": 90,
            "cpuSuppressPolicy": "cfsQuota",
            **changes,
        }
    )


def quota(machine: PodsMachine) -> int:
    """Return the quota of best effort in microseconds per 100 ms."""
    return int(machine.read("cpu", LAYOUT.besteffort, "cpu.cfs_quota_us"))


def test_a_batch_job_makes_room_as_a_service_rises(machine: PodsMachine) -> None:
    """The CPU time of the job falls; its quota follows within two intervals, and returns."""
    machine.slo(suppressing())  # type: ignore[arg-type]
    service = machine.run("ls", "LS", _SLEEP, requests={"cpu": 1})
    machine.run("be", "BE")
    job = machine.run("be2", "BE")
    assert machine.live(10, lambda: quota(machine) > 0)
    calm = quota(machine)
    before = machine.cores(job, 3)

    spinner = machine.spawn(service, SPIN)
    assert machine.live(10, lambda: 0 < quota(machine) < calm * 3 / 4)
    machine.live(2)
    during = machine.cores(job, 3)
    assert during < before * 0.8

    spinner.kill()
    assert machine.live(20, lambda: quota(machine) > calm * 0.9)


def test_restarted_agent_keeps_a_suppressed_job_suppressed(machine: PodsMachine) -> None:
    """The job remains suppressed while the agent is restarted."""
    machine.slo(suppressing(cpuSuppressThresholdPercent=20))  # type: ignore[arg-type]
    machine.run("ls", "LS", requests={"cpu": 1})
    machine.run("be", "BE")
    assert machine.live(10, lambda: quota(machine) == 2000)

    machine.agent = machine.start()
    loosest = 0

    def watch() -> bool:
        nonlocal loosest
        loosest = max(loosest, quota(machine), 0 if quota(machine) > 0 else 10**9)
        return False

    machine.live(5, watch)
    assert loosest == 2000


def test_memory_hog_is_killed_before_the_service_suffers(machine: PodsMachine) -> None:
    """Processes of the best-effort pod are killed, the service stays."""
    machine.slo(
        slo(
            resourceUsedThresholdWithBE={
                "enable": True,
                "memoryEvictThresholdPercent": 70,
                "memoryEvictLowerPercent": 50,
            }
        )
    )
    service = machine.run("ls", "LS", _SLEEP, requests={"memory": "100Mi"})
    hog = machine.run("hog", "BE", _SLEEP)
    small = machine.run("small", "BE", _SLEEP)
    machine.live(3)
    process = machine.spawn(hog, _HOG)

    assert machine.live(20, lambda: process.poll() is not None)
    assert process.returncode == -9
    machine.live(6)
    for view in (service, small):
        assert machine.read("cpu", view.containers[0].folder, "cgroup.procs")
    (event,) = [e for e in machine.agent.audit.events if e.type == "eviction"]
    assert event.owner == "default/hog"


def test_a_throttled_service_bursts(machine: PodsMachine) -> None:
    """The quota and the CPU time of the service rise to three times its limit."""
    machine.slo(slo(cpuBurstStrategy={"policy": "auto", "sharePoolThresholdPercent": 100}))
    machine.agent.close()
    machine.agent = machine.start()
    limited = machine.run("ls", "LS", limits={"cpu": "200m"})
    before = machine.cores(limited, 1)

    def is_up() -> bool:
        folder = limited.containers[0].folder
        return int(machine.read("cpu", folder, "cpu.cfs_quota_us")) == 60_000

    assert machine.live(30, is_up)
    assert int(machine.read("cpu", limited.folder, "cpu.cfs_quota_us")) == 60_000
    assert int(machine.read("cpu", limited.folder, "cpu.cfs_burst_us")) > 0
    assert machine.cores(limited, 3) > before * 1.5


def test_batch_limits_are_the_kernels(machine: PodsMachine) -> None:
    """A job with half a batch CPU gets half a CPU."""
    batch = {"kubernetes.io/batch-cpu": 500, "kubernetes.io/batch-memory": "200Mi"}
    job = machine.run("be", "BE", requests=batch, limits=batch)
    folder = job.containers[0].folder

    assert machine.live(
        5, lambda: machine.read("memory", folder, "memory.limit_in_bytes") == str(200 << 20)
    )
    assert machine.read("cpu", job.folder, "cpu.cfs_quota_us") == "50000"
    assert machine.read("cpu", folder, "cpu.shares") == "512"
    assert machine.cores(job, 3) < 0.6


def test_jobs_idle_where_the_kernel_has_no_group_identity(machine: PodsMachine) -> None:
    """``cpu.idle`` of pods that others of the same tier go before; never of the tier."""
    on = {"cpuQOS": {"enable": True}}
    machine.slo(slo(resourceQOSStrategy={"lsClass": on, "beClass": on}))
    job = machine.run("be", "BE", _SLEEP)
    if not machine.has("cpu", job.folder, "cpu.idle"):
        pytest.skip("the kernel has no cpu.idle")
    first = machine.run("ls", "LS", _SLEEP)

    assert machine.live(5, lambda: machine.read("cpu", job.folder, "cpu.idle") == "1")
    assert machine.read("cpu", first.folder, "cpu.idle") == "0"
    assert machine.read("cpu", LAYOUT.besteffort, "cpu.idle") == "0"


def change(machine: PodsMachine, **spec: Any) -> None:
    """Give the node another NodeSLO."""
    machine.cluster.update(NodeSlo(metadata=ObjectMeta(name="n1"), spec=slo(**spec)))


def test_jobs_have_their_shares_again_when_they_no_longer_idle(machine: PodsMachine) -> None:
    """The kernel forgets them when ``cpu.idle`` goes back to 0, and takes none before."""
    on = {"cpuQOS": {"enable": True}}
    machine.slo(slo(resourceQOSStrategy={"lsClass": on, "beClass": on}))
    batch = {"kubernetes.io/batch-cpu": 500, "kubernetes.io/batch-memory": "200Mi"}
    job = machine.run("be", "BE", _SLEEP, requests=batch, limits=batch)
    machine.run("ls", "LS", _SLEEP)
    if not machine.has("cpu", job.folder, "cpu.idle"):
        pytest.skip("the kernel has no cpu.idle")
    assert machine.live(5, lambda: machine.read("cpu", job.folder, "cpu.idle") == "1")

    change(machine)

    assert machine.live(5, lambda: machine.read("cpu", job.folder, "cpu.shares") == "512")
    assert machine.read("cpu", job.folder, "cpu.idle") == "0"
    assert [event.message for event in machine.agent.audit.events if event.error] == []


def test_a_tier_that_an_agent_of_before_left_idle_has_its_shares_again(
    machine: PodsMachine,
) -> None:
    """The kubelet that starts next writes them, and ends if it can't."""
    if not machine.has("cpu", LAYOUT.besteffort, "cpu.idle"):
        pytest.skip("the kernel has no cpu.idle")
    machine.write("cpu", LAYOUT.besteffort, "cpu.idle", "1")
    machine.slo(slo())
    machine.run("be", "BE", _SLEEP)

    assert machine.live(5, lambda: machine.read("cpu", LAYOUT.besteffort, "cpu.shares") == "2")
    assert machine.read("cpu", LAYOUT.besteffort, "cpu.idle") == "0"


def test_from_cpu_sets_to_quota_nothing_is_refused(machine: PodsMachine) -> None:
    """The kernel rejects quotas of containers above the pod's, so pods are written first."""
    on = {"enable": True, "cpuSuppressThresholdPercent": 20}
    machine.slo(slo(resourceUsedThresholdWithBE=on | {"cpuSuppressPolicy": "cpuset"}))
    batch = {"kubernetes.io/batch-cpu": 500, "kubernetes.io/batch-memory": "200Mi"}
    job = machine.run("be", "BE", requests=batch, limits=batch)
    machine.run("ls", "LS", _SLEEP, requests={"cpu": 1})
    assert machine.live(10, lambda: machine.read("cpu", job.folder, "cpu.cfs_quota_us") == "50000")

    change(machine, resourceUsedThresholdWithBE=on | {"cpuSuppressPolicy": "cfsQuota"})

    assert machine.live(10, lambda: quota(machine) > 0)
    assert [event.message for event in machine.agent.audit.events if event.error] == []
    change(machine, resourceUsedThresholdWithBE=on | {"cpuSuppressPolicy": "cpuset"})
    assert machine.live(10, lambda: machine.read("cpu", job.folder, "cpu.cfs_quota_us") == "50000")
    assert quota(machine) == -1
    assert [event.message for event in machine.agent.audit.events if event.error] == []


def test_a_process_of_another_cgroup_outlives_an_eviction(machine: PodsMachine) -> None:
    """The process is identified by a pidfd, so a reused number is not another process."""
    victim, other = machine.run("be", "BE", _SLEEP), machine.run("ls", "LS", _SLEEP)
    process = machine.spawn(other, _SLEEP)
    folder = victim.containers[0].folder
    with pytest.raises(HostError, match="it is not in"):
        machine.host.kill(process.pid, folder)
    assert process.poll() is None
    assert machine.host.kill(process.pid, other.containers[0].folder)
    assert process.wait(10) == -9
