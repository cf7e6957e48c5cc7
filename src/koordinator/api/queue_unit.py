"""QueueUnit of koord-queue, and the kinds of jobs that it queues.

Which of their fields say what is data: ``koordinator.manager.queue_units.kinds``.

Source: koord-queue (github.com/koordinator-sh/koord-queue) 1.8, chart and CRDs
scheduling.x-k8s.io_queues.yaml and scheduling.x-k8s.io_queueunits.yaml; fields after 1.8.0 are
from its main branch; kubeflow/training-operator and kubeflow/mpi-operator pkg/apis,
ray-project/kuberay ray-operator/apis/ray/v1, kubeflow/spark-operator api/v1beta2,
kubernetes-sigs/jobset api/jobset/v1alpha2, argoproj/argo-workflows pkg/apis/workflow/v1alpha1.
"""

import datetime as dt
from enum import StrEnum
from typing import Annotated, Any, ClassVar

from msgspec import Meta, field

from koordinator.api.core import ResourceList, Toleration
from koordinator.api.crd import (
    CustomResource,
    NotNegative,
    Positive,
    PrinterColumn,
    StandardCondition,
    UntypedPodTemplate,
)
from koordinator.api.meta import ApiStruct, Int32, Int64, KubeObject, LabelSelector


class UnitPolicy(StrEnum):
    """Choice of the units that may pass one that does not fit."""

    PRIORITY = "Priority"  # all
    BLOCK = "Block"  # none
    INTELLIGENT = "Intelligent"  # those behind one of low priority


class UnitPhase(StrEnum):
    """Progress of a unit; empty is Enqueued."""

    ENQUEUED = "Enqueued"
    RESERVED = "Reserved"  # its quota counts it; it waits for admission checks
    SCHED_READY = "SchedReady"  # ready, and waiting for a scheduler (strict mode)
    SCHED_SUCCEEDED = "SchedSucceed"  # a scheduler has allowed its job to start
    SCHED_FAILED = "SchedFailed"  # a scheduler has rejected it: it is requeued
    DEQUEUED = "Dequeued"  # its quota counts it, its job may start
    RUNNING = "Running"
    TIMEOUT_BACKOFF = "TimeoutBackoff"  # its pods did not run in time
    SUCCEEDED = "Succeed"
    FAILED = "Failed"


class AdmissionCheckRef(ApiStruct, frozen=True, kw_only=True):
    """A check that units with such labels must pass; without a selector all must."""

    name: str = ""  # name of the check
    #: labels of the units that must pass it; unset means all
    label_selector: LabelSelector | None = None


class QueueItem(ApiStruct, frozen=True, kw_only=True):
    """A unit and its place; the first is 1."""

    name: str = ""  # name of the unit
    namespace: str = ""  # namespace of the unit
    priority: Int32 = 0  # priority of the unit
    position: Int32 = 0  # position of the unit; the first is 1


class QueueSpec(ApiStruct, frozen=True, kw_only=True):
    """``queue_policy`` is a UnitPolicy."""

    #: Priority (all units may pass one that does not fit), Block (none) or Intelligent (those
    #: behind one of low priority)
    queue_policy: str = ""
    priority: Int32 | None = None  # priority of the queue among others
    priority_class_name: str = ""  # PriorityClass of that priority
    admission_checks: tuple[AdmissionCheckRef, ...] = ()  # checks that units of the queue must pass


class UnitQueueStatus(ApiStruct, frozen=True, kw_only=True):
    """The units that wait, in order, under ``active``."""

    #: pending units in order, under the key active
    queue_item_details: dict[str, tuple[QueueItem, ...]] = {}


class Queue(CustomResource, frozen=True, kw_only=True):
    """A queue of units, named after its quota."""

    API_VERSION: ClassVar[str] = "scheduling.x-k8s.io/v1alpha1"
    KIND: ClassVar[str] = "Queue"
    PLURAL: ClassVar[str] = "queues"
    SUBRESOURCE_STATUS: ClassVar[bool] = True

    spec: QueueSpec = QueueSpec()
    status: UnitQueueStatus = UnitQueueStatus()


class ConsumerRef(ApiStruct, frozen=True, kw_only=True):
    """Reference to the job of a unit."""

    api_version: str = ""  # API version of the job
    kind: str = ""  # kind of the job
    name: str = ""  # name of the job
    namespace: str = ""  # namespace of the job
    uid: str = ""  # UID of the job
    resource_version: str = ""  # has no effect
    field_path: str = ""  # has no effect


class UnitPodSet(ApiStruct, frozen=True, kw_only=True):
    """Identical pods of a job; ``min_count`` does not allow admission of fewer than ``count``."""

    name: str = "main"  # name of the pod set
    template: UntypedPodTemplate | None = None  # template of the pods
    count: NotNegative = 1  # number of pods
    min_count: Int32 | None = None  # has no effect: all pods are admitted together


class QueueUnitSpec(ApiStruct, frozen=True, kw_only=True):
    """Requested resources and placement of a job.

    ``resource`` and ``request`` are of all pods together.  ``active`` false: it must not start, and
    is stopped if it has.
    """

    consumer_ref: ConsumerRef | None = None  # the job
    priority: Int32 | None = None  # priority within the queue
    priority_class_name: str = ""  # PriorityClass of that priority
    queue: str = ""  # name of the queue
    resource: ResourceList = {}  # resources of all pods together
    request: ResourceList = {}  # requests of all pods together
    #: groups of identical pods
    pod_sets: Annotated[tuple[UnitPodSet, ...], Meta(max_length=8)] = field(
        name="podSet", default=()
    )
    active: bool | None = None  # false keeps the job from starting, and stops it if it runs
    #: running time after which the job is stopped
    maximum_execution_time_seconds: Positive | None = None


class UnitPodState(ApiStruct, frozen=True, kw_only=True):
    """Numbers of running and pending pods."""

    running: Int32 = 0  # number of running pods
    pending: Int32 = 0  # number of pods that do not run yet


class UnitReclaimState(ApiStruct, frozen=True, kw_only=True):
    """Number of pods to reclaim; never set by this project."""

    replicas: Int64 = 0  # number of pods


class UnitAdmission(ApiStruct, frozen=True, kw_only=True):
    """Admission of a pod set.

    The original's CRD demands ``replicas`` and ``running``, also where they are 0.
    """

    name: str = ""  # name of the pod set
    replicas: Int64 | None = None  # number of admitted pods
    resources: ResourceList = {}  # admitted amounts by resource
    running: Int64 | None = None  # number of pods that run
    reclaim_state: UnitReclaimState | None = None  # pods to reclaim; never set here


class UnitPodSetUpdate(ApiStruct, frozen=True, kw_only=True):
    """Metadata and scheduling constraints that a check adds to the pods of a set."""

    name: str = ""  # name of the pod set
    labels: dict[str, str] = {}  # labels to add
    annotations: dict[str, str] = {}  # annotations to add
    node_selector: dict[str, str] = {}  # node selector to add
    tolerations: tuple[Toleration, ...] = ()  # tolerations to add


class AdmissionCheckState(ApiStruct, frozen=True, kw_only=True):
    """State of an admission check for a unit; ``state`` is Pending, Ready, Retry or Rejected.

    The original's CRD requires a ``message``, which may be empty.
    """

    name: str = ""  # name of the check
    state: str = ""  # Pending, Ready, Retry or Rejected
    message: str | None = None  # details of the state
    last_transition_time: dt.datetime | None = None  # time of the last change of the state
    #: changes that the check requests for the pods
    pod_set_updates: tuple[UnitPodSetUpdate, ...] = ()


class UnitRequeueState(ApiStruct, frozen=True, kw_only=True):
    """Number of attempts that timed out, and the time of the next one."""

    count: Int32 = 0  # number of backoffs
    requeue_at: dt.datetime | None = None  # when the unit is tried again


class QueueUnitStatus(ApiStruct, frozen=True, kw_only=True):
    """Phase, admission and pods of a unit."""

    phase: str = ""  # phase of the unit: a UnitPhase
    attempts: int = 0  # number of admissions
    message: str = ""  # details of the phase
    last_update_time: dt.datetime | None = None  # time of the last change of the phase
    last_allocate_time: dt.datetime | None = None  # time of the last admission
    #: state of each admission check
    admission_checks: Annotated[tuple[AdmissionCheckState, ...], Meta(max_length=8)] = ()
    pod_state: UnitPodState = UnitPodState()  # numbers of running and pending pods
    #: admitted pods by group
    admissions: Annotated[tuple[UnitAdmission, ...], Meta(max_length=32)] = ()
    conditions: tuple[StandardCondition, ...] = ()  # conditions of the unit
    requeue_state: UnitRequeueState | None = None  # backoff after an eviction
    #: running time before the last eviction
    accumulated_past_execution_time_seconds: Int32 | None = None


class QueueUnit(CustomResource, frozen=True, kw_only=True):
    """A job that waits for room in its quota, or has it."""

    API_VERSION: ClassVar[str] = "scheduling.x-k8s.io/v1alpha1"
    KIND: ClassVar[str] = "QueueUnit"
    PLURAL: ClassVar[str] = "queueunits"
    SHORT_NAMES: ClassVar[tuple[str, ...]] = ("qu", "qus")
    SUBRESOURCE_STATUS: ClassVar[bool] = True
    PRINTER_COLUMNS: ClassVar[tuple[PrinterColumn, ...]] = (
        PrinterColumn("PHASE", ".status.phase"),
        PrinterColumn("PRIORITY", ".spec.priority", "integer"),
        PrinterColumn("ADMISSIONS", ".status.admissions[*].replicas"),
        PrinterColumn("JOBTYPE", ".spec.consumerRef.kind"),
    )

    spec: QueueUnitSpec = QueueUnitSpec()
    status: QueueUnitStatus = QueueUnitStatus()


class UntypedJob(KubeObject, frozen=True, kw_only=True):
    """Fields that jobs of all kinds share."""

    API_VERSION: ClassVar[str] = ""
    KIND: ClassVar[str] = ""
    PLURAL: ClassVar[str] = ""

    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}


class PyTorchJob(UntypedJob, frozen=True, kw_only=True):
    """Training with PyTorch."""

    API_VERSION: ClassVar[str] = "kubeflow.org/v1"
    KIND: ClassVar[str] = "PyTorchJob"
    PLURAL: ClassVar[str] = "pytorchjobs"


class TfJob(UntypedJob, frozen=True, kw_only=True):
    """Training with TensorFlow."""

    API_VERSION: ClassVar[str] = "kubeflow.org/v1"
    KIND: ClassVar[str] = "TFJob"
    PLURAL: ClassVar[str] = "tfjobs"


class MpiJob(UntypedJob, frozen=True, kw_only=True):
    """Processes that speak MPI."""

    API_VERSION: ClassVar[str] = "kubeflow.org/v2beta1"
    KIND: ClassVar[str] = "MPIJob"
    PLURAL: ClassVar[str] = "mpijobs"


class RayJob(UntypedJob, frozen=True, kw_only=True):
    """A Ray cluster with a program for it."""

    API_VERSION: ClassVar[str] = "ray.io/v1"
    KIND: ClassVar[str] = "RayJob"
    PLURAL: ClassVar[str] = "rayjobs"


class SparkApplication(UntypedJob, frozen=True, kw_only=True):
    """A driver with executors."""

    API_VERSION: ClassVar[str] = "sparkoperator.k8s.io/v1beta2"
    KIND: ClassVar[str] = "SparkApplication"
    PLURAL: ClassVar[str] = "sparkapplications"


class JobSet(UntypedJob, frozen=True, kw_only=True):
    """Jobs that belong together."""

    API_VERSION: ClassVar[str] = "jobset.x-k8s.io/v1alpha2"
    KIND: ClassVar[str] = "JobSet"
    PLURAL: ClassVar[str] = "jobsets"


class Workflow(UntypedJob, frozen=True, kw_only=True):
    """Steps of Argo."""

    API_VERSION: ClassVar[str] = "argoproj.io/v1alpha1"
    KIND: ClassVar[str] = "Workflow"
    PLURAL: ClassVar[str] = "workflows"


KINDS = (
    Queue,
    QueueUnit,
    PyTorchJob,
    TfJob,
    MpiJob,
    RayJob,
    SparkApplication,
    JobSet,
    Workflow,
)
