"""CPU QoS: group identity, core scheduling, and SCHED_IDLE, from the NodeSLO.

The CPU policy groupIdentity is the default; while it is coreSched, pods are grouped by kernel
cookies that determine which processes may share a CPU core.
Source: koordinator pkg/koordlet/runtimehooks/hooks/groupidentity/rule.go, bvt.go;
pkg/koordlet/runtimehooks/hooks/coresched.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from koordinator.api.labels import CoreSchedPolicy
from koordinator.api.qos import KubeQos, QosClass
from koordinator.api.resource_names import CPU
from koordinator.api.resource_qos import CpuQos
from koordinator.domain.cgroups.files import CgroupFile, shares_of_milli
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.koordlet.intents import Intent, SetCgroup, SetCoreCookie, SetFile
from koordinator.koordlet.view.node_view import NodeView
from koordinator.koordlet.view.pods import PodView

CORE_SCHED: Final = "coreSched"

_SYSCTL = "kernel/sched_group_identity_enabled"
_REASON = "CPU QoS: group identity"

EXPELLER = "-expeller"
_SWITCHES = (("kernel/sched_group_identity_enabled", "0"), ("kernel/sched_core", "1"))


@dataclass(frozen=True, slots=True)
class CpuQosOfClasses:
    """CPU QoS by QoS class, and by kube QoS of unlabelled pods; SYSTEM has none."""

    classes: Mapping[QosClass, CpuQos]
    unlabelled: Mapping[KubeQos, CpuQos]

    @property
    def is_enabled(self) -> bool:
        """Whether CPU QoS is enabled for any class."""
        return any(cpu.enable for cpu in self.classes.values())


def cpu_policy(view: NodeView) -> str:
    """Return groupIdentity, coreSched, or an empty string."""
    policies = view.qos_strategy.policies
    return (policies.cpu_policy if policies is not None else None) or ""


def cpu_qos_of_classes(view: NodeView) -> CpuQosOfClasses:
    """Return the settings of each class; LSE has the settings of LSR."""
    strategy = view.qos_strategy
    lsr, ls, be = (
        (each.cpu_qos if each is not None else None) or CpuQos()
        for each in (strategy.lsr_class, strategy.ls_class, strategy.be_class)
    )
    return CpuQosOfClasses(
        {QosClass.LSE: lsr, QosClass.LSR: lsr, QosClass.LS: ls, QosClass.BE: be},
        {
            KubeQos.GUARANTEED: lsr if lsr.enable else ls,
            KubeQos.BURSTABLE: ls,
            KubeQos.BEST_EFFORT: be,
        },
    )


def plan_sched_idle(view: NodeView) -> list[Intent]:
    """Return ``cpu.idle`` of pods: from the NodeSLO with core scheduling, otherwise 0."""
    cpu = cpu_qos_of_classes(view) if cpu_policy(view) == CORE_SCHED else None

    def is_idle(pod: PodView) -> bool:
        if cpu is None:
            return False
        settings = cpu.classes.get(pod.labelled_qos, cpu.unlabelled[pod.kube_qos])
        return settings.sched_idle == 1

    return plan_idle(view, is_idle, "CPU QoS: schedIdle")


def plan_idle(view: NodeView, is_idle: Callable[[PodView], bool], reason: str) -> list[Intent]:
    """Return ``cpu.idle`` of the tiers, always 0, and of the pods in the best-effort tier.

    The kernel rejects changes of the shares of an idle cgroup.  The kubelet writes the shares of
    its tiers at its start, and exits on failure; it writes a pod's shares at a resize, which pods
    of the best-effort tier do not support.  Idle cgroups have the same weight regardless of their
    shares, so pods are idle only while another pod in the tier is not.  Towards other tiers
    ``cpu.idle`` has no effect, because the kernel compares tiers there.
    Source: Linux kernel/sched/fair.c ``sched_group_set_shares``, ``find_matching_se``; kubernetes
    pkg/kubelet/cm/qos_container_manager_linux.go ``Start``.
    """
    intents: list[Intent] = []
    for tier in KubeQos:
        folder = view.layout.tier(tier)
        cgroup = _Cgroup(folder, kubelet_shares(view, tier), tier)
        intents += _set_idle(view, cgroup, 0, reason)
    pods = [pod for pod in view.active_pods if pod.kube_qos is KubeQos.BEST_EFFORT]
    idle = {pod.folder for pod in pods if is_idle(pod)}
    if len(idle) == len(pods):
        idle = set()
    for pod in pods:
        cgroup = _Cgroup(pod.folder, shares_of_milli(0), pod.key)
        intents += _set_idle(view, cgroup, int(pod.folder in idle), reason)
    return intents


@dataclass(frozen=True, slots=True)
class _Cgroup:
    folder: str
    shares: int  # as the kubelet sets them
    owner: str


def _set_idle(view: NodeView, cgroup: _Cgroup, value: int, reason: str) -> Iterator[Intent]:
    """Yield ``cpu.idle`` of a cgroup, and the kubelet's shares when it stops being idle.

    The kernel discards the shares of a cgroup that becomes idle, and afterwards applies the
    default (kernel/sched/fair.c, ``sched_group_set_idle``).
    """
    folder, owner = cgroup.folder, cgroup.owner
    yield SetCgroup(CgroupFile.CPU_IDLE, folder, str(value), reason, owner)
    if not value and view.cgroups.number(CgroupFile.CPU_IDLE, folder) == 1:
        shares, off = str(cgroup.shares), f"{reason} is off"
        yield SetCgroup(CgroupFile.CPU_SHARES, folder, shares, off, owner)


def kubelet_shares(view: NodeView, tier: KubeQos) -> int:
    """Return the shares that the kubelet sets for a tier.

    Source: kubernetes pkg/kubelet/cm/qos_container_manager_linux.go ``setCPUCgroupConfig``,
    node_container_manager_linux.go ``enforceNodeAllocatableCgroups``.
    """
    match tier:
        case KubeQos.GUARANTEED:
            return shares_of_milli(view.machine.raw_allocatable.get(CPU, 0))
        case KubeQos.BURSTABLE:
            pods = (pod for pod in view.active_pods if pod.kube_qos is tier)
            return shares_of_milli(sum(pod.requests.get(CPU, 0) for pod in pods))
        case KubeQos.BEST_EFFORT:
            return shares_of_milli(0)


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


def plan_core_scheduling(view: NodeView) -> list[Intent]:
    """Return the group of each container, and ``cpu.idle`` of pods.

    Pods of class SYSTEM keep their cookies.  The kernel does not support core scheduling together
    with group identity, so group identity is switched off first, where the kernel has the switch.
    """
    cpu = cpu_qos_of_classes(view) if cpu_policy(view) == CORE_SCHED else None
    intents: list[Intent] = []
    if cpu is not None and cpu.is_enabled:
        reason = "CPU QoS: core scheduling"
        intents += [SetFile("sysctl", name, value, reason, "node") for name, value in _SWITCHES]
    intents += plan_sched_idle(view)
    for pod in view.active_pods:
        if pod.labelled_qos is not QosClass.SYSTEM:
            intents += _cookies(view, pod, core_group(pod, cpu))
    return intents


def core_group(pod: PodView, cpu: CpuQosOfClasses | None) -> str | None:
    """Return the group of pods that may share cores with this one; None for no cookie.

    Pods without a group label share the group with the empty name.
    """
    if cpu is None:
        return None
    policy = pod.core_policy
    settings = cpu.classes.get(pod.labelled_qos, cpu.unlabelled[pod.kube_qos])
    if not settings.enable or policy is CoreSchedPolicy.NONE:
        return None
    is_exclusive = policy is CoreSchedPolicy.EXCLUSIVE
    group = pod.uid if is_exclusive else pod.core_group
    return group + EXPELLER if settings.core_expeller else group


def _cookies(view: NodeView, pod: PodView, group: str | None) -> Iterator[Intent]:
    reason = "CPU QoS: core scheduling"
    names = {container.folder: container.name for container in pod.containers}
    for folder in view.cgroups.below(pod.folder):  # includes the sandbox
        owner = f"{pod.key}/{names[folder]}" if folder in names else pod.key
        yield SetCoreCookie(folder, group, reason, owner)
