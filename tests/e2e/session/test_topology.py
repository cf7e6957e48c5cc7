"""A job is gathered in the network, and its user can see where, or why not."""

import json
from collections.abc import Iterator

import pytest
from tests.e2e.session.manifests import Manifest, node, pod
from tests.e2e.session.user import User
from tests.e2e.waiting import eventually

LABEL = "pod-group.scheduling.sigs.k8s.io"
SPEC = "gang.scheduling.koordinator.sh/network-topology-spec"
PLURAL = "clusternetworktopologies"
PERIOD_S = 30.0  # more than it takes until the status is written the next time


def validity(user: User) -> list[str]:
    """Return the status of the conditions of the network: there is one at most."""
    cluster_topology = json.loads(user.kubectl("get", PLURAL, "default", "-o", "json"))
    return [one["status"] for one in cluster_topology.get("status", {}).get("conditions", ())]


def topology(parent_of_block: str = "SpineLayer") -> Manifest:
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "ClusterNetworkTopology",
        "metadata": {"name": "default"},
        "spec": {
            "networkTopologySpec": [
                {"topologyLayer": "SpineLayer", "labelKey": ["net/spine"]},
                {
                    "topologyLayer": "BlockLayer",
                    "parentTopologyLayer": parent_of_block,
                    "labelKey": ["net/block"],
                },
                {"topologyLayer": "NodeTopologyLayer", "parentTopologyLayer": "BlockLayer"},
            ]
        },
    }


def group(name: str, least: int) -> Manifest:
    rules = [{"layer": "BlockLayer", "strategy": "MustGather"}]
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name, "annotations": {SPEC: json.dumps({"gatherStrategy": rules})}},
        "spec": {"minMember": least},
    }


def members(name: str, count: int) -> Iterator[Manifest]:
    for index in range(count):
        yield pod(f"{name}-{index}", "1", labels={LABEL: name}, schedulerName="gangs")


def wired(name: str, cpu: str, block: str) -> Manifest:
    return node(name, cpu, labels={"net/spine": "s0", "net/block": block})


@pytest.fixture(autouse=True)
def _no_topology_left(user: User) -> Iterator[None]:
    """Delete the object, which is of the whole cluster, before the next test."""
    yield
    user.kubectl("delete", PLURAL, "--all")


def test_a_job_is_gathered_in_a_block(user: User) -> None:
    """Without room in any block every member gets the reason; with room all are placed in one."""
    user.apply(topology(), wired("a0", "2", "a"), wired("b0", "2", "b"), wired("b1", "1", "b"))
    user.apply(group("train", 4), *members("train", 4))

    def all_know() -> bool:
        messages = [user.condition_of(f"train-{i}", "PodScheduled")["message"] for i in range(4)]
        return all("BlockLayer/b: 3" in text for text in messages)

    eventually(all_know)
    assert all(user.is_pending(f"train-{i}") for i in range(4))

    user.apply(wired("b2", "1", "b"))
    placed = user.nodes_of(*(f"train-{i}" for i in range(4)))
    assert placed == ["b0", "b0", "b1", "b2"]

    def blocks() -> bool:
        stored = json.loads(user.kubectl("get", PLURAL, "default", "-o", "json"))
        details = stored.get("status", {}).get("detailStatus", [])
        sizes = {d["topologyInfo"]["topologyName"]: d["nodeNum"] for d in details}
        return {"a": 1, "b": 3}.items() <= sizes.items()

    eventually(blocks)


def test_a_topology_that_makes_no_sense_gets_an_event(user: User) -> None:
    """Jobs that must be gathered wait for a better one; it is mended, and they start."""
    user.apply(topology(parent_of_block="BlockLayer"), wired("a0", "2", "a"))
    user.apply(group("train", 2), *members("train", 2))

    def warning() -> bool:
        message = user.condition_of("train-0", "PodScheduled")["message"]
        return "no cluster network topology" in message

    eventually(warning)
    events = user.kubectl("get", "events", "--all-namespaces", "-o", "json")
    assert "names a parent of itself" in events
    eventually(lambda: validity(user) == ["False"])

    user.apply(topology())
    user.nodes_of("train-0", "train-1")
    eventually(lambda: validity(user) == ["True"], PERIOD_S)
