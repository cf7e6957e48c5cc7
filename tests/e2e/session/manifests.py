"""Objects as a user writes them."""

from typing import Any

Manifest = dict[str, Any]

HOST = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"


def node(
    name: str,
    cpu: str = "4",
    *,
    labels: dict[str, str] | None = None,
    taint: str = "",
    **resources: str,
) -> Manifest:
    """Return a node; ``taint`` is the key of one that keeps pods away."""
    headroom = {"cpu": cpu, "memory": "16Gi", "pods": "20", **resources}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {HOST: name, **(labels or {})}},
        "spec": {"taints": [{"key": taint, "effect": "NoSchedule"}]} if taint else {},
        "status": {"capacity": headroom, "allocatable": headroom},
    }


def pod(
    name: str, cpu: str = "100m", *, labels: dict[str, str] | None = None, **spec: Any
) -> Manifest:
    """Return a pod without grace period."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": pod_spec(cpu, **spec),
    }


def pod_spec(cpu: str = "100m", **spec: Any) -> Manifest:
    """Return the spec of a pod with one container."""
    container = {"name": "main", "image": "app", "resources": {"requests": {"cpu": cpu}}}
    return {"terminationGracePeriodSeconds": 1, "containers": [container], **spec}


def deployment(name: str, replicas: int, spec: Manifest) -> Manifest:
    """Return a Deployment whose pods have the label ``app``."""
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def priority_class(name: str, value: int, **fields: str) -> Manifest:
    """Return a PriorityClass."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        **fields,
    }


def disruption_budget(name: str, labels: dict[str, str], **spec: Any) -> Manifest:
    """Return a PodDisruptionBudget over the pods with these labels."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": labels}, **spec},
    }


def storage_class(name: str, provisioner: str = "kubernetes.io/no-provisioner") -> Manifest:
    """Return a StorageClass whose claims wait for their first pod."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def claim(name: str, storage: str, storage_class_name: str) -> Manifest:
    """Return a PersistentVolumeClaim."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": storage}},
            "storageClassName": storage_class_name,
        },
    }


def local_volume(name: str, node_name: str, storage: str, storage_class_name: str) -> Manifest:
    """Return a PersistentVolume that is a disk of one node."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": storage},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class_name,
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": f"/mnt/{name}"},
            "nodeAffinity": {"required": on_nodes(node_name)},
        },
    }


def mounted(claim_name: str) -> list[Manifest]:
    """Return the ``volumes`` of a pod that uses the claim."""
    return [{"name": "data", "persistentVolumeClaim": {"claimName": claim_name}}]


def on_nodes(*names: str) -> Manifest:
    """Return a node selector for the nodes of these names."""
    return having(HOST, *names)


def having(key: str, *values: str) -> Manifest:
    """Return a node selector: the label has one of the values."""
    expression = {"key": key, "operator": "In", "values": list(values)}
    return {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}


def required_node_affinity(selector: Manifest) -> Manifest:
    """Return the ``affinity`` of a pod that goes only to the selected nodes."""
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}}


def preferred_node_affinity(selector: Manifest) -> Manifest:
    """Return the ``affinity`` of a pod that likes the selected nodes best."""
    preferences = [{"weight": 100, "preference": term} for term in selector["nodeSelectorTerms"]]
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferences}}


def required_pod_affinity(kind: str, labels: dict[str, str], topology_key: str) -> Manifest:
    """Return the ``affinity`` of a pod; ``kind`` is podAffinity or podAntiAffinity."""
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": topology_key}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
