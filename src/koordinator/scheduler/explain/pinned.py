"""Pods that can only run on existing nodes, because nodes or volumes are named."""

from collections.abc import Iterator

from koordinator.api.annotations.scheduling import SCHEDULING_HINT
from koordinator.api.core import NodeSelector
from koordinator.api.labels import HOSTNAME
from koordinator.api.volume import PersistentVolume, PersistentVolumeClaim, StorageClass
from koordinator.scheduler.rules.volumes import (
    NO_PROVISIONER,
    named_claims,
    storage_class_name,
)
from koordinator.scheduler.snapshot import PodClass
from koordinator.scheduler.snapshot.objects import ObjectTable


def is_pinned(pod: PodClass, objects: ObjectTable) -> bool:
    """Return whether the pod names its nodes, or its volumes do."""
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    return (
        HOSTNAME in pod.spec.node_selector
        or _names_nodes(required)
        or SCHEDULING_HINT.is_in(pod.annotations)
        or any(_volume_names_nodes(objects, claim) for claim in _claims(pod, objects))
    )


def _names_nodes(selector: NodeSelector | None) -> bool:
    """Return whether every term selects nodes by name."""
    terms = selector.node_selector_terms if selector is not None else ()
    return bool(terms) and all(
        term.match_fields or any(one.key == HOSTNAME for one in term.match_expressions)
        for term in terms
    )


def _claims(pod: PodClass, objects: ObjectTable) -> Iterator[PersistentVolumeClaim]:
    for name in named_claims(pod.spec.volumes):
        claim = objects.get(PersistentVolumeClaim, f"{pod.namespace}/{name}")
        if claim is not None:
            yield claim


def _volume_names_nodes(objects: ObjectTable, claim: PersistentVolumeClaim) -> bool:
    volume = objects.get(PersistentVolume, claim.spec.volume_name)
    if volume is not None:
        affinity = volume.spec.node_affinity
        return _names_nodes(affinity.required if affinity is not None else None)
    storage_class = objects.get(StorageClass, storage_class_name(claim))
    return storage_class is not None and storage_class.provisioner == NO_PROVISIONER
