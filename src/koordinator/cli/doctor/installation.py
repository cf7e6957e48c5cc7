"""Installed components: their workloads, replicas, versions, flags, and recent writes."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar, Final

from koordinator.api.control_plane import Lease
from koordinator.api.crd import UntypedObject
from koordinator.api.kube_version import NEWEST, OLDEST, KubeVersion
from koordinator.api.meta import KubeObject
from koordinator.api.node import Node
from koordinator.api.node_metric import NodeMetric
from koordinator.cli.doctor.findings import CheckResult, Finding, FindingSeverity, named, unreadable
from koordinator.cluster.kubernetes.cluster import KubernetesCluster
from koordinator.domain.component_health import LEASES, lease_findings
from koordinator.foundation.clock import to_epoch_s
from koordinator.foundation.errors import ClusterError, NotFoundError
from koordinator.foundation.lazy_dataclass import dataclass

CHECK: Final = "components"
_VERSION_LABEL: Final = "app.kubernetes.io/version"

LEASE_CHECK: Final = "leases"
METRIC_CHECK: Final = "node metrics"
_INTERVAL_S: Final = 60.0  # of reports, where the NodeMetric states none
_MISSED: Final = 3  # reports before a NodeMetric counts as stale


class ReplicatedComponent(KubeObject, frozen=True, kw_only=True):
    """Deployment of a component, untyped, as its flags are read."""

    API_VERSION: ClassVar[str] = "apps/v1"
    KIND: ClassVar[str] = "Deployment"
    PLURAL: ClassVar[str] = "deployments"

    spec: UntypedObject = {}  # noqa: RUF012 -- msgspec copies it
    status: UntypedObject = {}  # noqa: RUF012 -- as above


class NodeComponent(KubeObject, frozen=True, kw_only=True):
    """DaemonSet of a component."""

    API_VERSION: ClassVar[str] = "apps/v1"
    KIND: ClassVar[str] = "DaemonSet"
    PLURAL: ClassVar[str] = "daemonsets"

    spec: UntypedObject = {}  # noqa: RUF012 -- msgspec copies it
    status: UntypedObject = {}  # noqa: RUF012 -- as above


#: Workloads of the chart; their ServiceAccounts have the same names.
COMPONENTS: Final[Mapping[str, type[ReplicatedComponent | NodeComponent]]] = {
    "koord-scheduler": ReplicatedComponent,
    "koord-manager": ReplicatedComponent,
    "koord-descheduler": ReplicatedComponent,
    "koordlet": NodeComponent,
}


@dataclass(frozen=True, slots=True)
class Installation:
    """Components that are installed in a namespace, by name, and the release of the cluster."""

    namespace: str
    workloads: Mapping[str, ReplicatedComponent | NodeComponent]
    kubernetes: KubeVersion

    def flag(self, component: str, name: str) -> str:
        """Return the values of a flag of a component, joined by commas; empty if it is not set.

        The original's manifests write flags with one dash.
        """
        values = []
        spec = _dict(_dict(self.workloads[component].spec, "template"), "spec")
        for container in spec.get("containers") or ():
            line = (*(container.get("command") or ()), *(container.get("args") or ()))
            words = [str(word) for word in line]
            for word, following in pairwise((*words, "")):
                written, equals, value = word.partition("=")
                if written in (f"--{name}", f"-{name}"):
                    values.append(value if equals else following)
        return ",".join(filter(None, values))


def read_installation(
    cluster: KubernetesCluster, namespace: str
) -> tuple[Installation, CheckResult]:
    """Read the workloads of the components, and check their replicas and versions.

    Raises ClusterError if the API server does not answer.
    """
    kubernetes = cluster.server_version()
    workloads: dict[str, ReplicatedComponent | NodeComponent] = {}
    findings: list[Finding] = []
    for name, kind in COMPONENTS.items():
        try:
            workloads[name] = cluster.get(kind, name, namespace)
        except NotFoundError:
            continue
        except ClusterError as error:
            findings.append(unreadable(CHECK, f"{kind.PLURAL}/{name}", error))
    if not OLDEST <= kubernetes <= NEWEST:
        findings.append(
            Finding(
                check=CHECK,
                about="API server",
                problem=f"Kubernetes {kubernetes} is not supported",
                remedy=f"use a release from {OLDEST} to {NEWEST}; the scheduler decides like the "
                f"nearest of these",
            )
        )
    findings += (finding for each in workloads.values() if (finding := _replicas(each)) is not None)
    if not workloads and not findings:
        findings.append(
            Finding(
                check=CHECK,
                about=f"namespaces/{namespace}",
                problem="no component is installed",
                remedy="install the chart, or name its namespace: --namespace",
            )
        )
    versions = {each.metadata.labels.get(_VERSION_LABEL, "?") for each in workloads.values()}
    if len(versions) > 1:
        findings.append(
            Finding(
                check=CHECK,
                about=named(workloads),
                problem=f"the components have different versions: {named(versions)}",
                remedy="finish the upgrade: helm upgrade koordinator charts/koordinator",
                severity=FindingSeverity.NOTE,
            )
        )
    summary = f"{named(workloads) or 'none'} in {namespace}; Kubernetes {kubernetes}"
    check = CheckResult(name=CHECK, summary=summary, findings=tuple(findings))
    return Installation(namespace, workloads, kubernetes), check


def _replicas(workload: ReplicatedComponent | NodeComponent) -> Finding | None:
    status = workload.status
    if isinstance(workload, ReplicatedComponent):
        wanted, ready = workload.spec.get("replicas", 1), status.get("readyReplicas", 0)
    else:
        wanted, ready = status.get("desiredNumberScheduled", 0), status.get("numberReady", 0)
    if ready >= wanted:
        return None
    name, namespace = workload.metadata.name, workload.metadata.namespace
    return Finding(
        check=CHECK,
        about=f"{workload.PLURAL}/{name}",
        problem=f"{ready} of {wanted} pods are ready",
        remedy=f"kubectl -n {namespace} describe pods -l koord-app={name}, and read their logs",
    )


def _dict(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    inner = value.get(key)
    return inner if isinstance(inner, dict) else {}


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
            f"{_counted(missing)} no NodeMetric: koord-manager has not created it",
            _see_log("koord-manager", namespace),
        )
    stale = [name for name in names if name in by_node and _is_stale(by_node[name], now_s)]
    if stale:
        yield _finding(
            METRIC_CHECK,
            named(stale),
            f"{_counted(stale)} not reported any usage for {_MISSED} intervals, and so no batch "
            "resources",
            f"kubectl -n {namespace} get pods -l koord-app=koordlet -o wide, and run koord doctor "
            "node in the pod of the node",
        )


def _counted(names: Sequence[str]) -> str:
    return "1 node has" if len(names) == 1 else f"{len(names)} nodes have"


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
