"""The agent accesses nothing outside of its folders and never blocks, for any content of objects.

A node on disk, surrounded by traps: files that must not be accessed, FIFOs, links.  Each string of
each object that the agent watches is replaced in turn by hostile ones.
"""

import json
import logging
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace
from tests.every_field import (
    KEY,
    annotations_of_the_project,
    filled,
    labels_of_the_project,
    strings,
    with_string,
)
from tests.nodes import FRESH, FRESH_V2, cpus

from koordinator.api.codec import decode
from koordinator.api.core import ResourceRequirements
from koordinator.api.meta import KubeObject, ObjectMeta
from koordinator.api.node import Node
from koordinator.api.node_slo import NodeSlo
from koordinator.api.pod import Pod
from koordinator.api.qos import KubeQos
from koordinator.api.volume import PersistentVolumeClaim, PersistentVolumeClaimSpec
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.cluster.port import EventType, KindT, WatchEvent
from koordinator.domain.cgroups.files import CgroupFile, CgroupVersion, cgroup_path
from koordinator.domain.cgroups.layout import CgroupDriver, CgroupLayout
from koordinator.foundation.clock import VirtualClock
from koordinator.foundation.errors import InputError
from koordinator.foundation.files import path_component
from koordinator.host.gpus import NoGpus
from koordinator.host.linux.host import LinuxHost
from koordinator.host.linux.trees import Trees, trees_of
from koordinator.host.port import Roots
from koordinator.koordlet.app import KoordletOptions, Outbox, assemble_agent
from koordinator.koordlet.app.options import OFF, gates_of

UID, START_S = "11111111-2222-3333-4444-555555555555", 1_700_000_000.0
CONTAINER = "c" * 64
CANARY = "the canary sings\n"
PATIENCE_S = 60
HOSTILE = (
    "..",
    "../../../../trap",
    "../../../../../../../../../../trap",
    "x/../../../system.slice",
    "{root}/trap",
    "../../{kubelet}/evil",
    f"{UID}/../../../../{{kubelet}}/evil",
    "containerd://../../trap",
    "CgroupRoot/../../trap",
    "a\nE0101 forged\x1b[31m",
    "nul\0nul",
    "",
    "ü" * 200,
)

NODES = 2


class RecordedHost:
    """Machine that records the accessed paths; see ``port.Host``."""

    def __init__(self, host: LinuxHost) -> None:
        self.opened: set[str] = set()
        self._host = host

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._host, name)

        def call(*arguments: Any) -> Any:
            if name not in {"kill", "mount", "close"}:
                self.opened.add(arguments[0])
            return method(*arguments)

        return call

    def mount(self, _: str, folder: str) -> None:
        self.opened.add(folder)


class Following:
    """Cluster with events set by the test; see ``port.Watch``."""

    def __init__(self) -> None:
        self.events: list[WatchEvent] = []

    def watch(self, *_: object) -> "Following":
        return self

    def tell(self, *objects: KubeObject) -> None:
        self.events += [WatchEvent(EventType.MODIFIED, each) for each in objects]

    def poll(self) -> Sequence[WatchEvent]:
        events, self.events = self.events, []
        return events

    def close(self) -> None:
        """End."""


class TrappedNode:
    """A node below ``root/node`` whose agent has everything switched on."""

    def __init__(self, root: Path, driver: CgroupDriver, version: CgroupVersion) -> None:
        self.root = root
        at = root / "node"
        self.layout, self.version = CgroupLayout(driver), version
        self.roots = Roots(
            **{
                name: str(at / name)
                for name in ("cgroup", "sys", "proc", "var_run", "run", "kubelet", "terway")
            },
            sys_fs=str(at / "sysfs"),
        )
        self.own = [str(at / name) for name in ("audit", "checkpoints", "xpus")]
        self.host = RecordedHost(LinuxHost(trees=Trees(trees_of(self.roots, *self.own))))
        self.clock = VirtualClock(START_S)
        self.following, self.outbox = Following(), Outbox()
        self.cluster = MemoryCluster(self.clock)
        self.cgroup("", self.layout.kubepods, self.layout.burstable, self.layout.besteffort)
        for qos in KubeQos:
            pod = self.layout.pod(qos, path_component(UID))
            self.cgroup(pod, self.layout.container(pod, f"containerd://{CONTAINER}"))
        if version is CgroupVersion.V2:
            self.put("cgroup/cgroup.controllers", "cpu memory\n")
        self.machine()
        self.sleeper = subprocess.Popen(["/bin/sleep", "600"])
        self.traps()
        self.agent = assemble_agent(
            self.following,  # type: ignore[arg-type]
            self.clock,
            host=self.host,
            gpus=NoGpus(),
            chance=np.random.default_rng(1),
            options=KoordletOptions(
                node_name="n1",
                roots=self.roots,
                gates=gates_of(dict.fromkeys(OFF, True)),
                audit_folder=self.own[0],
                checkpoint_folder=self.own[1],
                xpu_folder=self.own[2],
                monitors_resctrl=True,
            ),
            outbox=self.outbox,
        )

    def put(self, name: str, text: str) -> None:
        """Make a file of the machine."""
        path = self.root / "node" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def cgroup(self, *folders: str) -> None:
        """Make cgroups with every file."""
        self.trap_folders = tuple(map(str, folders))
        for folder in folders:
            for file in CgroupFile:
                path = cgroup_path(file, folder, self.version)
                if path is not None:
                    name = path.rpartition("/")[2]
                    text = FRESH_V2.get(name) if self.version is CgroupVersion.V2 else None
                    self.put(f"cgroup/{path}", f"{text or FRESH.get(file, '0-7')}\n")
                    if self.version is CgroupVersion.V2 and name == "cpuset.cpus":
                        self.put(f"cgroup/{path}.effective", "0-7\n")

    def machine(self) -> None:
        """Make what is read of /proc, /sys and resctrl: a node whose memory is nearly used up."""
        self.put("sys/devices/system/cpu/online", "0-7\n")
        for cpu in cpus(8):
            self.put(f"sys/devices/system/cpu/cpu{cpu.id}/topology/core_id", f"{cpu.core}\n")
        self.put("sys/block/vda/dev", "253:0\n")
        self.put("sys/kernel/mm/kidled/use_hierarchy", "0\n")
        self.put("sys/kernel/mm/kidled/scan_period_in_seconds", "0\n")
        self.put("proc/stat", "cpu  100 0 0 0 0 0 0\n")
        self.put(
            "proc/meminfo",
            "MemTotal: 32000000 kB\nMemFree: 10 kB\nMemAvailable: 10 kB\n"
            "Active(file): 0 kB\nInactive(file): 0 kB\nSReclaimable: 0 kB\n",
        )
        self.put("proc/1/mountinfo", "")
        self.put("sysfs/resctrl/schemata", "L3:0=ff\nMB:0=100\n")
        self.put("sysfs/resctrl/tasks", "")
        self.put("sysfs/resctrl/info/L3/cbm_mask", "ff\n")

    def traps(self) -> None:
        """Put canaries, FIFOs and links where a path that leads out would come by."""
        files = {str(path).rpartition("/")[2] for path in (self.root / "node/cgroup").rglob("*")}
        files |= {"dev", "schemata", "tasks", "name", "uuid"}
        evil = self.root / "node/kubelet/evil"
        folders = [
            self.root / "trap",
            self.root / "node/trap",
            self.root / "node/cgroup/trap",
            evil,
        ]
        folders += [self.root / "node/cgroup/system.slice", self.root / "node/sys/trap"]
        for folder in folders:
            folder.mkdir(parents=True)
            for name in files:
                if (folder / name).exists():
                    continue
                match len(name) % 3 if folder == evil else 0:
                    case 0:
                        text = f"{self.sleeper.pid}\n" if name == "cgroup.procs" else CANARY
                        (folder / name).write_text(text)
                    case 1:
                        os.mkfifo(folder / name)
                    case _:
                        (folder / name).symlink_to(self.root / "trap" / name)
        (self.root / "trap/own").write_text(CANARY)
        for own in self.own:  # and what a tenant can't, but a careless operator might
            Path(own).mkdir()
        Path(f"{self.own[2]}/link").symlink_to(self.root / "trap/own")
        Path(f"{self.own[1]}/link").symlink_to(self.root / "trap/own")
        os.mkfifo(f"{self.own[2]}/fifo")

    def trapped(self) -> dict[str, str]:
        """Return what the canaries are now."""
        paths = [*(self.root / "trap").rglob("*")]
        for folder in ("trap", "cgroup/trap", "cgroup/system.slice", "sys/trap", "kubelet"):
            paths += (self.root / "node" / folder).rglob("*")
        return {str(path): path.read_text() if path.is_file() else "" for path in sorted(paths)}

    def listing(self) -> set[str]:
        """Return everything that is beside the node."""
        node = self.root / "node"
        outside = [path for path in self.root.rglob("*") if node not in path.parents]
        return {*map(str, outside), *map(str, node.iterdir()), *map(str, node.glob("cgroup/*"))}

    def live(self, *seconds: int) -> None:
        """Advance the clock and deliver the reports; no step may wait on a FIFO."""
        for each in seconds:
            signal.alarm(PATIENCE_S)
            self.clock.advance_to(self.clock.now_s() + each)
            self.agent.step()
            self.outbox.deliver(self.cluster)

    def close(self) -> None:
        """End what was started."""
        self.agent.close()
        self.sleeper.kill()
        self.sleeper.wait(10)


@pytest.fixture(params=[(CgroupDriver.CGROUPFS, 1), (CgroupDriver.SYSTEMD, 2)], ids=str)
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TrappedNode]:
    """Return a node; a test that blocks on a FIFO fails."""
    driver, version = request.param
    trapped_node = TrappedNode(tmp_path, driver, CgroupVersion(version))

    def too_long(*_: object) -> None:
        raise TimeoutError("the agent waits")

    before = signal.signal(signal.SIGALRM, too_long)
    yield trapped_node
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
    trapped_node.close()


def pod_json() -> Any:
    """Return a best-effort pod that has everything, and runs."""
    tree = filled(Pod)
    amounts = {"kubernetes.io/batch-cpu": "100", "kubernetes.io/batch-memory": "1Mi"}
    blocks = [
        {"name": name, "type": kind, "ioCfg": {"readBPS": 1}}
        for name, kind in (("/dev/vda", "device"), ("vg", "volumegroup"), ("data", "podvolume"))
    ]
    limits = {"requests": amounts, "limits": amounts}
    tree["metadata"] |= {
        "name": "p",
        "namespace": "tenant",
        "uid": UID,
        "deletionTimestamp": None,
        "labels": labels_of_the_project() | {"koordinator.sh/qosClass": "BE"},
        "annotations": annotations_of_the_project()
        | {
            "kubernetes.io/config.hash": UID.replace("1", "9"),
            "kubernetes.io/config.mirror": UID.replace("1", "9"),
            "kubernetes.io/config.source": "file",
            "koordinator.sh/blkioQOS": json.dumps({"enable": True, "blocks": blocks}),
            "koordinator.sh/oom-score-adj": "500",
            "node.koordinator.sh/extended-resource-spec": json.dumps({"containers": {"c": limits}}),
            "scheduling.koordinator.sh/resource-status": json.dumps({"cpuset": "0-1"}),
        },
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n", "controller": True}
        ],
    }
    spec, status = tree["spec"], tree["status"]
    spec |= {"nodeName": "n1", "priority": 5500, "resources": None, "overhead": {}}
    spec["containers"][0] |= {"name": "c", "resources": limits}
    spec["volumes"][0] |= {"name": "data"}
    spec["volumes"][0]["persistentVolumeClaim"] = {"claimName": "claim"}
    status |= {"phase": "Running"}
    status["containerStatuses"] = [{"name": "c", "containerID": f"containerd://{CONTAINER}"}]
    return tree


def slo_json() -> Any:
    """Return a NodeSLO that switches everything on."""
    tree = filled(NodeSlo)
    tree["metadata"] = {"name": "n1"}
    spec = tree["spec"]
    spec["resourceUsedThresholdWithBE"] = {
        "enable": True,
        "cpuSuppressThresholdPercent": 65,
        "cpuSuppressPolicy": "cpuset",
        "memoryEvictThresholdPercent": 70,
    }
    spec["cpuBurstStrategy"] = {"policy": "auto"}
    strategy = spec["resourceQOSStrategy"]
    strategy["policies"] = {"cpuPolicy": "groupIdentity", "netQOSPolicy": "tc"}
    blocks = [{"name": "/dev/vda", "type": "device", "ioCfg": {"readBPS": 1}}]
    for name in ("lsrClass", "lsClass", "beClass", "systemClass", "cgroupRoot"):
        strategy[name] = {
            "cpuQOS": {"enable": True, "groupIdentity": 1},
            "blkioQOS": {"enable": True, "blocks": blocks},
            "resctrlQOS": {"enable": True, "catRangeStartPercent": 0, "catRangeEndPercent": 50},
        }
    spec["hostApplications"] = [
        {"name": "web", "qos": "LS"},
        {"name": "batch", "qos": "BE"},
        {"name": "other", "qos": "SYSTEM"},
        {
            "name": "placed",
            "qos": "LS",
            "cgroupPath": {"base": "CgroupRoot", "parentDir": "host", "relativePath": "placed"},
        },
    ]
    return tree


def node_json() -> Any:
    """Return a Node of eight CPUs with all annotations that the agent reads."""
    tree = filled(Node)
    amounts = {"cpu": "8", "memory": "32Gi"}
    tree["metadata"] |= {
        "name": "n1",
        "uid": "n",
        "deletionTimestamp": None,
        "annotations": annotations_of_the_project(),
    }
    tree["status"] |= {"capacity": amounts, "allocatable": amounts}
    return tree


def variants(tree: Any, kind: type[KindT], hostile: Sequence[str], share: int) -> Iterator[KindT]:
    """Yield the object with each string replaced in turn, if the API's types accept it.

    The hostile texts alternate from string to string.
    """
    # Only operators write Nodes: their keys are trusted input.
    result = (each for each in strings(tree) if kind is not Node or KEY not in each[0])
    for number, (path, before) in enumerate(result):
        if number % NODES != share:
            continue
        scheme = "containerd://" if "://" in before else ""  # else it would not get far
        text = scheme + hostile[number // NODES % len(hostile)]
        try:
            yield decode(msgspec.json.encode(with_string(tree, path, text)), kind)
        except (InputError, UnicodeEncodeError):
            continue


@pytest.mark.integration
def test_no_string_of_an_object_leads_out(
    node: TrappedNode, caplog: pytest.LogCaptureFixture
) -> None:
    """Strings of pods, NodeSLOs and Nodes stay inside; valid objects are still applied."""
    caplog.set_level(logging.DEBUG)
    before, beside = node.trapped(), node.listing()
    hostile = [text.format(root=node.root, kubelet="kubelet") for text in HOSTILE]
    share = node.version % NODES
    good_slo = decode(slo_json(), NodeSlo)
    node.following.tell(decode(node_json(), Node), good_slo, decode(pod_json(), Pod))
    node.following.events.append(WatchEvent(EventType.BOOKMARK, KubeObject()))
    node.live(1, 1, 1)
    assert any(event.type == "cgroup" and not event.error for event in node.agent.audit.events)

    pods = [
        named(made, f"p-{number}")  # so that all live together; the cgroup is that of all
        for number, made in enumerate(variants(pod_json(), Pod, hostile, share))
    ]
    slos = [*variants(slo_json(), NodeSlo, hostile, share)]
    nodes = [*variants(node_json(), Node, hostile, share)]
    assert (len(pods) > 500, len(slos) > 50, len(nodes) > 100) == (True, True, True)
    node.following.tell(*pods)
    node.live(1, 61)
    node.following.events += [WatchEvent(EventType.DELETED, made) for made in pods]
    for slo, of_node in zip_longest(slos, nodes, fillvalue=good_slo):
        node.following.tell(slo, of_node)
        node.live(1)
    node.live(700)

    assert node.trapped() == before
    assert node.listing() == beside
    assert node.sleeper.poll() is None
    assert CANARY.strip() not in caplog.text + repr(node.agent.audit.events)
    for path in node.host.opened:
        assert os.path.normpath(path) == path.rstrip("/"), path
        assert path.isprintable(), path
        assert path.startswith(f"{node.root}/node/"), path
        assert not path.startswith(node.trap_folders), path
    assert any(event.type == "eviction" for event in node.agent.audit.events)


def named(pod: Pod, name: str) -> Pod:
    """Return the pod under another name."""
    return replace(pod, metadata=replace(pod.metadata, name=name))


@pytest.mark.slow
@pytest.mark.parametrize("volume", HOSTILE[:8:2])
def test_no_volume_name_of_the_api_server_leads_out(node: TrappedNode, volume: str) -> None:
    """The agent reads the name of a claim's volume from the API server: one more hostile string."""
    claim = PersistentVolumeClaim(
        metadata=ObjectMeta(name="claim", namespace="tenant"),
        spec=PersistentVolumeClaimSpec(
            volume_name=volume,
            access_modes=("ReadWriteOnce",),
            resources=decode({"requests": {"storage": "1Gi"}}, ResourceRequirements),
        ),
    )
    node.cluster.create(claim)
    before = node.trapped()
    node.following.tell(decode(node_json(), Node), decode(pod_json(), Pod))
    node.following.events.append(WatchEvent(EventType.BOOKMARK, KubeObject()))
    node.live(1, 10, 10)

    assert node.trapped() == before
    assert all(os.path.normpath(path) == path for path in node.host.opened)
