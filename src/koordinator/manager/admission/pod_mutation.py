"""Mutation of pods by the webhook: profiles, quota tree, translated resources.

Source: koordinator pkg/webhook/pod/mutating/multi_quota_tree_affinity.go; koordinator
pkg/webhook/pod/mutating/cluster_colocation_profile.go, ``mutatePodResourceSpec``;
extended_resource_spec.go; device_resource_spec.go; koordinator
pkg/webhook/pod/mutating/mutating_handler.go.
"""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from koordinator.api.annotations.pod_qos import (
    EXTENDED_RESOURCE_SPEC,
    ExtendedContainerResources,
    ExtendedResourceSpec,
)
from koordinator.api.codec import decode
from koordinator.api.core import ResourceList
from koordinator.api.labels import QUOTA_NAME, QUOTA_TREE_ID
from koordinator.api.meta import JsonObject, LabelSelector, ObjectMeta
from koordinator.api.pod import Pod, PodSpec
from koordinator.api.qos import PriorityBand, band_of
from koordinator.api.resource_names import (
    BAND_RESOURCES,
    BATCH_CPU,
    BATCH_MEMORY,
    CPU,
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    NPU_CORE,
    WHOLE_DEVICE,
)
from koordinator.domain.amounts import canonical_amounts
from koordinator.domain.pod_requests import pod_requests
from koordinator.foundation.errors import FaultHandler, InputError, fault_of, raise_fault
from koordinator.foundation.quantity import Quantity
from koordinator.manager.admission.gates import ManagerFeature
from koordinator.manager.admission.lookup import (
    AdmissionOperation,
    AdmissionRequest,
    Denial,
    Lookup,
)
from koordinator.manager.admission.profiles import (
    STAGE,
    MatchedProfiles,
    applied,
    made_with,
    match_profiles,
)
from koordinator.manager.admission.tenancy import without_scheduler_keys

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"

_BATCH = (BATCH_CPU, BATCH_MEMORY)
_GPU = (GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, GPU_SHARED)
_LISTS = ("requests", "limits")
_CONTAINERS = ("initContainers", "containers")


def with_tree_affinity(
    pod: JsonObject, namespace: str, lookup: Lookup, on_fault: FaultHandler = raise_fault
) -> JsonObject:
    """Return the pod with the node selector of its tree's profile in every required term.

    An empty term, which matches no node, stays empty.  A profile that raises an unexpected error is
    skipped and reported to ``on_fault``.
    """
    meta = pod.get("metadata") or {}
    name = (meta.get("labels") or {}).get(QUOTA_NAME) or namespace
    quota = lookup.quotas().get(name)
    if quota is None:
        bound = lookup.quotas().bound_to(namespace) if name == namespace else []
        quota = lookup.quotas().get(bound[0]) if bound else None
    if quota is None or not quota.tree_id:
        return pod
    requirements = _requirements_of(quota.tree_id, lookup, on_fault)
    if not requirements:  # no profile, or all nodes
        return pod
    spec = pod.get("spec") or {}
    affinity = spec.get("affinity") or {}
    node_affinity = affinity.get("nodeAffinity") or {}
    terms = (node_affinity.get(_REQUIRED) or {}).get("nodeSelectorTerms") or ()
    extended = [
        {**term, "matchExpressions": [*(term.get("matchExpressions") or ()), *requirements]}
        if any(term.values())
        else term
        for term in terms
    ] or [{"matchExpressions": requirements}]
    required = {_REQUIRED: {"nodeSelectorTerms": extended}}
    changed = {**affinity, "nodeAffinity": {**node_affinity, **required}}
    return {**pod, "spec": {**spec, "affinity": changed}}


def _requirements_of(
    tree: str, lookup: Lookup, on_fault: FaultHandler
) -> list[dict[str, Any]] | None:
    """Return the node requirements of the first profile of a tree; None if there is no profile."""
    for profile in sorted(lookup.quota_profiles(), key=lambda each: each.key):
        try:
            if profile.metadata.labels.get(QUOTA_TREE_ID) == tree:
                return _requirements(profile.spec.node_selector)
        except Exception as error:  # noqa: BLE001 -- reported to on_fault
            on_fault(fault_of(STAGE, error, about=f"{profile.KIND} {profile.key}"))
    return None


def _requirements(selector: LabelSelector) -> list[dict[str, Any]]:
    labels = sorted(selector.match_labels.items())
    requirements: list[dict[str, Any]] = [
        {"key": key, "operator": "In", "values": [value]} for key, value in labels
    ]
    for each in selector.match_expressions:
        requirement: dict[str, Any] = {"key": each.key, "operator": each.operator}
        if each.values:
            requirement["values"] = list(each.values)
        requirements.append(requirement)
    return requirements


Resources = dict[str, Any]


def translated(pod: JsonObject, band: PriorityBand) -> JsonObject:
    """Return the pod with the resources of the priority band in place of CPU and memory.

    Bands other than batch and mid are returned unchanged.  The overhead is left as it is: the API
    server rejects a pod whose overhead differs from that of its RuntimeClass.  Pod-level requests
    of CPU and memory that are the sum of the containers are dropped; API servers before Kubernetes
    1.37 derive them before they call webhooks.
    Raises InputError for bad amounts.
    Source: kubernetes plugin/pkg/admission/runtimeclass/admission.go ``validateOverhead``.
    """
    names = BAND_RESOURCES.get(band)
    if names is None:
        return pod
    spec = dict(pod.get("spec") or {})
    if spec.get("resources"):
        spec = _without_sums(spec, names)
    for part in _CONTAINERS:
        if part in spec:
            spec[part] = _each(spec[part], lambda resources: _renamed(resources, names))
    return {**pod, "spec": spec}


def _without_sums(spec: JsonObject, names: Mapping[str, str]) -> JsonObject:
    """Return the spec without pod-level requests that are unlimited sums of the containers."""
    rest = {key: value for key, value in spec.items() if key != "resources"}
    whole = dict(spec["resources"])
    sums = pod_requests(decode(rest, PodSpec), overhead=False)
    limits = whole.get("limits") or {}
    stated = {name: Quantity.parse(text) for name, text in (whole.get("requests") or {}).items()}
    derived = {
        name
        for name, amount in canonical_amounts(stated).items()
        if name in names and name not in limits and amount == sums.get(name)
    }
    if not derived:
        return spec
    kept = {name: text for name, text in whole.pop("requests").items() if name not in derived}
    if kept:
        whole["requests"] = kept
    return {**rest, "resources": whole} if whole else rest


def with_extended_spec(pod: JsonObject) -> JsonObject:
    """Return the pod with an annotation that lists the batch resources of all its containers.

    The runtime hooks on the node see only annotations.  Init containers, such as sidecars, are
    included; the original omits them.  Raises InputError for an annotation that can't be parsed.
    """
    meta = pod.get("metadata") or {}
    annotations = meta.get("annotations") or {}
    containers = {}
    spec = pod.get("spec") or {}
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        resources = container.get("resources") or {}
        listed = ExtendedContainerResources(
            requests=_only(resources.get("requests"), _BATCH),
            limits=_only(resources.get("limits"), _BATCH),
        )
        if listed.requests or listed.limits:
            containers[container.get("name", "")] = listed
    wanted = ExtendedResourceSpec(containers=containers)
    known = EXTENDED_RESOURCE_SPEC.read(ObjectMeta(annotations=annotations))
    if wanted == (known or ExtendedResourceSpec()):
        return pod
    entry = EXTENDED_RESOURCE_SPEC.entry(wanted)
    return {**pod, "metadata": {**meta, "annotations": {**annotations, **entry}}}


def with_device_spec(pod: JsonObject) -> JsonObject:
    """Return the pod with GPU requests expanded to core, memory ratio and number of cards."""
    spec = pod.get("spec") or {}
    parts = {part: spec[part] for part in _CONTAINERS if spec.get(part)}
    expanded = {part: _each(containers, _expanded_gpus) for part, containers in parts.items()}
    return pod if expanded == parts else {**pod, "spec": {**spec, **expanded}}


def _each(containers: list[Any], change: Callable[[Resources], Resources]) -> list[Any]:
    changed = []
    for container in containers:
        resources = container.get("resources")
        new = change(resources) if resources else resources
        changed.append(container if new == resources else {**container, "resources": new})
    return changed


def _renamed(resources: Resources, names: Mapping[str, str]) -> Resources:
    renamed = dict(resources)
    for part in _LISTS:
        if renamed.get(part):
            renamed[part] = _renamed_list(renamed[part], names)
    limits = renamed.get("limits") or {}
    requests = dict(renamed.get("requests") or {})
    missing = {name: limits[name] for name in names.values() if name in limits}
    if missing.keys() - requests.keys():
        renamed["requests"] = {**missing, **requests}
    return renamed


def _renamed_list(amounts: Resources, names: Mapping[str, str]) -> Resources:
    renamed = {key: amount for key, amount in amounts.items() if key not in names}
    for key, name in names.items():
        if key in amounts:
            amount = amounts[key]
            renamed[name] = str(Quantity.parse(amount).milli()) if key == CPU else amount
    return renamed


def _only(amounts: Resources | None, names: tuple[str, ...]) -> ResourceList:
    kept = {name: amounts[name] for name in names if name in amounts} if amounts else {}
    return decode({"found": kept}, dict[str, ResourceList])["found"]


def _expanded_gpus(resources: Resources) -> Resources:
    requests, limits = dict(resources.get("requests") or {}), dict(resources.get("limits") or {})
    if not any(name in requests or name in limits for name in _GPU):
        return resources
    if GPU in requests:
        amount = str(Quantity.parse(requests.pop(GPU)).value())
        limits.pop(GPU, None)
        for amounts in (requests, limits):
            amounts |= {GPU_CORE: amount, GPU_MEMORY_RATIO: amount}
    if GPU_SHARED not in requests and NPU_CORE not in requests:
        shared = str(_shared(requests))
        requests[GPU_SHARED] = limits[GPU_SHARED] = shared
    return {**resources, "requests": requests, "limits": limits}


def _shared(requests: Resources) -> int:
    for name in (GPU_MEMORY_RATIO, GPU_CORE):
        if name in requests:
            percent = Quantity.parse(requests[name]).value()
            is_whole = percent > WHOLE_DEVICE and percent % WHOLE_DEVICE == 0
            return percent // WHOLE_DEVICE if is_whole else 1
    return 1


def mutate_pod(
    request: AdmissionRequest,
    lookup: Lookup,
    gates: AbstractSet[ManagerFeature],
    on_fault: FaultHandler = raise_fault,
) -> JsonObject:
    """Return the pod to be created; updates are returned unchanged.

    Annotations and labels that only the scheduler may write are removed.  A profile that raises
    an unexpected error is skipped and reported to ``on_fault``.
    Raises Denial if the pod can't be decoded, or a profile can't be applied.
    """
    pod = request.obj
    if request.operation != AdmissionOperation.CREATE or request.subresource:
        return pod

    def made(matched: MatchedProfiles) -> JsonObject:
        return _made(pod, matched, request.namespace, lookup, gates, on_fault)

    try:
        decode(pod, Pod)
        if not request.is_of_component:
            pod = without_scheduler_keys(pod)
        meta = pod.get("metadata") or {}
        matched = match_profiles(meta.get("labels") or {}, request.namespace, lookup, on_fault)
        return made_with(matched, made, on_fault)
    except InputError as error:
        raise Denial(str(error)) from None


def _made(  # noqa: PLR0917 -- the request and the sources of the mutation
    pod: JsonObject,
    matched: MatchedProfiles,
    namespace: str,
    lookup: Lookup,
    gates: AbstractSet[ManagerFeature],
    on_fault: FaultHandler,
) -> JsonObject:
    pod = applied(pod, matched.profiles, lookup)
    if matched.translates and ManagerFeature.SKIP_RESOURCES not in gates:
        pod = translated(pod, band_of(decode(pod, Pod)))
    if ManagerFeature.NO_EXTENDED_SPEC not in gates:
        pod = with_extended_spec(pod)
    if ManagerFeature.MULTI_QUOTA_TREE in gates:
        pod = with_tree_affinity(pod, namespace, lookup, on_fault)
    if ManagerFeature.NO_DEVICE_SPEC not in gates:
        pod = with_device_spec(pod)
    return pod
