"""Colocation profiles on the pod template of a reservation: by its labels, without translation.

Source: koordinator pkg/webhook/reservation/mutating/cluster_colocation_profile.go.
"""

from collections.abc import Set as AbstractSet

from koordinator.api.meta import JsonObject
from koordinator.manager.admission.gates import Gate
from koordinator.manager.admission.lookup import Lookup
from koordinator.manager.admission.profiles import applied, match_profiles
from koordinator.manager.admission.request import AdmissionRequest, Operation


def mutate_reservation(
    request: AdmissionRequest,
    lookup: Lookup,
    gates: AbstractSet[Gate],  # noqa: ARG001 -- the signature of a hook
) -> JsonObject:
    """Return the reservation with the profiles of its template applied.  Raises Denial."""
    spec = request.obj.get("spec") or {}
    template = spec.get("template")
    if request.operation != Operation.CREATE or not template:
        return request.obj
    labels = (template.get("metadata") or {}).get("labels") or {}
    matched = match_profiles(labels, None, lookup)
    changed = applied(template, matched.profiles, lookup)
    if changed == template:
        return request.obj
    return {**request.obj, "spec": {**spec, "template": changed}}
