"""Checks of what components write again and again: their Leases, and NodeMetrics of nodes."""

from collections.abc import Iterable, Sequence
from typing import Final

from koordinator.api.control_plane import Lease
from koordinator.api.node import Node
from koordinator.api.node_metric import NodeMetric
from koordinator.cli.doctor.findings import CheckResult, Finding, named, unreadable
from koordinator.cli.doctor.installation import Installation
from koordinator.cluster.kubernetes.cluster import KubernetesCluster
from koordinator.domain.component_health import LEASES, lease_findings
from koordinator.foundation.clock import to_epoch_s
from koordinator.foundation.errors import ClusterError, NotFoundError

LEASE_CHECK: Final = "leases"
METRIC_CHECK: Final = "node metrics"
_INTERVAL_S: Final = 60.0  # of reports, where the NodeMetric states none
_MISSED: Final = 3  # reports before a NodeMetric counts as stale


def check_leases(
    cluster: KubernetesCluster, installation: Installation, now_s: float
) -> CheckResult:
    """Check that every installed component with leader election has an active leader."""
    namespace = installation.namespace
    expected = [name for name, component in LEASES.items() if component in installation.workloads]
    findings: list[Finding] = []
    leases: list[Lease] = []
    for name in expected:
        try:
            leases.append(cluster.get(Lease, name, namespace))
        except NotFoundError:
            remedy = _see_log(LEASES[name], namespace)
            problem = "does not exist: no replica has ever led"
            findings.append(_finding(LEASE_CHECK, f"leases/{name}", problem, remedy))
        except ClusterError as error:
            findings.append(unreadable(LEASE_CHECK, f"leases/{name}", error))
    findings += (
        _finding(LEASE_CHECK, it.about, it.text, _see_log(it.about.partition("/")[2], namespace))
        for it in lease_findings(leases, now_s)
    )
    summary = f"held and renewed: {named(expected) or 'none is expected'}"
    return CheckResult(name=LEASE_CHECK, summary=summary, findings=tuple(findings))


def check_node_metrics(
    cluster: KubernetesCluster, installation: Installation, now_s: float
) -> CheckResult:
    """Check that the agent of every node has reported its usage lately."""
    if "koordlet" not in installation.workloads:
        return CheckResult(name=METRIC_CHECK, summary="skipped: koordlet is not installed")
    try:
        nodes = cluster.list(Node).items
        metrics = cluster.list(NodeMetric).items
    except ClusterError as error:
        finding = unreadable(METRIC_CHECK, "nodes and nodemetrics", error)
        return CheckResult(name=METRIC_CHECK, summary="not read", findings=(finding,))
    findings = tuple(metric_findings(nodes, metrics, installation.namespace, now_s))
    return CheckResult(
        name=METRIC_CHECK, summary=f"reports of {len(nodes)} nodes", findings=findings
    )


def metric_findings(
    nodes: Iterable[Node], metrics: Sequence[NodeMetric], namespace: str, now_s: float
) -> Iterable[Finding]:
    """Yield one finding for all nodes without a NodeMetric, one for all that are stale."""
    by_node = {each.metadata.name: each for each in metrics}
    names = [node.metadata.name for node in nodes]
    missing = [name for name in names if name not in by_node]
    if missing:
        yield _finding(
            METRIC_CHECK,
            named(missing),
            f"{len(missing)} nodes have no NodeMetric: koord-manager has not created it",
            _see_log("koord-manager", namespace),
        )
    stale = [name for name in names if name in by_node and _is_stale(by_node[name], now_s)]
    if stale:
        yield _finding(
            METRIC_CHECK,
            named(stale),
            f"{len(stale)} nodes have not reported their usage for {_MISSED} intervals, so they "
            "get no batch resources",
            f"kubectl -n {namespace} get pods -l koord-app=koordlet -o wide, and run koord doctor "
            "node in the pod of the node",
        )


def _is_stale(metric: NodeMetric, now_s: float) -> bool:
    policy = metric.spec.metric_collect_policy
    interval_s = float((policy.report_interval_seconds if policy else None) or _INTERVAL_S)
    updated_s = to_epoch_s(metric.status.update_time)
    # A new NodeMetric has no report yet; its agent gets the same time.
    since_s = updated_s or to_epoch_s(metric.metadata.creation_timestamp)
    return now_s - since_s > max(_MISSED * interval_s, _MISSED * _INTERVAL_S)


def _see_log(component: str, namespace: str) -> str:
    return f"kubectl -n {namespace} logs deployment/{component}"


def _finding(check: str, about: str, problem: str, remedy: str) -> Finding:
    return Finding(check=check, about=about, problem=problem, remedy=remedy)
