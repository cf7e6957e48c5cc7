"""Transformations of pods by annotations and labels.

Each is behind the feature gate of its name.

Source: koordinator pkg/util/transformer/pod_transformer.go; apis/extension/priority.go,
``GetPodPriorityValueWithDefault``; apis/extension/resource.go, ``GetPodReplaceResourcesConfig``.
"""

from msgspec.structs import replace

from koordinator.api.annotations.pod_qos import REPLACE_RESOURCES
from koordinator.api.core import ResourceList, ResourceRequirements
from koordinator.api.pod import Container, Pod
from koordinator.api.qos import priority_of
from koordinator.foundation.quantity import Quantity


def with_priority(pod: Pod) -> Pod:
    """Return the pod with the priority of its Koordinator class if it has none or 0."""
    priority = priority_of(pod)
    if pod.spec.priority == priority:
        return pod
    return replace(pod, spec=replace(pod.spec, priority=priority))


def replaced_resources(pod: Pod) -> Pod:
    """Return the pod with resources renamed (``a:b``) and removed (``a:``) by its annotation.

    Removals are applied first.  A resource is not renamed to one that is requested already; CPU is
    converted to milli.  Malformed parts of the annotation are ignored, and the last of several new
    names wins.
    """
    text = pod.metadata.annotations.get(REPLACE_RESOURCES, "")
    pairs = [part.split(":") for part in text.split(",")]
    stated = [(pair[0].strip(), pair[1].strip()) for pair in pairs if len(pair) == 2]  # noqa: PLR2004 -- from and to
    removed = [(old, "") for old, new in stated if old and not new]
    changes = [*removed, *{old: new for old, new in stated if old and new}.items()]
    if not changes:
        return pod
    spec = pod.spec
    return replace(
        pod,
        spec=replace(
            spec,
            containers=_all(spec.containers, changes),
            init_containers=_all(spec.init_containers, changes),
            overhead=_changed(spec.overhead, changes),
        ),
    )


def _all(
    containers: tuple[Container, ...], changes: list[tuple[str, str]]
) -> tuple[Container, ...]:
    return tuple(
        [
            replace(
                it,
                resources=ResourceRequirements(
                    requests=_changed(it.resources.requests, changes),
                    limits=_changed(it.resources.limits, changes),
                    claims=it.resources.claims,
                ),
            )
            for it in containers
        ]
    )


def _changed(amounts: ResourceList, changes: list[tuple[str, str]]) -> ResourceList:
    left = dict(amounts)
    for old, new in changes:
        if not new:
            left.pop(old, None)
        elif old in left and new not in left:
            quantity = left.pop(old)
            left[new] = Quantity.from_int(quantity.milli()) if old == "cpu" else quantity
    return left
