"""Selection of the NUMA policy."""

import pytest

from koordinator.api.annotations.numa import NumaTopologyPolicy, NumaTopologySpec
from koordinator.foundation.errors import InputError
from koordinator.scheduler.rules.numa.align import (
    node_policy,
    pod_exclusive,
    pod_policy,
    policy_on,
)

NONE, RESTRICTED = NumaTopologyPolicy.NONE, NumaTopologyPolicy.RESTRICTED
SINGLE = NumaTopologyPolicy.SINGLE_NUMA_NODE
LABEL = "node.koordinator.sh/numa-topology-policy"


def test_the_label_of_a_node_goes_before_its_kubelet() -> None:
    """A label without a valid value takes precedence as well."""
    assert node_policy({LABEL: "Restricted"}, SINGLE) is RESTRICTED
    assert node_policy({LABEL: ""}, SINGLE) is SINGLE
    assert node_policy({}, NONE) is NONE
    assert node_policy({LABEL: "Unheard"}, SINGLE) is NONE


@pytest.mark.parametrize(
    ("node", "pod", "policy"),
    [
        (NONE, NONE, NONE),
        (RESTRICTED, NONE, RESTRICTED),
        (NONE, SINGLE, SINGLE),
        (SINGLE, SINGLE, SINGLE),
        (RESTRICTED, SINGLE, None),
    ],
)
def test_a_pod_and_a_node_must_not_contradict(
    node: NumaTopologyPolicy, pod: NumaTopologyPolicy, policy: NumaTopologyPolicy | None
) -> None:
    """The pod or the node decides, or the two agree."""
    assert policy_on(node, pod) is policy


@pytest.mark.parametrize(
    ("policy", "wish", "exclusive"),
    [
        ("", "", ""),
        ("Restricted", "", "Required"),
        ("Restricted", "Preferred", "Preferred"),
        ("", "Required", "Required"),
    ],
)
def test_a_pod_with_a_policy_keeps_to_itself(policy: str, wish: str, exclusive: str) -> None:
    """A label of the pod with another setting takes precedence."""
    spec = NumaTopologySpec(numa_topology_policy=policy, single_numa_node_exclusive=wish)

    assert pod_exclusive(spec) == exclusive


def test_an_unknown_policy_of_a_pod_is_refused() -> None:
    """With the policies that there are."""
    with pytest.raises(InputError, match="must be one of BestEffort, Restricted, Single"):
        pod_policy(NumaTopologySpec(numa_topology_policy="Strict"))

    assert pod_policy(NumaTopologySpec(numa_topology_policy="Restricted")) is RESTRICTED
