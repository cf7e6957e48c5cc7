"""The Reservation that keeps a place for the pod that comes after the one that is moved.

Source: koordinator pkg/descheduler/controllers/migration/reservation/util.go,
``CreateOrUpdateReservationOptions``, ``GenerateReserveResourceOwners``.  Different here: what the
pod holds of its old node by name (devices, CPUs, a reservation) is not copied, and the Reservation
belongs to its job, so that it never outlives it.
"""

from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import replace

from koordinator.api.codec import decode, encode_part
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
from koordinator.descheduler.migration.workloads import controller_of
from koordinator.domain.placement_trial import OF_ITS_NODE
from koordinator.foundation.decoders import decode_json
from koordinator.foundation.errors import InputError

CREATOR: Final = "koord-descheduler"  # as label of its reservations
_MS = 1000


def reservation_for(
    job: PodMigrationJob, pod: Pod, now_s: float, *, drops_claims: bool = False
) -> Reservation:
    """Return the reservation to create for a job, by the job's own template where it has one.

    ``drops_claims`` leaves out the volumes that are claims.
    Raises InputError for a template that can't be read, and for a pod that nothing replaces.
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
                f'no Pod would use it: nothing replaces Pod "{pod.key}", which has no controller',
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
    """Return what a job says of its reservation so that it is not on these nodes; None: nothing."""
    if not nodes:
        return None
    template = _template_of(replace(pod, spec=_elsewhere(pod.spec, nodes)))
    return PodMigrationReservationOptions(template={"spec": {"template": template}})


def owners_of(pod: Pod) -> tuple[ReservationOwner, ...]:
    """Return who may use the reservation: a pod that waits itself, else its workload's pods.

    Nobody if nothing replaces the pod.
    """
    meta = pod.metadata
    if pod.status.phase == "Pending" and any(
        each.type == "PodScheduled" and each.status == "False" for each in pod.status.conditions
    ):
        itself = ObjectReference(
            kind=Pod.KIND, namespace=meta.namespace, name=meta.name, uid=meta.uid
        )
        return (ReservationOwner(object=itself),)
    controller = controller_of(pod)
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
    """Return whether a reservation waits for a pod that exists and has no node."""
    return any(
        each.object is not None and each.controller is None and each.label_selector is None
        for each in reservation.spec.owners
    )


def job_uid_of(meta: ObjectMeta) -> str:
    """Return the uid of the job to which a reservation belongs; empty if it belongs to none."""
    owner = job_reference_of(meta)
    return "" if owner is None else owner.uid


def job_reference_of(meta: ObjectMeta) -> OwnerReference | None:
    """Return the job to which a reservation belongs, None if it belongs to none."""
    for owner in meta.owner_references:
        if (owner.api_version, owner.kind) == (PodMigrationJob.API_VERSION, PodMigrationJob.KIND):
            return owner
    return None


def order_now(now_s: float) -> str:
    """Return the order of a reservation made now: of several that fit the smallest is used."""
    return str(int(now_s * _MS))


def _object(template: JsonObject, name: str) -> JsonObject:
    found = template.get(name) or {}
    if not isinstance(found, dict):
        path = f"spec.reservationOptions.template.{name}"
        raise InputError(f"must be an object, got {found!r}", path=path)
    return dict(found)


def _metadata(job: PodMigrationJob, meta: ObjectMeta, now_s: float) -> ObjectMeta:
    belongs_to = OwnerReference(
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
        owner_references=(*meta.owner_references, belongs_to),
        finalizers=meta.finalizers,
    )


def _template_of(pod: Pod) -> JsonObject:
    """Return metadata and spec of the pod, without what its old node gave it."""
    meta = pod.metadata
    annotations = {k: v for k, v in meta.annotations.items() if k not in OF_ITS_NODE}
    kept = ObjectMeta(
        name=meta.name,
        namespace=meta.namespace,
        labels=meta.labels,
        annotations=annotations,
        owner_references=meta.owner_references,
    )
    return {"metadata": _json(kept), "spec": _json(pod.spec)}


def _elsewhere(spec: PodSpec, nodes_left: Sequence[str]) -> PodSpec:
    """Return what the reservation asks for: the same, not on these nodes."""
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
    terms = terms or (NodeSelectorTerm(),)
    narrowed = tuple(replace(term, match_fields=(*term.match_fields, *others)) for term in terms)
    nodes = replace(
        nodes,
        required_during_scheduling_ignored_during_execution=NodeSelector(
            node_selector_terms=narrowed
        ),
    )
    return replace(spec, affinity=replace(affinity, node_affinity=nodes))


def _json(part: object) -> Any:
    return decode_json(encode_part(part))
