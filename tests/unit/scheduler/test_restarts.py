"""Restarts of schedulers and recreated nodes: the stored objects count."""

from typing import Any

import numpy as np
from tests.unit.scheduler.conftest import NewEmbedded
from tests.unit.scheduler.watches import later, only, places, restarted
from tests.worlds import HOSTNAME, START_S, configuration, device, gpu_pod, node, pod

from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.foundation.clock import VirtualClock
from koordinator.scheduler.loop import (
    Unschedulable,
)
from koordinator.scheduler.queue import QueueState

GPUS = configuration(plugins={"multiPoint": {"enabled": [{"name": "DeviceShare"}]}})
GPU_NODE: dict[str, Any] = {"koordinator.sh/gpu-core": 200, "koordinator.sh/gpu-memory-ratio": 200}


def test_pods_of_a_recreated_node_count_again(embedded: NewEmbedded) -> None:
    """The node's pods keep their allocations without the node object."""
    one = embedded(node("n", cpu=1), pod("b", cpu=1, on="n"))
    one.scheduler.step()
    one.cluster.delete(Node, "n")
    one.cluster.create(pod("p", cpu=1))
    (failed,) = only(Unschedulable, one.scheduler.step())
    assert failed.message == "no nodes available to schedule pods"

    one.cluster.create(node("n", cpu=1))
    assert only(Unschedulable, later(one, 5.0))
    one.cluster.delete(Pod, "b", "default")
    assert places(later(one, 5.0)) == {"p": "n"}


def test_pod_deleted_with_its_node_does_not_return(embedded: NewEmbedded) -> None:
    """A pod that finished without its node does not return, too."""
    one = embedded(node("n", cpu=2), pod("b", cpu=1, on="n"), pod("c", cpu=1, on="n"))
    one.scheduler.step()
    one.cluster.delete(Node, "n")
    one.scheduler.step()
    one.cluster.delete(Pod, "b", "default")
    one.cluster.patch(Pod, "c", "default", {"status": {"phase": "Failed"}}, "status")
    one.cluster.create(node("n", cpu=2))
    one.scheduler.step()

    assert one.state.nodes.requested[0, 0] == 0


def test_a_restarted_scheduler_has_the_same_state(embedded: NewEmbedded) -> None:
    """Requests, ports and devices are all stored."""
    one = embedded(
        *(part for n in "abc" for part in (node(n, **GPU_NODE), device(n, gpus=2))),
        *(gpu_pod(f"g{i}", gpu_core=30, gpu_memory_ratio=40) for i in range(8)),
        *(pod(f"p{i}", cpu=1, memory="1Gi", ports=[8080]) for i in range(3)),
        config=GPUS,
    )
    one.run_to_fixed_point()
    again = restarted(one.cluster, one.clock, GPUS)
    again.sync()

    first, second = one.state.nodes, again.state.nodes
    assert first.names == second.names
    assert first.gpus.used.any()
    assert np.array_equal(first.gpus.used, second.gpus.used)
    assert first.ports.keys() == second.ports.keys()
    for name, column in {n: i for i, n in enumerate(one.state.axis.names)}.items():
        other = again.state.axis.index(name)
        assert np.array_equal(first.requested[column], second.requested[other])
    assert again.step() == []
    again.state.validate()


def test_restarted_scheduler_continues_with_pending_pods() -> None:
    """Nominations are included: they are stored in the pods."""
    clock = VirtualClock(START_S)
    cluster = MemoryCluster(clock, immediate_pod_deletion=False)
    cluster.load([node("n", cpu=1), pod("low", cpu=1, on="n"), pod("p", cpu=1, priority=10)])
    restarted(cluster, clock).step()
    cluster.delete(Pod, "low", "default", grace_period_s=0)
    cluster.load([pod("thief", cpu=1, priority=5)])
    again = restarted(cluster, clock)

    assert places(again.step()) == {"p": "n"}
    assert again.queue.counts()[QueueState.UNSCHEDULABLE] == 1


def test_restart_keeps_the_queue_order() -> None:
    """The oldest pods come first, whatever their names."""
    clock = VirtualClock(START_S)
    cluster = MemoryCluster(clock)
    cluster.load([node("n", cpu=1)])
    for name in ("z", "m", "a"):
        clock.advance_to(clock.now_s() + 60)
        cluster.create(pod(name, cpu=1))

    assert list(places(restarted(cluster, clock).step())) == ["z"]


def test_labels_that_come_with_the_bind_count(embedded: NewEmbedded) -> None:
    """The API server copies the node's zone to the pod, which anti-affinity terms see."""
    one = embedded(node("n", cpu=4), pod("p", cpu=1, labels={"app": "a"}))
    one.scheduler.step()
    one.cluster.patch(Pod, "p", "default", {"metadata": {"labels": {"zone": "z"}}})
    selector = {"labelSelector": {"matchLabels": {"zone": "z"}}}
    away = {
        "requiredDuringSchedulingIgnoredDuringExecution": [selector | {"topologyKey": HOSTNAME}]
    }
    one.cluster.create(pod("q", cpu=1, affinity={"podAntiAffinity": away}))

    (refused,) = only(Unschedulable, one.scheduler.step())
    assert "anti-affinity" in refused.message
    one.scheduler.state.validate()


def test_warming_up_leaves_no_trace(embedded: NewEmbedded) -> None:
    """Warming up places no pod, and later decisions are the same."""
    objects = (node("n", cpu=1), node("m", cpu=1), pod("p", cpu=1), pod("q", cpu=1))
    one, cold = embedded(*objects), embedded(*objects)
    one.scheduler.warm_up()

    assert not one.scheduler.state.pods.by_key
    assert places(one.scheduler.step()) == places(cold.scheduler.step())
