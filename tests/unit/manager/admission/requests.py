"""Requests to admission, and a cluster for it to look at."""

from typing import Any

from koordinator.api.codec import decode_object
from koordinator.api.meta import JsonObject, KubeObject
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.foundation.clock import VirtualClock
from koordinator.manager.admission.lookup import AdmissionRequest
from koordinator.manager.lookups import ReaderLookup


def lookup(*objects: KubeObject | JsonObject, percent: int = 0) -> ReaderLookup:
    """Return what exists; every lot drawn is ``percent``."""
    cluster = MemoryCluster(VirtualClock())
    cluster.load(decode_object(each) if isinstance(each, dict) else each for each in objects)
    return ReaderLookup(cluster, lambda: percent)


def request(
    obj: JsonObject, operation: str = "CREATE", old: JsonObject | None = None, **more: Any
) -> AdmissionRequest:
    """Return a request for an object in the namespace default."""
    meta = obj.get("metadata", {})
    return AdmissionRequest(
        operation=operation,
        namespace=meta.get("namespace", "default"),
        name=meta.get("name", ""),
        obj=obj,
        old=old,
        **more,
    )


def pod(
    *containers: JsonObject,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> JsonObject:
    """Return a pod as a user writes it."""
    meta: JsonObject = {"name": "p"}
    if labels:
        meta["labels"] = labels
    if annotations:
        meta["annotations"] = annotations
    listed = [{"name": f"c{i}", **each} for i, each in enumerate(containers or ({},))]
    return {"metadata": meta, "spec": {"containers": listed, **spec}}


def profile(name: str = "a", *, marks: dict[str, str] | None = None, **spec: Any) -> Any:
    """Return a colocation profile; ``marks`` are annotations of its own."""
    return {
        "apiVersion": "config.koordinator.sh/v1alpha1",
        "kind": "ClusterColocationProfile",
        "metadata": {"name": name, "annotations": marks or {}},
        "spec": spec,
    }


def priority_class(name: str, value: int) -> Any:
    """Return a priority class."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        "preemptionPolicy": "PreemptLowerPriority",
    }


def namespace(name: str, **labels: str) -> Any:
    """Return a namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
