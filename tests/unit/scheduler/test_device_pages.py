"""Pages of devices, CPUs and NUMA nodes."""

import json

import pytest
from prometheus_client import CollectorRegistry
from tests.equipped_nodes import PLACES, POLICY, machine
from tests.unit.scheduler.conftest import NewEmbedded
from tests.unit.scheduler.watches import restarted
from tests.worlds import START_S, device, pod

from koordinator.api.device import Device
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.foundation.clock import VirtualClock
from koordinator.foundation.errors import NotFoundError
from koordinator.scheduler.features.metrics import SchedulerMetrics
from koordinator.simulator import Embedded

LSR = {"koordinator.sh/qosClass": "LSR"}
CORE, MEMORY, RATIO = (f"koordinator.sh/gpu-{what}" for what in ("core", "memory", "memory-ratio"))


@pytest.fixture
def one(embedded: NewEmbedded) -> Embedded:
    """Return a world with one node (two NUMA nodes, two GPUs, a NIC) and a pod that uses them."""
    wants = pod(
        "p",
        cpu=2,
        memory="2Gi",
        requests={"koordinator.sh/gpu": 50},
        labels=LSR,
        priority=9500,
    )
    labels = {POLICY: "SingleNUMANode"}
    scheduled = embedded(*machine("n", gpus=2, nics=1, labels=labels), wants, config=PLACES)
    scheduled.run_to_fixed_point()
    return scheduled


def page(one: Embedded, path: str, **given: str) -> object:
    answer = one.scheduler.pages(lambda question: question())[path](given)
    return json.loads(json.dumps(answer))  # plain data throughout


def test_device_summary_has_free_amounts_and_holders(one: Embedded) -> None:
    """The summary has sums of the node, and amounts by type and minor."""
    card = {CORE: "50", MEMORY: "20Gi", RATIO: "50"}
    summary = page(one, "/plugins/DeviceShare/nodeDeviceSummaries/{name}", name="n")

    assert isinstance(summary, dict)
    assert summary["deviceTotal"] == {
        CORE: "200",
        MEMORY: "80Gi",
        RATIO: "200",
        "koordinator.sh/rdma": "100",
    }
    assert summary["deviceUsed"] == card
    assert summary["deviceFree"][CORE] == "150"
    assert summary["deviceUsedDetail"] == {"gpu": {"0": card}}
    assert summary["deviceFreeDetail"]["gpu"]["0"] == card
    assert summary["deviceTotalDetail"]["rdma"] == {"0": {"koordinator.sh/rdma": "100"}}
    assert summary["allocateSet"] == {"gpu": {"default/p": {"0": card}}}
    assert page(one, "/plugins/DeviceShare/nodeDeviceSummaries") == {"n": summary}


def test_numa_page_has_cpus_and_numa_nodes(one: Embedded) -> None:
    """The page has totals, free amounts and the allocation of each pod."""
    response = page(one, "/plugins/NodeNUMAResource/nodes/{nodeName}", nodeName="n")

    assert isinstance(response, dict)
    allocated = [{"node": 0, "resources": {"cpu": "2", "memory": "2Gi"}}]
    assert response["numaTopologyPolicy"] == "SingleNUMANode"
    assert response["cpuTopology"]["numCPUs"] == 16
    assert response["cpuTopology"]["numCores"] == 8
    assert response["cpuTopology"]["cpuDetails"]["9"]["coreID"] == 1
    assert response["cpuTopology"]["cpuDetails"]["12"]["coreID"] == (1 << 16) + 4
    assert response["numaNodeResources"][1] == {
        "node": 1,
        "resources": {"cpu": "8", "memory": "16Gi"},
    }
    assert response["remainingNUMANodeResources"][0]["resources"] == {"cpu": "6", "memory": "14Gi"}
    assert response["allocatedNUMANodeResources"][0] == allocated[0]
    assert response["availableCPUs"] == "1-7,9-15"
    assert sorted(response["allocatedCPUs"]) == ["0", "8"]
    (mine,) = response["allocatedPods"]
    assert (mine["name"], mine["cpuset"], mine["numaNodeResources"]) == ("p", "0,8", allocated)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/plugins/DeviceShare/nodeDeviceSummaries/{name}", "name"),
        ("/plugins/NodeNUMAResource/nodes/{nodeName}", "nodeName"),
    ],
)
def test_unknown_node_is_not_found(one: Embedded, path: str, name: str) -> None:
    """The message names it."""
    with pytest.raises(NotFoundError, match="cannot find node elsewhere"):
        page(one, path, **{name: "elsewhere"})


def test_gauge_of_poorly_planned_nics() -> None:
    """The series exists while the node has the label."""
    label = "node.koordinator.sh/secondary-device-well-planned"
    clock, registry = VirtualClock(START_S), CollectorRegistry()
    cluster = MemoryCluster(clock)
    cluster.load([device("n"), device("m")])
    cluster.patch(Device, "n", "", {"metadata": {"labels": {label: "false"}}})
    cluster.patch(Device, "m", "", {"metadata": {"labels": {label: "true"}}})
    scheduler = restarted(cluster, clock, metrics=SchedulerMetrics(registry))
    scheduler.step()

    def shown(node: str) -> float | None:
        name = "scheduler_secondary_device_not_well_planned"
        return registry.get_sample_value(name, {"node_name": node})

    assert (shown("n"), shown("m")) == (1.0, None)
    cluster.patch(Device, "n", "", {"metadata": {"labels": {label: None}}})
    scheduler.step()
    assert shown("n") is None
