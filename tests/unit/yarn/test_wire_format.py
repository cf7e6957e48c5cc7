"""Everything that crosses a process's border beside pods and YARN, spelt as the original spells it.

The names here are the original's, typed again from its sources; nothing is imported.
Source: koordinator apis/extension/node_colocation.go and priority.go; yarn-copilot
pkg/controller/noderesource, pkg/yarn, pkg/copilot-agent, cmd; charts koordinator-yarn-copilot.
"""

import json
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from tests.yarn_clusters import PlayedYarn, YarnWorld, kube_node

from koordinator.api.codec import decode
from koordinator.api.control_plane import YARN_OPERATOR_LEASE
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.cli.yarn.copilot import YarnCopilotFlags
from koordinator.cli.yarn.operator import YarnOperatorFlags
from koordinator.hadoop.amounts import BatchAmounts, YarnResource
from koordinator.hadoop.configuration import DEFAULT_CLUSTER
from koordinator.hadoop.port import YarnNode
from koordinator.yarn.account import YarnPolicy, promise_patch, read_shares
from koordinator.yarn.app import YarnMetrics, YarnOptions

GIB = 1 << 30
#: Of nodes: koord-manager writes the first, the operator its entry of the second.
ORIGIN = "node.koordinator.sh/originExtendedAllocatable"
THIRD_PARTIES = "node.koordinator.sh/thirdPartyAllocations"
#: Of the pod of a NodeManager.
NODE_ID = "yarn.hadoop.apache.org/node-id"
CLUSTER_ID = "yarn.hadoop.apache.org/cluster-id"
COMPONENT = ("app.kubernetes.io/component", "node-manager")
BATCH = ("kubernetes.io/batch-cpu", "kubernetes.io/batch-memory")
ORIGINALS_METRICS = (
    "yarn_node_cpu_resource",
    "yarn_node_memory_resource",
    "yarn_node_cpu_allocated_resource",
    "yarn_node_memory_allocated_resource",
)


def node(**annotations: str) -> Node:
    return kube_node(annotations=annotations, uid="u", resourceVersion="1")


def pod(**annotations: str) -> Pod:
    meta = {
        "name": "nm",
        "namespace": "hadoop-yarn",
        "labels": dict([COMPONENT]),
        "annotations": annotations,
    }
    spec = {"nodeName": "n1", "containers": [{"name": "nm"}]}
    return decode({"metadata": meta, "spec": spec, "status": {"phase": "Running"}}, Pod)


@pytest.mark.parametrize(
    ("text", "amounts"),
    [
        ('{"resources":{"kubernetes.io/batch-cpu":"30500","kubernetes.io/batch-memory":"64Gi"}}',
         BatchAmounts(30_500, 64 * GIB)),
        ('{"resources":{"kubernetes.io/batch-cpu":"30500","kubernetes.io/batch-memory":"68719476736"}}',
         BatchAmounts(30_500, 64 * GIB)),
        ('{"resources":{"kubernetes.io/batch-cpu":"7k"}}', BatchAmounts(7000, 0)),
        ('{"resources":{"kubernetes.io/batch-cpu":"0","kubernetes.io/batch-memory":"0"}}',
         BatchAmounts(0, 0)),
        ("{}", BatchAmounts(0, 0)),
        ('{"resources":null,"later":{"versions":["add"]}}', BatchAmounts(0, 0)),
    ],
)  # fmt: skip
def test_the_annotation_of_the_manager(text: str, amounts: BatchAmounts) -> None:
    """Go marshals quantities in their shortest form; a missing resource is 0."""
    assert read_shares(node(**{ORIGIN: text})).origin == amounts


def test_without_the_annotation_the_nodes_allocatable_counts() -> None:
    """As in the original."""
    it = kube_node()
    shown = dict(zip(BATCH, ("4k", "2Gi"), strict=True))
    it = decode({"metadata": {"name": "n1"}, "status": {"allocatable": shown}}, Node)
    assert read_shares(it).origin == BatchAmounts(4000, 2 * GIB)


def test_our_entry_is_written_as_go_writes_it() -> None:
    """Compact, fields and names in the original's order, others' entries as they were."""
    other = '{"name":"spark","priority":"koord-batch","resources":{"kubernetes.io/batch-cpu":"1k"}}'
    ours = (
        '{"name":"hadoop-yarn","priority":"koord-batch","resources":'
        '{"kubernetes.io/batch-cpu":"7k","kubernetes.io/batch-memory":"14Gi"}}'
    )
    promise = BatchAmounts(7000, 14 * GIB)
    before = node(**{THIRD_PARTIES: f'{{"allocations":[{other}]}}'})
    (written,) = promise_patch(before, promise)["metadata"]["annotations"].values()
    assert written == f'{{"allocations":[{other},{ours}]}}'

    again = read_shares(node(**{THIRD_PARTIES: written}))
    assert (again.promised, again.others) == (promise, BatchAmounts(1000, 0))
    mid = written.replace("koord-batch", "koord-mid")
    taken_off = read_shares(node(**{THIRD_PARTIES: mid}))
    assert (taken_off.promised, taken_off.others) == (BatchAmounts(), BatchAmounts())


@pytest.mark.parametrize("text", ['{"allocations":null}', "{}", "{", "[]", '{"allocations":[{}]}'])
def test_what_cannot_be_read_is_overwritten(text: str) -> None:
    """As in the original."""
    before = node(**{THIRD_PARTIES: text})
    (written,) = promise_patch(before, BatchAmounts(0, 0))["metadata"]["annotations"].values()
    (entry,) = json.loads(written)["allocations"]
    assert entry == {
        "name": "hadoop-yarn",
        "priority": "koord-batch",
        "resources": dict.fromkeys(BATCH, "0"),
    }


@pytest.mark.parametrize(
    ("annotations", "served"),
    [
        ({NODE_ID: "nm-0.example:8041"}, True),
        ({NODE_ID: "nm-0.example:8041", CLUSTER_ID: "__default_yarn_cluster__"}, True),
        ({NODE_ID: "nm-0.example:8041", CLUSTER_ID: "etl"}, False),
        ({NODE_ID: "nm-0.example"}, False),
    ],
)
def test_the_pod_names_its_node_manager(annotations: dict[str, str], served: bool) -> None:
    """``host:port``; without a cluster the default one."""
    it = YarnWorld(PlayedYarn("nm-0.example:8041"))
    it.cluster.load([pod(**annotations)])
    it.uses(0, 0)
    it.run()
    assert bool(it.yarn.requests) is served
    assert DEFAULT_CLUSTER == "__default_yarn_cluster__"


def test_the_manager_takes_off_what_the_original_operator_wrote() -> None:
    """``max(origin - third parties, 0)``, in allocatable and capacity; zero without NodeManager."""
    it = YarnWorld(options=YarnOptions(policy=YarnPolicy(is_original=True)))
    entry = (
        '{"allocations":[{"name":"hadoop-yarn","priority":"koord-batch","resources":'
        '{"kubernetes.io/batch-cpu":"7000","kubernetes.io/batch-memory":"14Gi"}}]}'
    )
    it.cluster.patch(Node, "n1", "", {"metadata": {"annotations": {THIRD_PARTIES: entry}}})
    it.uses(0, 0)
    it.manager.step()

    assert it.shown() == BatchAmounts(3000, 2 * GIB)
    capacity = it.node().status.capacity
    assert [str(capacity[name]) for name in BATCH] == ["3k", "2Gi"]
    origin = it.node().metadata.annotations[ORIGIN]
    assert origin == (
        '{"resources":{"kubernetes.io/batch-cpu":"10k","kubernetes.io/batch-memory":"16Gi"}}'
    )
    it.run()
    written = json.loads(it.node().metadata.annotations[THIRD_PARTIES])["allocations"]
    assert [each["resources"] for each in written] == [dict.fromkeys(BATCH, "0")]


def test_metrics_have_the_originals_names_labels_and_units() -> None:
    """By host, without the port; memory in bytes."""
    registry = CollectorRegistry()
    yarn = YarnNode("nm-0.example:8041", "RUNNING", YarnResource(4, 2048), YarnResource(1, 512))
    YarnMetrics(registry).show({"etl": {yarn.node_id: yarn}}, {"etl": True})
    lines = generate_latest(registry).decode().splitlines()
    values = (4.0, 2048.0 * (1 << 20), 1.0, 512.0 * (1 << 20))
    for name, value in zip(ORIGINALS_METRICS, values, strict=True):
        (line,) = (each for each in lines if each.startswith(f"{name}{{"))
        labels, _, number = line.removeprefix(name).partition("} ")
        assert labels == '{cluster="etl",instance="nm-0.example"'
        assert float(number) == value


def test_flags_left_out_mean_what_they_mean_in_the_original() -> None:
    """Exceptions are qps and burst, see docs/differences.md."""
    controller: dict[str, Any] = {
        "metrics_addr": ":8080",
        "health_probe_addr": ":8000",
        "enable_leader_election": "true",
        "leader_election_namespace": "koordinator-system",
    }
    operator = {"namespace": "", "controllers": "*"}
    copilot = {
        "server_endpoint": "/var/run/yarn-copilot/yarn-copilot.sock",
        "yarn_container_cgroup_path": "kubepods/besteffort/hadoop-yarn",
        "node_manager_endpoint": "localhost:8042",
        "cgroup_root_dir": "/sys/fs/cgroup/",
    }
    for flags, expected in (
        (YarnOperatorFlags(), operator),
        (YarnOperatorFlags().controller, controller),
        (YarnCopilotFlags(), copilot),
    ):
        assert {name: str(getattr(flags, name)) for name in expected} == expected
    assert YARN_OPERATOR_LEASE == "koordinator-yarn-operator"
