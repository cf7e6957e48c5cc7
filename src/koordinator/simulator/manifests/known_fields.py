"""Checks of manifests: unknown fields, and files of another kind; and shared specs of pods.

The types of this package have a part of Kubernetes' fields only, so a table has the names of all
fields, generated from an API server (``tests/e2e/kubernetes_fields.py``); the fields of
Koordinator's kinds are in the CRDs.

The pods of one owner share a spec, which is read once and found by its JSON text.  Objects are
immutable, so a shared spec is as good as one for each pod.  Only what is beside the
spec, metadata and status, is decoded, completed and validated for each pod.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path, PurePath
from types import GenericAlias
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from koordinator.api.codec import decode
from koordinator.api.defaults import DEFAULT_NAMESPACE
from koordinator.api.kubescheduler import did_you_mean
from koordinator.api.meta import JsonObject, ObjectMeta
from koordinator.api.pod import Pod, PodSpec, PodStatus
from koordinator.foundation.decoders import JsonDecoder, convert, decode_json, decoder_of
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.lazy_module import lazy_module

if TYPE_CHECKING:
    from koordinator.api import schema
else:  # for kinds of Koordinator
    schema = lazy_module("koordinator.api.schema")

MOST_SPECS: Final = 1 << 14
_PENDING: Final = PodStatus(phase="Pending")
Types = dict[str, dict[str, str]]
_TABLE = "data/kubernetes-fields.json"
_LIST, _MAP = "[]", "{}"
_METADATA = "meta.v1.ObjectMeta"
_TEMPLATE = "core.v1.PodTemplateSpec"
#: Fields by which pods name their groups, each in some releases only; not looked into.
_OF_SOME_RELEASES: Types = {"core.v1.PodSpec": {"workloadRef": "", "schedulingGroup": ""}}

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


#: Manifests of a kind that are compared field by field; making types that do it faster takes as
#: long as comparing some 200 pods.
_FEW: Final = 100
_COMPARED: Final = Counter[str]()  # manifests by kind that were compared field by field


class _Table(msgspec.Struct):
    kinds: dict[str, str]  # "apps/v1/Deployment" to type
    types: Types  # type to field to type; empty: not looked into


@dataclass(frozen=True, slots=True)
class UnknownField:
    """A field that the type around it does not have."""

    path: str  # spec.containers[0].resorces
    hint: str  # what was meant, perhaps; else empty
    accepted: tuple[str, ...]

    @property
    def name(self) -> str:
        """The path without numbers: equal for equal mistakes."""
        return "".join(part.partition("]")[2] or part for part in self.path.split("["))


@cache
def _table() -> _Table:
    text = (Path(__file__).parents[1] / _TABLE).read_bytes()
    return decode_json(text, _Table)


@cache
def _of_crds() -> _Table:
    kinds: dict[str, str] = {}
    types: Types = {}
    for crd in schema.all_crds():
        spec = crd["spec"]
        for version in spec["versions"]:
            name = f"{spec['group']}/{version['name']}/{spec['names']['kind']}"
            fields = version["schema"]["openAPIV3Schema"]
            kinds[name] = _type_of_schema(name, fields, types)
            types[name] |= {"metadata": _METADATA}
    if reservations := [name for name in types if name.endswith("/Reservation.spec")]:
        for name in reservations:  # its schema leaves the template open
            types[name] |= {"template": _TEMPLATE}
    return _Table(kinds, types)


def _type_of_schema(name: str, schema: JsonObject, types: Types) -> str:
    """Register the schema and its parts; return its type."""
    if "properties" in schema:
        types[name] = {
            field: _type_of_schema(f"{name}.{field}", inner, types)
            for field, inner in schema["properties"].items()
        }
        return name
    for key, mark in (("items", _LIST), ("additionalProperties", _MAP)):
        inner = schema.get(key)
        if isinstance(inner, dict):
            item_type = _type_of_schema(f"{name}.*", inner, types)
            return mark + item_type if item_type else ""
    return ""


def knows_kind(api_version: str, kind: str) -> bool:
    """Return whether it is a kind of Kubernetes itself."""
    return f"{api_version}/{kind}" in _table().kinds


def groups_of_kubernetes() -> set[str]:
    """Return the names of Kubernetes' own groups, with the empty one."""
    return {name.rpartition("/")[0].rpartition("/")[0] for name in _table().kinds}


def kinds_of(api_version: str) -> list[str]:
    """Return the kinds of a group and version of Kubernetes itself; none for any other."""
    return [
        name.rpartition("/")[2] for name in _table().kinds if name.rpartition("/")[0] == api_version
    ]


def unknown_fields(
    manifest: JsonObject | bytes | msgspec.Raw, api_version: str, kind: str
) -> list[UnknownField]:
    """Return the fields that the kind does not have; none for a kind that is not known.

    Raises InputError for text that is no JSON in a part that our types do not read.
    """
    name = f"{api_version}/{kind}"
    table = _table() if name in _table().kinds else _of_crds()
    if name not in table.kinds:
        return []
    root = table.kinds[name]
    if _COMPARED[name] < _FEW:
        _COMPARED[name] += 1
        return list(_unknown(_tree(manifest), root, ""))
    try:
        if isinstance(manifest, dict):
            convert(manifest, _strict(root, json=False), str_keys=True)
        else:
            _decoder(root).decode(manifest)
    except msgspec.ValidationError:
        return list(_unknown(_tree(manifest), root, ""))
    except UnicodeDecodeError as error:
        raise InputError(f"not valid JSON: {error}") from None
    return []


def _tree(manifest: JsonObject | bytes | msgspec.Raw) -> Any:
    if isinstance(manifest, dict):
        return manifest
    try:
        return decode_json(manifest)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"not valid JSON: {error}") from None


def _fields(name: str) -> Mapping[str, str]:
    known = _table().types.get(name) or _of_crds().types[name]
    return {**_OF_SOME_RELEASES.get(name, {}), **known}


@cache
def _strict(name: str, *, json: bool) -> type[msgspec.Struct]:
    """Return a type that refuses unknown fields fast; uninspected parts are not decoded."""
    leaf: Any = msgspec.Raw if json else Any
    inner = [
        (f"f{number}", _optional(kind, leaf, json=json), msgspec.field(name=field, default=None))
        for number, (field, kind) in enumerate(_fields(name).items())
    ]
    return msgspec.defstruct("Strict", inner, forbid_unknown_fields=True, gc=False)


def _optional(kind: str, leaf: Any, *, json: bool) -> Any:
    if not kind:
        return leaf
    if not kind.startswith((_LIST, _MAP)):
        return _strict(kind, json=json) | None
    inner = _optional(kind[2:], leaf, json=json)
    of_items = (list, (inner,)) if kind.startswith(_LIST) else (dict, (str, inner))
    return GenericAlias(*of_items) | None


@cache
def _decoder(name: str) -> JsonDecoder[Any]:
    return decoder_of(_strict(name, json=True))


def _unknown(tree: Any, kind: str, path: str) -> Iterator[UnknownField]:
    if not kind:
        return
    if kind.startswith(_LIST):
        for index, item in enumerate(tree if isinstance(tree, list) else ()):
            yield from _unknown(item, kind[2:], f"{path}[{index}]")
    elif kind.startswith(_MAP):
        for key, item in tree.items() if isinstance(tree, dict) else ():
            yield from _unknown(item, kind[2:], f"{path}[{key}]")
    elif isinstance(tree, dict):
        fields = _fields(kind)
        for key, item in tree.items():
            inner = f"{path}.{key}" if path else str(key)
            if key in fields:
                yield from _unknown(item, fields[key], inner)
            else:
                yield UnknownField(inner, did_you_mean(str(key), fields), tuple(fields))


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
    return error


def _is_kustomization(tree: JsonObject, source: str) -> bool:
    if str(tree.get("apiVersion", "")).startswith(_KUSTOMIZE):
        return True
    is_named = PurePath(source).name.lower() in ("kustomization.yaml", "kustomization.yml")
    return "kind" not in tree and (
        is_named or (bool(tree) and tree.keys() <= _KUSTOMIZATION_FIELDS)
    )


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


def _is_notes(tree: JsonObject, source: str) -> bool:
    is_named = PurePath(source).name == "NOTES.txt"
    return "NOTES" in tree or (is_named and "kind" not in tree)


_CHECKS: Final[tuple[tuple[Callable[[JsonObject, str], bool], str], ...]] = (
    (_is_kustomization, _KUSTOMIZATION),
    (_is_chart, _CHART),
    (_is_workload, _WORKLOAD),
    (_is_kubeconfig, _KUBECONFIG),
    (_is_notes, _NOTES),
)


class PodText(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """The JSON text of a pod in parts."""

    metadata: msgspec.Raw
    spec: msgspec.Raw
    status: msgspec.Raw = msgspec.Raw(b"")
    api_version: str = ""
    kind: str = ""

    @property
    def beside_spec(self) -> bytes:
        """The text without the spec."""
        status = b',"status":' + bytes(self.status) if self.status else b""
        return b'{"metadata":' + bytes(self.metadata) + status + b"}"


class _BesideSpec(msgspec.Struct):
    metadata: ObjectMeta
    status: PodStatus = PodStatus()


_DECODER: Final = decoder_of(PodText)


class SharedSpecs:
    """Specs that have been read, with their defaults, without mistakes and unknown fields."""

    def __init__(self) -> None:
        self._specs: dict[bytes, PodSpec] = {}

    def parts_of(self, text: bytes | msgspec.Raw, api_version: str, kind: str) -> PodText | None:
        """Return the parts of a pod; None for another kind or a text that is to be read whole.

        The version and kind given here count where the text has none.
        """
        try:
            parts = _DECODER.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        named = (parts.api_version or api_version, parts.kind or kind)
        return parts if named == (Pod.API_VERSION, Pod.KIND) else None

    def pod(self, parts: PodText) -> Pod | None:
        """Return the pod with its defaults; not yet validated beside its spec.

        None if the spec is not known yet, or for a mistake that reading the whole text reports.
        """
        spec = self._specs.get(bytes(parts.spec))
        if spec is None:
            return None
        text = parts.beside_spec
        try:
            if unknown_fields(text, Pod.API_VERSION, Pod.KIND):
                return None
            beside = decode(text, _BesideSpec)
        except (InputError, RecursionError):
            return None
        meta, status = beside.metadata, beside.status
        if not meta.namespace:
            meta = replace(meta, namespace=DEFAULT_NAMESPACE)
        if not status.phase:
            status = replace(status, phase=_PENDING.phase) if parts.status else _PENDING
        return Pod(metadata=meta, spec=spec, status=status)

    def learn(self, parts: PodText, pod: Pod) -> None:
        """Keep the spec of a pod that was read whole, with defaults and without any mistake."""
        if len(self._specs) >= MOST_SPECS:
            self._specs.clear()
        self._specs[bytes(parts.spec)] = pod.spec
