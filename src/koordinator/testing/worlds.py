"""Small worlds to test plugins in: nodes, pods, devices, the scheduler's state made of them.

What a builder has no parameter for is given in the spelling of Kubernetes, such as
``pod("a", nodeSelector={"disk": "ssd"})``.  Objects are those that the API server would store,
defaults filled in.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from koordinator.api.annotations.devices import ALLOCATED
from koordinator.api.codec import decode_object
from koordinator.api.core import Service
from koordinator.api.defaults import with_defaults
from koordinator.api.device import Device
from koordinator.api.meta import JsonObject, KubeObject
from koordinator.api.node import Node
from koordinator.api.node_metric import NodeMetric
from koordinator.api.pod import Pod
from koordinator.api.policy import PodDisruptionBudget
from koordinator.api.reservation import Reservation
from koordinator.domain.reserve_pod import is_available, reserve_pod
from koordinator.scheduler.ingest import Ingest
from koordinator.scheduler.snapshot import ClusterState

HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
START_S = 1_700_000_000.0
MIB = 1 << 20

Amount = str | int
Kind = TypeVar("Kind", bound=KubeObject)


def made(kind: str, name: str, api_version: str = "v1", **manifest: Any) -> KubeObject:
    """Return an object of any kind, its fields in the spelling of Kubernetes."""
    metadata = {"name": name, **manifest.pop("metadata", {})}
    whole = {"apiVersion": api_version, "kind": kind, "metadata": metadata, **manifest}
    return with_defaults(decode_object(whole))


def node(
    name: str,
    cpu: Amount = 8,
    memory: Amount = "32Gi",
    pods: int = 110,
    *,
    zone: str = "",
    labels: Mapping[str, str] | None = None,
    taints: Sequence[str] = (),
    images: Mapping[str, int] | None = None,
    unschedulable: bool = False,
    annotations: Mapping[str, str] | None = None,
    **extended: Amount,
) -> Node:
    """Return a node; a taint is ``key=value:Effect``, images are in MiB."""
    allocatable = {"cpu": cpu, "memory": memory, "pods": pods, **extended}
    own = {HOSTNAME: name} | ({ZONE: zone} if zone else {})
    return _decoded(
        Node,
        metadata={
            "name": name,
            "labels": own | dict(labels or {}),
            "annotations": dict(annotations or {}),
        },
        spec={"unschedulable": unschedulable, "taints": [_taint(text) for text in taints]},
        status={
            "allocatable": {key: str(amount) for key, amount in allocatable.items()},
            "images": [
                {"names": [image], "sizeBytes": mib * MIB} for image, mib in (images or {}).items()
            ],
        },
    )


def pod(
    name: str,
    cpu: Amount | None = None,
    memory: Amount | None = None,
    *,
    on: str = "",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    namespace: str = "default",
    requests: Mapping[str, Amount] | None = None,
    ports: Sequence[int | str] = (),
    images: Sequence[str] = ("",),
    started: str = "",
    owner: tuple[str, str] | None = None,
    deleted: bool = False,
    phase: str = "",
    **spec: Any,
) -> Pod:
    """Return a pod; it runs on the node ``on`` or is pending.

    A port is a number or ``ip:number/protocol``; there is a container per image, and the first one
    has everything.  ``started`` is the hour and minute, such as ``08:30``.
    """
    amounts = {"cpu": cpu, "memory": memory, **(requests or {})}
    resources = {key: str(amount) for key, amount in amounts.items() if amount is not None}
    containers: list[JsonObject] = [
        {"name": f"c{index}", "image": image} for index, image in enumerate(images)
    ]
    containers[0] |= {
        "resources": {"requests": resources},
        "ports": [_port(port) for port in ports],
    }
    metadata: JsonObject = {
        "name": name,
        "namespace": namespace,
        "labels": labels or {},
        "annotations": annotations or {},
    }
    if owner is not None:
        kind, owner_name = owner
        metadata["ownerReferences"] = [{"kind": kind, "name": owner_name, "controller": True}]
    if deleted:
        metadata["deletionTimestamp"] = "2023-11-14T22:13:20Z"
    status: JsonObject = {"phase": phase or ("Running" if on else "Pending")}
    if started:
        status["startTime"] = f"2023-11-14T{started}:00Z"
    spec = {"containers": containers, "nodeName": on, **spec}
    return _decoded(Pod, metadata=metadata, spec=spec, status=status)


def gpu_pod(name: str, on: str = "", *, minors: Sequence[int] = (), **resources: Amount) -> Pod:
    """Return a pod with GPU resources, named without their prefix.

    ``gpu_core`` is ``koordinator.sh/gpu-core``.  ``minors`` are the devices that a pod on a node
    holds an equal part of.
    """
    amounts = {f"koordinator.sh/{key.replace('_', '-')}": n for key, n in resources.items()}
    share = {key: str(int(amount) // max(len(minors), 1)) for key, amount in amounts.items()}
    share.pop("koordinator.sh/gpu.shared", None)
    if "koordinator.sh/gpu" in share:
        both = share.pop("koordinator.sh/gpu")
        share |= {"koordinator.sh/gpu-core": both, "koordinator.sh/gpu-memory-ratio": both}
    entries = [{"minor": minor, "resources": share} for minor in minors]
    annotations = {ALLOCATED.key: json.dumps({"gpu": entries})} if minors else None
    return pod(name, on=on, requests=amounts, annotations=annotations)


def device(on: str, gpus: int = 8, memory: str = "80Gi", unhealthy: Sequence[int] = ()) -> Device:
    """Return the report of a node's GPUs."""
    return _decoded(
        Device,
        metadata={"name": on},
        spec={
            "devices": [
                {
                    "type": "gpu",
                    "minor": minor,
                    "health": minor not in unhealthy,
                    "resources": {
                        "koordinator.sh/gpu-core": "100",
                        "koordinator.sh/gpu-memory": memory,
                        "koordinator.sh/gpu-memory-ratio": "100",
                    },
                }
                for minor in range(gpus)
            ]
        },
    )


def used(cpu: Amount, memory: Amount = 0, **more: Amount) -> JsonObject:
    """Return amounts in use."""
    amounts = {"cpu": cpu, "memory": memory, **more}
    return {"resources": {name: str(amount) for name, amount in amounts.items()}}


def metric(
    on: str,
    cpu: Amount = 0,
    memory: Amount = 0,
    *,
    at: str = "22:13:00",
    pods: Mapping[str, JsonObject] | None = None,
    prod: Sequence[str] = (),
    system: JsonObject | None = None,
    windows: Mapping[tuple[str, str], JsonObject] | None = None,
    interval_s: int | None = None,
    **node_metric: Any,
) -> NodeMetric:
    """Return the report of a node's usage: by default 20 seconds before START_S.

    ``at`` is empty for a report that was never updated; ``pods`` are by name, and ``prod`` names
    pods of that band; ``windows`` are by duration and statistic, such as ``("5m", "p95")``.
    """
    body = {
        "nodeUsage": used(cpu, memory),
        "systemUsage": system or {},
        "aggregatedNodeUsages": [
            {"duration": duration, "usage": {statistic: usage}}
            for (duration, statistic), usage in (windows or {}).items()
        ],
        **node_metric,
    }
    status = {
        "nodeMetric": body,
        "podsMetric": [
            {
                "namespace": "default",
                "name": name,
                "podUsage": usage,
                "priority": "koord-prod" if name in prod else "",
            }
            for name, usage in (pods or {}).items()
        ],
    }
    if at:
        status["updateTime"] = f"2023-11-14T{at}Z"
    policy = {} if interval_s is None else {"reportIntervalSeconds": interval_s}
    spec = {"metricCollectPolicy": policy}
    return _decoded(NodeMetric, metadata={"name": on}, spec=spec, status=status)


def budget(name: str, allowed: int, **labels: str) -> PodDisruptionBudget:
    """Return a disruption budget of the pods with these labels, with that many disruptions left."""
    return _decoded(
        PodDisruptionBudget,
        metadata={"name": name, "namespace": "default"},
        spec={"minAvailable": 1, "selector": {"matchLabels": labels}},
        status={"disruptionsAllowed": allowed, "expectedPods": 9},
    )


def service(name: str, **selector: str) -> Service:
    return _decoded(
        Service, metadata={"name": name, "namespace": "default"}, spec={"selector": selector}
    )


def spread(
    key: str = ZONE, skew: int = 1, *, soft: bool = False, app: str = "web", **more: Any
) -> JsonObject:
    """Return a topology spread constraint over the pods of an app."""
    return {
        "maxSkew": skew,
        "topologyKey": key,
        "whenUnsatisfiable": "ScheduleAnyway" if soft else "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": app}},
        **more,
    }


def near(app: str, key: str = ZONE, *, weight: int = 0, **more: Any) -> JsonObject:
    """Return the inside of a pod (anti-)affinity: required, or preferred with a weight."""
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}, **more}
    if weight:
        wanted = [{"weight": weight, "podAffinityTerm": term}]
        return {"preferredDuringSchedulingIgnoredDuringExecution": wanted}
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}


def renamed(original: Pod, name: str) -> Pod:
    """Return the same pod under another name."""
    return msgspec.structs.replace(
        original, metadata=msgspec.structs.replace(original.metadata, name=name)
    )


def placed_on(original: Pod, name: str) -> Pod:
    """Return the pod as it is bound to a node."""
    return msgspec.structs.replace(
        original,
        spec=msgspec.structs.replace(original.spec, node_name=name),
        status=msgspec.structs.replace(original.status, phase="Running"),
    )


def world(*objects: KubeObject) -> ClusterState:
    """Return the state made of nodes, pods on them and other objects; pending pods are left out."""
    state = ClusterState()
    add(state, *objects)
    return state


def add(state: ClusterState, *objects: KubeObject) -> None:
    """Take over more objects; new versions of known ones replace them."""
    ingest = Ingest(state)
    for obj in objects:
        if not isinstance(obj, Pod):
            ingest.put(obj)
            if isinstance(obj, Reservation) and is_available(obj):
                placed = reserve_pod(obj)
                ingest.put_placed(placed, state.pods.by_key.get(placed.key))
        elif obj.spec.node_name:
            ingest.put_placed(obj, state.pods.by_key.get(obj.key))


def _decoded(kind: type[Kind], **manifest: JsonObject) -> Kind:
    whole = {"apiVersion": kind.API_VERSION, "kind": kind.KIND, **manifest}
    made = with_defaults(decode_object(whole))
    assert isinstance(made, kind)
    return made


def _taint(text: str) -> JsonObject:
    pair, _, effect = text.partition(":")
    key, _, value = pair.partition("=")
    return {"key": key, "value": value, "effect": effect}


def _port(port: int | str) -> JsonObject:
    if isinstance(port, int):
        return {"containerPort": port, "hostPort": port}
    address, _, protocol = port.partition("/")
    ip, _, number = address.rpartition(":")
    return {
        "containerPort": int(number),
        "hostPort": int(number),
        "hostIP": ip,
        "protocol": protocol or "TCP",
    }
