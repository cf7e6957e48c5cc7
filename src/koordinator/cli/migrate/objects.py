"""Checks of API objects: custom resources, their definitions, labels, annotations and webhooks."""

import pkgutil
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Any, Final

import msgspec
from msgspec import Struct

from koordinator.api import annotations as annotation_package
from koordinator.api import labels as label_keys
from koordinator.api.annotations.codec import AnnotationCodec
from koordinator.api.codec import decode, decode_object
from koordinator.api.control_plane import CustomResourceDefinition
from koordinator.api.crd import CustomResource
from koordinator.api.defaults import with_defaults
from koordinator.api.field_case import names_in_other_case
from koordinator.api.meta import JsonObject, ObjectMeta
from koordinator.api.qos import SHIPPED_PRIORITY_CLASSES
from koordinator.api.registry import BY_NAME
from koordinator.api.schema import all_crds, missing_fields
from koordinator.api.validation import validate
from koordinator.cli.migrate.configurations import check_config_map
from koordinator.cli.migrate.documents import Document, FindingStatus, MigrationFinding
from koordinator.cli.migrate.programs import KINDS as WORKLOADS
from koordinator.cli.migrate.programs import check_workload
from koordinator.foundation.errors import InputError
from koordinator.manager.admission.gates import ManagerFeature
from koordinator.manager.admission.hooks import HookOptions, all_hooks
from koordinator.simulator.manifests.known_fields import unknown_fields

_DOMAIN: Final = "koordinator.sh"
_WEBHOOKS: Final = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
#: Resources that only koord-manager and koordlet put on nodes.
_RESOURCES: Final = (_DOMAIN, "kubernetes.io/batch-", "kubernetes.io/mid-")
#: Kinds that both charts install.
_INSTALLED: Final = (
    "Namespace",
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "Secret",
    "Service",
    "ServiceMonitor",
    "PodMonitor",
)


class _SchemaOfVersion(Struct, frozen=True):
    validation: Any = msgspec.field(name="openAPIV3Schema", default=None)


class _Version(Struct, frozen=True):
    name: str = ""
    storage: bool = False
    schema: _SchemaOfVersion = _SchemaOfVersion()


class _DefinitionSpec(Struct, frozen=True):
    group: str = ""
    scope: str = ""
    versions: tuple[_Version, ...] = ()


class _Definition(Struct, frozen=True):
    """The compared part of a CustomResourceDefinition."""

    spec: _DefinitionSpec = _DefinitionSpec()


class _WebhookService(Struct, frozen=True):
    path: str = "/"


class _WebhookClient(Struct, frozen=True):
    service: _WebhookService = _WebhookService()


class _Webhook(Struct, frozen=True, rename="camel"):
    name: str = ""
    client_config: _WebhookClient = _WebhookClient()


class _Webhooks(Struct, frozen=True):
    """The compared part of a configuration of webhooks."""

    webhooks: tuple[_Webhook, ...] = ()


def check_object(document: Document) -> Iterator[MigrationFinding]:
    """Yield the findings about an object."""
    wrong = set()
    try:
        for finding in _of_kind(document):
            if finding.status is FindingStatus.ACTION:
                wrong.add(finding.field)
            yield finding
    except InputError as error:
        action = "correct the object: the API server rejects it"
        yield _finding(document, FindingStatus.ACTION, error.path, error.problem, action)
    if document.kind == "Node":
        yield from _node_resources(document)
    yield from (finding for finding in _keys(document) if finding.field not in wrong)


def _of_kind(document: Document) -> Iterator[MigrationFinding]:
    kind = BY_NAME.get((document.api_version, document.kind))
    if kind is not None and issubclass(kind, CustomResource):
        yield from _custom_resource(document, kind)
    elif document.kind == CustomResourceDefinition.KIND:
        yield from _definition(document)
    elif document.kind in WORKLOADS:
        if "ownerReferences" not in document.metadata:  # its owner has the same containers
            yield from check_workload(document)
    elif document.kind == "ConfigMap":
        yield from check_config_map(document)
    elif document.kind in _WEBHOOKS:
        yield from _webhooks(document)
    elif document.kind == "PriorityClass":
        yield from _priority_class(document)
    elif _DOMAIN in document.api_version:
        yield _finding(
            document,
            FindingStatus.ACTION,
            message=f"{document.api_version} {document.kind} is unknown here",
        )
    elif document.kind in _INSTALLED and _is_of_chart(document):
        yield _finding(document, FindingStatus.CONVERTED, message="this chart installs its own")


def _finding(
    document: Document,
    status: FindingStatus,
    field: str = "",
    message: str = "",
    action: str = "",
) -> MigrationFinding:
    return MigrationFinding(
        kind=document.kind,
        object=document.name,
        source=document.source,
        status=status,
        field=field,
        message=message,
        action=action,
    )


def _is_of_chart(document: Document) -> bool:
    return any("koord" in str(document.metadata.get(key, "")) for key in ("name", "namespace"))


def _custom_resource(document: Document, kind: type[CustomResource]) -> Iterator[MigrationFinding]:
    try:
        validate(with_defaults(decode_object(document.data)))
    except InputError as error:
        yield _finding(
            document,
            FindingStatus.ACTION,
            error.path,
            error.problem,
            "correct the object; until then components leave it out",
        )
        return
    unknown = unknown_fields(document.data, kind.API_VERSION, kind.KIND)
    for each in unknown:
        if _is_kept(kind, each.name):
            message = "no component reads this field"
            yield _finding(document, FindingStatus.IGNORED, each.name, message)
        else:
            message = (
                "field without effect; the API server removes it with the next write of the object"
            )
            yield _finding(document, FindingStatus.DIFFERS, each.name, message)
    if not unknown:
        yield _finding(document, FindingStatus.SAME)


def _is_kept(kind: type[CustomResource], path: str) -> bool:
    """Return whether the API server stores a field that the CRD does not have."""
    spec = _own_definitions()[f"{kind.PLURAL}.{kind.API_VERSION.partition('/')[0]}"]["spec"]
    (schema,) = [
        version["schema"]["openAPIV3Schema"]
        for version in spec["versions"]
        if version["name"] == kind.API_VERSION.rpartition("/")[2]
    ]
    for name in re.sub(r"\[\d+\]", ".items", path).split("."):
        if schema.get("x-kubernetes-preserve-unknown-fields"):
            return True
        inner = schema if name == "items" else schema.get("properties") or {}
        schema = inner.get(name) or schema.get("additionalProperties") or {}
    return False


@cache
def _own_definitions() -> Mapping[str, JsonObject]:
    return {crd["metadata"]["name"]: crd for crd in all_crds()}


def _definition(document: Document) -> Iterator[MigrationFinding]:
    spec = decode(document.data, _Definition).spec
    own = _own_definitions().get(str(document.metadata.get("name")))
    if own is None:
        if spec.group.endswith(_DOMAIN):
            yield _finding(document, FindingStatus.IGNORED, message="no component reads this kind")
        return
    if spec.scope != own["spec"]["scope"]:
        yield _finding(
            document,
            FindingStatus.ACTION,
            "spec.scope",
            f"is {spec.scope}, must be {own['spec']['scope']}",
            "delete the CRD with its objects and create them again",
        )
    versions = {version["name"]: version for version in own["spec"]["versions"]}
    for version in spec.versions:
        name = version.name
        if name not in versions:
            status = FindingStatus.ACTION if version.storage else FindingStatus.DIFFERS
            yield _finding(
                document, status, f"spec.versions[{name}]", "this chart does not serve the version"
            )
            continue
        ours = versions[name]["schema"]["openAPIV3Schema"]
        theirs = version.schema.validation
        for path in sorted(set(missing_fields(theirs or {}, ours, skipped="metadata"))):
            yield _finding(
                document,
                FindingStatus.DIFFERS,
                path,
                "not in the CRD of this chart: once it is applied, the API server removes the "
                "field with the next write of an object",
            )
    yield _finding(
        document,
        FindingStatus.CONVERTED,
        message="this chart has the CRD; objects stay",
        action="keep the CRDs of the release: docs/how-to/move-from-the-original.md",
    )


@cache
def _served_paths() -> frozenset[str]:
    hooks = all_hooks(HookOptions(gates=frozenset(ManagerFeature)))
    return frozenset(hook.path for hook in hooks)


def _webhooks(document: Document) -> Iterator[MigrationFinding]:
    for webhook in decode(document.data, _Webhooks).webhooks:
        if not webhook.name.endswith(_DOMAIN):
            continue
        path, place = webhook.client_config.service.path, f"webhooks[{webhook.name}]"
        if path in _served_paths():
            yield _finding(document, FindingStatus.SAME, place, "koord-manager serves this path")
        else:
            yield _finding(
                document,
                FindingStatus.ACTION,
                place,
                f"path {path} is not served",
                "remove the webhook",
            )


def _priority_class(document: Document) -> Iterator[MigrationFinding]:
    name, value = str(document.metadata.get("name")), document.data.get("value")
    shipped = {str(band): number for band, number in SHIPPED_PRIORITY_CLASSES.items()}
    if name not in shipped:
        return
    if value == shipped[name]:
        yield _finding(document, FindingStatus.SAME)
    else:
        yield _finding(
            document,
            FindingStatus.DIFFERS,
            "value",
            f"is {value}, in this chart {shipped[name]}",
            "install this chart with priorityClasses=false to keep it",
        )


def _node_resources(document: Document) -> Iterator[MigrationFinding]:
    for name in _mapping(_mapping(document.data, "status"), "allocatable"):
        if str(name).startswith(_RESOURCES):
            yield _finding(
                document,
                FindingStatus.SAME,
                f"status.allocatable[{name}]",
                "the resource has the same name",
            )


@cache
def _known_labels() -> frozenset[str]:
    return frozenset(value for value in vars(label_keys).values() if isinstance(value, str))


@cache
def _known_annotations() -> Mapping[str, AnnotationCodec[Any] | None]:
    """Return the annotations that components read, with the codec of those that are JSON."""
    known: dict[str, AnnotationCodec[Any] | None] = {}
    for module_info in pkgutil.iter_modules(annotation_package.__path__):
        module = import_module(f"{annotation_package.__name__}.{module_info.name}")
        for value in vars(module).values():
            if isinstance(value, AnnotationCodec):
                known |= {key: value for key in (value.key, value.former_key) if key}
            elif isinstance(value, str) and "/" in value:
                known.setdefault(value, None)
    return known


def _keys(document: Document) -> Iterator[MigrationFinding]:
    """Yield the findings about labels and annotations of Koordinator."""
    for key in _mapping(document.metadata, "labels"):
        if _is_own(key):
            is_known = key in _known_labels() or key in _known_annotations()
            yield _key(document, f"metadata.labels[{key}]", is_known=is_known)
    texts = _mapping(document.metadata, "annotations")
    for key in texts:
        if not _is_own(key):
            continue
        field = f"metadata.annotations[{key}]"
        codec = _known_annotations().get(key)
        if codec is not None:
            try:
                codec.read(decode({"annotations": {key: texts[key]}}, ObjectMeta))
            except InputError as error:
                place = error.path if error.path.startswith(field) else field
                action = "correct or remove it"
                yield _finding(document, FindingStatus.ACTION, place, error.problem, action)
                continue
            text = texts[key] or ""  # null is as good as absent
            if names := names_in_other_case(text, codec.type):
                message = f"fields without effect, because of their case: {', '.join(names)}"
                action = "spell them as the reference of annotations does"
                yield _finding(document, FindingStatus.ACTION, field, message, action)
                continue
        is_known = key in _known_annotations() or key in _known_labels()
        yield _key(document, field, is_known=is_known)


def _mapping(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = data.get(name)
    return value if isinstance(value, dict) else {}


def _is_own(key: object) -> bool:
    domain = str(key).partition("/")[0]
    return domain == _DOMAIN or domain.endswith(f".{_DOMAIN}")


def _key(document: Document, field: str, *, is_known: bool) -> MigrationFinding:
    if is_known:
        return _finding(document, FindingStatus.SAME, field)
    return _finding(document, FindingStatus.IGNORED, field, "no component reads this key")
