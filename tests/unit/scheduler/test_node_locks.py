"""Node locks for device plugins that serve one pod at a time."""

from typing import Any

import msgspec
import pytest
from tests.unit.scheduler.watches import nodes_of_pods
from tests.worlds import START_S, configuration, device, node, pod

from koordinator.api.device import Device
from koordinator.api.kubescheduler import FeatureGates
from koordinator.api.meta import KubeObject
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.simulator import Embedded

LOCK = "cambricon.com/dsmlu.lock"
GPU = "koordinator.sh/gpu"
HEADROOM: dict[str, Any] = {f"{GPU}.shared": 400, f"{GPU}-core": 400, f"{GPU}-memory": "320Gi"}
PART: dict[str, str | int] = {f"{GPU}.shared": 1, f"{GPU}-core": 25, f"{GPU}-memory": "6Gi"}
MLUS = configuration(plugins={"multiPoint": {"enabled": [{"name": "DeviceShare"}]}})


def cards() -> Device:
    report = device("n", gpus=4)
    labels = {"node.koordinator.sh/gpu-vendor": "cambricon"}
    return msgspec.structs.replace(
        report, metadata=msgspec.structs.replace(report.metadata, labels=labels)
    )


def locked_node(text: str) -> Node:
    bare = node("n", **HEADROOM)
    annotations = {LOCK: text} if text else {}
    return msgspec.structs.replace(
        bare, metadata=msgspec.structs.replace(bare.metadata, annotations=annotations)
    )


def scheduled(*objects: KubeObject, gates: set[str]) -> Embedded:
    one = Embedded(MLUS, now_s=START_S, gates=FeatureGates(frozenset(gates)))
    one.load(objects)
    one.scheduler.step()
    return one


def test_second_pod_waits_for_the_device_plugin() -> None:
    """The lock has time and pod; removing it admits the next pod."""
    first, second = pod("a", requests=PART), pod("b", requests=PART)
    one = scheduled(locked_node(""), cards(), first, second, gates={"DevicePluginAdaption"})

    assert nodes_of_pods(one) == {"a": "n", "b": ""}
    lock = one.cluster.get(Node, "n").metadata.annotations[LOCK]
    assert lock == "2023-11-14T22:13:20Z,default,a"
    (condition,) = one.cluster.get(Pod, "b", "default").status.conditions
    assert condition.message == 'binding failed: node "n" has been locked'

    one.cluster.patch(Node, "n", "", {"metadata": {"annotations": {LOCK: None}}})
    one.clock.advance_to(START_S + 60)
    one.scheduler.step()
    assert nodes_of_pods(one) == {"a": "n", "b": "n"}
    one.state.validate()


@pytest.mark.parametrize(
    ("text", "goes"),
    [
        ("2023-11-14T22:10:00Z,default,other", False),
        ("2023-11-14T22:08:00Z,default,other", True),
        ("2023-11-14T22:10:00Z,default,gone", True),
        ("2023-11-14T22:10:00Z,default,a", True),
        ("no lock", False),
    ],
    ids=["another pod's", "older than five minutes", "of a pod that is gone", "its own", "no lock"],
)
def test_locks_that_reject_a_pod(text: str, goes: bool) -> None:
    """A lock of another existing pod does so for five minutes; a malformed one forever."""
    one = scheduled(
        locked_node(text),
        cards(),
        pod("other", schedulerName="nobody"),
        pod("a", requests=PART),
        gates={"DevicePluginAdaption"},
    )

    assert nodes_of_pods(one)["a"] == ("n" if goes else "")
    one.state.validate()


def test_no_lock_without_the_gate() -> None:
    """No vendor annotations are written."""
    one = scheduled(locked_node(""), cards(), pod("a", requests=PART), gates=set())

    assert nodes_of_pods(one) == {"a": "n"}
    assert LOCK not in one.cluster.get(Node, "n").metadata.annotations
    assert (
        "CAMBRICON_DSMLU_PROFILE" not in one.cluster.get(Pod, "a", "default").metadata.annotations
    )
