"""Check of CustomResourceDefinitions: installed, established, with all versions and fields."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from koordinator.api.control_plane import CustomResourceDefinition
from koordinator.api.crd import CustomResource
from koordinator.api.registry import KINDS
from koordinator.api.schema import all_crds, missing_fields
from koordinator.cli.doctor.findings import CheckResult, Finding, named
from koordinator.cluster.kubernetes.cluster import KubernetesCluster
from koordinator.cluster.kubernetes.failures import ForbiddenError
from koordinator.cluster.kubernetes.resources import INSTALL_COMMAND

CHECK: Final = "custom resources"
_UPGRADE: Final = f"{INSTALL_COMMAND} --force-conflicts"


def check_custom_resources(cluster: KubernetesCluster) -> CheckResult:
    """Compare the installed definitions with the generated ones.

    A user who may not read definitions gets a check of the served kinds only.
    """
    try:
        items = cluster.list(CustomResourceDefinition).items
    except ForbiddenError:
        return _check_served(cluster)
    installed = {each.metadata.name: each for each in items}
    expected = all_crds()
    findings = [
        finding
        for definition in expected
        for finding in _compare(definition, installed.get(str(definition["metadata"]["name"])))
    ]
    summary = f"{len(expected)} definitions, their versions and fields"
    return CheckResult(name=CHECK, summary=summary, findings=tuple(findings))


def _check_served(cluster: KubernetesCluster) -> CheckResult:
    custom = [kind for kind in KINDS if issubclass(kind, CustomResource)]
    findings = tuple(
        _finding(f"{kind.PLURAL}.{kind.API_VERSION}", "is not served", INSTALL_COMMAND)
        for kind in cluster.unserved(custom)
    )
    summary = f"{len(custom)} kinds by discovery; the definitions may not be read"
    return CheckResult(name=CHECK, summary=summary, findings=findings)


def _compare(
    expected: Mapping[str, Any], installed: CustomResourceDefinition | None
) -> Iterator[Finding]:
    name = str(expected["metadata"]["name"])
    if installed is None:
        yield _finding(name, "is not installed", INSTALL_COMMAND)
        return
    conditions = installed.status.get("conditions") or ()
    refused = [
        str(each.get("message", ""))
        for each in conditions
        if each.get("type") in ("Established", "NamesAccepted") and each.get("status") == "False"
    ]
    if refused:
        remedy = "remove the definition that has the same names, or apply the shipped one again"
        yield _finding(name, f"is not established: {'; '.join(refused)}", remedy)
    versions = {each["name"]: each for each in installed.spec.get("versions") or ()}
    for version in expected["spec"]["versions"]:
        served = versions.get(version["name"])
        if served is None or not served.get("served"):
            yield _finding(name, f"does not serve version {version['name']}", _UPGRADE)
            continue
        missing = sorted(missing_fields(_schema(version), _schema(served)))
        if missing:
            problem = (
                f"{version['name']} lacks fields, which the API server drops: {named(missing)}"
            )
            yield _finding(name, problem, _UPGRADE)


def _schema(version: Mapping[str, Any]) -> Mapping[str, Any]:
    schema: Mapping[str, Any] = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    return schema


def _finding(name: str, problem: str, remedy: str) -> Finding:
    return Finding(check=CHECK, about=name, problem=problem, remedy=remedy)
