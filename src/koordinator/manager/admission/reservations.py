"""Colocation profiles on the pod template of a reservation: by its labels, without translation.

Source: koordinator pkg/webhook/reservation/mutating/cluster_colocation_profile.go.
"""

from collections.abc import Set as AbstractSet

from koordinator.api.meta import JsonObject
from koordinator.foundation.faults import FaultHandler, raise_fault
from koordinator.manager.admission.gates import ManagerFeature
from koordinator.manager.admission.lookup import Lookup
from koordinator.manager.admission.profiles import applied, made_with, match_profiles
from koordinator.manager.admission.request import AdmissionOperation, AdmissionRequest


def mutate_reservation(
    request: AdmissionRequest,
    lookup: Lookup,
    gates: AbstractSet[ManagerFeature],  # noqa: ARG001 -- the signature of a hook
    on_fault: FaultHandler = raise_fault,
) -> JsonObject:
    """Return the reservation with the profiles of its template applied.

    A profile that breaks is told to ``on_fault`` and left out.  Raises Denial.
    """
    spec = request.obj.get("spec") or {}
    template = spec.get("template")
    if request.operation != AdmissionOperation.CREATE or not template:
        return request.obj
    labels = (template.get("metadata") or {}).get("labels") or {}
    matched = match_profiles(labels, None, lookup, on_fault)
    changed = made_with(matched, lambda some: applied(template, some.profiles, lookup), on_fault)
    if changed == template:
        return request.obj
    return {**request.obj, "spec": {**spec, "template": changed}}
