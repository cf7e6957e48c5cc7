"""slo-controller-config: what can't be meant is not stored.

Source: koordinator pkg/webhook/cm.
"""

from collections.abc import Set as AbstractSet

from koordinator.api.codec import decode
from koordinator.api.config_map import ConfigMap
from koordinator.foundation.errors import InputError
from koordinator.manager.admission.gates import ManagerFeature
from koordinator.manager.admission.lookup import Lookup
from koordinator.manager.admission.request import AdmissionOperation, AdmissionRequest, Denial
from koordinator.manager.configuration.checks import check_config


def validate_config_map(
    request: AdmissionRequest,
    lookup: Lookup,
    gates: AbstractSet[ManagerFeature],  # noqa: ARG001 -- the signature of a hook
    config: tuple[str, str] = ("koordinator-system", "slo-controller-config"),
    *,
    needs_names: bool = False,
) -> None:
    """Raise Denial for sections that changed and can't be meant; other ConfigMaps pass."""
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
