"""CRDs as a real API server accepts them."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from koordinator.api.device import Device
from koordinator.api.meta import JsonObject
from koordinator.api.node import NodeResourceTopology
from koordinator.api.node_slo import NodeSlo
from koordinator.api.reservation import Reservation
from koordinator.api.schema import all_crds, crd, object_schema

NAMES = [
    "clustercolocationprofiles.config.koordinator.sh",
    "clusternetworktopologies.scheduling.koordinator.sh",
    "devices.scheduling.koordinator.sh",
    "elasticquotaprofiles.quota.koordinator.sh",
    "elasticquotas.scheduling.sigs.k8s.io",
    "elasticquotatrees.scheduling.sigs.k8s.io",
    "nodemetrics.slo.koordinator.sh",
    "noderesourcetopologies.topology.node.k8s.io",
    "nodeslos.slo.koordinator.sh",
    "podgroups.scheduling.sigs.k8s.io",
    "podmigrationjobs.scheduling.koordinator.sh",
    "queues.scheduling.x-k8s.io",
    "queueunits.scheduling.x-k8s.io",
    "recommendations.analysis.koordinator.sh",
    "reservations.scheduling.koordinator.sh",
    "scheduleexplanations.scheduling.koordinator.sh",
]
CRDS = {made["metadata"]["name"]: made for made in all_crds()}
OF_EVERY_OBJECT = ("apiVersion", "kind", "metadata")
UNTYPED = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
ALLOWED = {
    "type",
    "format",
    "description",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "enum",
    "default",
    "minimum",
    "maximum",
    "maxItems",
    "minItems",
    "minLength",
    "maxLength",
    "pattern",
    "anyOf",
    "x-kubernetes-int-or-string",
    "x-kubernetes-preserve-unknown-fields",
}
ENUMERATIONS = re.compile(r"\ban? (?:QosClass|PriorityBand|DeviceType|\w+Phase)\b")


def schemas(made: JsonObject) -> list[JsonObject]:
    return [version["schema"]["openAPIV3Schema"] for version in made["spec"]["versions"]]


def nodes(schema: JsonObject, path: str = "") -> Iterator[tuple[str, JsonObject]]:
    """Return every node of a schema with its path, the root first."""
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from nodes(inner, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield from nodes(schema[key], f"{path}[]")


def at(schema: JsonObject, path: str) -> JsonObject:
    return dict(nodes(schema))[path]


def test_every_custom_resource_has_a_crd() -> None:
    """The thirteen CRDs of Koordinator and the three of koord-queue, in a fixed order."""
    assert list(CRDS) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_schemas_are_structural(name: str) -> None:
    """Every node has a type, or may be an integer or text; nothing refers, nothing is nullable."""
    for schema in schemas(CRDS[name]):
        for path, node in nodes(schema):
            assert node.keys() <= ALLOWED, path
            is_either = node.get("x-kubernetes-int-or-string") is True
            assert is_either != ("type" in node), path
            assert is_either == ("anyOf" in node), path


@pytest.mark.parametrize("name", NAMES)
def test_descriptions_name_fields_as_manifests_do(name: str) -> None:
    """``kubectl explain`` shows them to users, who write JSON or YAML and not Python."""
    for schema in schemas(CRDS[name]):
        for path, node in nodes(schema):
            text = node.get("description", "")
            assert not re.search(r"`[a-z]+_\w+`|\bNone\b", text), f"{path}: {text}"


@pytest.mark.parametrize("name", NAMES)
def test_schemas_of_objects_describe_their_content(name: str) -> None:
    """An object has either properties or one schema for all values, or keeps what it is given."""
    for schema in schemas(CRDS[name]):
        for path, node in nodes(schema):
            if node.get("type") != "object" or path == ".metadata":
                continue
            kinds = {"properties", "additionalProperties", "x-kubernetes-preserve-unknown-fields"}
            assert len(kinds & node.keys()) == 1, path
            assert set(node.get("required", ())) <= node.get("properties", {}).keys(), path


@pytest.mark.parametrize("name", NAMES)
def test_arrays_have_items_and_defaults_fit(name: str) -> None:
    """An array has a schema for its items; a default has the type of its node."""
    python_types: dict[str, type] = {"string": str, "boolean": bool, "integer": int}
    for schema in schemas(CRDS[name]):
        for path, node in nodes(schema):
            assert (node.get("type") == "array") == ("items" in node), path
            if "default" in node and "type" in node:
                assert isinstance(node["default"], python_types[node["type"]]), path
                assert node["default"] in node.get("enum", [node["default"]]), path


@pytest.mark.parametrize("name", NAMES)
def test_metadata_is_left_to_the_api_server(name: str) -> None:
    """The root has apiVersion, kind and metadata, without a schema for the latter."""
    for schema in schemas(CRDS[name]):
        assert schema["properties"]["metadata"] == {"type": "object"}
        assert schema["properties"]["apiVersion"] == {"type": "string"}


@pytest.mark.parametrize("name", NAMES)
def test_exactly_one_version_is_stored(name: str) -> None:
    """All versions are served."""
    versions = CRDS[name]["spec"]["versions"]

    assert [version["storage"] for version in versions].count(True) == 1
    assert all(version["served"] for version in versions)


@pytest.mark.parametrize("name", NAMES)
def test_groups_of_the_community_are_approved(name: str) -> None:
    """The API server refuses groups below k8s.io without the annotation."""
    annotations = CRDS[name]["metadata"].get("annotations", {})

    assert ("api-approved.kubernetes.io" in annotations) == name.endswith(".k8s.io")


def test_names_scope_and_columns() -> None:
    """The definition has kubectl's short names, scope and printed columns."""
    spec = crd(Reservation)["spec"]

    assert spec["group"] == "scheduling.koordinator.sh"
    assert spec["scope"] == "Cluster"
    assert spec["names"] == {
        "kind": "Reservation",
        "listKind": "ReservationList",
        "plural": "reservations",
        "singular": "reservation",
    }
    (version,) = spec["versions"]
    assert version["subresources"] == {"status": {}}
    columns = {column["name"]: column for column in version["additionalPrinterColumns"]}
    assert list(columns) == ["Phase", "Age", "Node", "TTL", "Expires"]
    assert columns["Age"] == {
        "name": "Age",
        "type": "date",
        "jsonPath": ".metadata.creationTimestamp",
    }
    assert "subresources" not in crd(Device)["spec"]["versions"][0]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (".spec.allocateOnce", {"type": "boolean", "default": True}),
        (".spec.ttl", {"type": "string", "default": "24h0m0s"}),
        (".spec.allocatePolicy", {"type": "string", "enum": ["Aligned", "Restricted"]}),
        (".spec.expires", {"type": "string", "format": "date-time"}),
        (".spec.template", UNTYPED),
        (".status.phase", {"type": "string", "default": "Pending"}),
    ],
)
def test_schema_of_reservations_equals_upstream(path: str, expected: dict[str, Any]) -> None:
    """Defaults, enumerations, times and templates as upstream has them."""
    assert at(object_schema(Reservation), path) == expected


def test_required_fields_and_lengths_are_kept() -> None:
    """A reservation needs a template and at least one owner."""
    spec = at(object_schema(Reservation), ".spec")

    assert spec["required"] == ["template", "owners"]
    assert spec["properties"]["owners"]["minItems"] == 1


def test_quantities_are_integers_or_texts_of_a_pattern() -> None:
    """An amount of a resource may be 2 or "2Gi", but not "two"."""
    amount = at(object_schema(Device), ".spec.devices[].resources[]")

    assert amount["anyOf"] == [{"type": "integer"}, {"type": "string"}]
    assert "[KMGTPE]i" in amount["pattern"]


def test_numbers_have_width_and_bounds() -> None:
    """Upstream's int32 and its minima and maxima are there."""
    topology = object_schema(Device)
    slo = object_schema(NodeSlo)
    burst = at(slo, ".spec.cpuBurstStrategy.cpuBurstPercent")
    limit = at(slo, ".spec.resourceQOSStrategy.beClass.networkQOS.egressLimit")

    assert at(topology, ".spec.devices[].minor") == {"type": "integer", "format": "int32"}
    assert (burst["minimum"], burst["maximum"]) == (0, 10_000)
    assert limit["default"] == 100


def test_node_topologies_are_stored_as_the_later_version() -> None:
    """A cluster that has the CRD of the topology project already goes on as before."""
    versions = crd(NodeResourceTopology)["spec"]["versions"]

    assert [(version["name"], version["storage"]) for version in versions] == [
        ("v1alpha1", False),
        ("v1alpha2", True),
    ]


def test_every_field_of_a_printed_crd_is_described() -> None:
    """For ``kubectl explain``; a struct without a comment for a field would show no text."""

    def missing(schema: JsonObject, path: str) -> Iterator[str]:
        for name, field in (schema.get("properties") or {}).items():
            if not (field.get("description") or (not path and name in OF_EVERY_OBJECT)):
                yield f"{path}.{name}"
            if re.search(
                r"\ban? (?:QosClass|PriorityBand|\w+Phase)\b", field.get("description", "")
            ):
                yield f"{path}.{name} names an enumeration"
            yield from missing(field, f"{path}.{name}")
        for key in ("items", "additionalProperties"):
            if isinstance(schema.get(key), dict):
                yield from missing(schema[key], f"{path}[]")

    for made in all_crds(explained=True):
        for version in made["spec"]["versions"]:
            schema = version["schema"]["openAPIV3Schema"]
            assert list(missing(schema, "")) == [], made["metadata"]["name"]
