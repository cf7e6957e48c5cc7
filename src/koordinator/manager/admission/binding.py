"""Who may bind pods; off unless asked for.

Source: koordinator pkg/webhook/pod/validating/binding_admission.go.
"""

from dataclasses import dataclass

from koordinator.api.labels import BINDING_ADMISSION_BYPASS
from koordinator.manager.admission.lookup import Lookup
from koordinator.manager.admission.request import AdmissionOperation, AdmissionRequest, Denial

_EVERYWHERE = "*"
_FORBIDDEN = 403


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingRules:
    """The flags ``--binding-admission-…``; no user names: nobody is checked."""

    user_names: tuple[str, ...] = ()  # parts of names
    dry_run: bool = False
    namespaces: tuple[str, ...] = ()  # none: nowhere
    excluded_namespaces: tuple[str, ...] = ("kube-system",)
    bypass_labels: tuple[str, ...] = (BINDING_ADMISSION_BYPASS,)
    bypass_annotations: tuple[str, ...] = ()


def validate_binding(request: AdmissionRequest, lookup: Lookup, rules: BindingRules) -> None:
    """Raise Denial if the user may not bind this pod; a pod that can't be read may be bound."""
    if request.operation != AdmissionOperation.CREATE or not rules.user_names:
        return
    if any(name in request.user for name in rules.user_names):
        return
    if request.namespace in rules.excluded_namespaces or not (
        _EVERYWHERE in rules.namespaces or request.namespace in rules.namespaces
    ):
        return
    pod = lookup.pod(request.namespace, request.name)
    if (
        pod is None
        or any(key in pod.metadata.labels for key in rules.bypass_labels)
        or any(key in pod.metadata.annotations for key in rules.bypass_annotations)
        or rules.dry_run
    ):
        return
    raise Denial("binding denied: username is not in the allowed list", _FORBIDDEN)
