"""The objects of a cluster that has a manager, and of the same cluster without one."""

from collections.abc import Iterable, Sequence

import numpy as np

from koordinator.api.cluster_colocation_profile import ClusterColocationProfile
from koordinator.api.config_map import ConfigMap
from koordinator.api.meta import KubeObject, ObjectMeta
from koordinator.api.priority import PriorityClass
from koordinator.api.qos import SHIPPED_PRIORITY_CLASSES
from koordinator.api.slo_config import CONFIG_NAME, CONFIG_NAMESPACE
from koordinator.cluster.memory.admission import Admission, default_storage_class
from koordinator.manager.admission.gates import DEFAULT_GATES
from koordinator.simulator.embedded import keep_or_resolve_priority

_PERCENTS = 100


def managed_admission(rng: np.random.Generator) -> Sequence[Admission]:
    """Return what becomes of objects where a manager's webhooks are asked."""
    from koordinator.manager.admission.hooks import (  # noqa: PLC0415 -- admission is not loaded
        HookOptions,  # for workloads without a manager, nor for all other commands
    )
    from koordinator.simulator.admission_hooks import admission_hooks  # noqa: PLC0415 -- as above

    hooks = HookOptions(gates=frozenset(DEFAULT_GATES), config=(CONFIG_NAMESPACE, CONFIG_NAME))
    asked = admission_hooks(hooks, lambda: int(rng.integers(_PERCENTS)))
    return (keep_or_resolve_priority, asked, default_storage_class)


def is_configuration(obj: KubeObject) -> bool:
    """Tell whether it is the manager's configuration."""
    meta = obj.metadata
    return isinstance(obj, ConfigMap) and (meta.namespace, meta.name) == (
        CONFIG_NAMESPACE,
        CONFIG_NAME,
    )


def unmanaged_objects(objects: Iterable[KubeObject]) -> list[KubeObject]:
    """Return the objects without those that only a manager reads."""
    return [
        obj
        for obj in objects
        if not isinstance(obj, ClusterColocationProfile) and not is_configuration(obj)
    ]


def managed_objects(objects: Iterable[KubeObject]) -> list[KubeObject]:
    """Return the objects and what every installation of a manager has."""
    given = list(objects)
    return [*given, *shipped_priority_classes(given)]


def shipped_priority_classes(given: Iterable[KubeObject]) -> list[KubeObject]:
    """Return the priority classes that every installation has."""
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
