"""Table of all admission hooks: path, name, objects and feature gate.

Source: koordinator config/webhook/manifests.yaml; pkg/webhook.
"""

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from koordinator.api.codec import decode
from koordinator.api.core import ConfigMap
from koordinator.api.labels import CONFIG_MAP_TYPE, POD_MUTATING_UPDATE
from koordinator.api.meta import JsonObject
from koordinator.api.slo_config import CONFIG_NAME, CONFIG_NAMESPACE, CONFIG_TYPE
from koordinator.foundation.errors import FaultHandler, InputError, raise_fault
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

QUOTA_PATH: Final = "scheduling-sigs-k8s-io-v1alpha1-elasticquota"


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
class Entry:
    """An entry of a webhook configuration; only objects with ``label`` are sent to the hook."""

    name: str
    operations: Sequence[str]
    label: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """One path of the webhook server.  Exactly one of ``mutate`` and ``validate`` is set."""

    path: str
    entries: Sequence[Entry]
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


def enabled_hooks(options: HookOptions, on_fault: FaultHandler = raise_fault) -> tuple[Hook, ...]:
    """Return the hooks whose feature gates are on."""
    if ManagerFeature.WEBHOOK_FRAMEWORK not in options.gates:
        return ()
    return tuple(hook for hook in all_hooks(options, on_fault) if hook.gate in options.gates)


def all_hooks(options: HookOptions, on_fault: FaultHandler = raise_fault) -> tuple[Hook, ...]:
    """Return all hooks, regardless of feature gates.

    ``on_fault`` is called for each profile that was skipped because it raised an unexpected
    error; the source of the fault is the hook's path.
    """
    gates = options.gates
    return (
        Hook(
            path="/mutate-pod",
            entries=(
                Entry(name="mpod-create.koordinator.sh", operations=("CREATE",)),
                Entry(
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
        Hook(
            path="/validate-pod",
            entries=(Entry(name="vpod.koordinator.sh", operations=("CREATE", "UPDATE")),),
            gate=ManagerFeature.POD_VALIDATING,
            group="",
            resource="pods",
            subresources=(RESIZE,),
            policy="pods",
            validate=partial(validate_pod, gates=gates, validator=options.validator),
        ),
        Hook(
            path="/validate-pod-binding",
            entries=(Entry(name="vpodbinding.koordinator.sh", operations=("CREATE",)),),
            gate=ManagerFeature.BINDING,
            group="",
            resource="pods/binding",
            policy="bindings",
            validate=partial(
                validate_binding, rules=options.binding, decided=options.binding_decided
            ),
        ),
        Hook(
            path=f"/mutate-{QUOTA_PATH}",
            entries=(Entry(name="melasticquota.koordinator.sh", operations=("CREATE", "UPDATE")),),
            gate=ManagerFeature.QUOTA_MUTATING,
            group="scheduling.sigs.k8s.io",
            version="v1alpha1",
            resource="elasticquotas",
            policy="elasticquotas",
            mutate=partial(mutate_quota, gates=gates),
        ),
        Hook(
            path=f"/validate-{QUOTA_PATH}",
            entries=(
                Entry(
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
        Hook(
            path="/mutate-node-status",
            entries=(Entry(name="mnode-status.koordinator.sh", operations=("CREATE", "UPDATE")),),
            gate=ManagerFeature.NODE_MUTATING,
            group="",
            resource="nodes/status",
            policy="nodeStatus",
            mutate=partial(mutate_node_status, gates=gates),
        ),
        Hook(
            path="/validate-node",
            entries=(Entry(name="vnode.koordinator.sh", operations=("CREATE", "UPDATE")),),
            gate=ManagerFeature.NODE_VALIDATING,
            group="",
            resource="nodes",
            policy="nodes",
            validate=partial(validate_node, gates=gates, config=options.config),
        ),
        Hook(
            path="/validate-configmap",
            entries=(
                Entry(
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
        Hook(
            path="/mutate-reservation",
            entries=(Entry(name="mreservation-create.koordinator.sh", operations=("CREATE",)),),
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
