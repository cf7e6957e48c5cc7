"""Pods that get devices by extended resources: ``koord scheduler`` decides as kube-scheduler.

Both see the same worlds; every pod is given to one, taken away again, and given to the other.  What
is compared is the node, the message of a pod without one, the claim and the status of the pod.
"""

import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.e2e.conftest import running_controlplane
from tests.e2e.controlplane import ControlPlane
from tests.e2e.controlplane.binaries import kubernetes_gates, kubernetes_minor
from tests.e2e.leftovers import Leftovers
from tests.e2e.scheduler_process import SchedulerProcess
from tests.e2e.suites.cluster import Manifest, SuiteCluster
from tests.e2e.waiting import eventually

from koordinator.api.codec import decode_object
from koordinator.api.kubescheduler import decode_configuration
from koordinator.simulator import schedule

FIRST = int(os.environ.get("KOORDINATOR_STOCK_FIRST", "0"))
WORLDS = int(os.environ.get("KOORDINATOR_STOCK_WORLDS", "5"))
PODS = 5  # of a world
OURS, STOCK = "koord", "stock"
GATE = "--feature-gates=DRAExtendedResource=true"
GPU, NIC, FPGA = "example.com/gpu", "example.com/nic", "example.com/fpga"
DRIVERS = {"gpu": "gpu.example.com", "nic": "nic.example.com"}
IMPLICIT = "deviceclass.resource.kubernetes.io/"
_PATIENCE_S = 8.0  # until a scheduler knows what became of the pod before
FINAL = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}

pytestmark = pytest.mark.skipif(
    kubernetes_minor() < 35, reason="claims are made as by Kubernetes 1.35 and later"
)


@pytest.fixture(scope="session")
def controlplane(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """Run a control plane that knows extended resources of classes."""
    with running_controlplane(request, tmp_path_factory.mktemp("extended"), (GATE,)) as running:
        yield running


@pytest.fixture(scope="session")
def leftovers(controlplane: ControlPlane) -> Leftovers:
    """Find what tests leave; this one knows the cluster of these worlds."""
    return Leftovers(controlplane.api)


def configuration(scheduler: str) -> Manifest:
    scored = [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}]
    strategy = {"type": "LeastAllocated", "resources": [*scored, {"name": GPU, "weight": 2}]}
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"qps": 1000, "burst": 1000},
        "podInitialBackoffSeconds": 1,
        "podMaxBackoffSeconds": 1,
        "profiles": [
            {
                "schedulerName": scheduler,
                "pluginConfig": [
                    {"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy}}
                ],
            }
        ],
    }


@pytest.fixture
def cluster(controlplane: ControlPlane, namespace: str) -> Iterator[SuiteCluster]:
    """Run both schedulers on one cluster."""
    controlplane.start_scheduler(configuration(STOCK), [GATE])
    with SchedulerProcess(controlplane, configuration(OURS), flags=[GATE]):
        yield SuiteCluster(controlplane.api, namespace)
    controlplane.stop_program("kube-scheduler")


# -- worlds ---------------------------------------------------------------------------------------


class Draw:
    """Chances of one world."""

    def __init__(self, seed: int) -> None:
        self._chance = np.random.default_rng(seed)

    def often(self, share: float) -> bool:
        return bool(self._chance.random() < share)

    def pick(self, *choices: Any) -> Any:
        return choices[int(self._chance.integers(len(choices)))]

    def number(self, low: int, high: int) -> int:
        return int(self._chance.integers(low, high + 1))


def world(draw: Draw) -> list[Manifest]:
    """Return nodes of different sizes with different scores, devices and classes."""
    made: list[Manifest] = []
    for number in range(draw.number(2, 4)):
        name, size = f"n{number}", 8 << number
        amounts = {"cpu": str(size), "memory": f"{size}Gi", "pods": "20"}
        for resource in (GPU, NIC, FPGA):
            if draw.often(0.15):
                amounts[resource] = str(draw.number(0, 3))
        made.append(
            {
                "kind": "Node",
                "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
                "status": {"allocatable": amounts, "capacity": amounts},
            }
        )
        for kind, driver in DRIVERS.items():
            if draw.often(0.7):
                made.append(slice_of(name, kind, driver, draw.number(1, 6)))
    made += [
        device_class("gpu", DRIVERS["gpu"], draw.pick(GPU, GPU, None)),
        device_class("nic", DRIVERS["nic"], draw.pick(NIC, NIC, None)),
    ]
    if draw.often(0.3):
        made.append(device_class("another", DRIVERS["gpu"], GPU))
    return made


def slice_of(node: str, kind: str, driver: str, count: int) -> Manifest:
    pool = {"name": f"{node}-{kind}", "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": f"{kind}-{number}"} for number in range(count)]
    spec = {"driver": driver, "nodeName": node, "pool": pool, "devices": devices}
    return {"kind": "ResourceSlice", "metadata": {"name": f"{node}-{kind}"}, "spec": spec}


def device_class(name: str, driver: str, resource: str | None) -> Manifest:
    selectors = [{"cel": {"expression": f'device.driver == "{driver}"'}}]
    spec = {"selectors": selectors, "extendedResourceName": resource}
    config = [{"opaque": {"driver": driver, "parameters": {"a": "b"}}}]
    return {"kind": "DeviceClass", "metadata": {"name": name}, "spec": {**spec, "config": config}}


def pod(draw: Draw, name: str) -> Manifest:
    """Return a pod of some containers that request devices, some by claims as well."""
    names = [draw.pick(GPU, GPU, GPU, NIC, f"{IMPLICIT}gpu")]
    if draw.often(0.3):
        names.append(draw.pick(NIC, FPGA, f"{IMPLICIT}nic", f"{IMPLICIT}none"))

    count = draw.pick(1, 1, 2, 3, 12)
    share = 0.15 if count > 3 else 0.7

    def container(name: str, **more: Any) -> Manifest:
        requests = {"cpu": "700m", "memory": "700Mi"}
        requests |= {each: str(draw.pick(0, 1, 1, 1, 2)) for each in names if draw.often(share)}
        resources = {"requests": requests, "limits": requests}
        return {"name": name, "image": "i", "resources": resources, **more}

    init = [
        container(f"i{n}", **({"restartPolicy": "Always"} if draw.often(0.4) else {}))
        for n in range(draw.pick(0, 0, 1, 2))
    ]
    spec: Manifest = {
        "initContainers": init,
        "containers": [container(f"c{n}") for n in range(count)],
    }
    return {"kind": "Pod", "metadata": {"name": name}, "spec": spec}


# -- decisions ------------------------------------------------------------------------------------


def decision(cluster: SuiteCluster, name: str) -> Manifest:
    """Return what became of a pod, without names and uids; empty if nothing has yet."""
    stored = cluster.get("Pod", name)
    node, conditions = stored["spec"].get("nodeName", ""), stored["status"].get("conditions", ())
    condition: Manifest = next((c for c in conditions if c["type"] == "PodScheduled"), {})
    if not node and not condition.get("message"):
        return {}
    status = stored["status"].get("extendedResourceClaimStatus", {})
    return {
        "node": node,
        "message": "" if node else condition["message"],
        "mappings": status.get("requestMappings"),
        "is its claim": [status.get("resourceClaimName")]
        == [each["metadata"]["name"] for each in cluster.all("ResourceClaim")],
        "claims": [without_names(each) for each in cluster.all("ResourceClaim")],
    }


def without_names(claim: Manifest) -> Manifest:
    meta, status = claim["metadata"], claim.get("status", {})
    return {
        "generateName": meta.get("generateName"),
        "begins": meta["name"].startswith(meta.get("generateName", "?")),
        "annotations": meta.get("annotations"),
        "owners": [{**one, "uid": ""} for one in meta.get("ownerReferences", ())],
        "finalizers": meta.get("finalizers"),
        "spec": claim["spec"],
        "allocation": {
            key: "some time" if key == "allocationTimestamp" else value
            for key, value in (status.get("allocation") or {}).items()
        },
        "reservedFor": [{**one, "uid": ""} for one in status.get("reservedFor", ())],
    }


def decided(cluster: SuiteCluster, manifest: Manifest, scheduler: str, like: Manifest) -> Manifest:
    """Schedule a pod; return the decision, preferably equal to ``like`` within a short time."""
    spec = {**manifest["spec"], "schedulerName": scheduler}
    name = manifest["metadata"]["name"]
    before = {each["metadata"]["uid"] for each in cluster.all("ResourceClaim")}
    assert not before
    cluster.create({**manifest, "spec": spec})
    give_up = time.monotonic() + _PATIENCE_S
    current = eventually(lambda: decision(cluster, name))
    while (current != like or not like) and time.monotonic() < give_up:
        if not like and (current["node"] or give_up - time.monotonic() < _PATIENCE_S - 1):
            break
        time.sleep(0.05)
        current = decision(cluster, name)
    return current


def end(cluster: SuiteCluster, name: str) -> None:
    """Take a pod and its claims away."""
    cluster.api.request("DELETE", cluster.path("Pod", name), FINAL)
    for claim in cluster.all("ResourceClaim"):
        of = claim["metadata"]["name"]
        free = {"allocation": None, "reservedFor": None}
        cluster.patch("ResourceClaim", of, {"status": free}, "status")
        cluster.patch("ResourceClaim", of, {"metadata": {"finalizers": None}})
        cluster.delete("ResourceClaim", of)


def only_on(manifest: Manifest, node: str) -> Manifest:
    selector = {"kubernetes.io/hostname": node}
    return {**manifest, "spec": {**manifest["spec"], "nodeSelector": selector}}


def best_nodes(objects: list[Manifest], manifest: Manifest) -> set[str]:
    """Return the nodes with the highest total score for a pod, from ``koord schedule``."""
    groups = {"DeviceClass": "resource.k8s.io/v1", "ResourceSlice": "resource.k8s.io/v1"}
    meta = {**manifest["metadata"], "namespace": "default"}
    spec = {**manifest["spec"], "schedulerName": OURS}
    every = [*objects, {**manifest, "metadata": meta, "spec": spec}]
    decoded = [
        decode_object({"apiVersion": groups.get(each["kind"], "v1"), **each}) for each in every
    ]
    config = decode_configuration(configuration(OURS), "test")
    gates = kubernetes_gates(GATE.partition("=")[2])
    result = schedule(decoded, config, gates=gates, explain=True)
    (placement,) = result.placements
    assert placement.scorecard is not None
    totals = {node: scores["total"] for node, scores in placement.scorecard.score_table().items()}
    return {node for node, total in totals.items() if total == max(totals.values())}


def test_decisions_and_claims_are_those_of_kube_scheduler(cluster: SuiteCluster) -> None:
    """Node, message, claim and status are the same, pod by pod."""
    count, ties, different, placed = 0, 0, list[str](), 0
    for seed in range(FIRST, FIRST + WORLDS):
        draw = Draw(seed)
        objects = world(draw)
        cluster.create(*objects)
        for number in range(PODS):
            manifest = pod(draw, f"p{number}")
            name = manifest["metadata"]["name"]
            ours = decided(cluster, manifest, OURS, {})
            end(cluster, name)
            theirs = decided(cluster, manifest, STOCK, ours)
            end(cluster, name)
            if ours["node"] != theirs["node"] and theirs["node"] in best_nodes(objects, manifest):
                ours = decided(cluster, only_on(manifest, theirs["node"]), OURS, theirs)
                end(cluster, name)
                ties += 1
            count += 1
            placed += bool(theirs["node"] and theirs["claims"])
            if ours != theirs:
                keys = [key for key in ours if ours[key] != theirs[key]]
                text = "\n".join(f"  {key}: {ours[key]}\n     or {theirs[key]}" for key in keys)
                different.append(f"seed {seed} {name}:\n{text}\n{manifest['spec']}")
        for each in objects:
            cluster.delete(each["kind"], each["metadata"]["name"])
    sys.stderr.write(
        f"{count - len(different)} of {count} are the same, {placed} with claims, {ties} ties\n"
    )
    assert not different, "\n".join(different)
    assert placed >= count // 3
