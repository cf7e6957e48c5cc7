"""Explanations for claims without a volume on the pod's node."""

import difflib
import heapq
from collections.abc import Iterator

from koordinator.api.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from koordinator.api.labels import HOSTNAME
from koordinator.api.selectors import matches
from koordinator.api.volume import PersistentVolume, PersistentVolumeClaim, StorageClass
from koordinator.scheduler.diagnosis import place
from koordinator.scheduler.plugins.volume_binding.outcome import REASON_AFFINITY, VolumeOutcome
from koordinator.scheduler.rules.volumes import (
    FILESYSTEM,
    NO_PROVISIONER,
    SELECTED_NODE,
    STORAGE,
    capacity,
    claim_name,
    is_bound,
    is_large_enough,
    is_meant_for,
    missing_volume_remedy,
    requested,
    storage_class_name,
    waits_for_pod,
)
from koordinator.scheduler.snapshot import PodClass, Snapshot
from koordinator.scheduler.snapshot.objects import ObjectTable
from koordinator.scheduler.snapshot.selection import matches_selector

COMPARED = 32  # volumes whose topology is compared with the node's: matching it takes longest


def claim_details(view: Snapshot, pod: PodClass, outcome: VolumeOutcome, reasons: list[str]) -> str:
    """Return the claims of the pod that make the plugin reject the only row."""
    parts: list[str] = []
    for claim in _claims(view.objects, pod):
        name = claim.metadata.name
        if is_bound(claim):
            volume = view.objects.get(PersistentVolume, claim.spec.volume_name)
            if REASON_AFFINITY in reasons and volume is not None:
                parts.extend(_elsewhere(view, name, volume))
        elif reasons and not outcome.serves(claim, int(view.names[0][0])):
            why = _why_none(view, claim, outcome)
            parts.append(f"claim {name} requests {_request_of(claim)}{why}")
    return "; ".join(parts)


def volume_to_make(view: Snapshot, pod: PodClass, outcome: VolumeOutcome) -> str:
    """Return the changes after which each claim of the pod gets a volume on the only row.

    Empty if a claim cannot get another volume than one that is unusable there.
    """
    node, steps = view.node_names[0], list[str]()
    for claim in _claims(view.objects, pod):
        if is_bound(claim) or outcome.serves(claim, int(view.names[0][0])):
            continue
        if SELECTED_NODE in claim.metadata.annotations or _reserved_for(view.objects, claim):
            return ""
        volume = (
            f"create a PersistentVolume with {_request_of(claim)}, usable on {node}, "
            f"for claim {claim.key}"
        )
        labels = _missing_topology(view, claim)
        if labels:
            volume = (
                f"add {labels} to allowedTopologies of StorageClass {storage_class_name(claim)}, "
                f"or {volume}"
            )
        steps.append(volume)
    return " and ".join(steps)


def unbound_details(objects: ObjectTable, pod: PodClass) -> str:
    """Return why claims that must be bound before the pod is scheduled are not."""
    parts = []
    for claim in _claims(objects, pod):
        name, storage_class = claim.metadata.name, storage_class_name(claim)
        if is_bound(claim) or claim.metadata.deletion_timestamp is not None:
            continue
        if claim.spec.volume_name:
            volume = objects.get(PersistentVolume, claim.spec.volume_name)
            problems = ["does not exist"] if volume is None else _problems(volume, claim)
            claim_text = f"claim {name} names PersistentVolume {claim.spec.volume_name}"
            parts.append(
                f"{claim_text}, which {' and '.join(problems)}" if problems else claim_text
            )
        elif not storage_class:
            parts.append(f"claim {name} names neither a volume nor a StorageClass")
        else:
            known = objects.get(StorageClass, storage_class)
            if known is not None and not waits_for_pod(known):
                parts.append(
                    f"claim {name}: StorageClass {storage_class} has volumeBindingMode Immediate"
                )
    return "; ".join(parts)


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
            available = sorted(
                one.metadata.name
                for one in objects.all(PersistentVolumeClaim)
                if one.metadata.namespace == pod.namespace
            )
            known = f"; namespace {pod.namespace} has {', '.join(available[:5])}"
            steps.append(
                f"create the PersistentVolumeClaim {pod.namespace}/{name}, bound to a volume "
                f"that is usable on a node of the pod{known if available else ''}"
            )
        elif volume.ephemeral is not None and not claim.metadata.is_controlled_by(pod.uid):
            steps.append(f"delete the claim {claim.key}, so that one is created for the pod")
        else:
            steps.append(_claim_remedy(objects, claim))
    return " and ".join(filter(None, steps))


def _claim_remedy(objects: ObjectTable, claim: PersistentVolumeClaim) -> str:
    """Return the change after which a claim is usable by the pod; empty if it is."""
    if claim.metadata.deletion_timestamp:
        return f"wait until the claim {claim.key} is deleted, and create it again"
    if is_bound(claim) and claim.status.phase != "Lost":
        return ""
    if not claim.spec.volume_name:
        return _missing_class(objects, claim) or (
            f"bind the claim {claim.key}: it requests {_request_of(claim)}, and needs such a "
            "PersistentVolume or a provisioner that creates one"
        )
    named = objects.get(PersistentVolume, claim.spec.volume_name)
    if named is None or claim.status.phase == "Lost":
        return missing_volume_remedy(claim)
    problems = " and ".join(_problems(named, claim))
    if problems:
        return (
            f"recreate the claim {claim.key} with another volume: its volume "
            f"{named.metadata.name} {problems}"
        )
    return f"bind the claim {claim.key} to its volume {named.metadata.name}"


def _missing_class(objects: ObjectTable, claim: PersistentVolumeClaim) -> str:
    """Return the claim's class to create; empty if it exists or none is named."""
    name = storage_class_name(claim)
    if not name or claim.spec.volume_name or objects.get(StorageClass, name) is not None:
        return ""
    known = sorted(one.metadata.name for one in objects.all(StorageClass))
    similar = difflib.get_close_matches(name, known, n=1)
    known_classes = f" (there are: {', '.join(known[:5])})" if known else ""
    hint = f" (did you mean {similar[0]}?)" if similar else known_classes
    return (
        f"create the StorageClass {name}, which claim {claim.key} names{hint}, or a "
        f"PersistentVolume of that class with {_request_of(claim)}"
    )


def _why_none(view: Snapshot, claim: PersistentVolumeClaim, outcome: VolumeOutcome) -> str:
    """Return why an unbound claim gets no volume on the only row, as the end of a sentence."""
    row, node = int(view.names[0][0]), view.node_names[0]
    selected = claim.metadata.annotations.get(SELECTED_NODE)
    if selected is not None and selected != node:
        return f"; its volume is being provisioned for {selected}"
    reserved = _reserved_for(view.objects, claim)
    if reserved is not None:
        return "".join(f"; {text}" for text in _elsewhere(view, claim.metadata.name, reserved))
    name = storage_class_name(claim)
    storage_class = view.objects.get(StorageClass, name)
    if storage_class is not None and storage_class.provisioner not in ("", NO_PROVISIONER):
        if _provisions_here(view, storage_class):
            return f"; {storage_class.provisioner} reports too little storage there"
        topology = " or ".join(
            " and ".join(map(_requirement, term.as_node_requirements()))
            for term in storage_class.allowed_topologies
        )
        return f"; StorageClass {name} provisions volumes only {topology}"
    taken = {
        outcome.matches.volumes[match.choice[row]].metadata.name: match.claim.metadata.name
        for match in outcome.matches.matches
        if match.choice[row] >= 0
    }
    likely = heapq.nsmallest(
        COMPARED,
        (
            (_problems(volume, claim), volume.metadata.name, volume)
            for volume in view.objects.all(PersistentVolume)
            if storage_class_name(volume) == name
        ),
        key=lambda each: (len(each[0]), each[1]),
    )
    for problems, volume_name, volume in likely:
        if volume_name in taken:
            problems.append(f"is needed for claim {taken[volume_name]}")
        if topology := _topology_elsewhere(view, volume):
            problems.append(f"is {topology}")
    if not likely:
        return "; there is no volume of that class" if name else "; there is no volume without one"
    problems, nearest, _ = min(likely, key=lambda each: (len(each[0]), each[1]))
    return f"; volume {nearest} {' and '.join(problems)}" if problems else ""


def _problems(volume: PersistentVolume, claim: PersistentVolumeClaim) -> list[str]:
    """Return why a claim cannot be bound to a volume on any node, as predicates."""
    problems = []
    reference, spec = volume.spec.claim_ref, volume.spec
    if volume.metadata.deletion_timestamp is not None:
        problems.append("is being deleted")
    if reference is not None and not is_meant_for(volume, claim):
        problems.append(f"belongs to claim {reference.namespace}/{reference.name}")
    elif reference is None and volume.status.phase not in ("", "Available"):
        problems.append(f"is in phase {volume.status.phase}")
    if storage_class_name(volume) != storage_class_name(claim):
        named = storage_class_name(volume)
        problems.append(f"has StorageClass {named}" if named else "has no StorageClass")
    if capacity(volume) < requested(claim):
        problems.append(f"has {capacity(volume)}")
    if not set(claim.spec.access_modes) <= set(spec.access_modes):
        problems.append(f"has access modes {'+'.join(spec.access_modes) or 'none'}")
    if (spec.volume_mode or FILESYSTEM) != (claim.spec.volume_mode or FILESYSTEM):
        problems.append(f"has volume mode {spec.volume_mode or FILESYSTEM}")
    selector = claim.spec.selector
    if selector is not None and not matches(selector, volume.metadata.labels):
        problems.append("does not have the labels that the claim selects")
    return problems


def _reserved_for(objects: ObjectTable, claim: PersistentVolumeClaim) -> PersistentVolume | None:
    """Return the volume that is large enough and pre-bound to the claim, which gets no other."""
    return next(
        (
            volume
            for volume in objects.all(PersistentVolume)
            if is_meant_for(volume, claim) and is_large_enough(volume, claim)
        ),
        None,
    )


def _missing_topology(view: Snapshot, claim: PersistentVolumeClaim) -> str:
    """Return the labels of the only row that the claim's class must provision for as well.

    Empty if it does already, provisions nothing, or the node lacks such labels.
    """
    storage_class = view.objects.get(StorageClass, storage_class_name(claim))
    if storage_class is None or storage_class.provisioner in ("", NO_PROVISIONER):
        return ""
    if _provisions_here(view, storage_class):
        return ""
    labels = view.node_labels(int(view.row_numbers[0]))
    for term in storage_class.allowed_topologies:
        keys = [one.key for one in term.match_label_expressions]
        if all(key in labels for key in keys):
            return ",".join(f"{key}={labels[key]}" for key in keys)
    return ""


def _provisions_here(view: Snapshot, storage_class: StorageClass) -> bool:
    """Return whether a class provisions volumes for the only row."""
    terms = storage_class.allowed_topologies
    selector = NodeSelector(
        node_selector_terms=tuple(
            NodeSelectorTerm(match_expressions=term.as_node_requirements()) for term in terms
        )
    )
    return not terms or bool(matches_selector(view, selector)[0])


def _elsewhere(view: Snapshot, claim: str, volume: PersistentVolume) -> Iterator[str]:
    """Yield the topology of a volume and of the only row, if they differ."""
    required = volume.spec.node_affinity.required if volume.spec.node_affinity else None
    volume_topology = _topology_elsewhere(view, volume)
    if required is None or not volume_topology:
        return
    keys = dict.fromkeys(e.key for t in required.node_selector_terms for e in t.match_expressions)
    labels = view.node_labels(int(view.row_numbers[0]))
    node_places = [f"in {place(k, (labels[k],))}" for k in keys if k in labels]
    node_places += [f"without label {key}" for key in keys if key not in labels]
    node = view.node_names[0]
    beside = (
        f"; {node} is {' and '.join(node_places)}"
        if node_places and list(keys) != [HOSTNAME]
        else ""
    )
    yield f"claim {claim}'s volume {volume.metadata.name} is {volume_topology}{beside}"


def _topology_elsewhere(view: Snapshot, volume: PersistentVolume) -> str:
    """Return where a volume is usable if that is not on the only row; empty if it is."""
    required = volume.spec.node_affinity.required if volume.spec.node_affinity else None
    if required is None or matches_selector(view, required)[0]:
        return ""
    return " or ".join(
        " and ".join(map(_requirement, (*term.match_expressions, *term.match_fields)))
        for term in required.node_selector_terms
    )


def _requirement(one: NodeSelectorRequirement) -> str:
    if one.operator != "In":
        return f"where {one.key} {one.operator} {', '.join(one.values)}".rstrip()
    word = "on" if one.key == HOSTNAME else "in"
    return f"{word} {place(one.key, one.values)}"


def _claims(objects: ObjectTable, pod: PodClass) -> Iterator[PersistentVolumeClaim]:
    """Yield the claims of a pod that exist, each once."""
    names = dict.fromkeys(claim_name(pod.name, volume) for volume in pod.spec.volumes)
    for name in names:
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
