"""Admission plugins of the in-memory API server: defaulting and validation before the store.

An admission step is a plain callable ``(operation, obj, cluster) -> obj``: it returns the object,
changed or not, or raises InvalidError.  Steps run in the order of the list; ``cluster`` reads the
state before the request, so an UPDATE step finds the old object there.  What a DELETE step returns
is not used.  Status writes have steps of their own; bindings and evictions are not admitted.
Source: k8s.io/kubernetes v1.35 plugin/pkg/admission: priority/admission.go ``admitPod``,
storage/storageclass/setdefault/admission.go.
"""

from collections.abc import Callable, Iterable
from enum import StrEnum

from msgspec.structs import replace

from koordinator.api.defaults import with_defaults
from koordinator.api.meta import KubeObject, ObjectMeta
from koordinator.api.pod import Pod, PodSpec
from koordinator.api.policy import PriorityClass
from koordinator.api.qos import SHIPPED_PRIORITY_CLASSES
from koordinator.api.validation import validate
from koordinator.api.volume import (
    BETA_STORAGE_CLASS,
    DEFAULT_CLASS_ANNOTATIONS,
    PersistentVolumeClaim,
    StorageClass,
)
from koordinator.cluster.port import Reader
from koordinator.foundation.clock import to_epoch_s
from koordinator.foundation.errors import InputError, InvalidError, NotFoundError

SYSTEM_PRIORITY_CLASSES = tuple(
    PriorityClass(
        metadata=ObjectMeta(name=name), value=value, preemption_policy="PreemptLowerPriority"
    )
    for name, value in (
        ("system-cluster-critical", 2_000_000_000),
        ("system-node-critical", 2_000_001_000),
    )
)

_NO_CLASS = PriorityClass(value=0, preemption_policy="PreemptLowerPriority")  # no name


def shipped_priority_classes(given: Iterable[KubeObject]) -> list[KubeObject]:
    """Return the priority classes of an installation that are not among the objects."""
    known = {obj.metadata.name for obj in given if isinstance(obj, PriorityClass)}
    return [
        PriorityClass(
            metadata=ObjectMeta(name=band),
            value=value,
            preemption_policy="PreemptLowerPriority",
        )
        for band, value in SHIPPED_PRIORITY_CLASSES.items()
        if band not in known
    ]


class WriteOperation(StrEnum):
    """Operation of a write request."""

    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"


Admission = Callable[[WriteOperation, KubeObject, Reader], KubeObject]


def fill_defaults(operation: WriteOperation, obj: KubeObject, cluster: Reader) -> KubeObject:  # noqa: ARG001 -- the signature of a step
    """Set the defaults that the API server sets."""
    return obj if operation is WriteOperation.DELETE else with_defaults(obj)


def resolve_priority(operation: WriteOperation, obj: KubeObject, cluster: Reader) -> KubeObject:
    """Give a new pod the number and the preemption policy of its priority class."""
    if not isinstance(obj, Pod) or operation is WriteOperation.DELETE:
        return obj
    if operation is WriteOperation.CREATE:
        spec = prioritized_spec(obj, cluster)
    else:
        old = cluster.get(Pod, obj.metadata.name, obj.metadata.namespace).spec
        spec = replace(
            obj.spec,
            priority=old.priority if obj.spec.priority is None else obj.spec.priority,
            preemption_policy=obj.spec.preemption_policy or old.preemption_policy,
        )
    return obj if spec == obj.spec else replace(obj, spec=spec)


def default_storage_class(
    operation: WriteOperation, obj: KubeObject, cluster: Reader
) -> KubeObject:
    """Give a new claim that names no class the newest default one; of equals the first by name."""
    if (
        not isinstance(obj, PersistentVolumeClaim)
        or operation is not WriteOperation.CREATE
        or obj.spec.storage_class_name is not None
        or BETA_STORAGE_CLASS in obj.metadata.annotations
    ):
        return obj
    defaults = [c.metadata for c in cluster.list(StorageClass).items if _is_default(c)]
    if not defaults:
        return obj
    chosen = min(defaults, key=lambda meta: (-to_epoch_s(meta.creation_timestamp), meta.name))
    return replace(obj, spec=replace(obj.spec, storage_class_name=chosen.name))


def check_valid(operation: WriteOperation, obj: KubeObject, cluster: Reader) -> KubeObject:  # noqa: ARG001 -- the signature of a step
    """Refuse objects that the API server refuses."""
    if operation is not WriteOperation.DELETE:
        try:
            validate(obj)
        except InputError as error:
            raise InvalidError(str(error)) from error
    return obj


DEFAULT_ADMISSION: tuple[Admission, ...] = (
    fill_defaults,
    resolve_priority,
    default_storage_class,
    check_valid,
)


def _is_default(storage_class: StorageClass) -> bool:
    annotations = storage_class.metadata.annotations
    return any(annotations.get(key) == "true" for key in DEFAULT_CLASS_ANNOTATIONS)


def prioritized_spec(pod: Pod, cluster: Reader) -> PodSpec:
    """Return the spec of a new pod with the number and preemption policy of its priority class.

    Raises InvalidError if the class is unknown or differs from what the pod states.
    """
    spec = pod.spec
    if spec.priority_class_name:
        try:
            priority_class = cluster.get(PriorityClass, spec.priority_class_name)
        except NotFoundError:
            raise InvalidError(
                f"pod {pod.key} is forbidden: "
                f"no PriorityClass with name {spec.priority_class_name} was found"
            ) from None
    else:
        defaults = [c for c in cluster.list(PriorityClass).items if c.global_default]
        priority_class = min(defaults, key=lambda c: c.value, default=_NO_CLASS)
    priority, policy = priority_class.value, priority_class.preemption_policy
    if spec.priority not in (None, priority):
        raise InvalidError(
            f"pod {pod.key} is forbidden: the integer value of priority ({spec.priority}) must not "
            f"be provided in pod spec; priority admission controller computed {priority} from the "
            "given PriorityClass name"
        )
    if policy is not None and spec.preemption_policy not in (None, policy):
        raise InvalidError(
            f"pod {pod.key} is forbidden: the string value of PreemptionPolicy "
            f"({spec.preemption_policy}) must not be provided in pod spec; priority admission "
            f"controller computed {policy} from the given PriorityClass name"
        )
    return replace(
        spec,
        priority_class_name=priority_class.metadata.name,
        priority=priority,
        preemption_policy=policy or spec.preemption_policy,
    )
