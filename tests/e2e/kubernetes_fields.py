"""The fields that Kubernetes' own kinds have, as its API server describes them.

``python -m tests.e2e.kubernetes_fields`` writes them to ``koordinator/cli/data``; a test reports
when that is due.
"""

import tempfile
from pathlib import Path
from typing import Any

import msgspec
from tests.e2e.controlplane import ControlPlane

PATH = Path(__file__).parents[2] / "src/koordinator/simulator/data/kubernetes-fields.json"
_REF = "#/definitions/"
_ENDLESS = "JSONSchemaProps"  # contains itself
_PREFIXES = ("io.k8s.api.", "io.k8s.apimachinery.pkg.apis.", "io.k8s.")


def kubernetes_fields(controlplane: ControlPlane) -> dict[str, Any]:
    """Return ``kinds``, ``group/version/Kind`` to type, and ``types``, type to field to type.

    A type is empty for what is not looked into, and begins with ``[]`` for lists of it, with
    ``{}`` for dictionaries.  Types of our own CRDs are not in it.
    """
    definitions = controlplane.api.request("GET", "/openapi/v2")["definitions"]
    kinds: dict[str, str] = {}
    for name, definition in definitions.items():
        marked = definition.get("x-kubernetes-group-version-kind", [])
        if name.startswith("io.k8s.api.") and len(marked) == 1 and not name.endswith("List"):
            (it,) = marked
            version = f"{it['group']}/{it['version']}" if it["group"] else it["version"]
            kinds[f"{version}/{it['kind']}"] = name
    types: dict[str, dict[str, str]] = {}
    left = list(kinds.values())
    while left:
        name = left.pop()
        if name not in types:
            properties = definitions[name].get("properties", {})
            fields = {field: _type(schema, definitions) for field, schema in properties.items()}
            types[name] = fields
            left += [kind.lstrip("[]{}") for kind in fields.values() if kind]
    return {
        "kinds": {key: _short(kinds[key]) for key in sorted(kinds)},
        "types": {
            _short(name): {field: _short(types[name][field]) for field in sorted(types[name])}
            for name in sorted(types)
        },
    }


def _type(schema: dict[str, Any], definitions: dict[str, Any]) -> str:
    ref = schema.get("$ref", "").removeprefix(_REF)
    if ref:
        known = definitions[ref].get("properties")
        return ref if known and not ref.endswith(_ENDLESS) else ""
    for key, mark in (("items", "[]"), ("additionalProperties", "{}")):
        inner = schema.get(key)
        if isinstance(inner, dict):
            item_type = _type(inner, definitions)
            return mark + item_type if item_type else ""
    return ""


def _short(name: str) -> str:
    for prefix in _PREFIXES:
        name = name.replace(prefix, "")
    return name


def as_text(fields: dict[str, Any]) -> bytes:
    """Return the text of the file: a line per type, so that a difference can be read."""
    kinds = b",\n".join(
        msgspec.json.encode(k) + b":" + msgspec.json.encode(v) for k, v in fields["kinds"].items()
    )
    types = b",\n".join(
        msgspec.json.encode(k) + b":" + msgspec.json.encode(v) for k, v in fields["types"].items()
    )
    return b'{"kinds":{\n' + kinds + b'\n},"types":{\n' + types + b"\n}}\n"


if __name__ == "__main__":
    with (
        tempfile.TemporaryDirectory() as folder,
        ControlPlane(Path(folder), audited=False) as running,
    ):
        PATH.parent.mkdir(exist_ok=True)
        PATH.write_bytes(as_text(kubernetes_fields(running)))
