"""Objects travel between JSON and types without loss, and mistakes are named."""

import datetime as dt
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from koordinator.api.codec import (
    apply_merge_patch,
    decode,
    decode_lines,
    decode_object,
    encode,
    encode_lines,
    encode_part,
    merge_patch,
    to_manifest,
)
from koordinator.api.control_plane import Lease, LeaseSpec
from koordinator.api.core import MicroTime, ResourceRequirements
from koordinator.api.event import CoreEvent, Event
from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.registry import BY_NAME, KINDS
from koordinator.foundation.errors import InputError


def manifest(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main"}], **spec},
    }


POD = manifest(
    schedulerName="koord-scheduler",
    priority=9000,
    overhead={"cpu": "0.10"},
    volumes=[
        {"name": "scratch", "emptyDir": {}},
        {"name": "d", "awsElasticBlockStore": {"volumeID": "v"}},
    ],
    affinity={
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "zone", "namespaceSelector": {}, "matchLabelKeys": ["rev"]}
            ]
        }
    },
    tolerations=[{"key": "k", "operator": "Exists", "tolerationSeconds": 0, "effect": "NoExecute"}],
    containers=[
        {
            "name": "main",
            "resources": {"requests": {"cpu": "0.5", "nvidia.com/gpu": "1"}},
            "ports": [{"containerPort": 80, "hostIP": "10.0.0.1"}],
        }
    ],
)


def in_both_forms(data: dict[str, Any]) -> list[dict[str, Any] | bytes]:
    return [data, msgspec.json.encode(data)]


@pytest.mark.parametrize("data", in_both_forms(POD))
def test_a_manifest_survives_decoding_and_encoding(data: dict[str, Any] | bytes) -> None:
    """Texts of quantities and empty selectors and sources, which mean something, stay."""
    pod = decode_object(data)

    assert isinstance(pod, Pod)
    assert pod.spec.containers[0].resources.requests["cpu"].milli() == 500
    assert to_manifest(pod) == POD
    assert decode(encode(pod), Pod) == pod


@given(st.lists(st.text()))
@example(["a\u2028b", "a\u2029b", "a\u0085b", "a\nb", "a\r\n\x0b\x0c\x1c\x1d\x1e"])
def test_objects_with_any_text_survive_as_lines(texts: list[str]) -> None:
    """Unicode line separators are a part of a text."""
    nodes = [
        Node(metadata=ObjectMeta(name=f"n{number}", annotations={"a": text}))
        for number, text in enumerate(texts)
    ]

    assert decode_lines(encode_lines(nodes)) == nodes


def test_api_version_and_kind_come_first_and_empty_fields_are_left_out() -> None:
    """Written objects look like manifests that people write."""
    assert encode(Node(metadata=ObjectMeta(name="a"))) == (
        b'{"apiVersion":"v1","kind":"Node","metadata":{"name":"a"}}'
    )


def test_times_are_written_in_utc_and_lease_times_with_six_digits() -> None:
    """The API server reads the times of leases and events in no other form."""
    meta = ObjectMeta(name="a", creation_timestamp=dt.datetime(2024, 1, 31, 8, tzinfo=dt.UTC))
    lease = Lease(
        metadata=meta, spec=LeaseSpec(renew_time=MicroTime(2024, 1, 31, 8, tzinfo=dt.UTC))
    )

    written = to_manifest(lease)

    assert written["metadata"]["creationTimestamp"] == "2024-01-31T08:00:00Z"
    assert written["spec"]["renewTime"] == "2024-01-31T08:00:00.000000Z"
    assert decode_object(written) == lease


def test_a_lease_time_of_another_zone_is_the_same_moment() -> None:
    """Offsets are understood, microseconds kept."""
    spec = {"renewTime": "2024-01-31T10:00:00.000007+02:00"}

    lease = decode({"metadata": {"name": "a"}, "spec": spec}, Lease)

    assert lease.spec.renew_time == dt.datetime(2024, 1, 31, 8, 0, 0, 7, tzinfo=dt.UTC)


def test_null_means_absent() -> None:
    """Go writes null for empty lists and reads it as nothing."""
    data = manifest(tolerations=None, nodeSelector=None)
    data["metadata"]["labels"] = None

    assert decode_object(msgspec.json.encode(data)) == decode_object(
        {**manifest(), "metadata": {"name": "web", "namespace": "shop"}}
    )


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"priority": "high"}, 'spec.priority: must be an integer or null, got "high"'),
        ({"priority": 2**40}, "spec.priority: must be an integer <= 2147483647, got 1099511627776"),
        (
            {"topologySpreadConstraints": [{"maxSkew": -(10**30)}]},
            "spec.topologySpreadConstraints[0].maxSkew: must be an integer",
        ),
        ({"containers": [{}]}, "spec.containers[0].name: is required"),
        ({"containers": {}}, "spec.containers: must be a list, got {}"),
        (
            {"nodeSelector": {"a": "b", "x.io/disk": 7}},
            "spec.nodeSelector[x.io/disk]: must be a string, got 7",
        ),
        (
            {
                "containers": [
                    {"name": "a", "resources": {"requests": {"cpu": "1", "memory": "1GB"}}}
                ]
            },
            "spec.containers[0].resources.requests.memory: '1GB' is not a quantity; must be",
        ),
    ],
)
@pytest.mark.parametrize("as_text", [False, True])
def test_a_wrong_field_is_named_as_kubernetes_does(
    spec: dict[str, Any], message: str, as_text: bool
) -> None:
    """Object, path with the real keys, what was found, what is accepted."""
    data = manifest(**spec)

    with pytest.raises(InputError) as refused:
        decode_object(msgspec.json.encode(data) if as_text else data)

    assert str(refused.value).startswith(f"Pod shop/web: {message}")


def test_a_wrong_time_is_shown() -> None:
    """The error names the field, for times of metadata and of leases."""
    data = {**manifest(), "metadata": {"name": "a", "creationTimestamp": "yesterday"}}

    with pytest.raises(InputError, match=r'metadata\.creationTimestamp: .*, got "yesterday"'):
        decode_object(data)
    with pytest.raises(InputError, match=r'spec\.renewTime: must be .*, got "2024-01-31T08:00:00"'):
        decode({"spec": {"renewTime": "2024-01-31T08:00:00"}}, Lease)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            b'{"kind":"Pod","apiVersion":"v2","metadata":{"name":"a"}}',
            "apiVersion: must be v1 for kind Pod, got 'v2'",
        ),
        (
            b'{"kind":"Event","apiVersion":"v2"}',
            "must be events.k8s.io/v1 or v1 for kind Event",
        ),
        (
            b'{"kind":"Widget","apiVersion":"a/v1"}',
            "unknown kind a/v1/Widget; must be one of APIService, CSIDriver",
        ),
        (b"{}", "apiVersion and kind are required"),
        (b"[]", "must be an object whose apiVersion and kind are strings, got array"),
        (b'{"kind":1}', "kind: must be an object whose apiVersion and kind are strings, got int"),
        (b'{"kind":', "not valid JSON"),
        (b"oops", "not valid JSON: invalid character (byte 0)"),
        (b'{"kind":"\xff"}', "not valid JSON"),
    ],
)
def test_unknown_object_is_rejected(data: bytes, message: str) -> None:
    """The accepted versions of a known kind, or the known kinds, are listed."""
    with pytest.raises(InputError) as refused:
        decode_object(data)

    assert message in str(refused.value)


def test_a_part_of_an_object_travels_alone() -> None:
    """Annotations hold parts as text; a wrong field is named from the part on."""
    part = decode(b'{"requests":{"cpu":"0.5"}}', ResourceRequirements)

    assert encode_part(part) == b'{"requests":{"cpu":"0.5"}}'
    with pytest.raises(InputError, match=r"^requests\.cpu: 'x' is not a quantity"):
        decode(b'{"requests":{"cpu":"x"}}', ResourceRequirements)


def test_items_of_a_typed_list_take_the_kind_of_the_list() -> None:
    """The API server leaves apiVersion and kind out of the items."""
    assert decode_object(b'{"metadata":{"name":"a"}}', api_version="v1", kind="Node") == Node(
        metadata=ObjectMeta(name="a")
    )


def test_merge_patch_has_only_the_changes() -> None:
    """Null removes a key; a changed list is sent whole; equal objects give an empty patch."""
    before = decode_object(POD)
    assert isinstance(before, Pod)
    after = replace(
        before,
        metadata=replace(before.metadata, labels={"tier": "front"}),
        spec=replace(before.spec, node_name="n1", tolerations=()),
    )

    patch = merge_patch(before, after)

    assert patch == {
        "metadata": {"labels": {"app": None, "tier": "front"}},
        "spec": {"nodeName": "n1", "tolerations": None},
    }
    assert merge_patch(before, before) == {}
    assert decode(apply_merge_patch(to_manifest(before), patch), Pod) == after


def test_a_merge_patch_leaves_unknown_fields_alone() -> None:
    """A field that our types lack survives our writes."""
    raw = {**manifest(), "extra": {"kept": 1}}
    before = decode(raw, Pod)

    patched = apply_merge_patch(
        raw, merge_patch(before, replace(before, metadata=ObjectMeta(name="b")))
    )

    assert patched["extra"] == {"kept": 1}
    assert raw["metadata"]["name"] == "web"


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": "foo"}, {"a": {"b": 1}}, {"a": {"b": 1}}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patches_follow_the_examples_of_rfc_7396(
    target: dict[str, Any], patch: dict[str, Any], result: dict[str, Any]
) -> None:
    """Appendix A."""
    assert apply_merge_patch(target, patch) == result


def test_every_kind_is_registered_once() -> None:
    """No two types share one apiVersion and kind, so events of both APIs are distinct."""
    assert len(BY_NAME) == len(KINDS)
    assert BY_NAME["v1", "Event"] is CoreEvent
    assert BY_NAME["events.k8s.io/v1", "Event"] is Event


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_kind_declares_how_the_api_serves_it(kind: type[Pod]) -> None:
    """Plurals are lower case; the kind is a word in camel case."""
    assert kind.PLURAL.islower()
    assert kind.KIND[0].isupper()
    assert kind.API_VERSION.rpartition("/")[2].startswith("v")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"allocatePolicy": "Default"},
            'spec.allocatePolicy: must be Aligned or Restricted, got "Default"',
        ),
        (
            {"preAllocationPolicy": {"mode": "Any"}},
            'spec.preAllocationPolicy.mode: must be Cluster or Default, got "Any"',
        ),
    ],
)
def test_error_of_an_unknown_choice_lists_the_choices(spec: dict[str, Any], message: str) -> None:
    """The error of an optional field lists them as well."""
    template = {"spec": {"containers": [{"name": "c"}]}}
    data = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": "r"},
        "spec": {"owners": [{"labelSelector": {}}], "template": template, **spec},
    }

    with pytest.raises(InputError) as refused:
        decode_object(data)

    assert str(refused.value) == f"Reservation r: {message}"
