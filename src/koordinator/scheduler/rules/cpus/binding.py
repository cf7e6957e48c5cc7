"""Exclusive CPUs of pods and their bind policy.

A pod requests them with its QoS class; a node can impose them on every pod.

Source: koordinator pkg/scheduler/plugins/nodenumaresource/plugin.go, ``PreFilter``, ``Filter``,
``appendResourceSpecIfMissed``; util.go, ``getCPUBindPolicy``, ``requestCPUBind``; apis/extension
numa_aware.go, ``GetNodeCPUBindPolicy``; koordinator
pkg/scheduler/plugins/nodenumaresource/resource_manager.go, ``filterCPUsByRequiredCPUBindPolicy``,
``satisfiedRequiredCPUBindPolicy``.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from koordinator.api.annotations.numa import (
    FULL_PCPUS_ONLY,
    CpuBindPolicy,
    CpuBindSpec,
    KubeletCpuManagerPolicy,
    NodeCpuBindPolicy,
    NumaAllocateStrategy,
)
from koordinator.api.labels import CPU_BIND_POLICY, NUMA_ALLOCATE_STRATEGY
from koordinator.api.qos import PriorityBand, QosClass
from koordinator.scheduler.rules.cpus.layout import CpuLayout

FRACTIONAL_CPUS: Final = "the requested CPUs must be integer"
POLICY_CONFLICT: Final = "node(s) cpu bind policy conflicts with pod's required cpu bind policy"
PARTIAL_CORES: Final = "node(s) requested cpus not multiple cpus per core"

_MILLI = 1000
_BINDING = frozenset({CpuBindPolicy.FULL_PCPUS, CpuBindPolicy.SPREAD_BY_PCPUS})
_OF_NODE = {
    NodeCpuBindPolicy.FULL_PCPUS_ONLY: CpuBindPolicy.FULL_PCPUS,
    NodeCpuBindPolicy.SPREAD_BY_PCPUS: CpuBindPolicy.SPREAD_BY_PCPUS,
}


class FractionalCpuError(ValueError):
    """A fractional request for exclusive CPUs; the text is the message for users."""

    def __init__(self) -> None:
        super().__init__(FRACTIONAL_CPUS)


class CpuBinding(msgspec.Struct, frozen=True):
    """A number of exclusive CPUs for one pod."""

    count: int
    policy: str  # a CpuBindPolicy
    required: bool  # the policy is mandatory
    exclusive_policy: str = ""  # a CpuExclusivePolicy


def pod_binding(
    spec: CpuBindSpec, qos: QosClass, band: PriorityBand, cpu_milli: int, default_policy: str
) -> CpuBinding | None:
    """Return the binding that the pod itself requests; None if it shares CPUs.

    ``qos`` is the label's QoS class, ``band`` the declared priority band or the one of the QoS
    class; ``default_policy`` is the scheduler's, and replaces Default. Raises FractionalCpuError
    for a fractional request.
    """
    if qos not in {QosClass.LSE, QosClass.LSR} or band is not PriorityBand.PROD:
        return None
    required, preferred = (
        default_policy if policy == CpuBindPolicy.DEFAULT else policy
        for policy in (
            spec.required_cpu_bind_policy,
            spec.preferred_cpu_bind_policy or CpuBindPolicy.DEFAULT,
        )
    )
    policy = required or preferred
    if policy not in _BINDING:
        return None
    return _binding(
        cpu_milli,
        policy,
        required=bool(required),
        exclusive_policy=spec.preferred_cpu_exclusive_policy,
    )


def node_bind_policy(
    labels: Mapping[str, str], kubelet: KubeletCpuManagerPolicy | None
) -> CpuBindPolicy | None:
    """Return the policy that a node imposes on every pod, None if pods decide."""
    if kubelet and kubelet.policy == "static" and kubelet.options.get(FULL_PCPUS_ONLY) == "true":
        return CpuBindPolicy.FULL_PCPUS
    label = labels.get(CPU_BIND_POLICY)
    return next((policy for name, policy in _OF_NODE.items() if name == label), None)


def binding_on(
    node_policy: CpuBindPolicy | None, own: CpuBinding | None, cpu_milli: int
) -> CpuBinding | None:
    """Return a pod's binding on a node: its required policy, the node's, or its preferred one.

    ``own`` is the binding that the pod itself requests.  None if it shares CPUs. Raises
    FractionalCpuError if the node binds CPUs and the request is fractional.
    """
    if node_policy is None or (own is not None and own.required):
        return own
    if own is not None:
        return msgspec.structs.replace(own, policy=node_policy, required=True)
    return _binding(cpu_milli, node_policy, required=True)


def completed_spec(spec: CpuBindSpec, binding: CpuBinding) -> CpuBindSpec | None:
    """Return the ``resource-spec`` with the applied bind policy.

    None if the pod's own spec already states it.
    """
    required, preferred = spec.required_cpu_bind_policy, spec.preferred_cpu_bind_policy
    if binding.required and required in {"", CpuBindPolicy.DEFAULT}:
        required = binding.policy
    if preferred == CpuBindPolicy.DEFAULT or not (required or preferred):
        preferred = binding.policy
    completed = msgspec.structs.replace(
        spec, required_cpu_bind_policy=required, preferred_cpu_bind_policy=preferred
    )
    return completed if completed != spec else None


def packs(labels: Mapping[str, str], *, default: bool) -> bool:
    """Return whether the node fills its fullest NUMA node first; ``default`` is the scheduler's."""
    strategy = labels.get(NUMA_ALLOCATE_STRATEGY, "")
    return strategy == NumaAllocateStrategy.MOST_ALLOCATED if strategy else default


def _binding(
    cpu_milli: int, policy: str, *, required: bool, exclusive_policy: str = ""
) -> CpuBinding | None:
    if cpu_milli % _MILLI:
        raise FractionalCpuError
    if not cpu_milli:
        return None
    return CpuBinding(cpu_milli // _MILLI, policy, required, exclusive_policy)


def usable_under(policy: str, layout: CpuLayout, free: int) -> int:
    """Return the free CPUs that a required policy may take.

    FullPCPUs: the CPUs of entirely free cores.  SpreadByPCPUs: the lowest free CPU of each core.
    """
    if policy == CpuBindPolicy.FULL_PCPUS:
        return layout.cpus_of(layout.whole_cores(free)) & free
    if policy == CpuBindPolicy.SPREAD_BY_PCPUS:
        usable = seen = 0
        for rank, among in enumerate(layout.threads(free)):
            usable |= layout.thread(among & ~seen, rank)
            seen |= among
        return usable
    return free


def obeys(policy: str, layout: CpuLayout, cpus: int) -> bool:
    """Return whether the CPUs are whole cores (FullPCPUs) or on distinct cores (SpreadByPCPUs)."""
    cores = layout.cores_of(cpus).bit_count()
    if policy == CpuBindPolicy.FULL_PCPUS:
        return cores * layout.cpus_per_core == cpus.bit_count()
    if policy == CpuBindPolicy.SPREAD_BY_PCPUS:
        return cores == cpus.bit_count()
    return True
