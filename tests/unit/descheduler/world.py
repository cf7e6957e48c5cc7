"""An in-memory cluster with a descheduler on it."""

from collections.abc import Iterable, Mapping
from typing import Any

from tests.worlds import START_S

from koordinator.api.kubescheduler import KubeSchedulerConfiguration
from koordinator.api.meta import JsonObject, KubeObject
from koordinator.api.pod import Pod
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.descheduler.app import Descheduler
from koordinator.descheduler.configuration import decode_descheduler_configuration
from koordinator.descheduler.contract import DeschedulerPluginSpec
from koordinator.descheduler.evictor import MoveVerdict
from koordinator.descheduler.metrics import DeschedulerMetrics
from koordinator.foundation.clock import VirtualClock
from koordinator.scheduler.fork import follow_cluster

DEFAULT_EVICTOR = {"disabled": [{"name": "*"}], "enabled": [{"name": "DefaultEvictor"}]}


def profile_of(
    point: str, plugin: str, args: Mapping[str, Any] | None = None, **evictor: Any
) -> JsonObject:
    """Return a profile that runs one plugin and evicts with the DefaultEvictor."""
    return {
        "plugins": {
            point: {"enabled": [{"name": plugin}]},
            "evict": DEFAULT_EVICTOR,
            "filter": DEFAULT_EVICTOR,
        },
        "pluginConfig": [
            {"name": plugin, "args": dict(args or {})},
            {"name": "DefaultEvictor", "args": evictor},
        ],
    }


class DeschedulerWorld:
    """A cluster, time and a descheduler."""

    def __init__(
        self,
        *objects: KubeObject,
        profile: JsonObject,
        out_of_tree: Iterable[DeschedulerPluginSpec[Any]] = (),
        metrics: DeschedulerMetrics | None = None,
        prover: KubeSchedulerConfiguration | None = None,
        **configuration: Any,
    ) -> None:
        self.clock = VirtualClock(START_S)
        self.cluster = MemoryCluster(self.clock)
        self.cluster.load(objects)
        self.verdicts: list[MoveVerdict] = []
        data = {
            "apiVersion": "descheduler/v1alpha2",
            "kind": "DeschedulerConfiguration",
            "profiles": [profile],
            **configuration,
        }
        self.descheduler = Descheduler(
            self.cluster,
            self.clock,
            decode_descheduler_configuration(data, "test"),
            out_of_tree=out_of_tree,
            source="test",
            metrics=metrics,
            fork=follow_cluster(self.cluster, self.clock, prover) if prover else None,
            on_move=self.verdicts.append,
        )
        self.descheduler.sync()

    def pods(self) -> set[str]:
        """Return the names of pods that stay."""
        return {
            pod.metadata.name
            for pod in self.cluster.list(Pod).items
            if pod.metadata.deletion_timestamp is None
        }

    def evicted(self) -> set[str]:
        """Work until nothing is due; return the names of pods that have to go by it."""
        before = self.pods()
        while self.descheduler.step():
            pass
        return before - self.pods()
