"""Documents of files and of a cluster as plain data with their place, and findings about them.

``koord migrate check`` has a finding per kind, field and outcome, with a count of objects.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Any, BinaryIO, Final

import msgspec

from koordinator.api.control_plane import (
    CustomResourceDefinition,
    MutatingWebhookConfiguration,
    ValidatingWebhookConfiguration,
)
from koordinator.api.core import ConfigMap, Namespace
from koordinator.api.crd import CustomResource
from koordinator.api.meta import JsonObject, KubeObject
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.policy import PriorityClass
from koordinator.api.registry import KINDS
from koordinator.api.workload import DaemonSet, Deployment
from koordinator.cli.input.live import connected, find_cluster
from koordinator.cli.output import warn
from koordinator.foundation.decoders import check_keys, decode_json
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.yaml_documents import yaml_documents
from koordinator.simulator.manifests.reader import read_texts

CLUSTER: Final = "cluster"


@dataclass(frozen=True, slots=True)
class Document:
    """One object, or the content of a file that is no manifest."""

    source: str
    data: JsonObject

    @property
    def kind(self) -> str:
        """The kind; empty if the document has none."""
        kind = self.data.get("kind")
        return kind if isinstance(kind, str) else ""

    @property
    def api_version(self) -> str:
        """The apiVersion; empty if the document has none."""
        version = self.data.get("apiVersion")
        return version if isinstance(version, str) else ""

    @property
    def metadata(self) -> JsonObject:
        """The metadata; empty if the document has none."""
        metadata = self.data.get("metadata")
        return metadata if isinstance(metadata, dict) else {}

    @property
    def name(self) -> str:
        """``namespace/name`` or the name."""
        parts = (self.metadata.get("namespace"), self.metadata.get("name"))
        return "/".join(str(part) for part in parts if part)


_PROGRAMS: Final = ("koord-scheduler", "koord-manager", "koord-descheduler", "koordlet")
_DAEMONS: Final = ("koordlet", "koord-device-daemon")
_CONFIG_MAPS: Final = (
    "slo-controller-config",
    "koord-scheduler-config",
    "koord-descheduler-config",
    "gpu-shared-resource-templates",
)
#: First line of ``helm get values`` without ``-o yaml``.
_HELM_TITLES: Final = (b"USER-SUPPLIED VALUES:\n", b"COMPUTED VALUES:\n")
#: Such as ``helm get values`` prints for a release that has only the chart's values.
_EMPTY: Final = (
    "must have a manifest, a configuration or values, got nothing; "
    "helm get values --all prints the default values, too"
)
#: Kinds with the field selectors of the objects that are read.
_SELECTIONS: Final[Sequence[tuple[type[KubeObject], Sequence[str]]]] = (
    (CustomResourceDefinition, ("",)),
    (Deployment, tuple(f"metadata.name={name}" for name in _PROGRAMS)),
    (DaemonSet, tuple(f"metadata.name={name}" for name in _DAEMONS)),
    (ConfigMap, tuple(f"metadata.name={name}" for name in _CONFIG_MAPS)),
    (MutatingWebhookConfiguration, ("",)),
    (ValidatingWebhookConfiguration, ("",)),
    (PriorityClass, ("",)),
    *((kind, ("",)) for kind in KINDS if issubclass(kind, CustomResource)),
    (Namespace, ("",)),
    (Node, ("",)),
    (Pod, ("",)),
)


def file_documents(paths: Sequence[str], stdin: BinaryIO | None = None) -> Iterator[Document]:
    """Yield the documents of files, of the files below folders, and of ``-``; lists item by item.

    Raises InputError for a file that can't be read, for a document that is no object, and if there
    is no document at all.
    """
    is_empty = bool(paths)
    for source, text in read_texts(paths, stdin or sys.stdin.buffer):
        for index, tree in enumerate(_trees(source, text), start=1):
            if tree is None:
                continue
            is_empty = False
            if not isinstance(tree, dict):
                raise InputError(
                    f"must be an object, got {type(tree).__name__}",
                    source=f"{source}: document {index}",
                )
            yield from _items(source, tree)
    if is_empty:
        raise InputError(_EMPTY, source=", ".join(paths))


def cluster_documents(kubeconfig: str, context: str) -> Iterator[Document]:
    """Yield the objects of a cluster that concern Koordinator, and all nodes and pods.

    A kind that the user may not list is left out with a warning.  Raises InputError if there is no
    way to the cluster, ClusterError if it can't be read.
    """
    from koordinator.cluster.kubernetes.failures import ForbiddenError  # noqa: PLC0415 -- as in live

    with connected(find_cluster(kubeconfig, context)) as cluster:
        for kind, selectors in _SELECTIONS:
            for selector in selectors:
                try:
                    listed = cluster.list_data(kind, field_selector=selector)
                except ForbiddenError:
                    warn(f"{kind.PLURAL} are not checked: this user may not list them")
                    break
                header = {"apiVersion": kind.API_VERSION, "kind": kind.KIND}
                yield from (Document(CLUSTER, header | item) for item in listed)


def _trees(source: str, text: bytes) -> Iterator[Any]:
    for title in _HELM_TITLES:
        text = text.removeprefix(title)
    if text.lstrip()[:1] == b"{":
        try:
            tree = decode_json(text)
        except ValueError:  # YAML in braces, or several JSON documents
            pass
        else:
            check_keys(text, source)
            yield tree
            return
    yield from yaml_documents(text, source)


def _items(source: str, tree: JsonObject) -> Iterator[Document]:
    kind, items = tree.get("kind"), tree.get("items")
    if not (isinstance(kind, str) and kind.endswith("List") and isinstance(items, list)):
        yield Document(source, tree)
        return
    header = {}
    if of := kind.removesuffix("List"):
        header = {"apiVersion": tree.get("apiVersion"), "kind": of}
    for index, item in enumerate(items):
        if not isinstance(item, dict):
            problem = f"must be an object, got {type(item).__name__}"
            raise InputError(problem, source=source, path=f"items[{index}]")
        yield Document(source, header | item)


class FindingStatus(StrEnum):
    """Outcome for an object or a field, from the one without consequence to the worst."""

    SAME = "same"  # works unchanged
    CONVERTED = "converted"  # has another name or form here; the conversion is automatic
    IGNORED = "ignored"  # has no effect here
    DIFFERS = "differs"  # works, but not in the same way
    ACTION = "action"  # must be changed by hand before the migration


#: Statuses that a table shows by default.
NOTABLE: Final = (
    FindingStatus.ACTION,
    FindingStatus.DIFFERS,
    FindingStatus.IGNORED,
    FindingStatus.CONVERTED,
)


class MigrationFinding(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Outcome for a field of an object, or of ``count`` objects of a kind; ``object`` is the first.

    ``kind`` is the kind of the object, or the kind of a file that is no manifest.
    """

    kind: str
    object: str
    status: FindingStatus
    source: str = ""  # file, or the cluster
    field: str = ""  # empty for the whole object
    message: str = ""
    action: str = ""  # what to do
    count: int = 1


def merged(findings: Iterable[MigrationFinding]) -> list[MigrationFinding]:
    """Return findings that differ in their object only as one each, the worst first."""
    firsts: dict[tuple[str, ...], MigrationFinding] = {}
    counts: Counter[tuple[str, ...]] = Counter()
    for each in findings:
        key = (each.kind, each.field, each.status, each.message, each.action)
        firsts.setdefault(key, each)
        counts[key] += each.count
    order = list(reversed(FindingStatus))
    return sorted(
        (msgspec.structs.replace(each, count=counts[key]) for key, each in firsts.items()),
        key=lambda each: order.index(each.status),
    )


def summary(findings: Iterable[MigrationFinding]) -> dict[str, int]:
    """Return the number of findings by status; every status is in it."""
    counts = Counter(each.status for each in findings)
    return {status.value: counts[status] for status in reversed(FindingStatus)}


def as_data(findings: Sequence[MigrationFinding]) -> dict[str, Any]:
    """Return summary and findings as plain data."""
    return {"summary": summary(findings), "findings": msgspec.to_builtins(findings)}


def table_rows(findings: Iterable[MigrationFinding]) -> list[tuple[str, str, str, str]]:
    """Return a row per finding: status, object, field, and message with action."""
    return [
        (
            each.status.value,
            f"{each.kind} {each.object}" + (f" and {each.count - 1} more" * (each.count > 1)),
            each.field,
            "; ".join(filter(None, (each.message, each.action))),
        )
        for each in findings
    ]
