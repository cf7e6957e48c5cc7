"""Admission hooks (path, name, objects, feature gate), and the webhook configurations with them.

An annotation of a configuration has its template: all hooks, including disabled ones, so that they
can be enabled later.  The chart sets it; if it is missing, as with the original's chart, the
installed webhooks become the template.  An installed webhook without CA bundle means that the
configuration was reinstalled, so the template is replaced.

Source: koordinator config/webhook/manifests.yaml; pkg/webhook;
pkg/webhook/util/configuration/configuration.go.
"""

from base64 import b64encode
from collections.abc import Callable, Collection, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import field, replace
from functools import partial
from typing import Any, Final

import msgspec

from koordinator.api.codec import decode
from koordinator.api.control_plane import (
    MutatingWebhookConfiguration,
    ValidatingWebhookConfiguration,
)
from koordinator.api.core import ConfigMap
from koordinator.api.labels import CONFIG_MAP_TYPE, POD_MUTATING_UPDATE
from koordinator.api.meta import JsonObject
from koordinator.api.slo_config import CONFIG_NAME, CONFIG_NAMESPACE, CONFIG_TYPE
from koordinator.foundation.decoders import decode_json
from koordinator.foundation.errors import FaultHandler, InputError, raise_fault
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.manager.admission.gates import BindingRules, ManagerFeature, validate_binding
from koordinator.manager.admission.lookup import (
    AdmissionOperation,
    AdmissionRequest,
    Denial,
    Lookup,
)
from koordinator.manager.admission.metadata import CONFIG_NAME as VALIDATOR_NAME
from koordinator.manager.admission.metadata import mutate_node_status, validate_node
from koordinator.manager.admission.pod_mutation import mutate_pod
from koordinator.manager.admission.pod_validation import RESIZE, VALIDATOR_NAMESPACE, validate_pod
from koordinator.manager.admission.profiles import mutate_reservation
from koordinator.manager.admission.quotas import mutate_quota, validate_quota
from koordinator.manager.configuration.checks import check_config

MUTATING_NAME: Final = "koordinator-mutating-webhook-configuration"
VALIDATING_NAME: Final = "koordinator-validating-webhook-configuration"
_TEMPLATE: Final = "template"

Configuration = MutatingWebhookConfiguration | ValidatingWebhookConfiguration
_Entries = list[dict[str, Any]]

QUOTA_PATH: Final = "scheduling-sigs-k8s-io-v1alpha1-elasticquota"


def validate_config_map(
    request: AdmissionRequest,
    lookup: Lookup,
    gates: AbstractSet[ManagerFeature],  # noqa: ARG001 -- the signature of a hook
    config: tuple[str, str] = ("koordinator-system", "slo-controller-config"),
    *,
    needs_names: bool = False,
) -> None:
    """Raise Denial if a changed section of slo-controller-config is invalid.

    Other ConfigMaps are not checked.
    """
    if (
        request.operation == AdmissionOperation.DELETE
        or (request.namespace, request.name) != config
    ):
        return
    try:
        new = decode(request.obj, ConfigMap)
        old = decode(request.old, ConfigMap) if request.old is not None else None
        check_config(new, old, lookup.nodes(), needs_names=needs_names)
    except InputError as error:
        raise Denial(str(error)) from None


Mutating = Callable[[AdmissionRequest, Lookup], JsonObject]
Validating = Callable[[AdmissionRequest, Lookup], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class HookOptions:
    """Command-line options of admission."""

    gates: AbstractSet[ManagerFeature]
    config: tuple[str, str] = (CONFIG_NAMESPACE, CONFIG_NAME)  # namespace and name
    needs_names: bool = False
    binding: BindingRules = field(default_factory=BindingRules)
    validator: tuple[str, str] = (VALIDATOR_NAMESPACE, VALIDATOR_NAME)  # namespace and name
    binding_decided: Callable[[str], object] = lambda _decision: None  # counts decisions


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookEntry:
    """An entry of a webhook configuration; only objects with ``label`` are sent to the hook."""

    name: str
    operations: Sequence[str]
    label: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionHook:
    """One path of the webhook server.  Exactly one of ``mutate`` and ``validate`` is set."""

    path: str
    entries: Sequence[WebhookEntry]
    gate: ManagerFeature
    group: str
    version: str = "v1"
    resource: str
    subresources: Sequence[str] = ()  # of that resource, which the hook checks as well
    policy: str  # key of the hook's failure policy in the chart's values
    mutate: Mutating | None = None
    validate: Validating | None = None

    @property
    def resources(self) -> tuple[str, ...]:
        """The resources and subresources of the rule, as a webhook configuration lists them."""
        return (self.resource, *(f"{self.resource}/{each}" for each in self.subresources))


def enabled_hooks(
    options: HookOptions, on_fault: FaultHandler = raise_fault
) -> tuple[AdmissionHook, ...]:
    """Return the hooks whose feature gates are on."""
    if ManagerFeature.WEBHOOK_FRAMEWORK not in options.gates:
        return ()
    return tuple(hook for hook in all_hooks(options, on_fault) if hook.gate in options.gates)


def all_hooks(
    options: HookOptions, on_fault: FaultHandler = raise_fault
) -> tuple[AdmissionHook, ...]:
    """Return all hooks, regardless of feature gates.

    ``on_fault`` is called for each profile that was skipped because it raised an unexpected
    error; the source of the fault is the hook's path.
    """
    gates = options.gates
    return (
        AdmissionHook(
            path="/mutate-pod",
            entries=(
                WebhookEntry(name="mpod-create.koordinator.sh", operations=("CREATE",)),
                WebhookEntry(
                    name="mpod-update.koordinator.sh",
                    operations=("UPDATE",),
                    label=(POD_MUTATING_UPDATE, "true"),
                ),
            ),
            gate=ManagerFeature.POD_MUTATING,
            group="",
            resource="pods",
            policy="pods",
            mutate=partial(mutate_pod, gates=gates, on_fault=_at("/mutate-pod", on_fault)),
        ),
        AdmissionHook(
            path="/validate-pod",
            entries=(WebhookEntry(name="vpod.koordinator.sh", operations=("CREATE", "UPDATE")),),
            gate=ManagerFeature.POD_VALIDATING,
            group="",
            resource="pods",
            subresources=(RESIZE,),
            policy="pods",
            validate=partial(validate_pod, gates=gates, validator=options.validator),
        ),
        AdmissionHook(
            path="/validate-pod-binding",
            entries=(WebhookEntry(name="vpodbinding.koordinator.sh", operations=("CREATE",)),),
            gate=ManagerFeature.BINDING,
            group="",
            resource="pods/binding",
            policy="bindings",
            validate=partial(
                validate_binding, rules=options.binding, decided=options.binding_decided
            ),
        ),
        AdmissionHook(
            path=f"/mutate-{QUOTA_PATH}",
            entries=(
                WebhookEntry(name="melasticquota.koordinator.sh", operations=("CREATE", "UPDATE")),
            ),
            gate=ManagerFeature.QUOTA_MUTATING,
            group="scheduling.sigs.k8s.io",
            version="v1alpha1",
            resource="elasticquotas",
            policy="elasticquotas",
            mutate=partial(mutate_quota, gates=gates),
        ),
        AdmissionHook(
            path=f"/validate-{QUOTA_PATH}",
            entries=(
                WebhookEntry(
                    name="velasticquota.koordinator.sh",
                    operations=("CREATE", "UPDATE", "DELETE"),
                ),
            ),
            gate=ManagerFeature.QUOTA_VALIDATING,
            group="scheduling.sigs.k8s.io",
            version="v1alpha1",
            resource="elasticquotas",
            policy="elasticquotas",
            validate=partial(validate_quota, gates=gates, components=options.config[0]),
        ),
        AdmissionHook(
            path="/mutate-node-status",
            entries=(
                WebhookEntry(name="mnode-status.koordinator.sh", operations=("CREATE", "UPDATE")),
            ),
            gate=ManagerFeature.NODE_MUTATING,
            group="",
            resource="nodes/status",
            policy="nodeStatus",
            mutate=partial(mutate_node_status, gates=gates),
        ),
        AdmissionHook(
            path="/validate-node",
            entries=(WebhookEntry(name="vnode.koordinator.sh", operations=("CREATE", "UPDATE")),),
            gate=ManagerFeature.NODE_VALIDATING,
            group="",
            resource="nodes",
            policy="nodes",
            validate=partial(validate_node, gates=gates, config=options.config),
        ),
        AdmissionHook(
            path="/validate-configmap",
            entries=(
                WebhookEntry(
                    name="vconfigmap.koordinator.sh",
                    operations=("CREATE", "UPDATE"),
                    label=(CONFIG_MAP_TYPE, CONFIG_TYPE),
                ),
            ),
            gate=ManagerFeature.CONFIG_MAP_VALIDATING,
            group="",
            resource="configmaps",
            policy="configmaps",
            validate=partial(
                validate_config_map,
                gates=gates,
                config=options.config,
                needs_names=options.needs_names,
            ),
        ),
        AdmissionHook(
            path="/mutate-reservation",
            entries=(
                WebhookEntry(name="mreservation-create.koordinator.sh", operations=("CREATE",)),
            ),
            gate=ManagerFeature.RESERVATION_MUTATING,
            group="scheduling.koordinator.sh",
            version="v1alpha1",
            resource="reservations",
            policy="reservations",
            mutate=partial(
                mutate_reservation, gates=gates, on_fault=_at("/mutate-reservation", on_fault)
            ),
        ),
    )


def _at(path: str, on_fault: FaultHandler) -> FaultHandler:
    return lambda fault: on_fault(replace(fault, source=path))


def configuration_patch(
    configuration: Configuration, paths: Collection[str], trusted: bytes
) -> JsonObject:
    """Return the merge patch that installs exactly the hooks of ``paths``; empty if unchanged.

    ``trusted`` is the CA bundle in PEM.  The patch applies only to this version of the
    configuration.
    """
    current = [dict(entry) for entry in configuration.webhooks]
    noted = _noted(configuration, current)
    template = [_trusting(entry, "") for entry in current] if noted is None else noted
    bundle = b64encode(trusted).decode()
    wanted = [_trusting(entry, bundle) for entry in template if _path(entry) in paths]
    changes: JsonObject = {}
    if noted is None:
        text = msgspec.json.encode(template, order="deterministic").decode()
        changes["annotations"] = {_TEMPLATE: text}
    elif _contains(current, wanted):
        return {}
    changes["resourceVersion"] = configuration.metadata.resource_version
    return {"metadata": changes, "webhooks": wanted}


def _noted(configuration: Configuration, current: _Entries) -> _Entries | None:
    """Return the template of the annotation; None if it is missing, outdated or invalid."""
    text = configuration.metadata.annotations.get(_TEMPLATE, "")
    is_reinstalled = any(not _client(entry).get("caBundle") for entry in current)
    if not text or is_reinstalled:
        return None
    try:
        return decode_json(text, _Entries)
    except msgspec.MsgspecError:
        return None  # edited by a user: the installed webhooks become the template


def _contains(stored: Any, wanted: Any) -> bool:
    """Return whether ``stored`` has all wanted fields; the API server adds defaults."""
    if isinstance(wanted, dict) and isinstance(stored, dict):
        return all(key in stored and _contains(stored[key], value) for key, value in wanted.items())
    if isinstance(wanted, list) and isinstance(stored, list):
        return len(stored) == len(wanted) and all(map(_contains, stored, wanted))
    return bool(stored == wanted)


def _trusting(entry: dict[str, Any], bundle: str) -> dict[str, Any]:
    client = {key: value for key, value in _client(entry).items() if key != "caBundle"}
    if bundle:
        client["caBundle"] = bundle
    return {**entry, "clientConfig": client}


def _client(entry: dict[str, Any]) -> dict[str, Any]:
    client: dict[str, Any] = entry.get("clientConfig") or {}
    return client


def _path(entry: dict[str, Any]) -> str:
    client = _client(entry)
    service = client.get("service") or {}
    path: str = (
        service.get("path") or "/" + str(client.get("url", "")).partition("//")[2].partition("/")[2]
    )
    return path
