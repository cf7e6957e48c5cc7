"""Manager on an in-memory cluster with a virtual clock and in-process admission."""

from collections.abc import Iterable, Sequence

import numpy as np
from msgspec.structs import replace

from koordinator.api.core import ConfigMap
from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.meta import KubeObject, ObjectMeta
from koordinator.api.pod import Pod
from koordinator.api.reservation import Reservation
from koordinator.cluster.memory.admission import default_storage_class, shipped_priority_classes
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.foundation.clock import VirtualClock
from koordinator.foundation.errors import FaultHandler, FaultLog, raise_fault
from koordinator.manager.admission.gates import DEFAULT_GATES, ManagerFeature
from koordinator.manager.admission.hooks import HookOptions
from koordinator.manager.app import Manager, ManagerOptions
from koordinator.simulator.admission_hooks import admission_hooks
from koordinator.simulator.embedded import keep_or_resolve_priority
from koordinator.simulator.once import ChangeRecorder, Changes

_ADMITTED = (Pod, ElasticQuota, Reservation, ConfigMap)
_PERCENTS = 100


class ManagedCluster:
    """In-memory cluster with admission and a manager; ``seed`` seeds all random draws."""

    def __init__(
        self,
        options: ManagerOptions | None = None,
        gates: Iterable[ManagerFeature] = DEFAULT_GATES,
        *,
        now_s: float = 0.0,
        seed: int = 0,
        on_fault: FaultHandler = raise_fault,
    ) -> None:
        rng = np.random.default_rng(seed)
        self.options = options or ManagerOptions()
        place = (self.options.config_namespace, self.options.config_name)
        hooks = HookOptions(gates=frozenset(gates), config=place)

        def percent() -> int:
            return int(rng.integers(_PERCENTS))

        self.clock = VirtualClock(now_s)
        self.cluster = MemoryCluster(
            self.clock,
            admission=(
                keep_or_resolve_priority,
                admission_hooks(hooks, percent, on_fault=on_fault),
                default_storage_class,
            ),
            status_admission=(admission_hooks(hooks, percent, "status", on_fault),),
        )
        self.manager = Manager(self.cluster, self.clock, self.options, on_fault=on_fault)

    def load(self, objects: Iterable[KubeObject]) -> list[KubeObject]:
        """Add existing objects, then new ones; return the new ones that admission changed.

        New objects are pods without a node, quotas, reservations and ConfigMaps that have no uid.
        Raises InvalidError for an object that admission rejects.
        """
        given = list(objects)
        given += shipped_priority_classes(given)
        new = [obj for obj in given if _is_new(obj)]
        self.cluster.load(obj for obj in given if not _is_new(obj))
        changed: list[KubeObject] = []
        for obj in sorted(new, key=lambda obj: isinstance(obj, Pod)):
            self.cluster.load([obj], admit=True)
            namespace = obj.metadata.namespace or "default"
            stored = self.cluster.get(type(obj), obj.metadata.name, namespace)
            if _without_identity(stored) != _without_identity(obj):
                changed.append(stored)
        return changed

    def run_to_fixed_point(self) -> None:
        """Reconcile to a fixed point without advancing the clock."""
        while self.manager.step():
            pass


def manage_once(
    objects: Iterable[KubeObject],
    options: ManagerOptions | None = None,
    gates: Iterable[ManagerFeature] = DEFAULT_GATES,
    *,
    now_s: float,
) -> Changes:
    """Run admission and controllers to a fixed point; return the changes.

    A fault affects its object only and is listed in ``faults`` of the result.
    Raises InvalidError for an object that admission rejects.
    """
    faults = FaultLog()
    world = ManagedCluster(options, gates, now_s=now_s, on_fault=faults)
    admitted = world.load(objects)
    recorder = ChangeRecorder(world.cluster)
    world.run_to_fixed_point()
    changes = recorder.changes()
    touched = {(type(obj), obj.key) for obj in changes.changed}
    before: Sequence[KubeObject] = [o for o in admitted if (type(o), o.key) not in touched]
    return Changes(changes.created, [*before, *changes.changed], changes.deleted, faults)


def _is_new(obj: KubeObject) -> bool:
    if not isinstance(obj, _ADMITTED) or obj.metadata.uid:
        return False
    return not (isinstance(obj, Pod) and obj.spec.node_name)


def _without_identity(obj: KubeObject) -> object:
    """Return an object without its status and without the fields that only a server sets."""
    meta = ObjectMeta(labels=obj.metadata.labels, annotations=obj.metadata.annotations)
    if isinstance(obj, Pod):
        # The priority follows from the priority class and is not a change by admission hooks.
        spec = replace(obj.spec, priority=None, preemption_policy=None)
        return meta, spec
    return meta, [
        getattr(obj, name) for name in obj.__struct_fields__ if name not in ("metadata", "status")
    ]
