"""Group identity: CPU preference in the kernel, or SCHED_IDLE in a kernel without it.

Source: koordinator pkg/koordlet/runtimehooks/hooks/groupidentity/rule.go, bvt.go.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from koordinator.api.qos import KubeQos, QosClass
from koordinator.api.resource_qos import CpuQos
from koordinator.domain.cgroups.files import CgroupFile
from koordinator.koordlet.hooks.cpu_qos import (
    CORE_SCHED,
    cpu_policy,
    cpu_qos_of_classes,
    plan_idle,
    plan_sched_idle,
)
from koordinator.koordlet.intents import Intent, SetCgroup, SetFile
from koordinator.koordlet.view.node_view import NodeView
from koordinator.koordlet.view.pods import PodView

_SYSCTL = "kernel/sched_group_identity_enabled"
_REASON = "CPU QoS: group identity"


@dataclass(frozen=True, slots=True)
class GroupIdentities:
    """``cpu.bvt_warp_ns`` by QoS class, by kube QoS of unlabelled pods, and of the tiers."""

    is_enabled: bool
    classes: Mapping[QosClass, int]
    unlabelled: Mapping[KubeQos, int]
    tiers: Mapping[KubeQos, int]


_DISABLED: Final = GroupIdentities(
    False,
    dict.fromkeys((QosClass.LSE, QosClass.LSR, QosClass.LS, QosClass.BE), 0),
    dict.fromkeys(KubeQos, 0),
    dict.fromkeys(KubeQos, 0),
)


def plan_group_identity(view: NodeView) -> list[Intent]:
    """Return the identity of each tier, pod and host application; 0 where it is disabled.

    Only Alibaba's kernel has group identity.  On other kernels, SCHED_IDLE replaces it:
    ``cpu.idle`` is 1 for pods of the best-effort tier with a negative identity.
    """
    identities = identities_in_force(view)
    if identities is None:
        configured = group_identities(view)
        reason = "CPU QoS: SCHED_IDLE, because the kernel has no group identity"
        return plan_idle(view, lambda pod: pod_identity(pod, configured) < 0, reason)
    return [*_identities(view, identities), *plan_sched_idle(view)]


def identities_in_force(view: NodeView) -> GroupIdentities | None:
    """Return the identities to write; None on a kernel without group identity."""
    if cpu_policy(view) == CORE_SCHED:
        # The kernel does not support both: existing identities are reset to 0.
        return _DISABLED
    if view.cgroups.number(CgroupFile.BVT_WARP, view.layout.besteffort) is None:
        return None
    return group_identities(view)


def group_identities(view: NodeView) -> GroupIdentities:
    """Return the identities that the NodeSLO configures."""
    cpu = cpu_qos_of_classes(view)
    unlabelled = {tier: _value(each) for tier, each in cpu.unlabelled.items()}
    return GroupIdentities(
        cpu.is_enabled,
        {qos: _value(each) for qos, each in cpu.classes.items()},
        unlabelled,
        {**unlabelled, KubeQos.GUARANTEED: 0},
    )


def pod_identity(pod: PodView, identities: GroupIdentities) -> int:
    """Return the identity of a pod.

    An LS pod may have its own, which is 0 if ``enable`` is false.  If group identity is disabled
    for all classes of a node, it is 0 for all pods.
    """
    if not identities.is_enabled:
        return 0
    if pod.labelled_qos is QosClass.LS:
        return pod.group_identity(identities.classes[QosClass.LS])
    if pod.labelled_qos in identities.classes:
        return identities.classes[pod.labelled_qos]
    return 0 if pod.labelled_qos is QosClass.SYSTEM else identities.unlabelled[pod.kube_qos]


def pod_group_identity(pod: PodView, identities: GroupIdentities) -> Iterator[Intent]:
    """Yield the identity of one pod and its containers."""
    text = str(pod_identity(pod, identities))
    yield SetCgroup(CgroupFile.BVT_WARP, pod.folder, text, _REASON, pod.key)
    for container in pod.containers:
        yield SetCgroup(CgroupFile.BVT_WARP, container.folder, text, _REASON, pod.key)


def _identities(view: NodeView, identities: GroupIdentities) -> Iterator[Intent]:
    reason = _REASON
    if identities.is_enabled:
        yield SetFile("sysctl", _SYSCTL, "1", reason, "node")
    for tier, value in identities.tiers.items():
        yield SetCgroup(CgroupFile.BVT_WARP, view.layout.tier(tier), str(value), reason, tier)
    for pod in view.active_pods:
        yield from pod_group_identity(pod, identities)
        text = str(pod_identity(pod, identities))
        for folder in view.sandboxes[pod.folder]:
            yield SetCgroup(CgroupFile.BVT_WARP, folder, text, reason, pod.key)
    classes = {str(qos): value for qos, value in identities.classes.items()}
    for application in view.slo.host_applications:
        folder = view.layout.host_application(application)
        text = str(classes.get(application.qos, 0))
        yield SetCgroup(CgroupFile.BVT_WARP, folder, text, reason, application.name)


def _value(cpu: CpuQos) -> int:
    return (cpu.group_identity or 0) if cpu.enable else 0
