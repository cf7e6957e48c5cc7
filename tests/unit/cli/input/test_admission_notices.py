"""Pods that admission would change or refuse are reported, once for each way."""

import io
import json
from typing import Any

import pytest

from koordinator.simulator.manifests.input_objects import admission_notices
from koordinator.simulator.manifests.reader import read_manifests

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "labels": {"app": "web"}},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}


def pod(meta: Any = None, **spec: Any) -> dict[str, Any]:
    return POD | {"metadata": POD["metadata"] | (meta or {}), "spec": POD["spec"] | spec}


def priority_class(name: str, value: int, **fields: Any) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    } | fields


def profile(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "config.koordinator.sh/v1alpha1",
        "kind": "ClusterColocationProfile",
        "metadata": {"name": "batch"},
        "spec": spec,
    }


def notices(*manifests: dict[str, Any]) -> list[str]:
    text = "\n".join(map(json.dumps, manifests)).encode()
    return admission_notices(read_manifests(["-"], io.BytesIO(text)))


WEB = {"matchLabels": {"app": "web"}}
REFUSED = "an API server would refuse 1 pod (default/p): "


@pytest.mark.parametrize(
    ("manifests", "expected"),
    [
        ([pod()], []),
        ([profile(), pod()], ["batch is not applied"]),
        ([profile(selector=WEB), pod()], ["batch is not applied"]),
        ([profile(selector={"matchLabels": {"app": "x"}}), pod()], []),
        ([profile(namespaceSelector=WEB), pod()], []),
        ([profile(), pod({"uid": "stored"})], []),
        ([profile(), pod(nodeName="n")], []),
        ([pod(priority=3)], [f"{REFUSED}spec.priority differs"]),
        ([pod(priority=0)], []),
        ([pod(priority=3), priority_class("usual", 3, globalDefault=True)], []),
        (
            [pod(priority=3, priorityClassName="high"), priority_class("high", 4)],
            [f"{REFUSED}spec.priority differs"],
        ),
        (
            [priority_class(name, 1, globalDefault=True) for name in ("a", "b")] + [pod()],
            ["here are several: a, b"],
        ),
        ([pod(overhead={"cpu": "1"})], [f"{REFUSED}spec.overhead is set without"]),
        ([pod(overhead={"cpu": "1"}, runtimeClassName="kata")], []),
        ([pod(containers=[{"name": "c"}])], [f"{REFUSED}a container has no image"]),
    ],
)
def test_what_admission_would_do_is_reported(
    manifests: list[dict[str, Any]], expected: list[str]
) -> None:
    """Of new pods only: those that a cluster has stored were admitted there."""
    result = notices(*manifests)

    assert len(result) == len(expected)
    assert all(part in sentence for part, sentence in zip(expected, result, strict=True))


def claim(kind: str, meta: dict[str, Any] | None = None, *, admin: bool = True) -> dict[str, Any]:
    request = {"name": "monitor", "exactly": {"deviceClassName": "gpu", "adminAccess": admin}}
    spec: dict[str, Any] = {"devices": {"requests": [request]}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": "all", "namespace": "tools", **(meta or {})},
        "spec": {"spec": spec} if kind == "ResourceClaimTemplate" else spec,
    }


def namespace(**labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "tools", "labels": labels},
    }


ADMIN = "resource.kubernetes.io/admin-access"


@pytest.mark.parametrize("kind", ["ResourceClaim", "ResourceClaimTemplate"])
def test_administrative_access_without_the_label_of_its_namespace_is_reported(kind: str) -> None:
    """With the command that sets the label; also where the namespace is not in the manifests."""
    for manifests in ([claim(kind)], [namespace(**{ADMIN: "false"}), claim(kind)]):
        (sentence,) = notices(*manifests)
        assert f"would refuse {kind} tools/all: adminAccess of 1 request (monitor)" in sentence
        assert f"kubectl label namespace tools {ADMIN}=true" in sentence

    assert notices(namespace(**{ADMIN: "true"}), claim(kind)) == []
    assert notices(claim(kind, admin=False)) == []
    assert notices(claim(kind, {"uid": "stored"})) == []


def test_a_list_of_nothing_is_nothing() -> None:
    """Empty lists have several spellings in YAML and JSON."""
    for kind, items in (("List", None), ("PodList", None), ("PodList", []), ("NodeList", None)):
        for text in (
            json.dumps({"apiVersion": "v1", "kind": kind, "items": items}),
            f"apiVersion: v1\nkind: {kind}\nitems: {json.dumps(items)}\n",
            f"apiVersion: v1\nkind: {kind}\n",
        ):
            assert read_manifests(["-"], io.BytesIO(text.encode())) == []
