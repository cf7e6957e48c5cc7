"""Failed binds: the pod is unreserved and retried."""

from collections.abc import Callable, Sequence
from typing import Any

from tests.unit.scheduler.watches import only, places, restarted
from tests.worlds import START_S, configuration, device, gpu_pod, node, pod

from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.cluster.memory.server import EndedBinds, MemoryCluster
from koordinator.cluster.port import Binding
from koordinator.foundation.clock import VirtualClock
from koordinator.foundation.errors import ClusterError
from koordinator.scheduler.loop import (
    Scheduler,
    Unschedulable,
)

GPUS = configuration(plugins={"multiPoint": {"enabled": [{"name": "DeviceShare"}]}})
GPU_NODE: dict[str, Any] = {"koordinator.sh/gpu-core": 200, "koordinator.sh/gpu-memory-ratio": 200}


class Interfering(MemoryCluster):
    """Cluster with an action before each bind; an error of the action is the response."""

    def __init__(self, clock: VirtualClock, *first: Callable[["Interfering"], object]) -> None:
        super().__init__(clock)
        self.first = list(first)

    def bind(self, bindings: Sequence[Binding]) -> EndedBinds:
        error = self.first.pop(0)(self) if self.first else None
        if isinstance(error, ClusterError):
            return EndedBinds([error] * len(bindings))
        return super().bind(bindings)


def interfering(
    *objects: KubeObject, first: Callable[[Interfering], object]
) -> tuple[Interfering, VirtualClock, Scheduler]:
    clock = VirtualClock(START_S)
    cluster = Interfering(clock, first)
    cluster.load(objects)
    return cluster, clock, restarted(cluster, clock)


def test_deleted_pod_is_unreserved() -> None:
    """The next pod gets its node."""
    cluster, _, scheduler = interfering(
        node("n", cpu=1), pod("p", cpu=1), first=lambda c: c.delete(Pod, "p", "default")
    )
    (failed,) = only(Unschedulable, scheduler.step())
    assert failed.message == 'binding failed: pods "default/p" not found'

    cluster.create(pod("q", cpu=1))
    assert places(scheduler.step()) == {"q": "n"}
    scheduler.state.validate()


def test_pod_bound_by_another_scheduler_counts_there() -> None:
    """The other scheduler's bind wins."""
    cluster, _, scheduler = interfering(
        node("n", cpu=1),
        node("m", cpu=1, unschedulable=True),
        pod("p", cpu=1),
        first=lambda c: MemoryCluster.bind(c, [Binding("default", "p", "m")]),
    )
    assert only(Unschedulable, scheduler.step())
    assert scheduler.step() == []

    state = scheduler.state
    assert {key: state.nodes.names[p.row] for key, p in state.pods.by_key.items()} == {
        "default/p": "m"
    }
    assert scheduler.queue.get("default/p") is None
    assert cluster.get(Pod, "p", "default").spec.node_name == "m"
    state.validate()


def test_failed_bind_is_retried_after_a_backoff() -> None:
    """The backoff doubles at the second failure; the condition has the error."""
    cluster, clock, scheduler = interfering(
        node("n"), pod("p"), first=lambda _: ClusterError("connection lost")
    )
    cluster.first.append(lambda _: ClusterError("connection lost"))
    (failed,) = only(Unschedulable, scheduler.step())
    assert failed.message == "binding failed: connection lost"
    (scheduled,) = cluster.get(Pod, "p", "default").status.conditions
    assert (scheduled.status, scheduled.reason) == ("False", "SchedulerError")

    assert scheduler.step() == []
    assert scheduler.next_wakeup_s() == START_S + 2  # the whole second after 1 s have passed
    clock.advance_to(START_S + 2)
    assert only(Unschedulable, scheduler.step())
    assert scheduler.next_wakeup_s() == START_S + 5
    clock.advance_to(START_S + 5)
    assert places(scheduler.step()) == {"p": "n"}
    scheduler.state.validate()


def test_failed_bind_of_a_run_does_not_affect_the_others() -> None:
    """The pods were placed in one step."""
    _, _, scheduler = interfering(
        node("n", cpu=3),
        *(pod(f"p{index}", cpu=1) for index in range(3)),
        first=lambda c: c.delete(Pod, "p1", "default"),
    )

    assert places(scheduler.step()) == {"p0": "n", "p2": "n"}
    assert scheduler.state.nodes.requested[0, 0] == 2000
    scheduler.state.validate()


def test_gpus_of_a_failed_bind_are_released() -> None:
    """All assumed allocations are released."""
    clock = VirtualClock(START_S)
    cluster = Interfering(clock, lambda _: ClusterError("connection lost"))
    cluster.load(
        [
            node("n", **GPU_NODE),
            device("n", gpus=2),
            gpu_pod("p", gpu_core=100, gpu_memory_ratio=100),
        ]
    )
    scheduler = restarted(cluster, clock, GPUS)
    assert only(Unschedulable, scheduler.step())

    assert not scheduler.state.nodes.gpus.used.any()
    clock.advance_to(START_S + 2)
    assert places(scheduler.step()) == {"p": "n"}
    scheduler.state.validate()
