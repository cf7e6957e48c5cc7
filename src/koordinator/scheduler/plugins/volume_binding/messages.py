"""Explanations for claims without a volume on the pod's node."""

import difflib
from collections.abc import Iterator

from koordinator.api.core import NodeSelectorRequirement
from koordinator.api.labels import HOSTNAME
from koordinator.api.volume import PersistentVolume, PersistentVolumeClaim, StorageClass
from koordinator.scheduler.diagnosis import place
from koordinator.scheduler.plugins.volume_binding.outcome import (
    REASON_AFFINITY,
    REASON_NONE,
    REASON_SPACE,
)
from koordinator.scheduler.rules.volumes import (
    STORAGE,
    claim_name,
    is_bound,
    storage_class_name,
)
from koordinator.scheduler.snapshot import PodClass, Snapshot
from koordinator.scheduler.snapshot.objects import ObjectTable
from koordinator.scheduler.snapshot.selection import matches_selector


def claim_details(view: Snapshot, pod: PodClass, reasons: list[str]) -> str:
    """Return the claims of the pod that reasons against the only row concern."""
    parts: list[str] = []
    for claim in _claims(view.objects, pod):
        name = claim.metadata.name
        if is_bound(claim):
            volume = view.objects.get(PersistentVolume, claim.spec.volume_name)
            if REASON_AFFINITY in reasons and volume is not None:
                parts.extend(_elsewhere(view, name, volume))
        elif REASON_NONE in reasons or REASON_SPACE in reasons:
            parts.append(f"claim {name} requests {_request_of(claim)}")
    return "; ".join(parts)


def volume_to_make(objects: ObjectTable, pod: PodClass, node: str) -> str:
    """Return the volumes to create for the pod's claims on a node."""
    wanted = [claim for claim in _claims(objects, pod) if not is_bound(claim)]
    return " and ".join(
        f"create a PersistentVolume with {_request_of(claim)}, usable on {node}, "
        f"for claim {claim.key}"
        for claim in wanted
    )


def claim_to_make(objects: ObjectTable, pod: PodClass) -> str:
    """Return the claims of the pod to create or to bind."""
    steps = []
    for volume in pod.spec.volumes:
        name = claim_name(pod.name, volume)
        if not name:
            continue
        claim = objects.get(PersistentVolumeClaim, f"{pod.namespace}/{name}")
        if claim is None and volume.ephemeral is not None:
            continue  # a controller creates it
        if claim is None:
            there = sorted(
                one.metadata.name
                for one in objects.all(PersistentVolumeClaim)
                if one.metadata.namespace == pod.namespace
            )
            known = f"; namespace {pod.namespace} has {', '.join(there[:5])}"
            steps.append(
                f"create the PersistentVolumeClaim {pod.namespace}/{name}, bound to a volume "
                f"that is usable on a node of the pod{known if there else ''}"
            )
        elif not is_bound(claim) and not claim.metadata.deletion_timestamp:
            missing = _missing_class(objects, claim)
            if missing:
                steps.append(missing)
                continue
            steps.append(
                f"bind the claim {claim.key}: it requests {_request_of(claim)}, and needs such a "
                "PersistentVolume or a provisioner that creates one"
            )
    return " and ".join(steps)


def _missing_class(objects: ObjectTable, claim: PersistentVolumeClaim) -> str:
    """Return the claim's class to create; empty if it exists or none is named."""
    name = storage_class_name(claim)
    if not name or claim.spec.volume_name or objects.get(StorageClass, name) is not None:
        return ""
    known = sorted(one.metadata.name for one in objects.all(StorageClass))
    similar = difflib.get_close_matches(name, known, n=1)
    there = f" (there are: {', '.join(known[:5])})" if known else ""
    hint = f" (did you mean {similar[0]}?)" if similar else there
    return (
        f"create the StorageClass {name}, which claim {claim.key} names{hint}, or a "
        f"PersistentVolume of that class with {_request_of(claim)}"
    )


def _elsewhere(view: Snapshot, claim: str, volume: PersistentVolume) -> Iterator[str]:
    """Yield the topology of a volume and of the only row, if they differ."""
    required = volume.spec.node_affinity.required if volume.spec.node_affinity else None
    if required is None or matches_selector(view, required)[0]:
        return
    where = " or ".join(
        " and ".join(map(_requirement, (*term.match_expressions, *term.match_fields)))
        for term in required.node_selector_terms
    )
    keys = dict.fromkeys(e.key for t in required.node_selector_terms for e in t.match_expressions)
    labels = view.node_labels(int(view.row_numbers[0]))
    here = [f"in {place(k, (labels[k],))}" for k in keys if k in labels]
    here += [f"without label {key}" for key in keys if key not in labels]
    node = view.node_names[0]
    beside = f"; {node} is {' and '.join(here)}" if here and list(keys) != [HOSTNAME] else ""
    yield f"claim {claim}'s volume {volume.metadata.name} is {where}{beside}"


def _requirement(one: NodeSelectorRequirement) -> str:
    if one.operator != "In":
        return f"where {one.key} {one.operator} {', '.join(one.values)}".rstrip()
    word = "on" if one.key == HOSTNAME else "in"
    return f"{word} {place(one.key, one.values)}"


def _claims(objects: ObjectTable, pod: PodClass) -> Iterator[PersistentVolumeClaim]:
    for volume in pod.spec.volumes:
        name = claim_name(pod.name, volume)
        claim = objects.get(PersistentVolumeClaim, f"{pod.namespace}/{name}") if name else None
        if claim is not None:
            yield claim


def _request_of(claim: PersistentVolumeClaim) -> str:
    """Return the requested size, class and access modes of a claim."""
    size = claim.spec.resources.requests.get(STORAGE)
    storage_class = claim.spec.storage_class_name
    words = [f"{size} or more" if size is not None else "any size"]
    words.append(f"StorageClass {storage_class}" if storage_class else "no StorageClass")
    words.append("+".join(claim.spec.access_modes) or "any access mode")
    return ", ".join(words)
