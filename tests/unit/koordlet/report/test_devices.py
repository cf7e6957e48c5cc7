"""Report of a node's accelerators and RDMA cards."""

import json
from dataclasses import replace
from typing import Any

from tests.memory_host import MemoryHost
from tests.nodes import GIB, START_S, machine

from koordinator.api.annotations.devices import read_gpu_partitions
from koordinator.host.gpus import Gpu, GpuProblem
from koordinator.koordlet.collectors.accelerators import rdma_functions, read_xpus
from koordinator.koordlet.report.devices import (
    RdmaCard,
    device_of,
    label_value,
    merged_device,
    of_daemon,
    of_driver,
)

NODE = machine().node


def gpu(minor: int, model: str = "NVIDIA A100 SXM4 80GB") -> Gpu:
    """Return a GPU of the driver."""
    return Gpu(
        minor=minor,
        uuid=f"GPU-{minor}",
        model=model,
        memory_bytes=80 * GIB,
        bus_id=f"0000:0{minor}:00.0",
        pcie_id="pci0000:00",
        numa_node=0,
    )


def test_gpus_of_the_driver() -> None:
    """A hundred percent each, and all of their memory; by minor."""
    device = device_of(NODE, of_driver([gpu(1), gpu(0)], "550.1", START_S), [])

    assert device.metadata.labels == {
        "node.koordinator.sh/gpu-vendor": "nvidia",
        "node.koordinator.sh/gpu-model": "A100-SXM4-80GB",
        "node.koordinator.sh/gpu-driver-version": "550.1",
    }
    assert [info.minor for info in device.spec.devices] == [0, 1]
    first = device.spec.devices[0]
    assert {name: str(amount) for name, amount in first.resources.items()} == {
        "koordinator.sh/gpu-core": "100",
        "koordinator.sh/gpu-memory": "80Gi",
        "koordinator.sh/gpu-memory-ratio": "100",
    }
    assert first.topology is not None
    assert (first.topology.node_id, first.topology.pcie_id) == (0, "pci0000:00")
    assert device.metadata.owner_references[0].kind == "Node"


def test_gpus_of_several_models_have_no_common_one() -> None:
    """The label is left out."""
    labels = device_of(NODE, of_driver([gpu(0), gpu(1, "T4")], "", START_S), []).metadata.labels

    assert set(labels) == {"node.koordinator.sh/gpu-vendor"}


def xpu(minor: str, *, healthy: bool = True, **topology: Any) -> dict[str, Any]:
    """Return what a device daemon writes of one card."""
    return {
        "vendor": "huawei",
        "model": "Ascend-910B",
        "uuid": f"npu-{minor}",
        "minor": minor,
        "resources": {"gpu-core": "100", "gpu-memory": "64Gi", "huawei.com/npu-cpu": "x"},
        "topology": {"nodeID": "1", "pcieID": "p", "busID": "b", **topology},
        "status": {"healthy": healthy, "errCode": "" if healthy else "Overheated"},
    }


def test_accelerators_of_a_daemon_with_their_links() -> None:
    """Each partition is listed once, even if several name it; invalid amounts are skipped."""
    links = [{"peerMinor": "0,1", "type": "HCCS"}]
    host = MemoryHost(
        {
            "/x/a.json": json.dumps([xpu("0", p2pLinks=links, mustHonorPartition=True)]),
            "/x/b.json": json.dumps([xpu("1", healthy=False, p2pLinks=links)]),
            "/x/c.json": '[{"vendor":',
        }
    )
    device = device_of(NODE, of_daemon(read_xpus(host, "/x"), START_S), [])

    assert device.metadata.labels == {
        "node.koordinator.sh/gpu-vendor": "huawei",
        "node.koordinator.sh/gpu-model": "Ascend-910B",
        "node.koordinator.sh/gpu-partition-policy": "Honor",
    }
    table = read_gpu_partitions(device.metadata)
    assert table is not None
    assert [(p.minors, p.gpu_link_type) for p in table[2]] == [((0, 1), "HCCS")]
    good, bad = device.spec.devices
    assert set(good.resources) == {
        "koordinator.sh/gpu-core",
        "koordinator.sh/gpu-memory",
        "koordinator.sh/gpu-memory-ratio",
    }
    assert (good.health, bad.health) == (True, False)
    assert (bad.conditions[0].status, bad.conditions[0].reason) == ("False", "Overheated")


def test_a_condition_that_stays_keeps_its_time() -> None:
    """Labels of others stay as well."""

    def made(now_s: float, *, healthy: bool) -> Any:
        host = MemoryHost({"/x/a": json.dumps([xpu("0", healthy=healthy)])})
        return device_of(NODE, of_daemon(read_xpus(host, "/x"), now_s), [])

    old = made(START_S, healthy=True)
    same = merged_device(old, made(START_S + 60, healthy=True))
    worse = merged_device(old, made(START_S + 60, healthy=False))

    assert same == old
    assert worse.spec.devices[0].conditions[0].last_transition_time.timestamp() == START_S + 60


def test_rdma_cards_with_their_virtual_functions() -> None:
    """Found in sysfs; a virtual function is part of its card."""
    host = MemoryHost(
        {
            "/sys/devices/pci0000:10/0000:11:00.0/numa_node": "1\n",
            "/sys/devices/pci0000:10/0000:11:00.1/physfn/x": "",
            "/sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n",
        }
    )
    card = "/sys/devices/pci0000:10/0000:11:00.0"
    host.link("/sys/class/infiniband/mlx5_0/device", card)
    host.link("/sys/class/infiniband/mlx5_1/device", "/sys/devices/pci0000:10/0000:11:00.1")
    host.link(f"{card}/virtfn0", "/sys/devices/pci0000:10/0000:11:00.1")

    (functions,) = rdma_functions(host, "/sys")
    assert (functions.bus_id, functions.numa_node, functions.pcie_id) == (
        "0000:11:00.0",
        1,
        "pci0000:10",
    )
    assert functions.virtual_functions == ("0000:11:00.1",)
    cards = [RdmaCard(0, functions.bus_id, 1, functions.pcie_id, True, functions.virtual_functions)]
    (info,) = device_of(NODE, None, cards).spec.devices
    assert (info.type, str(info.resources["koordinator.sh/rdma"])) == ("rdma", "100")
    assert [vf.bus_id for vf in info.vf_groups[0].vfs] == ["0000:11:00.1"]


def test_label_values_are_valid() -> None:
    """No blanks, no ends of punctuation, 63 characters."""
    assert label_value(" Tesla P100 (16GB)") == "Tesla-P100--16GB"
    assert len(label_value("x" * 100)) == 63


def test_broken_gpu_is_unhealthy_with_a_reason() -> None:
    """By its condition, which keeps the time since when it is so."""
    broken = replace(gpu(0), problem=GpuProblem("Xid79", "fell off the bus"))
    first = device_of(NODE, of_driver([broken, gpu(1)], "", START_S), [])
    later = device_of(NODE, of_driver([broken, gpu(1)], "", START_S + 60), [])
    infos = merged_device(first, later).spec.devices

    (condition,) = infos[0].conditions
    assert (infos[0].health, infos[1].health, infos[1].conditions) == (False, True, ())
    assert (condition.type, condition.status, condition.reason, condition.message) == (
        "Healthy",
        "False",
        "Xid79",
        "fell off the bus",
    )
    assert (
        condition.last_transition_time == first.spec.devices[0].conditions[0].last_transition_time
    )


def test_any_code_of_a_fault_becomes_a_word_that_conditions_may_have() -> None:
    """A Device with any other is refused by the API server, with all of its devices."""
    for code, reason in {
        "ECC error": "EccError",
        "-12": "Unknown",
        "": "Unknown",
        "Xid79": "Xid79",
        "a:b": "a:b",
        "42 bad": "Bad",
    }.items():
        text = json.dumps(
            [
                {
                    "vendor": "metax",
                    "model": "m",
                    "uuid": "u",
                    "minor": "0",
                    "status": {"healthy": False, "errCode": code},
                }
            ]
        )
        xpus = read_xpus(MemoryHost({"/xpus/a": text}), "/xpus")
        device = device_of(NODE, of_daemon(xpus, START_S), [])
        assert device.spec.devices[0].conditions[0].reason == reason
