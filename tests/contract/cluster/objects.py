"""Small objects for the tests of this folder."""

from koordinator.api.meta import JsonObject, LabelSelector, ObjectMeta
from koordinator.api.node import Node
from koordinator.api.pod import Container, Pod, PodSpec
from koordinator.api.policy import PodDisruptionBudget, PodDisruptionBudgetSpec


def pod(name: str, namespace: str = "default", **spec: object) -> Pod:
    """Return a pod of one container; ``labels``, ``finalizers`` go to the metadata."""
    meta = {key: spec.pop(key) for key in ("labels", "finalizers", "generate_name") if key in spec}
    return Pod(
        metadata=ObjectMeta(name=name, namespace=namespace, **meta),  # type: ignore[arg-type]  # by name
        spec=PodSpec(containers=(Container(name="main", image="i"),), **spec),  # type: ignore[arg-type]  # by name
    )


def node(name: str, **labels: str) -> Node:
    return Node(metadata=ObjectMeta(name=name, labels=labels))


def budget(
    name: str, app: str, *, min_available: int | str | None = None, **spec: int | str
) -> PodDisruptionBudget:
    return PodDisruptionBudget(
        metadata=ObjectMeta(name=name, namespace="default"),
        spec=PodDisruptionBudgetSpec(
            min_available=min_available,
            max_unavailable=spec.get("max_unavailable"),
            selector=LabelSelector(match_labels={"app": app}),
        ),
    )


def pod_manifest(name: str) -> JsonObject:
    """Return a pod with fields that our types don't have, at every depth."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "managedFields": [{"manager": "kubectl"}],
        },
        "spec": {
            "dnsPolicy": "ClusterFirst",
            "containers": [
                {
                    "name": "main",
                    "image": "i",
                    "command": ["sleep"],
                    "env": [{"name": "A", "value": "1"}],
                    "resources": {"limits": {"cpu": "1"}},
                }
            ],
        },
    }
