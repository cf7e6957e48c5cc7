"""Kinds of queued jobs, as paths into their manifests.

``*`` in a path matches every item of a list or of a mapping.

Source: koord-queue's job extensions; the types of ``koordinator.api.queue_unit``.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from koordinator.api.meta import KubeObject
from koordinator.api.queue_unit import (
    JobSet,
    MpiJob,
    PyTorchJob,
    RayJob,
    SparkApplication,
    TfJob,
    Workflow,
)
from koordinator.api.workload import Job
from koordinator.foundation.lazy_dataclass import dataclass

FieldPath = tuple[str, ...]
_TEMPLATE: Final = ("template",)

_RUN_POLICY: Final = ("spec", "runPolicy", "suspend")


@dataclass(frozen=True, slots=True)
class PodSetSource:
    """Paths to the pod sets of a job: entries, each with a template and counts of pods.

    Counts of several paths are multiplied; a missing one is 1, or the value of ``default_counts``
    for the key of the entry.  The name of a pod set is the entry's field ``name``, or its key in a
    mapping, or ``fallback``.
    """

    entries: FieldPath
    counts: tuple[FieldPath, ...] = ()
    template: FieldPath = _TEMPLATE
    name: FieldPath = ()
    fallback: str = "main"
    default_counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JobKind:
    """A kind of jobs.

    ``suspend`` is the path of the field that suspends a job; the annotation
    ``scheduling.x-k8s.io/suspend`` does the same.  The state of a job is its ``phase`` or, without
    that path, the types of its true conditions.
    """

    name: str  # as in --enabled-extensions
    type: type[KubeObject]
    suspend: FieldPath
    pod_sets: tuple[PodSetSource, ...]
    suffix: str = ""  # of the names of its units
    phase: FieldPath = ()
    running: frozenset[str] = frozenset(("Running",))
    succeeded: frozenset[str] = frozenset(("Succeeded",))
    failed: frozenset[str] = frozenset(("Failed",))


BATCH_JOB: Final = JobKind(
    "job",
    Job,
    ("spec", "suspend"),
    (PodSetSource(("spec",), (("parallelism",),)),),
    running=frozenset(),  # derived from its counts of pods
    succeeded=frozenset(("Complete", "SuccessCriteriaMet")),
    failed=frozenset(("Failed", "FailureTarget")),
)
SPARK: Final = JobKind(
    "sparkapp",
    SparkApplication,
    ("spec", "suspend"),
    (),  # it has no templates: see ``pod_sets``
    suffix="-spark-qu",
    phase=("status", "applicationState", "state"),
    running=frozenset(("RUNNING", "SUCCEEDING", "FAILING")),
    succeeded=frozenset(("COMPLETED",)),
    failed=frozenset(("FAILED", "SUBMISSION_FAILED")),
)
WORKFLOW: Final = JobKind(
    "workflow",
    Workflow,
    ("spec", "suspend"),
    (),  # its steps run in sequence: see ``pod_sets``
    suffix="-argo-qu",
    phase=("status", "phase"),
    failed=frozenset(("Failed", "Error")),
)

RAY: Final = JobKind(
    "rayjob",
    RayJob,
    ("spec", "suspend"),
    (),  # its operator adds pods and containers: see ``pod_sets``
    suffix="-ray-qu",
    phase=("status", "jobDeploymentStatus"),
    succeeded=frozenset(("Complete",)),
)
JOB_SET: Final = JobKind(
    "jobset",
    JobSet,
    ("spec", "suspend"),
    (
        PodSetSource(
            ("spec", "replicatedJobs", "*"),
            (("replicas",),),  # times the parallelism of a Job: see ``pod_sets``
            template=("template", "spec", "template"),
            name=("name",),
        ),
    ),
    suffix="-jobset-qu",
    running=frozenset(("StartupPolicyCompleted",)),
    succeeded=frozenset(("Completed",)),
)

JOB_KINDS: Final[tuple[JobKind, ...]] = (
    BATCH_JOB,
    JobKind(
        "pytorchjob",
        PyTorchJob,
        _RUN_POLICY,
        (PodSetSource(("spec", "pytorchReplicaSpecs", "*"), (("replicas",),)),),
        suffix="-py-qu",
    ),
    JobKind(
        "tfjob",
        TfJob,
        _RUN_POLICY,
        (PodSetSource(("spec", "tfReplicaSpecs", "*"), (("replicas",),)),),
        suffix="-tf-qu",
    ),
    JobKind(
        "mpijob",
        MpiJob,
        _RUN_POLICY,
        (
            PodSetSource(
                ("spec", "mpiReplicaSpecs", "*"), (("replicas",),), default_counts={"Worker": 0}
            ),
        ),
        suffix="-mpi-qu",
    ),
    RAY,
    SPARK,
    JOB_SET,
    WORKFLOW,
)

BY_NAME: Final = {kind.name: kind for kind in JOB_KINDS}
