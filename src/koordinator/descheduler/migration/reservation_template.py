"""Reservation of a job for the replacement of its pod.

Source: koordinator pkg/descheduler/controllers/migration/reservation/util.go,
``CreateOrUpdateReservationOptions``, ``GenerateReserveResourceOwners``.  Different here:
allocations that are specific to the old node (devices, CPUs, a reservation) are not copied, and the
Reservation has an owner reference to its job, so that it is deleted with the job.
"""

from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import replace

from koordinator.api.codec import decode, encode_part
from koordinator.api.conditions import find_condition
from koordinator.api.core import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    ObjectReference,
)
from koordinator.api.labels import CREATED_BY, RESERVATION_ORDER
from koordinator.api.meta import JsonObject, ObjectMeta, OwnerReference
from koordinator.api.pod import Pod, PodSpec
from koordinator.api.pod_migration_job import PodMigrationJob, PodMigrationReservationOptions
from koordinator.api.reservation import (
    Reservation,
    ReservationControllerReference,
    ReservationOwner,
)
from koordinator.descheduler.migration.jobs import has_second_reservation
from koordinator.domain.placement_fork import replacement_of
from koordinator.foundation.decoders import decode_json
from koordinator.foundation.errors import InputError

CREATOR: Final = "koord-descheduler"  # as label of its reservations
_MS = 1000


def reservation_for(
    job: PodMigrationJob, pod: Pod, now_s: float, *, drops_claims: bool = False
) -> Reservation:
    """Return the reservation to create for a job, based on the job's template if it has one.

    ``drops_claims`` omits the volumes that are claims.
    Raises InputError for an invalid template, and for a pod without a controller.
    """
    options = job.spec.reservation_options
    template: JsonObject = dict(options.template) if options is not None else {}
    metadata, spec = (_object(template, name) for name in ("metadata", "spec"))
    if not spec.get("template"):
        spec["template"] = _template_of(pod)
    if not spec.get("owners"):
        owners = owners_of(pod)
        if not owners:
            raise InputError(
                f'no Pod would use it: Pod "{pod.key}" has no controller that replaces it',
                path="spec.reservationOptions.template.spec.owners",
            )
        spec["owners"] = [_json(owner) for owner in owners]
    ttl = job.spec.ttl
    if "ttl" not in spec and "expires" not in spec and ttl is not None and ttl.total_seconds() > 0:
        spec["ttl"] = str(ttl)
    spec["allocateOnce"] = True
    try:
        made = decode({"metadata": metadata, "spec": spec}, Reservation)
    except InputError as error:
        raise error.within(path="spec.reservationOptions.template") from None
    pod_spec = _elsewhere(made.spec.template.spec, (pod.spec.node_name,))
    if drops_claims:
        kept = (v for v in pod_spec.volumes if not (v.persistent_volume_claim or v.ephemeral))
        pod_spec = replace(pod_spec, volumes=tuple(kept))
    return replace(
        made,
        metadata=_metadata(job, made.metadata, now_s),
        spec=replace(made.spec, template=replace(made.spec.template, spec=pod_spec)),
    )


def options_avoiding(pod: Pod, nodes: Sequence[str]) -> PodMigrationReservationOptions | None:
    """Return reservation options that exclude the nodes; None if there are none to exclude."""
    if not nodes:
        return None
    template = _template_of(replace(pod, spec=_elsewhere(pod.spec, nodes)))
    return PodMigrationReservationOptions(template={"spec": {"template": template}})


def owners_of(pod: Pod) -> tuple[ReservationOwner, ...]:
    """Return the owners of a reservation: an unschedulable pod itself, else its controller's pods.

    It is empty for a pod without a controller.
    """
    meta = pod.metadata
    scheduled = find_condition(pod.status.conditions, "PodScheduled")
    if pod.status.phase == "Pending" and scheduled is not None and scheduled.status == "False":
        itself = ObjectReference(
            kind=Pod.KIND, namespace=meta.namespace, name=meta.name, uid=meta.uid
        )
        return (ReservationOwner(object=itself),)
    controller = pod.metadata.controller
    if controller is None:
        return ()
    reference = ReservationControllerReference(
        api_version=controller.api_version,
        kind=controller.kind,
        name=controller.name,
        uid=controller.uid,
        controller=controller.controller,
        block_owner_deletion=controller.block_owner_deletion,
        namespace=meta.namespace,
    )
    return (ReservationOwner(controller=reference),)


def is_for_pending_pod(reservation: Reservation) -> bool:
    """Return whether a reservation is for a pod that exists and has no node."""
    return any(
        each.object is not None and each.controller is None and each.label_selector is None
        for each in reservation.spec.owners
    )


def job_uid_of(meta: ObjectMeta) -> str:
    """Return the uid of the job that owns a reservation; empty if no job does."""
    owner = job_reference_of(meta)
    return "" if owner is None else owner.uid


def job_reference_of(meta: ObjectMeta) -> OwnerReference | None:
    """Return the owner reference to the job of a reservation, None if it has none."""
    for owner in meta.owner_references:
        if (owner.api_version, owner.kind) == (PodMigrationJob.API_VERSION, PodMigrationJob.KIND):
            return owner
    return None


def order_now(now_s: float) -> str:
    """Return the order label of a reservation created now; the scheduler prefers the smallest."""
    return str(int(now_s * _MS))


def _object(template: JsonObject, name: str) -> JsonObject:
    value = template.get(name) or {}
    if not isinstance(value, dict):
        path = f"spec.reservationOptions.template.{name}"
        raise InputError(f"must be an object, got {value!r}", path=path)
    return dict(value)


def _metadata(job: PodMigrationJob, meta: ObjectMeta, now_s: float) -> ObjectMeta:
    owner = OwnerReference(
        api_version=PodMigrationJob.API_VERSION,
        kind=PodMigrationJob.KIND,
        name=job.metadata.name,
        uid=job.metadata.uid,
    )
    name = meta.name or job.metadata.uid
    return ObjectMeta(
        name=f"{name}-2" if has_second_reservation(job) else name,
        labels={**meta.labels, CREATED_BY: CREATOR, RESERVATION_ORDER: order_now(now_s)},
        annotations=meta.annotations,
        owner_references=(*meta.owner_references, owner),
        finalizers=meta.finalizers,
    )


def _template_of(pod: Pod) -> JsonObject:
    """Return metadata and spec of the pod without the allocations on its node."""
    kept = replacement_of(pod, pod.metadata.name).metadata
    return {"metadata": _json(kept), "spec": _json(pod.spec)}


def _elsewhere(spec: PodSpec, nodes_left: Sequence[str]) -> PodSpec:
    """Return the pod spec with a required node affinity that excludes the nodes.

    An empty term matches no node, and stays empty.
    """
    spec = replace(spec, node_name="")
    others = tuple(
        NodeSelectorRequirement(key="metadata.name", operator="NotIn", values=(node,))
        for node in nodes_left
        if node
    )
    if not others:
        return spec
    affinity = spec.affinity or Affinity()
    nodes = affinity.node_affinity or NodeAffinity()
    required = nodes.required_during_scheduling_ignored_during_execution
    terms = required.node_selector_terms if required is not None else ()
    narrowed = tuple(
        term
        if term == NodeSelectorTerm()
        else replace(term, match_fields=(*term.match_fields, *others))
        for term in terms
    ) or (NodeSelectorTerm(match_fields=others),)
    nodes = replace(
        nodes,
        required_during_scheduling_ignored_during_execution=NodeSelector(
            node_selector_terms=narrowed
        ),
    )
    return replace(spec, affinity=replace(affinity, node_affinity=nodes))


def _json(part: object) -> Any:
    return decode_json(encode_part(part))
