"""Whether a pod may be created or changed so.

Source: koordinator pkg/webhook/pod/validating/validating_handler.go.
"""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from msgspec.structs import replace

from koordinator.api.codec import decode
from koordinator.api.pod import Pod
from koordinator.domain.quota import message_for_clients
from koordinator.foundation.errors import InputError
from koordinator.manager.admission.annotations import check_annotations
from koordinator.manager.admission.gates import ManagerFeature
from koordinator.manager.admission.lookup import Lookup
from koordinator.manager.admission.pod_rules import (
    change_problems,
    colocation_problems,
    device_problems,
    reserve_problems,
)
from koordinator.manager.admission.quotas import check_pod_in_quota
from koordinator.manager.admission.request import AdmissionOperation, AdmissionRequest, Denial
from koordinator.manager.admission.required_labels import (
    CONFIG_NAME,
    missing_labels,
    read_label_rules,
)
from koordinator.manager.admission.scheduler_keys import check_scheduler_keys
from koordinator.manager.admission.tenancy import check_pod_tenancy

VALIDATOR_NAMESPACE = "koordinator-system"
RESIZE = "resize"  # subresource of pods


def validate_pod(
    request: AdmissionRequest,
    lookup: Lookup,
    gates: AbstractSet[ManagerFeature],
    validator: tuple[str, str] = (VALIDATOR_NAMESPACE, CONFIG_NAME),
) -> None:
    """Raise Denial with the problems of the first group of rules that is broken.

    A resize in place is judged as any other update; other subresources are not judged.

    ``validator`` is the ConfigMap with the labels that pods need: namespace and name.
    """
    if request.subresource not in ("", RESIZE) or request.operation == AdmissionOperation.DELETE:
        return
    try:
        new = _in_namespace(decode(request.obj, Pod), request.namespace)
        old = decode(request.old, Pod) if request.old is not None else None
        check_annotations(new, old)
        _refuse(reserve_problems(new))
        if old is not None:
            check_scheduler_keys(request, old, new, lookup)
        if ManagerFeature.STRICT_TENANCY in gates:
            check_pod_tenancy(request, old, new, lookup.quotas(), lookup)
        changed = (
            ()
            if old is None
            else change_problems(old, new, keeps_priority=ManagerFeature.SKIP_PRIORITY not in gates)
        )
        _refuse([*changed, *colocation_problems(new)])
        if ManagerFeature.VALIDATE_DEVICES in gates:
            _refuse(device_problems(new))
        if ManagerFeature.ENHANCED_VALIDATOR in gates:
            rules = read_label_rules(lookup.config_map(*validator))
            if missing := missing_labels(new, rules):
                raise Denial(missing)
        dry = request.is_dry_run  # last: a pod that is refused must not be charged
        check_pod_in_quota(request.operation, old, new, lookup, gates, is_dry_run=dry)
    except InputError as error:
        raise Denial(message_for_clients(error)) from None


def _refuse(problems: Iterable[str]) -> None:
    found = list(dict.fromkeys(problems))
    if found:
        raise Denial(found[0] if len(found) == 1 else f"[{', '.join(found)}]")


def _in_namespace(pod: Pod, namespace: str) -> Pod:
    """Return the pod in its namespace: one made of a template doesn't name it yet."""
    if pod.metadata.namespace or not namespace:
        return pod
    return replace(pod, metadata=replace(pod.metadata, namespace=namespace))
