"""Objects of a cluster with and without a manager."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from koordinator.api.colocation import ClusterColocationProfile
from koordinator.api.core import ConfigMap
from koordinator.api.meta import KubeObject
from koordinator.api.slo_config import CONFIG_NAME, CONFIG_NAMESPACE
from koordinator.cluster.memory.admission import (
    Admission,
    default_storage_class,
    shipped_priority_classes,
)
from koordinator.manager.admission.gates import DEFAULT_GATES
from koordinator.simulator.embedded import keep_or_resolve_priority

if TYPE_CHECKING:
    import numpy as np

_PERCENTS = 100


def managed_admission(rng: "np.random.Generator") -> Sequence[Admission]:
    """Return the admission steps of a cluster with the manager's webhooks."""
    from koordinator.manager.admission.hooks import HookOptions  # noqa: PLC0415 -- slow import
    from koordinator.simulator.admission_hooks import admission_hooks  # noqa: PLC0415 -- as above

    hooks = HookOptions(gates=frozenset(DEFAULT_GATES), config=(CONFIG_NAMESPACE, CONFIG_NAME))
    webhooks = admission_hooks(hooks, lambda: int(rng.integers(_PERCENTS)))
    return (keep_or_resolve_priority, webhooks, default_storage_class)


def is_configuration(obj: KubeObject) -> bool:
    """Return whether an object is the manager's configuration."""
    meta = obj.metadata
    return isinstance(obj, ConfigMap) and (meta.namespace, meta.name) == (
        CONFIG_NAMESPACE,
        CONFIG_NAME,
    )


def unmanaged_objects(objects: Iterable[KubeObject]) -> list[KubeObject]:
    """Return the objects except the manager's configuration and colocation profiles."""
    return [
        obj
        for obj in objects
        if not isinstance(obj, ClusterColocationProfile) and not is_configuration(obj)
    ]


def managed_objects(objects: Iterable[KubeObject]) -> list[KubeObject]:
    """Return the objects and the missing priority classes of the manager's installation."""
    given = list(objects)
    return [*given, *shipped_priority_classes(given)]
