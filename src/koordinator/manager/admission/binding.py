"""Who may bind pods; off unless asked for.

Source: koordinator pkg/webhook/pod/validating/binding_admission.go.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from koordinator.api.labels import BINDING_ADMISSION_BYPASS
from koordinator.manager.admission.lookup import Lookup
from koordinator.manager.admission.request import AdmissionOperation, AdmissionRequest, Denial

_EVERYWHERE = "*"
_FORBIDDEN = 403


class BindingDecision(StrEnum):
    """Why a binding is let through, or not; the words of the original's metric."""

    USER = "allowed_username"
    EXCLUDED = "excluded_ns"
    OUT_OF_SCOPE = "out_of_scope"
    LABEL = "bypass_label"
    ANNOTATION = "bypass_annotation"
    DRY_RUN = "dry_run"
    DENIED = "denied"


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingRules:
    """The flags ``--binding-admission-…``; no user names: nobody is checked."""

    user_names: tuple[str, ...] = ()  # parts of names
    dry_run: bool = False
    namespaces: tuple[str, ...] = ()  # none: nowhere
    excluded_namespaces: tuple[str, ...] = ("kube-system",)
    bypass_labels: tuple[str, ...] = (BINDING_ADMISSION_BYPASS,)
    bypass_annotations: tuple[str, ...] = ()


def validate_binding(
    request: AdmissionRequest,
    lookup: Lookup,
    rules: BindingRules,
    decided: Callable[[str], object],
) -> None:
    """Raise Denial if the user may not bind this pod; ``decided`` is told why it may or not.

    It is told nothing where nothing had to be decided.
    """
    decision = _decision(request, lookup, rules)
    if decision is not None:
        decided(decision)
    if decision is BindingDecision.DENIED:
        raise Denial("binding denied: username is not in the allowed list", _FORBIDDEN)


def _decision(
    request: AdmissionRequest, lookup: Lookup, rules: BindingRules
) -> BindingDecision | None:
    """Return what holds for a request; a pod that can't be read may be bound."""
    if request.operation != AdmissionOperation.CREATE or not rules.user_names:
        return None
    by_user_and_place = _by_user_and_place(request, rules)
    if by_user_and_place is not None:
        return by_user_and_place
    pod = lookup.pod(request.namespace, request.name)
    if pod is None or not rules.namespaces:
        return None
    if any(key in pod.metadata.labels for key in rules.bypass_labels):
        return BindingDecision.LABEL
    if any(key in pod.metadata.annotations for key in rules.bypass_annotations):
        return BindingDecision.ANNOTATION
    return BindingDecision.DRY_RUN if rules.dry_run else BindingDecision.DENIED


def _by_user_and_place(request: AdmissionRequest, rules: BindingRules) -> BindingDecision | None:
    """Return why it may be bound whatever it is; None: that depends on the pod."""
    if any(name in request.user for name in rules.user_names):
        return BindingDecision.USER
    if request.namespace in rules.excluded_namespaces:
        return BindingDecision.EXCLUDED
    if rules.namespaces and not {_EVERYWHERE, request.namespace} & {*rules.namespaces}:
        return BindingDecision.OUT_OF_SCOPE
    return None
