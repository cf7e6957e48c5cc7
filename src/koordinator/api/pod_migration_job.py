"""Jobs of the descheduler: move one pod, if possible to a place that is reserved before.

Source: koordinator apis/scheduling/v1alpha1/pod_migration_job_types.go.
"""

from enum import StrEnum
from typing import ClassVar

from msgspec import field

from koordinator.api.core import ObjectReference
from koordinator.api.crd import CustomResource, PrinterColumn, UntypedObject
from koordinator.api.meta import ApiStruct, Condition
from koordinator.foundation.clock import Duration


class PodMigrationJobMode(StrEnum):
    """Order of eviction and replacement: with a reservation first, or directly."""

    RESERVATION_FIRST = "ReservationFirst"
    EVICT_DIRECTLY = "EvictDirectly"


class PodMigrationJobPhase(StrEnum):
    """Phase of a job, empty before the first sync; Aborted is never set."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    ABORTED = "Aborted"


class PodMigrationJobConditionType(StrEnum):
    """The steps of a job."""

    RESERVATION_CREATED = "ReservationCreated"  # whether the reservation for the moved pod exists
    RESERVATION_SCHEDULED = "ReservationScheduled"  # whether that reservation has a node
    PREEMPTION = "Preemption"  # whether pods had to make room for the reservation
    EVICTION = "Eviction"  # whether the pod was evicted
    POD_SCHEDULED = "PodScheduled"  # whether the successor of the pod has a node
    POD_BOUND_RESERVATION = "PodBoundReservation"  # whether the successor uses the reservation
    BOUND_POD_READY = "BoundPodReady"  # whether the successor is ready
    RESERVATION_BOUND = "ReservationBound"  # whether a pod uses the reservation


class PodMigrationJobReason(StrEnum):
    """Reason of a condition or of the phase."""

    TIMEOUT = "Timeout"  # the job took longer than spec.ttl
    FAILED_CREATE_RESERVATION = "FailedCreateReservation"  # the API server refused the reservation
    RESERVATION_EXPIRED = "ReservationExpired"  # the reservation expired during the move
    UNSCHEDULABLE = "Unschedulable"  # no node has room for the reservation
    FORBIDDEN_MIGRATE_POD = "ForbiddenMigratePod"  # a filter or a limit forbids the eviction
    INVALID_POD_REF = "InvalidPodRef"  # spec.podRef names no pod
    MISSING_POD = "MissingPod"  # the pod does not exist any more
    MISSING_RESERVATION = "MissingReservation"  # the reservation does not exist any more
    PREEMPTING = "Preempting"  # pods are being evicted to make room
    PREEMPT_COMPLETE = "PreemptComplete"  # there is room now
    EVICTING = "Evicting"  # the pod is being evicted
    FAILED_EVICT = "FailedEvict"  # the eviction failed
    EVICT_COMPLETE = "EvictComplete"  # the pod does not run any more
    WAIT_FOR_POD_BIND_RESERVATION = "WaitForPodBindReservation"  # no successor uses it yet
    WAIT_FOR_BOUND_POD_READY = "WaitForBoundPodReady"  # the successor is not ready yet


class Preconditions(ApiStruct, frozen=True, kw_only=True):
    """Identity that the object must have for the deletion."""

    uid: str | None = None  # UID that the object must have
    resource_version: str | None = None  # resourceVersion that the object must have


class DeleteOptions(ApiStruct, frozen=True, kw_only=True):
    """Options of the deletion of the pod."""

    api_version: str = ""  # API version of the options
    kind: str = ""  # kind of the options
    grace_period_seconds: int | None = None  # time that the pod gets to terminate
    preconditions: Preconditions | None = None  # identity that the pod must have
    #: deprecated: use propagationPolicy; whether dependents stay
    orphan_dependents: bool | None = None
    propagation_policy: str | None = None  # Orphan, Background or Foreground
    dry_run: tuple[str, ...] = ()  # All: the API server checks the deletion and does nothing
    #: deletes an object that cannot be read from the store
    ignore_store_read_error_with_cluster_breaking_potential: bool | None = None


class PodMigrationJobPreemptionOptions(ApiStruct, frozen=True, kw_only=True):
    """Always empty."""


class PodMigrationReservationOptions(ApiStruct, frozen=True, kw_only=True):
    """A reservation that exists, or parts of the one to create."""

    #: reservation for the new pod; without it, one is created
    reservation_ref: ObjectReference | None = None
    template: UntypedObject = {}  # metadata and spec of a Reservation
    preemption_options: PodMigrationJobPreemptionOptions | None = None  # always empty


class PodMigrationJobSpec(ApiStruct, frozen=True, kw_only=True):
    """Pod to migrate.  An empty mode is the descheduler's default; no ttl means no expiry."""

    pod_ref: ObjectReference  # pod to move
    paused: bool = False  # whether the job waits
    ttl: Duration | None = None  # time after which the job fails; unset: never
    mode: str = ""  # a PodMigrationJobMode
    reservation_options: PodMigrationReservationOptions | None = None  # reservation for the new pod
    delete_options: DeleteOptions | None = None  # how the pod is evicted


class PodMigrationJobPreemptedReservation(ApiStruct, frozen=True, kw_only=True):
    """A reservation that was made for a pod that had to go."""

    namespace: str = ""  # namespace of the reservation
    name: str = ""  # name of the reservation
    node_name: str = ""  # node of the reservation
    phase: str = ""  # phase of the reservation
    preempted_pod_ref: ObjectReference | None = None  # preempted pod
    pods_ref: tuple[ObjectReference, ...] = ()  # pods that use the reservation


class PodMigrationJobStatus(ApiStruct, frozen=True, kw_only=True):
    """``status`` is the type of the condition that changed last; ``pod_ref`` is the new pod."""

    phase: str = ""  # a PodMigrationJobPhase
    status: str = ""  # type of the condition that changed last, or Complete
    reason: str = ""  # reason of that condition, or of the failure
    message: str = ""  # details of the reason
    conditions: tuple[Condition, ...] = ()  # steps of the job
    node_name: str = ""  # node of the reservation
    pod_ref: ObjectReference | None = None  # pod that uses the reservation
    preempted_pods_ref: tuple[ObjectReference, ...] = ()  # preempted pods; never written
    #: reservations of preempted pods; never written
    preempted_pods_reservations: tuple[PodMigrationJobPreemptedReservation, ...] = field(
        name="preemptedPodsReservation", default=()
    )


class PodMigrationJob(CustomResource, frozen=True, kw_only=True):
    """Moves one pod."""

    API_VERSION: ClassVar[str] = "scheduling.koordinator.sh/v1alpha1"
    KIND: ClassVar[str] = "PodMigrationJob"
    PLURAL: ClassVar[str] = "podmigrationjobs"
    NAMESPACED: ClassVar[bool] = False
    SHORT_NAMES: ClassVar[tuple[str, ...]] = ("pmj",)
    SUBRESOURCE_STATUS: ClassVar[bool] = True
    PRINTER_COLUMNS: ClassVar[tuple[PrinterColumn, ...]] = (
        PrinterColumn("Phase", ".status.phase"),
        PrinterColumn("Status", ".status.status"),
        PrinterColumn("Age", ".metadata.creationTimestamp", "date"),
        PrinterColumn("Node", ".status.nodeName"),
        PrinterColumn("Reservation", ".spec.reservationOptions.reservationRef.name"),
        PrinterColumn("PodNamespace", ".spec.podRef.namespace"),
        PrinterColumn("Pod", ".spec.podRef.name"),
        PrinterColumn("NewPod", ".status.podRef.name"),
        PrinterColumn("TTL", ".spec.ttl"),
    )

    spec: PodMigrationJobSpec
    status: PodMigrationJobStatus = PodMigrationJobStatus()


KINDS = (PodMigrationJob,)
