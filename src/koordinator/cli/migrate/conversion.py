"""Conversion of values of the original's chart, and of its ConfigMaps, to values of this chart."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from koordinator.api.codec import decode
from koordinator.api.core import ConfigMap
from koordinator.api.kubescheduler.decoder import FORMER_VERSIONS, as_v1
from koordinator.api.meta import JsonObject
from koordinator.api.slo_config import CONFIG_NAME
from koordinator.cli.migrate.chart_values import is_values, settings_in, target_of
from koordinator.cli.migrate.configurations import SCHEDULER, configurations_in
from koordinator.cli.migrate.documents import Document
from koordinator.domain.devices.model import DATA_KEY
from koordinator.foundation.errors import InputError
from koordinator.foundation.yaml_documents import yaml_document
from koordinator.scheduler.profile import TEMPLATES

#: Fields of configurations that the chart sets itself.
_FIXED: Final = ("apiVersion", "kind", "healthzBindAddress", "metricsBindAddress")
_FIXED_OF_ELECTION: Final = ("leaderElect", "resourceLock", "resourceName", "resourceNamespace")
#: Sections that this chart has by default: null removes one that the ConfigMap does not have.
_DEFAULT_SECTIONS: Final = ("colocation-config", "resource-threshold-config")


def converted_values(documents: Iterable[Document]) -> JsonObject:
    """Return the values of this chart that replace values and ConfigMaps of the original.

    Settings without counterpart are left out.  Raises InputError for a ConfigMap that can't be
    read.
    """
    values: JsonObject = {}
    for document in documents:
        pairs = _of_values(document) if is_values(document) else _of_config_map(document)
        for path, value in pairs:
            _put(values, path.split("."), value)
    return values


def _of_values(document: Document) -> Iterator[tuple[str, Any]]:
    for path, value, _ in settings_in(document.data):
        target = target_of(path, value)
        if target is not None:
            yield target
    if "deviceDaemon" in document.data:
        yield "deviceDaemon.enabled", True


def _of_config_map(document: Document) -> Iterator[tuple[str, Any]]:
    try:
        data = decode(document.data, ConfigMap).data
    except InputError as error:
        raise error.within(source=document.source, subject=f"ConfigMap {document.name}") from None
    name = document.metadata.get("name")
    if name == CONFIG_NAME:
        sections: JsonObject = dict.fromkeys(_DEFAULT_SECTIONS)
        for key, text in data.items():
            sections[key] = _tree(document, key, text)
        yield "manager.config", sections
    elif name == TEMPLATES:
        yield (
            "scheduler.gpuSharedResourceTemplates",
            _tree(document, DATA_KEY, data.get(DATA_KEY, "")),
        )
    else:
        for text in data.values():
            for tree in configurations_in(text):
                component = "scheduler" if tree["kind"] == SCHEDULER else "descheduler"
                yield f"{component}.config", _configuration(tree)


def _tree(document: Document, key: str, text: str) -> JsonObject:
    place = {"source": document.source, "subject": f"ConfigMap {document.name}"}
    try:
        tree = yaml_document(text, "")
    except InputError as error:
        raise error.within(**place, path=f"data[{key}]") from None
    if tree is not None and not isinstance(tree, dict):
        problem = f"must be an object, got {type(tree).__name__}"
        raise InputError(problem, **place, path=f"data[{key}]")
    return tree or {}


def _configuration(tree: JsonObject) -> JsonObject:
    if tree.get("apiVersion") in FORMER_VERSIONS:
        tree, _ = as_v1(tree)
    left = {key: value for key, value in tree.items() if key not in _FIXED}
    for name, fixed in (
        ("leaderElection", _FIXED_OF_ELECTION),
        ("clientConnection", ("kubeconfig",)),
    ):
        part = left.pop(name, None)
        if isinstance(part, dict) and (
            kept := {key: value for key, value in part.items() if key not in fixed}
        ):
            left[name] = kept
    return left


def _put(values: JsonObject, path: list[str], value: Any) -> None:
    *outer, last = path
    for name in outer:
        values = values.setdefault(name, {})
    values[last] = value
