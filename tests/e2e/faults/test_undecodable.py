"""Objects that make no sense to us: one of them must not stop the rest."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from tests.e2e.controlplane import ControlPlane
from tests.e2e.fleet import create, device, gpu_node, gpu_pod, node, pod
from tests.e2e.interposer import Interposer, Manifest
from tests.e2e.scheduler_process import SchedulerProcess
from tests.e2e.waiting import eventually
from tests.e2e.witness import ALLOCATED, Witness, overcommitted, overgiven_gpus, pods

DEVICES = "/apis/scheduling.koordinator.sh/v1alpha1/devices"
WITH_GPUS = {
    "leaderElection": {"leaderElect": False},
    "profiles": [{"plugins": {"multiPoint": {"enabled": [{"name": "DeviceShare"}]}}}],
}
NODES_PATH = r"^/api/v1/nodes\?"
DEVICES_PATH = r"/devices\?"
WAITING = 'scheduler_pending_pods{queue="unschedulable"}'


def spoilt(name: str, *path: str | int) -> Callable[[Manifest], Manifest]:
    """Return what puts a text that means nothing into one field of the object of a name."""

    def spoil(manifest: Manifest) -> Manifest:
        if manifest["metadata"]["name"] == name:
            inside: Any = manifest
            for step in path[:-1]:
                inside = inside[step]
            inside[path[-1]] = "nonsense"
        return manifest

    return spoil


def is_logged(scheduler: SchedulerProcess, kind: str, name: str) -> bool:
    """Return whether a line of the log says that an object was left out."""
    line = rf'object left out.* kind="{kind}" object="/?{name}".* error='
    return re.search(line, scheduler.log.read_text()) is not None


def touch(controlplane: ControlPlane, path: str) -> None:
    """Write an object anew, so that a watch tells of it."""
    patch = {"metadata": {"annotations": {"test/touched": "yes"}}}
    controlplane.api.request("PATCH", path, patch, content_type="application/merge-patch+json")


@pytest.fixture
def own_pods(namespace: str) -> str:
    """The path of the pods of the test."""
    return f"/api/v1/namespaces/{namespace}/pods"


@pytest.mark.parametrize("is_there_before", [True, False])
def test_a_node_that_makes_no_sense_is_left_out_until_it_does(
    controlplane: ControlPlane,
    own_pods: str,
    start_scheduler: Callable[..., SchedulerProcess],
    interposer: Interposer,
    witness: Witness,
    is_there_before: bool,
) -> None:
    """Be it in the first list or in the stream; the log names it."""
    api = controlplane.api
    nodes = [node("bad", pods=1), node("good", pods=1)]
    mend = interposer.change(NODES_PATH, spoilt("bad", "status", "allocatable", "cpu"))
    if is_there_before:
        create(api, "/api/v1/nodes", nodes)
    scheduler = start_scheduler()
    if not is_there_before:
        create(api, "/api/v1/nodes", nodes)

    eventually(lambda: is_logged(scheduler, "Node", "bad"))
    create(api, own_pods, [pod("a"), pod("b")])
    witness.wait_for(1)
    eventually(lambda: scheduler.metric(WAITING) == 1)
    assert set(witness.bound.values()) == {"good"}

    mend()
    touch(controlplane, "/api/v1/nodes/bad")
    witness.wait_for(2)
    assert set(witness.bound.values()) == {"good", "bad"}
    assert not overcommitted(api)


def test_a_node_that_ceases_to_make_sense_stays_as_it_was(
    controlplane: ControlPlane,
    own_pods: str,
    scheduler: SchedulerProcess,
    interposer: Interposer,
    witness: Witness,
) -> None:
    """Pods on it still count, and more may come."""
    api = controlplane.api
    create(api, "/api/v1/nodes", [node("n1", pods=2)])
    create(api, own_pods, [pod("a")])
    witness.node_of("a")

    interposer.change(NODES_PATH, spoilt("n1", "status", "allocatable", "cpu"))
    touch(controlplane, "/api/v1/nodes/n1")
    eventually(lambda: is_logged(scheduler, "Node", "n1"))
    create(api, own_pods, [pod("b"), pod("c")])

    witness.wait_for(2)
    eventually(lambda: scheduler.metric(WAITING) == 1)
    assert not overcommitted(api)


@pytest.mark.parametrize("is_there_before", [True, False])
def test_a_device_that_makes_no_sense_is_left_out_until_it_does(
    controlplane: ControlPlane,
    own_pods: str,
    start_scheduler: Callable[..., SchedulerProcess],
    interposer: Interposer,
    witness: Witness,
    is_there_before: bool,
) -> None:
    """The GPUs of other nodes are given out meanwhile."""
    api = controlplane.api
    devices = [device("bad", 1), device("good", 1)]
    mend = interposer.change(DEVICES_PATH, spoilt("bad", "spec", "devices", 0, "minor"))
    create(api, "/api/v1/nodes", [gpu_node("good", 1), cordoned(gpu_node("bad", 1))])
    if is_there_before:
        create(api, DEVICES, devices)
    scheduler = start_scheduler(WITH_GPUS)
    if not is_there_before:
        create(api, DEVICES, devices)

    eventually(lambda: is_logged(scheduler, "Device", "bad"))
    create(api, own_pods, [gpu_pod("a", 100), gpu_pod("b", 100)])
    witness.wait_for(1)
    eventually(lambda: scheduler.metric(WAITING) == 1)
    assert set(witness.bound.values()) == {"good"}

    mend()
    touch(controlplane, f"{DEVICES}/bad")
    controlplane.kubectl("uncordon", "bad")
    witness.wait_for(2)
    assert set(witness.bound.values()) == {"good", "bad"}
    assert [minors(it) for it in pods(api)] == [[0], [0]]
    assert not overgiven_gpus(api)


def cordoned(manifest: Manifest) -> Manifest:
    """Return a node that takes no new pods."""
    return manifest | {"spec": {"unschedulable": True}}


def minors(manifest: Manifest) -> list[int]:
    """Return which GPUs a pod was given."""
    allocated = json.loads(manifest["metadata"].get("annotations", {}).get(ALLOCATED, "{}"))
    return [it["minor"] for it in allocated.get("gpu", ())]
