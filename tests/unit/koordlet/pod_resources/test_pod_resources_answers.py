"""Completion of the kubelet's answers, and waiting for pods."""

import json
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.nodes import Tree, pod

from koordinator.foundation.clock import SystemClock
from koordinator.foundation.errors import InputError
from koordinator.foundation.protobuf import decode_message, encode_message
from koordinator.koordlet.pod_resources import (
    ContainerDevices,
    ContainerResources,
    PodResources,
    PodResourcesAnswers,
    PodResourcesList,
)
from koordinator.koordlet.view.pods import PodView

RDMA, GPU = "koordinator.sh/rdma", "nvidia.com/gpu"


REQUESTS: dict[str, Any] = {key: {RDMA: 100, GPU: 1} for key in ("requests", "limits")}


def allocated(function: str, gpu: str = "GPU-a") -> dict[str, str]:
    """Return the annotations of a pod that has a virtual function and a GPU."""
    card = {"minor": 0, "extension": {"vfs": [{"minor": -1, "busID": function}]}}
    text = json.dumps({"rdma": [card], "gpu": [{"minor": 0, "id": gpu}]})
    return {"scheduling.koordinator.sh/device-allocated": text}


class Node:
    """Cgroups of pods, and what is answered about them."""

    def __init__(self, longest_wait_s: float = 0.0) -> None:
        self.tree = Tree()
        self.thieves: set[str] = set()  # pods whose devices are another's
        self.answers = PodResourcesAnswers(
            SystemClock(),
            self.tree.cgroups,
            check_devices=self.check,
            longest_wait_s=longest_wait_s,
        )

    def check(self, pod_: PodView) -> None:
        if pod_.pod.metadata.name in self.thieves:
            raise InputError("found what another pod has")

    def publish(self, *views: PodView) -> None:
        self.answers.publish(views)

    def ask(self, *pods: PodResources) -> tuple[PodResources, ...]:
        """Return the pods of the completed answer."""
        answer = self.answers.complete(encode_message(PodResourcesList(pods=pods)))
        return decode_message(PodResourcesList, answer).pods


def reported(name: str, *containers: str, **devices: str) -> PodResources:
    """Return a pod in the kubelet's answer; ``devices`` belong to its first container."""
    given_ = tuple(ContainerDevices(resource_name=key.replace("_", "/"), device_ids=(value,))
                   for key, value in devices.items())  # fmt: skip
    made = [ContainerResources(name=each) for each in containers or ("c0",)]
    made[0] = ContainerResources(name=made[0].name, devices=given_)
    return PodResources(name=name, namespace="default", containers=tuple(made))


def ids(pod_resources: PodResources) -> list[dict[str, tuple[str, ...]]]:
    """Return devices by resource, container by container."""
    return [
        {each.resource_name: each.device_ids for each in container.devices}
        for container in pod_resources.containers
    ]


def test_first_container_has_the_scheduler_s_devices() -> None:
    """Sorted by resource with the kubelet's devices; other pods are unchanged."""
    node = Node()
    node.publish(
        node.tree.add_pod(pod("job", **REQUESTS, annotations=allocated("0000:01:00.2"))),
        node.tree.add_pod(pod("plain")),
    )
    job, plain = node.ask(reported("job", "c0", "c1", m_plugin="x"), reported("plain"))
    expected = {RDMA: ("0000:01:00.2",), "m/plugin": ("x",), GPU: ("GPU-a",)}
    assert ids(job) == [expected, {}]
    assert list(ids(job)[0]) == sorted(expected)
    assert plain == reported("plain")


def test_resource_reported_by_the_kubelet_is_kept() -> None:
    """A device plugin that the scheduler informed knows which container has which GPU."""
    node = Node()
    node.publish(node.tree.add_pod(pod("job", **REQUESTS, annotations=allocated("0000:01:00.2"))))
    own = ContainerDevices(resource_name=GPU, device_ids=("GPU-b",))
    pod_resources = PodResources(
        name="job",
        namespace="default",
        containers=(
            ContainerResources(name="c0"),
            ContainerResources(name="c1", devices=(own,)),
        ),
    )
    (job,) = node.ask(pod_resources)
    assert ids(job) == [{RDMA: ("0000:01:00.2",)}, {GPU: ("GPU-b",)}]


def test_pod_without_cgroup_has_no_devices() -> None:
    """A deleted pod of the same name had another device, which may belong to another pod now."""
    node = Node()
    without_cgroup = pod("job-0", **REQUESTS, annotations=allocated("0000:01:00.2"))
    ended = pod("job-1", **REQUESTS, annotations=allocated("0000:01:00.3"), phase="Succeeded")
    node.publish(
        node.tree.add_pod(ended), PodView(without_cgroup, "kubepods/besteffort/podother", ())
    )
    assert node.ask(reported("job-0"), reported("job-1")) == (reported("job-0"), reported("job-1"))


def test_a_malformed_allocation_costs_its_own_pod_the_devices() -> None:
    """Devices of other pods are reported."""
    node = Node()
    hostile = {"scheduling.koordinator.sh/device-allocated": "{" * 1000}
    node.publish(
        node.tree.add_pod(pod("hostile", annotations=hostile)),
        node.tree.add_pod(pod("job", **REQUESTS, annotations=allocated("0000:01:00.2"))),
    )
    hostile_answer, job = node.ask(reported("hostile"), reported("job"))
    assert ids(hostile_answer) == [{}]
    assert RDMA in ids(job)[0]


def test_a_pod_without_containers_is_passed_on() -> None:
    """A kubelet does not report such a pod."""
    node = Node()
    node.publish(node.tree.add_pod(pod("job", **REQUESTS, annotations=allocated("0000:01:00.2"))))
    empty = PodResources(name="job", namespace="default")
    assert node.ask(empty) == (empty,)


def test_fields_of_kubelets_to_come_arrive() -> None:
    """Fields of later versions are passed on with the known ones."""
    node = Node()
    node.publish(node.tree.add_pod(pod("job", **REQUESTS, annotations=allocated("0000:01:00.2"))))
    later = bytes([15 << 3 | 2, 3]) + b"new"
    container = ContainerResources(name="c0", rest=later)
    pod_resources = PodResources(
        name="job", namespace="default", containers=(container,), rest=later
    )
    (job,) = node.ask(pod_resources)
    assert (job.rest, job.containers[0].rest) == (later, later)
    assert RDMA in ids(job)[0]


@given(st.binary(max_size=200))
def test_undecodable_answer_is_passed_through(data: bytes) -> None:
    """The client receives at least the kubelet's answer."""
    assert Node().answers.complete(data) == data


@pytest.mark.slow
def test_starting_pod_is_awaited() -> None:
    """The kubelet receives a pod at the same time, and sets up its network immediately."""
    node = Node(longest_wait_s=30.0)
    view = node.tree.add_pod(pod("job", **REQUESTS, annotations=allocated("0000:01:00.2")))
    threading.Timer(0.1, lambda: node.publish(view)).start()
    (job,) = node.ask(reported("job"))
    assert RDMA in ids(job)[0]


@pytest.mark.slow
def test_a_pod_that_follows_one_of_its_name_gets_its_own_device() -> None:
    """As in a StatefulSet: the first cgroup is removed before the second pod is published."""
    node = Node(longest_wait_s=30.0)
    first = pod("job-0", **REQUESTS, annotations=allocated("0000:01:00.2"))
    node.publish(PodView(first, "kubepods/besteffort/poduid-first", ()))
    second = node.tree.add_pod(pod("job-0", **REQUESTS, annotations=allocated("0000:01:00.3")))
    threading.Timer(0.1, lambda: node.publish(second)).start()
    (job,) = node.ask(reported("job-0"))
    assert ids(job)[0][RDMA] == ("0000:01:00.3",)


@pytest.mark.slow
def test_missing_pod_is_awaited_once() -> None:
    """Without an API server the kubelet's own answer goes out, and at once from then on."""
    node = Node(longest_wait_s=0.3)
    clock = SystemClock()
    assert node.ask(reported("unknown")) == (reported("unknown"),)
    began_s = clock.now_s()
    for _ in range(20):
        node.ask(reported("unknown"))
    assert clock.now_s() - began_s < 20 * 0.3


def test_device_of_another_pod_is_withheld_until_it_is_free() -> None:
    """Pods that did not change are looked at again when others do."""
    node = Node()
    view = node.tree.add_pod(pod("p", **REQUESTS, annotations=allocated("0000:1f:00.2")))
    node.thieves = {"p"}
    node.publish(view)
    assert ids(node.ask(reported("p"))[0]) == [{}]
    node.thieves = set()
    node.publish(view)
    assert ids(node.ask(reported("p"))[0]) == [{RDMA: ("0000:1f:00.2",), GPU: ("GPU-a",)}]
