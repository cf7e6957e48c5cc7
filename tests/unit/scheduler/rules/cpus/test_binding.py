"""Pods with exclusive CPUs."""

import pytest

from koordinator.api.annotations.numa import (
    CpuBindPolicy,
    CpuBindSpec,
    KubeletCpuManagerPolicy,
)
from koordinator.api.qos import PriorityBand, QosClass
from koordinator.scheduler.rules.cpus.binding import (
    FRACTIONAL_CPUS,
    CpuBinding,
    FractionalCpuError,
    binding_on,
    completed_spec,
    node_bind_policy,
    packs,
    pod_binding,
)

FULL, SPREAD = CpuBindPolicy.FULL_PCPUS, CpuBindPolicy.SPREAD_BY_PCPUS
LABEL = "node.koordinator.sh/cpu-bind-policy"


def spec(required: str = "", preferred: str = "", exclusive: str = "") -> CpuBindSpec:
    return CpuBindSpec(
        required_cpu_bind_policy=required,
        preferred_cpu_bind_policy=preferred,
        preferred_cpu_exclusive_policy=exclusive,
    )


@pytest.mark.parametrize(
    ("wanted", "policy", "required"),
    [
        (spec(), FULL, False),
        (spec(preferred="Default"), FULL, False),
        (spec(preferred="SpreadByPCPUs"), SPREAD, False),
        (spec(required="SpreadByPCPUs"), SPREAD, True),
        (spec(required="Default", preferred="SpreadByPCPUs"), FULL, True),
    ],
)
def test_policy_of_a_pod_prefers_the_required_one(
    wanted: CpuBindSpec, policy: str, required: bool
) -> None:
    """A required policy precedes a preferred one; Default is the scheduler's (here FullPCPUs)."""
    got = pod_binding(wanted, QosClass.LSR, PriorityBand.PROD, 4000, FULL)

    assert got == CpuBinding(4, policy, required)


@pytest.mark.parametrize(
    ("wanted", "qos", "band", "cpu_milli", "default"),
    [
        (spec(), QosClass.LS, PriorityBand.PROD, 4000, FULL),
        (spec(), QosClass.NONE, PriorityBand.PROD, 4000, FULL),
        (spec(), QosClass.LSE, PriorityBand.MID, 4000, FULL),
        (spec(), QosClass.LSE, PriorityBand.PROD, 0, FULL),
        (spec(), QosClass.LSE, PriorityBand.PROD, 4000, ""),
        (spec(required="ConstrainedBurst"), QosClass.LSR, PriorityBand.PROD, 1500, FULL),
        (spec(preferred="Unheard"), QosClass.LSR, PriorityBand.PROD, 4000, FULL),
    ],
)
def test_which_pods_share_cpus(
    wanted: CpuBindSpec, qos: QosClass, band: PriorityBand, cpu_milli: int, default: str
) -> None:
    """All but LSE and LSR pods of prod that request CPU by a policy that binds."""
    assert pod_binding(wanted, qos, band, cpu_milli, default) is None


def test_a_part_of_a_cpu_cannot_be_bound() -> None:
    """Pods and nodes that bind CPUs reject a fraction."""
    with pytest.raises(FractionalCpuError, match=FRACTIONAL_CPUS):
        pod_binding(spec(), QosClass.LSR, PriorityBand.PROD, 1500, FULL)
    with pytest.raises(FractionalCpuError, match=FRACTIONAL_CPUS):
        binding_on(SPREAD, None, 1500)
    assert binding_on(None, None, 1500) is None


@pytest.mark.parametrize(
    ("label", "kubelet", "policy"),
    [
        ("", None, None),
        ("None", None, None),
        ("FullPCPUsOnly", None, FULL),
        ("SpreadByPCPUs", None, SPREAD),
        ("SpreadByPCPUs", KubeletCpuManagerPolicy(policy="static"), SPREAD),
        (
            "SpreadByPCPUs",
            KubeletCpuManagerPolicy(policy="static", options={"full-pcpus-only": "true"}),
            FULL,
        ),
        (
            "",
            KubeletCpuManagerPolicy(policy="none", options={"full-pcpus-only": "true"}),
            None,
        ),
    ],
)
def test_policy_of_a_node_is_its_label_or_its_kubelet(
    label: str, kubelet: KubeletCpuManagerPolicy | None, policy: CpuBindPolicy | None
) -> None:
    """Option full-pcpus-only of the static CPU manager precedes the label."""
    assert node_bind_policy({LABEL: label} if label else {}, kubelet) is policy


def test_a_node_binds_every_pod_by_its_policy() -> None:
    """The node's policy precedes the pod's preference, and follows its requirement."""
    prefers = CpuBinding(4, FULL, required=False, exclusive_policy="PCPULevel")
    requires = CpuBinding(4, FULL, required=True)

    assert binding_on(SPREAD, None, 4000) == CpuBinding(4, SPREAD, required=True)
    assert binding_on(SPREAD, prefers, 4000) == CpuBinding(4, SPREAD, True, "PCPULevel")
    assert binding_on(SPREAD, requires, 4000) == requires
    assert binding_on(None, prefers, 4000) == prefers
    assert binding_on(SPREAD, None, 0) is None


@pytest.mark.parametrize(
    ("before", "binding", "after"),
    [
        (spec(), CpuBinding(4, FULL, required=False), spec(preferred="FullPCPUs")),
        (spec(), CpuBinding(4, SPREAD, required=True), spec(required="SpreadByPCPUs")),
        (
            spec(preferred="Default", exclusive="PCPULevel"),
            CpuBinding(4, FULL, required=False),
            spec(preferred="FullPCPUs", exclusive="PCPULevel"),
        ),
        (spec(preferred="FullPCPUs"), CpuBinding(4, FULL, required=False), None),
        (spec(required="FullPCPUs"), CpuBinding(4, FULL, required=True), None),
    ],
)
def test_the_spec_is_completed_with_the_policy_that_was_used(
    before: CpuBindSpec, binding: CpuBinding, after: CpuBindSpec | None
) -> None:
    """For koordlet; a spec that has it already is unchanged."""
    assert completed_spec(before, binding) == after


@pytest.mark.parametrize(
    ("label", "default", "packed"),
    [
        ("", True, True),
        ("", False, False),
        ("MostAllocated", False, True),
        ("DistributeEvenly", True, False),
    ],
)
def test_which_numa_node_is_filled_first(label: str, default: bool, packed: bool) -> None:
    """The label goes before the scheduler's setting; all but MostAllocated spread."""
    labels = {"node.koordinator.sh/numa-allocate-strategy": label} if label else {}

    assert packs(labels, default=default) is packed
