"""Core scheduling: groups of pods that may share a CPU core, enforced by kernel cookies.

Active while the NodeSLO's CPU policy is coreSched; otherwise all cookies are removed.
Source: koordinator pkg/koordlet/runtimehooks/hooks/coresched.
"""

from collections.abc import Iterator

from koordinator.api.labels import CoreSchedPolicy
from koordinator.api.qos import QosClass
from koordinator.koordlet.hooks.cpu_qos import (
    CORE_SCHED,
    CpuQosOfClasses,
    cpu_policy,
    cpu_qos_of_classes,
    plan_sched_idle,
)
from koordinator.koordlet.intents import Intent, SetCoreCookie, SetFile
from koordinator.koordlet.view.node_view import NodeView
from koordinator.koordlet.view.pods import PodView

EXPELLER = "-expeller"
_SWITCHES = (("kernel/sched_group_identity_enabled", "0"), ("kernel/sched_core", "1"))


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
