"""Jobs of other operators, with the untyped fields that queues read.

Which of their fields say what is data: ``koordinator.manager.queue_units.kinds``.

Source: kubeflow/training-operator and kubeflow/mpi-operator pkg/apis, ray-project/kuberay
ray-operator/apis/ray/v1, kubeflow/spark-operator api/v1beta2, kubernetes-sigs/jobset
api/jobset/v1alpha2, argoproj/argo-workflows pkg/apis/workflow/v1alpha1.
"""

from typing import Any, ClassVar

from koordinator.api.meta import KubeObject


class UntypedJob(KubeObject, frozen=True, kw_only=True):
    """What all of them have."""

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


KINDS = (PyTorchJob, TfJob, MpiJob, RayJob, SparkApplication, JobSet, Workflow)
