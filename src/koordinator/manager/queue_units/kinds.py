"""Which kinds of jobs wait in queues, and where their manifests say what is to be known of them.

A kind is data: paths into its manifest.  ``*`` in a path stands for every item of a list or of a
mapping.

Source: koord-queue's job extensions; the types of ``koordinator.api.queued_jobs``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from koordinator.api.meta import KubeObject
from koordinator.api.queued_jobs import (
    JobSet,
    MpiJob,
    PyTorchJob,
    RayJob,
    SparkApplication,
    TfJob,
    Workflow,
)
from koordinator.api.workload import Job

Path = tuple[str, ...]
_TEMPLATE: Final = ("template",)


@dataclass(frozen=True, slots=True)
class PodSetSource:
    """Where pods of a job are described: entries, each with a template and numbers of pods.

    Numbers of several paths multiply; one that is missing is 1, or what ``default_counts`` says for
    the key of the entry.  A set is called as the entry says under ``name``, as its key in a
    mapping, or ``fallback``.
    """

    entries: Path
    counts: tuple[Path, ...] = ()
    template: Path = _TEMPLATE
    name: Path = ()
    fallback: str = "main"
    default_counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JobKind:
    """A kind of jobs.

    ``suspend`` is where a job says that it must not run; the annotation
    ``scheduling.x-k8s.io/suspend`` says it as well.  How far it is stands in ``phase``, or, without
    one, in the types of conditions that are true.
    """

    name: str  # as in --enabled-extensions
    type: type[KubeObject]
    suspend: Path
    pod_sets: tuple[PodSetSource, ...]
    suffix: str = ""  # of the names of its units
    phase: Path = ()
    running: frozenset[str] = frozenset(("Running",))
    succeeded: frozenset[str] = frozenset(("Succeeded",))
    failed: frozenset[str] = frozenset(("Failed",))


_RUN_POLICY: Final = ("spec", "runPolicy", "suspend")

BATCH_JOB: Final = JobKind(
    "job",
    Job,
    ("spec", "suspend"),
    (PodSetSource(("spec",), (("parallelism",),)),),
    running=frozenset(),  # its counts of pods say so
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
    (),  # its steps come one after the other: see ``pod_sets``
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
            (("replicas",),),  # times what a Job runs at once: see ``pod_sets``
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
