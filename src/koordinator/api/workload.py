"""Workloads: which pods are copies of one another, and how many there should be.

Source: k8s.io/api apps/v1/types.go, batch/v1/types.go, core/v1/types.go.
"""

import datetime as dt
from typing import ClassVar

from koordinator.api.meta import ApiStruct, Condition, Int32, KubeObject, LabelSelector, ObjectMeta
from koordinator.api.pod import PodTemplateSpec
from koordinator.api.volume import PersistentVolumeClaim


class ReplicationControllerSpec(ApiStruct, frozen=True, kw_only=True):
    """``replicas`` is 1 if not set."""

    replicas: int | None = None
    selector: dict[str, str] = {}


class WorkloadSpec(ApiStruct, frozen=True, kw_only=True):
    """``replicas`` is 1 if not set, and of no meaning for a DaemonSet."""

    replicas: int | None = None
    selector: LabelSelector | None = None


class WorkloadStatus(ApiStruct, frozen=True, kw_only=True):
    """Number of replicas."""

    replicas: int = 0
    ready_replicas: int = 0


class JobSpec(ApiStruct, frozen=True, kw_only=True):
    """``parallelism`` pods at a time until ``completions`` of them succeeded.

    The pods of one that is ``suspend`` ed are deleted, and none are made.
    """

    parallelism: int | None = None
    completions: int | None = None
    suspend: bool | None = None
    selector: LabelSelector | None = None
    template: PodTemplateSpec | None = None


class JobStatus(ApiStruct, frozen=True, kw_only=True):
    """Numbers of pods by state; ``start_time`` is None while the job is suspended."""

    active: Int32 = 0
    ready: Int32 | None = None
    succeeded: Int32 = 0
    failed: Int32 = 0
    start_time: dt.datetime | None = None
    conditions: tuple[Condition, ...] = ()


class ReplicationController(KubeObject, frozen=True, kw_only=True):
    """The predecessor of the ReplicaSet."""

    API_VERSION: ClassVar[str] = "v1"
    KIND: ClassVar[str] = "ReplicationController"
    PLURAL: ClassVar[str] = "replicationcontrollers"

    spec: ReplicationControllerSpec = ReplicationControllerSpec()
    status: WorkloadStatus = WorkloadStatus()


class ReplicaSet(KubeObject, frozen=True, kw_only=True):
    """Copies of one version of a pod."""

    API_VERSION: ClassVar[str] = "apps/v1"
    KIND: ClassVar[str] = "ReplicaSet"
    PLURAL: ClassVar[str] = "replicasets"

    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()


class Deployment(KubeObject, frozen=True, kw_only=True):
    """Copies of a pod, through its versions."""

    API_VERSION: ClassVar[str] = "apps/v1"
    KIND: ClassVar[str] = "Deployment"
    PLURAL: ClassVar[str] = "deployments"

    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()


class StatefulSet(KubeObject, frozen=True, kw_only=True):
    """Copies of a pod with names of their own."""

    API_VERSION: ClassVar[str] = "apps/v1"
    KIND: ClassVar[str] = "StatefulSet"
    PLURAL: ClassVar[str] = "statefulsets"

    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()


class DaemonSet(KubeObject, frozen=True, kw_only=True):
    """One pod on every node."""

    API_VERSION: ClassVar[str] = "apps/v1"
    KIND: ClassVar[str] = "DaemonSet"
    PLURAL: ClassVar[str] = "daemonsets"

    spec: WorkloadSpec = WorkloadSpec()


class Job(KubeObject, frozen=True, kw_only=True):
    """Pods that run to their end."""

    API_VERSION: ClassVar[str] = "batch/v1"
    KIND: ClassVar[str] = "Job"
    PLURAL: ClassVar[str] = "jobs"

    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


class CronJob(KubeObject, frozen=True, kw_only=True):
    """Jobs at certain times."""

    API_VERSION: ClassVar[str] = "batch/v1"
    KIND: ClassVar[str] = "CronJob"
    PLURAL: ClassVar[str] = "cronjobs"


class JobTemplate(ApiStruct, frozen=True, kw_only=True):
    """The Job that a CronJob makes copies of."""

    spec: "PodControllerSpec"
    metadata: ObjectMeta = ObjectMeta()


class StatefulSetOrdinals(ApiStruct, frozen=True, kw_only=True):
    """``start`` is the number of the first pod."""

    start: Int32 = 0


class PodControllerSpec(ApiStruct, frozen=True, kw_only=True):
    """Number and template of the pods that a workload of any kind creates.

    Apart from the kinds above, because a scheduler that follows ten thousands of ReplicaSets needs
    none of their templates.
    """

    replicas: Int32 | None = None
    parallelism: Int32 | None = None
    completions: Int32 | None = None
    completion_mode: str = ""
    suspend: bool = False
    paused: bool = False
    managed_by: str | None = None
    manual_selector: bool = False
    pod_replacement_policy: str | None = None
    template: PodTemplateSpec | None = None
    volume_claim_templates: tuple[PersistentVolumeClaim, ...] = ()
    ordinals: StatefulSetOrdinals = StatefulSetOrdinals()
    job_template: JobTemplate | None = None


class PodControllerStatus(ApiStruct, frozen=True, kw_only=True):
    """Progress of a Job; indexes as in ``1,3-5``."""

    succeeded: Int32 = 0
    completed_indexes: str = ""
    failed_indexes: str = ""
    conditions: tuple[Condition, ...] = ()


class PodController(ApiStruct, frozen=True, kw_only=True):
    """Fields of a workload of any kind that determine its pods."""

    spec: PodControllerSpec
    metadata: ObjectMeta = ObjectMeta()
    status: PodControllerStatus = PodControllerStatus()


KINDS = (ReplicationController, ReplicaSet, Deployment, StatefulSet, DaemonSet, Job, CronJob)
