"""A node, its report and its pods, in the spelling of Kubernetes."""

import datetime as dt
from collections.abc import Iterable
from typing import Any

from koordinator.api.codec import decode
from koordinator.api.node import Node
from koordinator.api.node_metric import NodeMetric
from koordinator.api.pod import Pod
from koordinator.manager.node_resources.node import (
    NodePod,
    NodeUse,
    node_pod,
    node_use,
)

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
Resources = dict[str, str | int]


def amounts(cpu: str | int, memory: str | int) -> Resources:
    """Return a list of the two."""
    return {"cpu": cpu, "memory": memory}


def node(
    capacity: Resources, allocatable: Resources | None = None, name: str = "n", **meta: Any
) -> Node:
    """Return a node; its kubelet reserves nothing by default."""
    status = {"capacity": capacity, "allocatable": allocatable or capacity}
    return decode({"metadata": {"name": name, **meta}, "status": status}, Node)


def pod(
    name: str,
    request: Resources | None = None,
    *,
    priority: int | None = 9500,
    qos: str = "LS",
    phase: str = "Running",
    on: str = "n",
    annotations: dict[str, str] | None = None,
) -> Pod:
    """Return a pod on a node; prod and latency-sensitive by default."""
    labels = {"koordinator.sh/qosClass": qos} if qos else {}
    resources = {"resources": {"requests": request or {}}}
    return decode(
        {
            "metadata": {
                "name": name,
                "namespace": "default",
                "labels": labels,
                "annotations": annotations or {},
            },
            "spec": {
                "nodeName": on,
                "priority": priority,
                "containers": [{"name": "c", **resources}],
            },
            "status": {"phase": phase},
        },
        Pod,
    )


def usage(name: str, used: Resources, priority: str = "koord-prod") -> dict[str, Any]:
    """Return what is reported of a pod."""
    return {
        "name": name,
        "namespace": "default",
        "podUsage": {"resources": used},
        "priority": priority,
    }


def application(name: str, used: Resources, priority: str) -> dict[str, Any]:
    """Return what is reported of a program outside of pods."""
    return {"name": name, "usage": {"resources": used}, "priority": priority}


def metric(
    *,
    system: Resources | None = None,
    used: Resources | None = None,
    pods: Iterable[dict[str, Any]] = (),
    applications: Iterable[dict[str, Any]] = (),
    reclaimable: Resources | None = None,
    when: dt.datetime = NOW,
    name: str = "n",
) -> NodeMetric:
    """Return a report."""
    status = {
        "updateTime": when.isoformat(),
        "nodeMetric": {
            "nodeUsage": {"resources": used or {}},
            "systemUsage": {"resources": system or {}},
        },
        "podsMetric": list(pods),
        "hostApplicationMetric": list(applications),
    }
    if reclaimable is not None:
        status["prodReclaimableMetric"] = {"resource": {"resources": reclaimable}}
    return decode({"metadata": {"name": name}, "status": status}, NodeMetric)


def counted(pods: Iterable[Pod]) -> list[NodePod]:
    """Return the pods that count."""
    return [each for one in pods if (each := node_pod(one)) is not None]


def use(report: NodeMetric, pods: Iterable[Pod] = ()) -> NodeUse:
    """Return what is used."""
    return node_use(report.status, counted(pods))
