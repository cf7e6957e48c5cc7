"""Pages of API objects: custom resources, annotations, labels, resources, ConfigMap sections."""

import pkgutil
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from types import ModuleType
from typing import Final

from docs.generate.dated import ABOUT_SINCE, SINCE, Row, dated_table, deprecation
from docs.generate.declarations import Declaration, declarations
from docs.generate.deployment import components_with_rights
from docs.generate.markdown import cell, code, first_paragraph, page, table
from docs.generate.structs import field_table, inner_struct, type_text
from docs.generate.users import users_of
from msgspec import Struct, inspect

from koordinator.api import annotations as annotation_package
from koordinator.api import labels as label_keys
from koordinator.api import resource_names as names
from koordinator.api import slo_config
from koordinator.api.annotations.codec import AnnotationCodec
from koordinator.api.crd import CustomResource
from koordinator.api.field_comments import with_values
from koordinator.api.node_slo import NodeSlo
from koordinator.api.registry import KINDS
from koordinator.api.schema import documented
from koordinator.koordlet.view.slo import DEFAULT_SLO
from koordinator.manager.admission.tenancy import ANNOTATIONS
from koordinator.manager.configuration import ranges

#: Sections of the ConfigMap slo-controller-config with the struct of each.
SECTIONS: Final[Mapping[str, type[Struct]]] = {
    slo_config.COLOCATION: slo_config.ColocationConfig,
    slo_config.RESOURCE_THRESHOLD: slo_config.ThresholdConfig,
    slo_config.RESOURCE_QOS: slo_config.ResourceQosConfig,
    slo_config.CPU_BURST: slo_config.CpuBurstConfig,
    slo_config.SYSTEM: slo_config.SystemConfig,
    slo_config.HOST_APPLICATION: slo_config.HostApplicationConfig,
    slo_config.CPU_NORMALIZATION: slo_config.CpuNormalizationConfig,
    slo_config.RESOURCE_AMPLIFICATION: slo_config.ResourceAmplificationConfig,
}
#: Values in effect where neither the ConfigMap nor a node's NodeSLO sets a field.
_IN_EFFECT: Final[Mapping[str, Struct]] = {
    slo_config.COLOCATION: ranges.COLOCATION,
    slo_config.RESOURCE_THRESHOLD: slo_config.ThresholdConfig(
        cluster_strategy=DEFAULT_SLO.resource_used_threshold_with_be
    ),
    slo_config.RESOURCE_QOS: slo_config.ResourceQosConfig(
        cluster_strategy=DEFAULT_SLO.resource_qos_strategy
    ),
    slo_config.CPU_BURST: slo_config.CpuBurstConfig(
        cluster_strategy=DEFAULT_SLO.cpu_burst_strategy
    ),
    slo_config.SYSTEM: slo_config.SystemConfig(cluster_strategy=DEFAULT_SLO.system_strategy),
}
_OF_NODE_SLO: Final = (
    "koord-manager writes it from the ConfigMap "
    "[slo-controller-config](../slo-controller-config.md) and overwrites other changes; koordlet "
    "reads it. The defaults are the values that koordlet uses for unset fields."
)
_USERS: Final = (
    "Readers and writers are found in the source; a cell is empty where no component is one."
)


def custom_resources() -> Iterator[tuple[str, str]]:
    """Yield name and page of every custom resource, by kind."""
    kinds = [kind for kind in KINDS if issubclass(kind, CustomResource)]
    for kind in sorted(kinds, key=lambda each: each.KIND):
        facts = [
            ("API version", code(kind.API_VERSION)),
            ("kind", code(kind.KIND)),
            ("plural", code(kind.PLURAL)),
            ("scope", "namespaced" if kind.NAMESPACED else "cluster"),
            ("short names", ", ".join(map(code, kind.SHORT_NAMES)) or "none"),
            ("status subresource", "yes" if kind.SUBRESOURCE_STATUS else "no"),
            *components_with_rights(kind.API_VERSION.partition("/")[0], kind.PLURAL),
            ("since", SINCE.release("kind", kind.KIND)),
        ]
        is_slo = kind is NodeSlo
        text = page(
            kind.KIND,
            first_paragraph(documented(kind)),
            _OF_NODE_SLO if is_slo else "",
            table(("property", "value"), facts),
            "## Fields",
            ABOUT_SINCE,
            field_table(
                kind, f"resource {kind.KIND}", NodeSlo(spec=DEFAULT_SLO) if is_slo else None
            ),
        )
        yield kind.KIND.lower(), text


def labels() -> str:
    """Return the page of labels."""
    return page(
        "Labels",
        f"Keys of labels that a component reads or writes. {_USERS} {ABOUT_SINCE}",
        dated_table(
            "label",
            ("label", "group", "meaning", "read by", "written by"),
            [
                _key_row(key, cell(each.group), label_keys, each)
                for each in declarations(label_keys)
                if _is_key(key := getattr(label_keys, each.name))
            ],
        ),
    )


def annotations() -> str:
    """Return the page of annotations, and of the JSON that an annotation holds."""
    rows: list[Row] = []
    formats: list[str] = []
    for module in _annotation_modules():
        for each in declarations(module):
            value = getattr(module, each.name)
            if isinstance(value, AnnotationCodec):
                node = inspect.type_info(value.type)
                rows.append(_key_row(value.key, type_text(node), module, each))
                if value.former_key:
                    cells = (code(value.former_key), type_text(node), "former key", "", "")
                    rows.append(Row(value.former_key, cells, value.key))
                if (inner := inner_struct(node)[0]) is not None:
                    struct = inner.cls
                    about = f"### {code(value.key)}\n\n{first_paragraph(documented(struct))}"
                    if inner is not node:
                        about += f" The value is a {type_text(node)}; these are its fields."
                    formats.append(f"{about}\n\n{field_table(struct, f'format {value.key}')}")
            elif _is_key(value) or (isinstance(value, str) and value in ANNOTATIONS):
                rows.append(_key_row(value, "text", module, each))
    return page(
        "Annotations",
        "Annotations that a component reads or writes. A value of another type than text is JSON. "
        f"{_USERS} {ABOUT_SINCE}",
        dated_table(
            "annotation",
            ("annotation", "type", "meaning", "read by", "written by"),
            sorted(set(rows)),
        ),
        "## Formats",
        *sorted(set(formats)),
    )


def resource_names() -> str:
    """Return the page of names of extended resources."""
    return page(
        "Resource names",
        f"Names of resources that a component reads or writes. {ABOUT_SINCE}",
        dated_table(
            "resource name",
            ("resource", "unit or meaning"),
            [
                *(
                    Row(name, (code(name), cell(each.comment)))
                    for each in declarations(names)
                    if isinstance(name := getattr(names, each.name), str)
                ),
                *(
                    Row(name, (code(name), "former name"), current)
                    for name, current in (
                        *names.CURRENT_BATCH_NAMES.items(),
                        *names.CURRENT_DEVICE_NAMES.items(),
                    )
                ),
            ],
        ),
    )


def slo_controller_config() -> str:
    """Return the page of the ConfigMap ``slo-controller-config``."""
    parts = [
        f"## {key}\n\n{first_paragraph(documented(struct))}\n\n"
        f"Since: {SINCE.release('section', key)}.\n\n"
        + field_table(struct, f"section {key}", _IN_EFFECT.get(key))
        for key, struct in SECTIONS.items()
    ]
    name = f"`{slo_config.CONFIG_NAMESPACE}/{slo_config.CONFIG_NAME}`"
    return page(
        "ConfigMap slo-controller-config",
        f"koord-manager reads the ConfigMap {name}. Each key below holds a JSON document. The "
        "defaults are the values in effect where no field sets another one. An entry for selected "
        "nodes (`nodeConfigs`, `nodeStrategies`) takes the cluster's value for a field that it "
        f"does not set. {ABOUT_SINCE}",
        *parts,
    )


def _is_key(value: object) -> bool:
    """Return whether a constant is the key of a label or annotation, not one of its values."""
    return isinstance(value, str) and ("/" in value or "." in value)


def _key_row(key: str, second: str, module: ModuleType, constant: Declaration) -> Row:
    """Return a key with its meaning, readers and writers; enumerations become their values."""
    users = users_of(module.__name__, constant.name)
    comment, replacement = deprecation(constant.comment)
    meaning = cell(with_values(comment))
    cells = (code(key), second, meaning, _listed(users.readers), _listed(users.writers))
    return Row(key, cells, replacement)


def _listed(users: Iterable[str]) -> str:
    return ", ".join(sorted(users))


def _annotation_modules() -> Iterator[ModuleType]:
    for found in pkgutil.iter_modules(annotation_package.__path__):
        yield import_module(f"{annotation_package.__name__}.{found.name}")
