"""Check of feature gates of components: known, effective, with the kinds that they need."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from koordinator.api.dynamic_resources import TAINT_RULE_KINDS, ResourceClaim
from koordinator.api.elastic_quota import ElasticQuotaProfile
from koordinator.api.kubescheduler.gates import (
    DRA_BINDING_CONDITIONS,
    DRA_CONSUMABLE_CAPACITY,
    DRA_DEVICE_TAINT_RULES,
    DRA_DEVICE_TAINTS,
    DRA_EXTENDED_RESOURCE,
    DRA_PARTITIONABLE_DEVICES,
    GANG_SCHEDULING,
    GENERIC_WORKLOAD,
    MULTI_QUOTA_TREE,
    TOPOLOGY_PLACEMENTS,
    WORKLOAD_AWARE_PREEMPTION,
    FeatureGates,
)
from koordinator.api.meta import KubeObject
from koordinator.api.pod_groups import SCHEDULING_KINDS
from koordinator.cli.descheduler.flags import parse_gates as parse_descheduler_gates
from koordinator.cli.doctor.findings import CheckResult, Finding, FindingSeverity, unreadable
from koordinator.cli.doctor.installation import Installation
from koordinator.cluster.kubernetes.cluster import KubernetesCluster
from koordinator.foundation.errors import ClusterError, InputError
from koordinator.foundation.feature_gates import parse_feature_gates
from koordinator.koordlet.app.options import MEANINGLESS, gates_of, parse_gates
from koordinator.manager.admission.gates import parse_gates as parse_manager_gates

CHECK: Final = "feature gates"
_FLAG: Final = "feature-gates"
#: Kinds that a gate needs; one of them is enough, as releases have them in different versions.
NEEDED_KINDS: Final[Mapping[str, tuple[type[KubeObject], ...]]] = {
    **dict.fromkeys(
        (
            DRA_BINDING_CONDITIONS,
            DRA_CONSUMABLE_CAPACITY,
            DRA_DEVICE_TAINTS,
            DRA_EXTENDED_RESOURCE,
            DRA_PARTITIONABLE_DEVICES,
        ),
        (ResourceClaim,),
    ),
    DRA_DEVICE_TAINT_RULES: TAINT_RULE_KINDS,
    **dict.fromkeys(
        (GANG_SCHEDULING, GENERIC_WORKLOAD, TOPOLOGY_PLACEMENTS, WORKLOAD_AWARE_PREEMPTION),
        SCHEDULING_KINDS,
    ),
    MULTI_QUOTA_TREE: (ElasticQuotaProfile,),
}

_PARSERS: Final[Mapping[str, Callable[[str], object]]] = {
    "koord-manager": parse_manager_gates,
    "koord-descheduler": parse_descheduler_gates,
    "koordlet": lambda text: gates_of(parse_gates(text)),
}


def check_gates(cluster: KubernetesCluster, installation: Installation) -> CheckResult:
    """Check the flag ``--feature-gates`` of every installed component.

    Gates of koordlet that need a feature of the kernel are checked on the node: ``node.py``.
    """
    findings: list[Finding] = []
    for component in installation.workloads:
        text = installation.flag(component, _FLAG)
        try:
            if component == "koord-scheduler":
                findings += _of_scheduler(cluster, installation, text)
            else:
                _PARSERS[component](text)
        except InputError as error:
            remedy = (
                f"correct the values of the chart, and run helm upgrade: {component} won't start"
            )
            findings.append(_finding(component, str(error), remedy))
        except ClusterError as error:
            findings.append(unreadable(CHECK, f"{component} --{_FLAG}", error))
        if component == "koordlet":
            findings += _without_effect(component, parse_feature_gates(text), MEANINGLESS)
    summary = f"--{_FLAG} of {', '.join(installation.workloads) or 'no component'}"
    return CheckResult(name=CHECK, summary=summary, findings=tuple(findings))


def _of_scheduler(
    cluster: KubernetesCluster, installation: Installation, text: str
) -> Iterator[Finding]:
    level = installation.kubernetes.served()
    gates = FeatureGates.parse(text, level)
    stated = parse_feature_gates(text)
    yield from _without_effect("koord-scheduler", stated, dict(gates.without_effect))
    needed = {gate: kinds for gate, kinds in NEEDED_KINDS.items() if gate in gates}
    every = list(dict.fromkeys(kind for kinds in needed.values() for kind in kinds))
    unserved = set(cluster.unserved(every))
    for gate, kinds in needed.items():
        if unserved.issuperset(kinds):
            group = kinds[0].API_VERSION.partition("/")[0]
            yield _finding(
                f"koord-scheduler {gate}",
                f"is on, but the API server serves no {kinds[0].PLURAL}.{group}",
                f"install or enable that kind on the API server, or set {gate}=false",
                FindingSeverity.PROBLEM if stated.get(gate) else FindingSeverity.NOTE,
            )


def _without_effect(
    component: str, stated: Mapping[str, bool], reasons: Mapping[str, str]
) -> Iterator[Finding]:
    for gate in sorted(stated):
        if gate in reasons:
            about, problem = f"{component} {gate}", f"has no effect: {reasons[gate]}"
            yield _finding(about, problem, "remove it from the flag", FindingSeverity.NOTE)


def _finding(
    about: str, problem: str, remedy: str, severity: FindingSeverity = FindingSeverity.PROBLEM
) -> Finding:
    return Finding(check=CHECK, about=about, problem=problem, remedy=remedy, severity=severity)
