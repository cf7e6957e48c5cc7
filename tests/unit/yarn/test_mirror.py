"""Cached parts of nodes and pods: all that the operator reads, and little else."""

import json
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.yarn_clusters import BATCH_CPU, BATCH_MEMORY, kube_node

from koordinator.api.codec import decode
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.yarn.account import promise_patch, read_shares
from koordinator.yarn.mirror import YarnMirror, node_as_read, pod_as_read

_AMOUNTS = st.fixed_dictionaries(
    {},
    optional={
        BATCH_CPU: st.sampled_from(["0", "500", "2k"]),
        BATCH_MEMORY: st.sampled_from(["1Gi", "0"]),
        "cpu": st.just("1"),
    },
)
_CONTAINERS = st.lists(_AMOUNTS.map(lambda r: {"name": "c", "resources": {"requests": r}}))
_PODS = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {"name": st.sampled_from("ab"), "namespace": st.sampled_from(["x", "y"])},
            optional={
                "labels": st.sampled_from(
                    [{}, {"app.kubernetes.io/component": "node-manager", "tier": "z"}]
                ),
                "annotations": st.sampled_from(
                    [
                        {"note": "n" * 100},
                        {"yarn.hadoop.apache.org/node-id": "n1:8041"},
                        {
                            "yarn.hadoop.apache.org/node-id": "nonsense",
                            "yarn.hadoop.apache.org/cluster-id": "etl",
                        },
                    ]
                ),
                "creationTimestamp": st.just("2026-01-01T00:00:00Z"),
            },
        ),
        "spec": st.fixed_dictionaries(
            {"containers": _CONTAINERS, "nodeName": st.sampled_from(["", "n1", "n2"])},
            optional={
                "initContainers": _CONTAINERS,
                "overhead": _AMOUNTS,
                "volumes": st.just([{"name": "v"}]),
            },
        ),
        "status": st.fixed_dictionaries(
            {"phase": st.sampled_from(["Pending", "Running", "Failed"])},
            optional={
                "conditions": st.sampled_from(
                    [
                        [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
                        [{"type": "PodScheduled", "status": "False", "reason": "SchedulerError"}],
                        [{"type": "Ready", "status": "True"}],
                    ]
                )
            },
        ),
    }
)


def state(mirror: YarnMirror) -> object:
    """Return all that decisions read of pods."""
    nodes = ("n1", "n2")
    return (
        [mirror.requested(node) for node in nodes],
        [mirror.node_manager(node) for node in nodes],
        mirror.largest_waiting,
        sorted(mirror.with_node_managers()),
    )


@given(st.lists(st.tuples(_PODS, st.booleans()), max_size=8))
def test_omitted_pod_fields_change_no_decision(news: list[tuple[Any, bool]]) -> None:
    """Whole pods and reduced ones lead to the same decisions."""
    whole, kept = YarnMirror(), YarnMirror()
    for manifest, is_deleted in news:
        pod = decode(manifest, Pod)
        for mirror, each in ((whole, pod), (kept, pod_as_read(pod))):
            tuple(mirror.drop(each) if is_deleted else mirror.put(each))
        assert pod_as_read(pod).key == pod.key
        assert state(whole) == state(kept)


@pytest.mark.parametrize("noted", [True, False])
def test_omitted_node_fields_change_no_decision_and_no_write(noted: bool) -> None:
    """The shares and the patch are equal."""
    origin = {"resources": {BATCH_CPU: "4000", BATCH_MEMORY: "1Gi"}}
    other = {"name": "x", "priority": "koord-batch", "resources": {BATCH_CPU: "10"}}
    notes = {
        "node.koordinator.sh/originExtendedAllocatable": json.dumps(origin),
        "node.koordinator.sh/thirdPartyAllocations": json.dumps({"allocations": [other]}),
    }
    meta: dict[str, Any] = {"annotations": {"else": "z", **(notes if noted else {})}, "uid": "u"}
    node = kube_node("n1", **meta, resourceVersion="7", labels={"a": "b"})
    kept = node_as_read(node)

    assert isinstance(kept, Node)
    assert kept.metadata.labels == {}
    assert read_shares(kept) == read_shares(node)
    promise = read_shares(node).origin
    assert promise_patch(kept, promise) == promise_patch(node, promise)


def test_an_ordinary_pod_costs_next_to_nothing() -> None:
    """The pod shares its parts with all pods that are like it."""
    manifest: dict[str, Any] = {
        "metadata": {"name": "a", "namespace": "default", "labels": {"app": "x"}},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "x"}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }
    one, other = (pod_as_read(decode(manifest | {"metadata": {"name": n}}, Pod)) for n in "ab")

    assert isinstance(one, Pod)
    assert isinstance(other, Pod)
    assert one.spec is other.spec
    assert one.status is other.status
    assert sys.getsizeof(one.metadata) < 200
    assert msgspec.json.encode(one) != msgspec.json.encode(other)
