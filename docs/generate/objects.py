"""Pages of API objects: custom resources, annotations, labels, resources, ConfigMap sections."""

import pkgutil
from collections.abc import Iterator, Mapping
from importlib import import_module
from types import ModuleType
from typing import Final

from docs.generate.declarations import declarations, users_of
from docs.generate.markdown import cell, code, first_paragraph, page, table
from docs.generate.structs import field_table, type_text
from msgspec import Struct, inspect

from koordinator.api import annotations as annotation_package
from koordinator.api import labels as label_keys
from koordinator.api import resource_names as names
from koordinator.api import slo_config
from koordinator.api.annotations.codec import AnnotationCodec
from koordinator.api.crd import CustomResource
from koordinator.api.registry import KINDS

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
        ]
        text = page(
            kind.KIND,
            first_paragraph(kind.__doc__),
            table(("property", "value"), facts),
            "## Fields",
            field_table(kind),
        )
        yield kind.KIND.lower(), text


def labels() -> str:
    """Return the page of labels."""
    return page(
        "Labels",
        "Keys of labels that a component reads or writes.",
        table(("label", "group", "meaning", "components"), _key_rows(label_keys)),
    )


def annotations() -> str:
    """Return the page of annotations, and of the JSON that an annotation holds."""
    rows, formats = [], []
    for module in _annotation_modules():
        for each in declarations(module):
            value = getattr(module, each.name)
            users = ", ".join(users_of(module.__name__, each.name))
            if isinstance(value, AnnotationCodec):
                node = inspect.type_info(value.type)
                rows.append((code(value.key), type_text(node), cell(each.comment), users))
                if isinstance(node, inspect.StructType):
                    struct = node.cls
                    about = f"### {code(value.key)}\n\n{first_paragraph(struct.__doc__)}"
                    formats.append(f"{about}\n\n{field_table(struct)}")
            elif isinstance(value, str) and "/" in value:
                rows.append((code(value), "text", cell(each.comment), users))
    return page(
        "Annotations",
        "Annotations that a component reads or writes. A value of another type than text is JSON.",
        table(("annotation", "type", "meaning", "components"), sorted(set(rows))),
        "## Formats",
        *sorted(set(formats)),
    )


def resource_names() -> str:
    """Return the page of names of extended resources."""
    return page(
        "Resource names",
        "Names of resources that a component reads or writes.",
        table(("resource", "group", "meaning", "components"), _key_rows(names)),
    )


def slo_controller_config() -> str:
    """Return the page of the ConfigMap ``slo-controller-config``."""
    parts = [
        f"## {key}\n\n{first_paragraph(struct.__doc__)}\n\n{field_table(struct)}"
        for key, struct in SECTIONS.items()
    ]
    name = f"`{slo_config.CONFIG_NAMESPACE}/{slo_config.CONFIG_NAME}`"
    return page(
        "ConfigMap slo-controller-config",
        f"The manager reads the ConfigMap {name}. Each key below holds a JSON document.",
        *parts,
    )


def _key_rows(module: ModuleType) -> list[tuple[str, str, str, str]]:
    rows = []
    for each in declarations(module):
        value = getattr(module, each.name)
        if isinstance(value, str):
            users = ", ".join(users_of(module.__name__, each.name))
            rows.append((code(value), cell(each.group), cell(each.comment), users))
    return rows


def _annotation_modules() -> Iterator[ModuleType]:
    for found in pkgutil.iter_modules(annotation_package.__path__):
        yield import_module(f"{annotation_package.__name__}.{found.name}")
