"""In-process admission of the manager's webhooks for the embedded cluster."""

from collections.abc import Callable
from dataclasses import replace

from koordinator.api.codec import decode, to_manifest
from koordinator.api.control_plane import ResourceAttributes, UserInfo
from koordinator.api.meta import JsonObject, KubeObject
from koordinator.cluster.memory.admission import Admission, WriteOperation
from koordinator.cluster.port import Reader
from koordinator.foundation.errors import FaultHandler, InvalidError, NotFoundError, raise_fault
from koordinator.manager.admission.hooks import AdmissionHook, HookOptions, enabled_hooks
from koordinator.manager.admission.lookup import AdmissionRequest, Denial
from koordinator.manager.lookups import ChargedQuotas, ReaderLookup


def admission_hooks(
    options: HookOptions,
    percent: Callable[[], int],
    subresource: str = "",
    on_fault: FaultHandler = raise_fault,
) -> Admission:
    """Return the admission step of all enabled hooks; ``percent`` draws 0..99.

    ``subresource``, such as status, selects the hooks of a subresource.  ``on_fault`` receives
    the faults of profiles that failed and were skipped.
    """
    suffix = f"/{subresource}" if subresource else ""
    hooks = enabled_hooks(options, on_fault)
    charged: ChargedQuotas = {}

    def admit(operation: WriteOperation, obj: KubeObject, cluster: Reader) -> KubeObject:
        lookup = ReaderLookup(cluster, percent, charged, rights=_all_rights)
        for hook in hooks:
            if not _applies(hook, operation, obj, suffix):
                continue
            request = replace(_request(operation, obj, cluster), subresource=subresource)
            try:
                if hook.mutate is not None:
                    changed = hook.mutate(request, lookup)
                    if changed != request.obj:
                        obj = decode(changed, type(obj))
                if hook.validate is not None:
                    hook.validate(request, lookup)
            except Denial as error:
                raise InvalidError(
                    f'admission webhook "{hook.entries[0].name}" denied the request for '
                    f"{obj.KIND} {obj.key}: {error}"
                ) from error
        return obj

    return admit


def _all_rights(_user: UserInfo, _attributes: ResourceAttributes) -> bool:
    """Return True: the operator loads all objects here."""
    return True


def _applies(hook: AdmissionHook, operation: WriteOperation, obj: KubeObject, suffix: str) -> bool:
    group, _, version = obj.API_VERSION.rpartition("/")
    if (hook.group, hook.version) != (group, version) or obj.PLURAL + suffix not in hook.resources:
        return False
    return any(
        operation in entry.operations
        and (entry.label is None or entry.label in obj.metadata.labels.items())
        for entry in hook.entries
    )


def _request(operation: WriteOperation, obj: KubeObject, cluster: Reader) -> AdmissionRequest:
    meta = obj.metadata
    return AdmissionRequest(
        operation=operation,
        namespace=meta.namespace,
        name=meta.name,
        obj=to_manifest(obj),
        old=None if operation is WriteOperation.CREATE else _stored(obj, cluster),
    )


def _stored(obj: KubeObject, cluster: Reader) -> JsonObject | None:
    try:
        return to_manifest(cluster.get(type(obj), obj.metadata.name, obj.metadata.namespace))
    except NotFoundError:
        return None
