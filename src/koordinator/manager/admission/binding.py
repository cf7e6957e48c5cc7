"""Validation of pod bindings by user name; off by default.

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
    """Reason why a binding is allowed or denied; the values are labels of the original's metric."""

    USER = "allowed_username"
    EXCLUDED = "excluded_ns"
    OUT_OF_SCOPE = "out_of_scope"
    LABEL = "bypass_label"
    ANNOTATION = "bypass_annotation"
    DRY_RUN = "dry_run"
    DENIED = "denied"


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingRules:
    """The flags ``--binding-admission-…``; without user names, every binding is allowed."""

    user_names: tuple[str, ...] = ()  # substrings of user names
    dry_run: bool = False
    namespaces: tuple[str, ...] = ()  # empty: no namespace is checked
    excluded_namespaces: tuple[str, ...] = ("kube-system",)
    bypass_labels: tuple[str, ...] = (BINDING_ADMISSION_BYPASS,)
    bypass_annotations: tuple[str, ...] = ()


def validate_binding(
    request: AdmissionRequest,
    lookup: Lookup,
    rules: BindingRules,
    decided: Callable[[str], object],
) -> None:
    """Raise Denial if the user may not bind this pod; call ``decided`` with the reason.

    ``decided`` is not called for requests that the rules do not cover.
    """
    decision = _decision(request, lookup, rules)
    if decision is not None:
        decided(decision)
    if decision is BindingDecision.DENIED:
        raise Denial("binding denied: username is not in the allowed list", _FORBIDDEN)


def _decision(
    request: AdmissionRequest, lookup: Lookup, rules: BindingRules
) -> BindingDecision | None:
    """Return the decision on a request; None if the rules do not cover it or the pod is unknown."""
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
    """Return the reason for which any pod may be bound; None if that depends on the pod."""
    if any(name in request.user for name in rules.user_names):
        return BindingDecision.USER
    if request.namespace in rules.excluded_namespaces:
        return BindingDecision.EXCLUDED
    if rules.namespaces and not {_EVERYWHERE, request.namespace} & {*rules.namespaces}:
        return BindingDecision.OUT_OF_SCOPE
    return None
