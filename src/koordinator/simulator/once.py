"""Recorder of the changes that a component makes in a cluster, and a single scheduler run."""

from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from typing import Any

from koordinator.api.codec import to_manifest
from koordinator.api.kubescheduler import NO_GATES, FeatureGates, KubeSchedulerConfiguration
from koordinator.api.meta import JsonObject, KubeObject
from koordinator.api.registry import KINDS
from koordinator.cluster.port import Cluster, EventType
from koordinator.foundation.errors import FaultLog
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.contract import PluginSpec
from koordinator.scheduler.features.explanations import Explanations
from koordinator.simulator.embedded import Embedded


@dataclass(frozen=True, slots=True)
class Changes:
    """Final states of changed objects, in the order of their first change."""

    created: Sequence[KubeObject]
    changed: Sequence[KubeObject]
    deleted: Sequence[KubeObject]
    faults: FaultLog = field(default_factory=FaultLog)  # faults of plugins; call ``check``

    def as_data(self) -> dict[str, list[JsonObject]]:
        """Return the objects as manifests."""
        return {
            "created": [to_manifest(obj) for obj in self.created],
            "changed": [to_manifest(obj) for obj in self.changed],
            "deleted": [to_manifest(obj) for obj in self.deleted],
        }


class ChangeRecorder:
    """Recorder of changes to a cluster since its creation."""

    def __init__(self, cluster: Cluster) -> None:
        self._watch = cluster.watch(KINDS)
        self._before: dict[tuple[type[KubeObject], str], KubeObject] = {}
        for event in self._watch.poll():
            if event.type is EventType.ADDED:
                self._before[type(event.object), event.object.key] = event.object

    def changes(self) -> Changes:
        """Return the changes, without objects that were created and deleted again."""
        touched: dict[tuple[type[KubeObject], str], KubeObject | None] = {}
        last: dict[tuple[type[KubeObject], str], KubeObject] = {}
        for event in self._watch.poll():
            if event.type is not EventType.BOOKMARK:
                key = (type(event.object), event.object.key)
                touched[key] = None if event.type is EventType.DELETED else event.object
                last[key] = event.object
        before = self._before
        return Changes(
            created=[obj for key, obj in touched.items() if obj and key not in before],
            changed=[obj for key, obj in touched.items() if obj and key in before],
            deleted=[last[key] for key, obj in touched.items() if obj is None and key in before],
        )


def schedule_once(
    objects: Iterable[KubeObject],
    configuration: KubeSchedulerConfiguration,
    *,
    now_s: float,
    out_of_tree: Iterable[PluginSpec[Any]] = (),
    source: str = "",
    gates: FeatureGates = NO_GATES,
) -> Changes:
    """Run the scheduler to a fixed point; return the changes.

    Raises InputError, and InvalidError for an object that admission rejects.
    """
    faults = FaultLog()
    world = Embedded(
        configuration,
        now_s=now_s,
        out_of_tree=out_of_tree,
        source=source,
        gates=gates,
        on_fault=faults,
    )
    world.load(objects)
    recorder = ChangeRecorder(world.cluster)
    world.run_to_fixed_point()
    world.scheduler.report()
    Explanations(world.scheduler.handle).step(finish=True)
    return replace(recorder.changes(), faults=faults)
