"""Virtual templates: the fixed sizes into which cards of some models can be divided.

Source: koordinator pkg/scheduler/plugins/deviceshare/gpu_shared_resource_templates_cache.go.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from koordinator.api.codec import decode
from koordinator.api.core import ConfigMap, ResourceList
from koordinator.foundation.errors import InputError
from koordinator.foundation.yaml_documents import yaml_document

DATA_KEY = "data.yaml"  # key in the ConfigMap


@dataclass(frozen=True, slots=True)
class TemplateTable:
    """Amounts by resource name, by template name, by ``<vendor>-<model>``."""

    models: Mapping[str, Mapping[str, Mapping[str, int]]] = field(default_factory=dict)

    def matching(self, amounts: Mapping[str, int]) -> dict[str, tuple[str, ...]]:
        """Return the templates of each model with exactly these amounts, without empty entries."""
        by_model = {
            model: tuple(name for name, template in templates.items() if template == amounts)
            for model, templates in self.models.items()
        }
        return {model: names for model, names in by_model.items() if names}


def model_key(vendor: str, gpu_model: str) -> str:
    """Return the table's key for a model."""
    return f"{vendor}-{gpu_model}"


def read_templates(config_map: ConfigMap) -> TemplateTable:
    """Parse the templates in a ConfigMap.

    Raises InputError with the path of the invalid value.
    """
    path = f"data[{DATA_KEY}]"
    try:
        tables = yaml_document(config_map.data.get(DATA_KEY, ""), "")
    except InputError as error:
        raise InputError(f"is not YAML: {error}", subject=_name(config_map), path=path) from None
    try:
        known = dict[str, dict[str, ResourceList]]
        tree = decode(msgspec.json.encode({} if tables is None else tables), known)
    except InputError as error:
        raise error.within(subject=_name(config_map), path=path) from None
    return TemplateTable({model: dict(_templates(each)) for model, each in tree.items()})


def _templates(templates: Mapping[str, ResourceList]) -> Iterator[tuple[str, dict[str, int]]]:
    for name, resources in templates.items():
        yield name, {resource: amount.value() for resource, amount in resources.items()}


def _name(config_map: ConfigMap) -> str:
    return f"ConfigMap {config_map.key}"
