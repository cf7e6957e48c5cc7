"""What would have to be created for the claims of a pod to be there and to be served."""

import difflib
from collections.abc import Iterator

from koordinator.api.dynamic_resources import DeviceClass, ResourceClaim
from koordinator.domain.dynamic_resources.allocation import claim_names
from koordinator.domain.dynamic_resources.missing_claims import template_to_create
from koordinator.scheduler.snapshot import ObjectTable, PodClass

_SHOWN = 5  # names that are there


def objects_to_create(objects: ObjectTable, pod: PodClass) -> str:
    """Return which claims, templates and classes the pod needs that do not exist; empty: none."""
    steps = [
        *_missing_claims(objects, pod),
        *_missing_classes(objects, pod),
    ]
    return " and ".join(dict.fromkeys(steps))


def _missing_claims(objects: ObjectTable, pod: PodClass) -> Iterator[str]:
    for entry, name in claim_names(pod.spec.resource_claims, pod.claims_made):
        if name is not None and objects.get(ResourceClaim, f"{pod.namespace}/{name}") is None:
            known = [one.metadata for one in objects.all(ResourceClaim)]
            inside = [meta.name for meta in known if meta.namespace == pod.namespace]
            outside = [meta.namespace for meta in known if meta.name == name]
            hint = _hint(name, inside, outside)
            yield f"create the ResourceClaim {pod.namespace}/{name}{hint}"
        template = entry.resource_claim_template_name
        if name is None and template is not None:
            yield template_to_create(pod.namespace, template)


def _missing_classes(objects: ObjectTable, pod: PodClass) -> Iterator[str]:
    for _, name in claim_names(pod.spec.resource_claims, pod.claims_made):
        claim = objects.get(ResourceClaim, f"{pod.namespace}/{name}") if name else None
        if claim is None or claim.status.allocation is not None:
            continue
        for request in claim.spec.devices.requests:
            parts = (request.exactly, *request.first_available)
            for part in parts:
                if part is None or objects.get(DeviceClass, part.device_class_name) is not None:
                    continue
                known = [one.metadata.name for one in objects.all(DeviceClass)]
                hint = _hint(part.device_class_name, known, ())
                yield f"create the DeviceClass {part.device_class_name}{hint}"


def _hint(name: str, known: list[str], namespaces: tuple[str, ...] | list[str]) -> str:
    """Return what there is instead: a name like it, other names, or the name elsewhere."""
    meant = difflib.get_close_matches(name, known, n=1)
    if meant:
        return f" (did you mean {meant[0]}?)"
    if namespaces:
        return f" (there is one of this name in namespace {', '.join(sorted(namespaces)[:_SHOWN])})"
    return f" (there are {', '.join(sorted(known)[:_SHOWN])})" if known else ""
