"""Which NUMA topology policy applies to a pod on a node.

Source: koordinator pkg/scheduler/plugins/nodenumaresource/util.go, ``getNUMATopologyPolicy``,
``mergeTopologyPolicy``; plugin.go, ``Filter``.
"""

from collections.abc import Mapping
from typing import Final

from koordinator.api.annotations.numa import (
    NUMA_TOPOLOGY_SPEC,
    NumaTopologyExclusive,
    NumaTopologyPolicy,
    NumaTopologySpec,
)
from koordinator.api.labels import NUMA_TOPOLOGY_POLICY
from koordinator.foundation.errors import InputError

POLICY_MISMATCH: Final = "node(s) NUMA Topology policy not match"

_POLICIES = {policy.value: policy for policy in NumaTopologyPolicy}


def pod_policy(spec: NumaTopologySpec) -> NumaTopologyPolicy:
    """Return the policy that a pod names, NONE if it leaves it to the node.

    Raises InputError if there is no such policy; the original breaks down on it.
    """
    policy = _POLICIES.get(spec.numa_topology_policy)
    if policy is None:
        accepted = ", ".join(policy for policy in _POLICIES if policy)
        raise InputError(
            f"must be one of {accepted}, got {spec.numa_topology_policy!r}",
            path=f"{NUMA_TOPOLOGY_SPEC.path}.numaTopologyPolicy",
        )
    return policy


def pod_exclusive(spec: NumaTopologySpec) -> str:
    """Return whether the pod keeps apart from pods on more or fewer NUMA nodes.

    A pod that names a policy does unless it says otherwise.
    """
    default = NumaTopologyExclusive.REQUIRED if spec.numa_topology_policy else ""
    return spec.single_numa_node_exclusive or default


def node_policy(labels: Mapping[str, str], reported: NumaTopologyPolicy) -> NumaTopologyPolicy:
    """Return the policy of a node: that of its label, else the reported one.

    An unknown policy in the label is none.
    """
    label = labels.get(NUMA_TOPOLOGY_POLICY, "")
    return _POLICIES.get(label, NumaTopologyPolicy.NONE) if label else reported


def policy_on(node: NumaTopologyPolicy, pod: NumaTopologyPolicy) -> NumaTopologyPolicy | None:
    """Return the policy for a pod on a node; None if they contradict (POLICY_MISMATCH)."""
    none = NumaTopologyPolicy.NONE
    if node is not none and pod is not none and node is not pod:
        return None
    return node if pod is none else pod
