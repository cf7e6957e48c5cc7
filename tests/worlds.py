"""Worlds with a scheduler that runs, made of what ``koordinator.testing.worlds`` builds."""

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from koordinator.api.codec import decode
from koordinator.api.kubescheduler import (
    NO_GATES,
    FeatureGates,
    KubeSchedulerConfiguration,
    decode_configuration,
)
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod, PodStatus
from koordinator.scheduler.contract import PluginSpec
from koordinator.scheduler.loop import SchedulerOptions
from koordinator.simulator import Embedded
from koordinator.simulator.embedded import STOCK
from koordinator.testing.worlds import (
    HOSTNAME,
    MIB,
    START_S,
    ZONE,
    Amount,
    add,
    budget,
    device,
    gpu_pod,
    made,
    metric,
    near,
    node,
    placed_on,
    pod,
    renamed,
    service,
    spread,
    used,
    world,
)

__all__ = [
    "HOSTNAME",
    "MIB",
    "START_S",
    "ZONE",
    "Amount",
    "add",
    "budget",
    "configuration",
    "device",
    "embedded",
    "gpu_pod",
    "made",
    "metric",
    "near",
    "node",
    "placed_on",
    "pod",
    "renamed",
    "service",
    "spread",
    "used",
    "with_status",
    "world",
]


def configuration(**profile: Any) -> KubeSchedulerConfiguration:
    """Return a configuration of one profile, by default that of kube-scheduler."""
    return decode_configuration(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [{"schedulerName": "default-scheduler", **profile}],
        },
        "test",
    )


def embedded(
    *objects: KubeObject,
    config: KubeSchedulerConfiguration = STOCK,
    out_of_tree: Iterable[PluginSpec[Any]] = (),
    gates: FeatureGates = NO_GATES,
    **options: Any,
) -> Embedded:
    """Return a cluster with its scheduler, loaded but with nothing scheduled yet."""
    one = Embedded(
        config,
        now_s=START_S,
        options=SchedulerOptions(**options),
        out_of_tree=tuple(out_of_tree),
        gates=gates,
    )
    one.load(objects)
    return one


def with_status(one: Pod, **status: Any) -> Pod:
    """Return the pod, which runs, with a status."""
    return replace(one, status=decode({"phase": "Running", **status}, PodStatus))
