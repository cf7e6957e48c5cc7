"""Nodes, pods and what they need, as manifests; and many of them at once."""

import json
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPSConnection
from threading import local
from typing import Any

from tests.e2e.controlplane.endpoint import Endpoint

Manifest = dict[str, Any]

_CREATED = 201
_IN_FLIGHT = 8


def node(name: str, cpu: str = "4", memory: str = "16Gi", pods: int = 110) -> Manifest:
    """Return a node that is empty and ready."""
    headroom = {"cpu": cpu, "memory": memory, "pods": str(pods)}
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {
            "capacity": headroom,
            "allocatable": headroom,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def gpu_node(name: str, gpus: int, cpu: str = "4", memory: str = "16Gi") -> Manifest:
    """Return a node with so many GPUs in its allocatable; ``device`` is the report about them."""
    made = node(name, cpu, memory)
    headroom = made["status"]["allocatable"]
    for resource in ("gpu", "gpu-core", "gpu-memory-ratio"):
        headroom[f"koordinator.sh/{resource}"] = str(100 * gpus)
    headroom["koordinator.sh/gpu-memory"] = f"{16 * gpus}Gi"
    return made


def pod(
    name: str,
    cpu: str = "100m",
    memory: str = "64Mi",
    *,
    claims: Sequence[str] = (),
    finalizers: Sequence[str] = (),
    **more: str,
) -> Manifest:
    """Return a pod that waits for the scheduler; ``more`` are further resources."""
    amounts = {"cpu": cpu, "memory": memory, **more}
    container = {
        "name": "main",
        "image": "app",
        "resources": {"requests": amounts, "limits": more},
    }
    volumes = [{"name": it, "persistentVolumeClaim": {"claimName": it}} for it in claims]
    return {
        "metadata": {"name": name, "finalizers": list(finalizers)},
        "spec": {
            "containers": [container],
            "volumes": volumes,
            "terminationGracePeriodSeconds": 0,  # there is nothing to wait for
        },
    }


def gpu_pod(name: str, percent: int) -> Manifest:
    """Return a pod that takes part of a GPU, or several whole ones from 200 on."""
    return pod(name, **{"koordinator.sh/gpu": str(percent)})


def device(node_name: str, gpus: int) -> Manifest:
    """Return the report of a node's GPUs."""
    resources = {
        "koordinator.sh/gpu-core": "100",
        "koordinator.sh/gpu-memory": "16Gi",
        "koordinator.sh/gpu-memory-ratio": "100",
    }
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Device",
        "metadata": {"name": node_name},
        "spec": {
            "devices": [
                {"type": "gpu", "minor": minor, "health": True, "resources": resources}
                for minor in range(gpus)
            ]
        },
    }


def storage_class(name: str) -> Manifest:
    """Return a class of volumes that exist already and are given out when the pod has a node."""
    return {
        "metadata": {"name": name},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def volume(name: str, storage_class_name: str, node_name: str) -> Manifest:
    """Return a volume on the disk of a node."""
    host = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node_name]}
    return {
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class_name,
            "local": {"path": f"/mnt/{name}"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [host]}]}},
        },
    }


def claim(name: str, storage_class_name: str) -> Manifest:
    """Return a claim to such a volume."""
    return {
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class_name,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }


def create(api: Endpoint, path: str, manifests: Iterable[Manifest]) -> None:
    """Create objects, some at a time, roughly in their order.

    Raises RuntimeError if the API server refuses one.
    """
    connections = local()

    def post(manifest: Manifest) -> None:
        if not hasattr(connections, "own"):
            connections.own = HTTPSConnection("127.0.0.1", api.port, context=api.tls, timeout=60)
            opened.append(connections.own)
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {api.token}"}
        connections.own.request("POST", path, json.dumps(manifest), headers)
        answer = connections.own.getresponse()
        text = answer.read().decode()
        if answer.status != _CREATED:
            raise RuntimeError(f"{path}: HTTP {answer.status}: {text}")

    opened: list[HTTPSConnection] = []
    with ThreadPoolExecutor(_IN_FLIGHT) as workers:
        try:
            list(workers.map(post, manifests))
        finally:
            for connection in opened:
                connection.close()
