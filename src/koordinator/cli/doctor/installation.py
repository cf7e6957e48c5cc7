"""Installed components: their workloads, replicas, versions and flags."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from koordinator.api.crd import UntypedObject
from koordinator.api.kube_version import NEWEST, OLDEST, KubeVersion
from koordinator.api.meta import KubeObject
from koordinator.cli.doctor.findings import CheckResult, Finding, FindingSeverity, named, unreadable
from koordinator.cluster.kubernetes.cluster import KubernetesCluster
from koordinator.foundation.errors import ClusterError, NotFoundError

CHECK: Final = "components"
_VERSION_LABEL: Final = "app.kubernetes.io/version"


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
        """Return the value of a flag ``--name=value`` of a component; empty if it is not set."""
        start = f"--{name}="
        spec = _dict(_dict(self.workloads[component].spec, "template"), "spec")
        for container in spec.get("containers") or ():
            for argument in container.get("args") or ():
                if str(argument).startswith(start):
                    return str(argument).removeprefix(start)
        return ""


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
    findings += (found for each in workloads.values() if (found := _replicas(each)) is not None)
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
