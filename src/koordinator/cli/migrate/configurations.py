"""Checks of configuration files, and of the ConfigMaps that contain them."""

import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec
from msgspec import inspect

from koordinator.api import slo_config
from koordinator.api.codec import decode
from koordinator.api.core import ConfigMap
from koordinator.api.field_case import with_declared_case
from koordinator.api.kubescheduler import decode_configuration
from koordinator.api.kubescheduler.decoder import FORMER_VERSIONS, as_v1
from koordinator.api.meta import JsonObject
from koordinator.api.syntax import join_path
from koordinator.cli.descheduler.plugins import descheduler_plugins_for
from koordinator.cli.input.configuration import plugins_for
from koordinator.cli.migrate.documents import Document, FindingStatus, MigrationFinding
from koordinator.descheduler.configuration import decode_descheduler_configuration
from koordinator.descheduler.profile import choose_profiles
from koordinator.domain.devices.model import read_templates
from koordinator.foundation.decoders import decode_json
from koordinator.foundation.errors import InputError
from koordinator.foundation.yaml_documents import yaml_document
from koordinator.manager.configuration.reader import read_config
from koordinator.scheduler.profile import TEMPLATES, build_profiles
from koordinator.scheduler.snapshot import ResourceAxis

SCHEDULER: Final = "KubeSchedulerConfiguration"
DESCHEDULER: Final = "DeschedulerConfiguration"

#: JSON in the message about a section that the webhook would deny, too.
_DENIAL: Final = re.compile(r"___(\{.*\})___")
_WITHOUT_EFFECT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "parallelism": "nodes are evaluated by array operations",
        "percentageOfNodesToScore": "every node is evaluated",
        "enableProfiling": "/debug/threads shows the stacks of all threads",
        "enableContentionProfiling": "/debug/threads shows the stacks of all threads",
    }
)


def check_file(document: Document) -> list[MigrationFinding]:
    """Return the findings about a file of a scheduler's or a descheduler's configuration."""
    return list(_CHECKS[document.kind](document.data, document.source, document.kind))


def check_config_map(document: Document) -> Iterator[MigrationFinding]:
    """Yield the findings about a ConfigMap of the original; none for any other ConfigMap."""
    name = document.metadata.get("name")
    try:
        config_map = decode(document.data, ConfigMap)
    except InputError as error:
        yield _rejected(document.source, "ConfigMap", document.name, error)
        return
    if name == slo_config.CONFIG_NAME:
        yield from _slo_sections(config_map, document)
    elif name == TEMPLATES:
        try:
            read_templates(config_map)
        except InputError as error:
            yield _rejected(document.source, "ConfigMap", document.name, error)
        else:
            yield MigrationFinding(
                kind="ConfigMap",
                object=document.name,
                source=document.source,
                status=FindingStatus.CONVERTED,
                message="scheduler.gpuSharedResourceTemplates of the chart replaces it",
                action="copy templates that were added: koord migrate values prints them",
            )
    else:
        for key, text in config_map.data.items():
            for tree in configurations_in(text):
                for finding in _CHECKS[tree["kind"]](tree, document.source, "ConfigMap"):
                    yield msgspec.structs.replace(
                        finding, object=document.name, field=_inside(f"data[{key}]", finding.field)
                    )


def configurations_in(text: str) -> Iterator[JsonObject]:
    """Yield the configuration that a value of a ConfigMap contains, if it is one."""
    try:
        tree = yaml_document(text, "")
    except InputError:
        return
    if isinstance(tree, dict) and tree.get("kind") in _CHECKS:
        yield tree


def _scheduler(tree: JsonObject, source: str, kind: str) -> Iterator[MigrationFinding]:
    if tree.get("apiVersion") in FORMER_VERSIONS:
        tree, changes = as_v1(tree)
        for change in changes:
            yield MigrationFinding(
                kind=kind,
                object=SCHEDULER,
                source=source,
                field=change.path,
                status=FindingStatus.CONVERTED,
                message=change.text,
            )
    try:
        configuration = decode_configuration(tree, "")
        plugins = plugins_for(configuration)
        build_profiles(configuration, ResourceAxis(), out_of_tree=plugins)
    except InputError as error:
        yield _rejected(source, kind, SCHEDULER, error)
        return
    for name, reason in _WITHOUT_EFFECT.items():
        if name in tree:
            yield MigrationFinding(
                kind=kind,
                object=SCHEDULER,
                source=source,
                field=name,
                status=FindingStatus.IGNORED,
                message=reason,
            )
    for profile in configuration.profiles:
        yield MigrationFinding(
            kind=kind,
            object=SCHEDULER,
            source=source,
            field=f"profiles[{profile.scheduler_name}]",
            status=FindingStatus.SAME,
            message="plugins and arguments are accepted",
        )


def _descheduler(tree: JsonObject, source: str, kind: str) -> Iterator[MigrationFinding]:
    try:
        configuration = decode_descheduler_configuration(tree, "")
        choose_profiles(configuration, descheduler_plugins_for(configuration))
    except InputError as error:
        yield _rejected(source, kind, DESCHEDULER, error)
        return
    for profile in configuration.profiles:
        yield MigrationFinding(
            kind=kind,
            object=DESCHEDULER,
            source=source,
            field=f"profiles[{profile.name}]",
            status=FindingStatus.SAME,
            message="plugins and arguments are accepted",
        )


_CHECKS: Final[Mapping[str, Callable[[JsonObject, str, str], Iterator[MigrationFinding]]]] = (
    MappingProxyType({SCHEDULER: _scheduler, DESCHEDULER: _descheduler})
)


def _slo_sections(config_map: ConfigMap, document: Document) -> Iterator[MigrationFinding]:
    rejected = {problem.key: problem.message for problem in read_config(config_map)[1]}
    for key, text in config_map.data.items():
        status, message, action = FindingStatus.SAME, "accepted", ""
        if key in rejected:
            status, message = FindingStatus.ACTION, _cause(rejected[key])
            action = "correct the section; until then the manager uses its default"
        elif key not in slo_config.SECTIONS:
            status, message = FindingStatus.IGNORED, "no component reads this key"
        elif unknown := _unknown_fields(text, slo_config.SECTIONS[key]):
            status, message = FindingStatus.IGNORED, f"fields without effect: {', '.join(unknown)}"
        yield MigrationFinding(
            kind="ConfigMap",
            object=document.name,
            source=document.source,
            field=f"data[{key}]",
            status=status,
            message=message,
            action=action,
        )
    yield MigrationFinding(
        kind="ConfigMap",
        object=document.name,
        source=document.source,
        status=FindingStatus.CONVERTED,
        message="manager.config of the chart replaces it",
        action="copy sections that were changed: koord migrate values prints them",
    )


def _cause(message: str) -> str:
    """Return the cause in a message of the manager, which has the form of the original's."""
    denial = _DENIAL.search(message)
    inner = decode_json(denial[1])["message"] if denial is not None else message
    if isinstance(inner, str):
        return inner.partition(", err: ")[2] or inner
    return "; ".join(
        f"{path}: {text if isinstance(text, str) else ', '.join(text)}"
        for path, text in inner.items()
    )


def _unknown_fields(text: str, kind: type[msgspec.Struct]) -> list[str]:
    tree = decode_json(with_declared_case(text or "{}", kind))
    return list(_unknown(tree, inspect.type_info(kind), ""))


def _unknown(tree: Any, node: inspect.Type, path: str) -> Iterator[str]:
    if isinstance(node, inspect.UnionType):
        for each in node.types:
            yield from _unknown(tree, each, path)
    elif isinstance(node, inspect.VarTupleType) and isinstance(tree, list):
        for index, value in enumerate(tree):
            yield from _unknown(value, node.item_type, f"{path}[{index}]")
    elif isinstance(tree, dict):
        yield from _unknown_keys(tree, node, path)


def _unknown_keys(tree: JsonObject, node: inspect.Type, path: str) -> Iterator[str]:
    if isinstance(node, inspect.DictType):
        for key, value in tree.items():
            yield from _unknown(value, node.value_type, f"{path}[{key}]")
    elif isinstance(node, inspect.StructType):
        known = {field.encode_name: field.type for field in node.fields}
        for key, value in tree.items():
            if key in known:
                yield from _unknown(value, known[key], join_path(path, key))
            else:
                yield join_path(path, key)


def _rejected(source: str, kind: str, name: str, error: InputError) -> MigrationFinding:
    return MigrationFinding(
        kind=kind,
        object=name,
        source=source,
        field=error.path,
        status=FindingStatus.ACTION,
        message=error.problem,
        action="correct the field",
    )


def _inside(outer: str, path: str) -> str:
    return f"{outer}.{path}" if path else outer
