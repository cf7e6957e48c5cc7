"""Objects that make no sense to us: one of them must not stop the rest."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from tests.e2e.faults.stage import DEVICES, NODES, WITH_GPUS, Stage
from tests.e2e.fleet import Manifest, create, device, gpu_node, gpu_pod, node, pod
from tests.e2e.waiting import eventually
from tests.e2e.witness import ALLOCATED, overcommitted, pods


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


def is_logged(stage: Stage, kind: str, name: str) -> bool:
    """Return whether a log line reports that an object was skipped."""
    line = rf'object left out.* kind="{kind}" object="{name}".* error='
    return re.search(line, stage.scheduler.log.read_text()) is not None


@pytest.mark.parametrize("is_there_before", [True, False])
def test_a_node_that_makes_no_sense_is_left_out_until_it_does(
    stage: Stage, is_there_before: bool
) -> None:
    """The node is in the first list or in the stream; the log names it."""
    nodes = node("bad", pods=1), node("good", pods=1)
    mend = stage.interposer.change(NODES, spoilt("bad", "status", "allocatable", "cpu"))
    if is_there_before:
        stage.add_nodes(*nodes)
    stage.start()
    if not is_there_before:
        stage.add_nodes(*nodes)

    eventually(lambda: is_logged(stage, "Node", "bad"))
    stage.add_pods(pod("a"), pod("b"))
    stage.wait_for_waiting(1)
    stage.witness.wait_for(1)
    assert set(stage.witness.bound.values()) == {"good"}

    mend()
    stage.touch(f"{NODES}/bad")
    stage.witness.wait_for(2)
    assert set(stage.witness.bound.values()) == {"good", "bad"}


def test_a_node_that_ceases_to_make_sense_stays_as_it_was(stage: Stage) -> None:
    """Pods on it still count, and more may come."""
    stage.start()
    stage.add_nodes(node("n1", pods=2))
    stage.add_pods(pod("a"))
    stage.witness.node_of("a")

    stage.interposer.change(NODES, spoilt("n1", "status", "allocatable", "cpu"))
    stage.touch(f"{NODES}/n1")
    eventually(lambda: is_logged(stage, "Node", "n1"))
    stage.add_pods(pod("b"), pod("c"))

    stage.wait_for_waiting(1)
    stage.witness.wait_for(2)
    assert not overcommitted(stage.api)


@pytest.mark.parametrize("is_there_before", [True, False])
def test_a_device_that_makes_no_sense_is_left_out_until_it_does(
    stage: Stage, is_there_before: bool
) -> None:
    """The GPUs of other nodes are given out meanwhile."""
    devices = [device("bad", 1), device("good", 1)]
    mend = stage.interposer.change(DEVICES, spoilt("bad", "spec", "devices", 0, "minor"))
    stage.add_nodes(gpu_node("good", 1), cordoned(gpu_node("bad", 1)))
    if is_there_before:
        create(stage.api, DEVICES, devices)
    stage.start(WITH_GPUS)
    if not is_there_before:
        create(stage.api, DEVICES, devices)

    eventually(lambda: is_logged(stage, "Device", "bad"))
    stage.add_pods(gpu_pod("a", 100), gpu_pod("b", 100))
    stage.wait_for_waiting(1)
    stage.witness.wait_for(1)
    assert set(stage.witness.bound.values()) == {"good"}

    mend()
    stage.touch(f"{DEVICES}/bad")
    stage.controlplane.kubectl("uncordon", "bad")
    stage.witness.wait_for(2)
    assert set(stage.witness.bound.values()) == {"good", "bad"}
    assert [gpus_of(it) for it in pods(stage.api)] == [[0], [0]]


def cordoned(manifest: Manifest) -> Manifest:
    """Return a node that takes no new pods."""
    return manifest | {"spec": {"unschedulable": True}}


def gpus_of(manifest: Manifest) -> list[int]:
    """Return which GPUs a pod was given, by their minor."""
    allocated = json.loads(manifest["metadata"].get("annotations", {}).get(ALLOCATED, "{}"))
    return [it["minor"] for it in allocated.get("gpu", ())]
