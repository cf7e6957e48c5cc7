"""Files that are given where manifests are read, and are something else: what they are for."""

from collections.abc import Callable
from pathlib import PurePath
from typing import Final

from koordinator.api.meta import JsonObject
from koordinator.foundation.errors import InputError

_KUSTOMIZE: Final = "kustomize.config.k8s.io"
_KUSTOMIZATION: Final = (
    "must be a manifest, not a kustomization: kubectl kustomize FOLDER prints the manifests, and "
    "-f - reads them"
)
_CHART: Final = (
    "must be a manifest, not a file of a Helm chart: helm template CHART prints the manifests, and "
    "-f - reads them"
)
_WORKLOAD: Final = (
    "must be a manifest, not the workload of a simulation: koord simulate --workload reads it"
)
_KUBECONFIG: Final = "must be a manifest, not a kubeconfig: --kubeconfig reads it"
_NOTES: Final = (
    "must be a manifest, not the NOTES of a Helm chart: helm template prints manifests only"
)
#: Configurations of components by kind: which flag reads them.
_CONFIGURATIONS: Final = {
    "KubeSchedulerConfiguration": "--config reads it",
    "DeschedulerConfiguration": "koord descheduler --config reads it",
    "DeschedulerPolicy": "koord descheduler reads a DeschedulerConfiguration",
    "KubeletConfiguration": "the kubelet reads it",
}
_KUSTOMIZATION_FIELDS: Final = {
    "resources",
    "patches",
    "components",
    "bases",
    "images",
    "namePrefix",
}


def check_is_manifest(tree: JsonObject, source: str) -> None:
    """Raise InputError with the purpose of a file that is recognized as not a manifest."""
    for is_foreign, problem in _CHECKS:
        if is_foreign(tree, source):
            raise InputError(problem)
    kind, version = tree.get("kind"), str(tree.get("apiVersion", ""))
    if kind in _CONFIGURATIONS and not version.startswith("v1"):
        raise InputError(f"must be a manifest, not a {kind}: {_CONFIGURATIONS[kind]}")


def named_yaml_problem(error: InputError, text: bytes) -> InputError:
    """Return an error of YAML in words that name its usual cause, if the text shows it."""
    if b"\nNOTES:" in text:
        return InputError(_NOTES, source=error.source)
    if "found character" in error.problem and "cannot start any token" in error.problem:
        lines = text.split(b"\n")
        number = next((n for n, line in enumerate(lines, start=1) if _has_tab(line)), 0)
        if number:
            problem = f"must be indented with spaces, got a tab in line {number}"
            return InputError(problem, source=error.source)
    return error


def _has_tab(line: bytes) -> bool:
    return b"\t" in line[: len(line) - len(line.lstrip())]


def _is_kustomization(tree: JsonObject, source: str) -> bool:
    if str(tree.get("apiVersion", "")).startswith(_KUSTOMIZE):
        return True
    is_named = PurePath(source).name.lower() in ("kustomization.yaml", "kustomization.yml")
    return "kind" not in tree and (is_named or _is_only(tree, _KUSTOMIZATION_FIELDS))


def _is_only(tree: JsonObject, fields: set[str]) -> bool:
    return bool(tree) and tree.keys() <= fields


def _is_chart(tree: JsonObject, source: str) -> bool:
    if "kind" in tree:
        return False
    is_chart = tree.get("apiVersion") in ("v1", "v2") and {"name", "version"} <= tree.keys()
    is_values = "apiVersion" not in tree and PurePath(source).name.startswith("values")
    return is_chart or is_values


def _is_workload(tree: JsonObject, _source: str) -> bool:
    return "kind" not in tree and bool({"nodePools", "podStreams"} & tree.keys())


def _is_kubeconfig(tree: JsonObject, _source: str) -> bool:
    return tree.get("kind") == "Config" and bool({"clusters", "contexts"} & tree.keys())


def _is_notes(tree: JsonObject, _source: str) -> bool:
    return "NOTES" in tree


_CHECKS: Final[tuple[tuple[Callable[[JsonObject, str], bool], str], ...]] = (
    (_is_kustomization, _KUSTOMIZATION),
    (_is_chart, _CHART),
    (_is_workload, _WORKLOAD),
    (_is_kubeconfig, _KUBECONFIG),
    (_is_notes, _NOTES),
)
