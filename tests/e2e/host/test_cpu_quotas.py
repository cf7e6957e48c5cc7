"""CPU quotas that the kernel takes: of the kubelet, of CPU normalization and of CPU burst."""

from collections.abc import Mapping

import pytest
from msgspec.structs import replace
from tests.e2e.host.machine import PodsMachine
from tests.nodes import LAYOUT, pod, slo

from koordinator.api.core import ResourceRequirements
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.foundation.quantity import Quantity
from koordinator.koordlet.view.pods import PodView, pod_view

RATIO = "node.koordinator.sh/cpu-normalization-ratio"
_NOTICED_S = 3.0  # a second, and two for a machine that is busy with other tests


def quota(machine: PodsMachine, folder: str) -> int:
    """Return a quota in microseconds per 100 ms."""
    return int(machine.read("cpu", folder, "cpu.cfs_quota_us"))


def is_taken(machine: PodsMachine, writes: Mapping[str, int]) -> bool:
    """Write quotas as the kubelet does, one after the other; return whether the kernel took all."""
    try:
        for folder, value in writes.items():
            machine.write("cpu", folder, "cpu.cfs_quota_us", str(value))
    except OSError:
        return False
    return True


def resize(machine: PodsMachine, view: PodView, limits: list[int]) -> None:
    """Change the CPU limits of the containers, in milli-CPU."""
    stored = machine.cluster.get(Pod, view.pod.metadata.name, namespace="default")
    containers = tuple(
        replace(each, resources=ResourceRequirements(limits={"cpu": Quantity.from_milli(milli)}))
        for each, milli in zip(stored.spec.containers, limits, strict=True)
    )
    machine.cluster.update(replace(stored, spec=replace(stored.spec, containers=containers)))


def limited(machine: PodsMachine, milli: int) -> PodView:
    """Place a pod of two containers with the same limit, with the quotas of the kubelet."""
    view = machine.place("web", "LS", 2, limits={"cpu": f"{milli}m"})
    writes = {view.folder: 200 * milli} | {each.folder: 100 * milli for each in view.containers}
    assert is_taken(machine, writes)
    return view


def worth(machine: PodsMachine, ratio: str) -> None:
    """Set the CPU normalization ratio of the node, and restart the agent."""
    node = machine.cluster.get(Node, "n1")
    meta = replace(node.metadata, annotations={RATIO: ratio})
    machine.cluster.update(replace(node, metadata=meta))
    machine.agent.close()
    machine.agent = machine.start(CPUNormalization=True)


@pytest.mark.parametrize("ratio", ["1.00", "1.50"])
def test_a_limit_is_lowered_while_burst_has_raised_quotas(machine: PodsMachine, ratio: str) -> None:
    """The kubelet lowers one container, then the pod: taken a second after the spec has changed."""
    machine.slo(slo(cpuBurstStrategy={"policy": "auto", "sharePoolThresholdPercent": 100}))
    worth(machine, ratio)
    view = limited(machine, 200)
    machine.spawn(view, "while True: pass")
    first, second = (each.folder for each in view.containers)
    most = {"1.00": 60_000, "1.50": 40_000}[ratio]
    assert machine.live(30, lambda: quota(machine, first) >= most)
    writes = {first: 10_000, view.folder: 30_000}
    assert not is_taken(machine, writes)  # more than that may be used later: cpu.cfs_burst_us

    resize(machine, view, [100, 200])

    assert machine.live(_NOTICED_S, lambda: is_taken(machine, writes))
    assert quota(machine, second) <= 20_000
    machine.live(1.5)
    assert (quota(machine, first), quota(machine, view.folder)) == (10_000, 30_000)
    assert not [event for event in machine.agent.audit.events if event.error]


def test_a_normalized_pod_takes_every_container(machine: PodsMachine) -> None:
    """A container that starts late, and a sidecar, fit into the quota of their pod."""
    machine.slo(slo(cpuBurstStrategy={"policy": "none"}))
    worth(machine, "1.25")
    view = limited(machine, 200)
    late = view.containers[1].folder
    assert machine.live(10, lambda: quota(machine, late) == 16_000)

    assert quota(machine, view.folder) == 32_000
    assert is_taken(machine, {late: 20_000})  # as the runtime makes it, without the hook
    assert machine.live(_NOTICED_S, lambda: quota(machine, late) == 16_000)
    assert not [event for event in machine.agent.audit.events if event.error]


def test_a_container_starts_after_its_pod_was_normalized(machine: PodsMachine) -> None:
    """The kernel rejects quotas above the pod's, and the runtime writes the whole limit."""
    machine.slo(slo(cpuBurstStrategy={"policy": "none"}))
    worth(machine, "2.00")
    made = pod("web", "LS", limits={"cpu": "200m"})
    stored = machine.cluster.create(made)
    waiting = replace(made.status, container_statuses=())
    view = pod_view(machine.cluster.update_status(replace(stored, status=waiting)), LAYOUT)
    machine.make_cgroups(view)
    assert is_taken(machine, {view.folder: 20_000})
    machine.live(3)

    started = machine.cluster.get(Pod, "web", namespace="default")
    running = pod_view(machine.cluster.update_status(replace(started, status=made.status)), LAYOUT)
    machine.make_cgroups(running)

    assert is_taken(machine, {running.containers[0].folder: 20_000})
    assert machine.live(_NOTICED_S, lambda: quota(machine, running.folder) == 10_000)
    assert quota(machine, running.containers[0].folder) == 10_000
    assert not [event for event in machine.agent.audit.events if event.error]
