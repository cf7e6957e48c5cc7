"""Mutation of pods on creation: profiles, resource translation, quota tree affinity, devices.

Source: koordinator pkg/webhook/pod/mutating/mutating_handler.go.
"""

from collections.abc import Set as AbstractSet

from koordinator.api.codec import decode
from koordinator.api.meta import JsonObject
from koordinator.api.pod import Pod
from koordinator.api.qos import band_of
from koordinator.foundation.errors import InputError
from koordinator.foundation.faults import FaultHandler, raise_fault
from koordinator.manager.admission.gates import ManagerFeature
from koordinator.manager.admission.lookup import Lookup
from koordinator.manager.admission.profiles import (
    MatchedProfiles,
    applied,
    made_with,
    match_profiles,
)
from koordinator.manager.admission.quota_tree import with_tree_affinity
from koordinator.manager.admission.request import AdmissionOperation, AdmissionRequest, Denial
from koordinator.manager.admission.scheduler_keys import without_scheduler_keys
from koordinator.manager.admission.translation import (
    translated,
    with_device_spec,
    with_extended_spec,
)


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
