"""Contract suite for descheduler plugins, in and out of tree.

A package with a plugin calls ``check_plugin`` with a ``DeschedulerPluginExample`` in which the
plugin evicts a pod; an example without an eviction fails, as it proves nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from koordinator.api.event import Event
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.api.registry import KINDS
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.descheduler.app import Descheduler
from koordinator.descheduler.configuration import decode_descheduler_configuration
from koordinator.descheduler.contract import DeschedulerPluginSpec
from koordinator.foundation.clock import VirtualClock
from koordinator.foundation.lazy_dataclass import dataclass

_DEFAULT_EVICTOR = {"disabled": [{"name": "*"}], "enabled": [{"name": "DefaultEvictor"}]}
_ORDERS = 3  # number of tested orders of arrival


@dataclass(frozen=True, slots=True)
class DeschedulerPluginExample:
    """Cluster in which a plugin with these arguments evicts pods; all pods have an owner."""

    spec: DeschedulerPluginSpec[Any]
    point: str  # deschedule or balance
    objects: Sequence[KubeObject]
    now_s: float
    args: Mapping[str, Any] = field(default_factory=dict)


def check_plugin(example: DeschedulerPluginExample) -> None:
    """Raise AssertionError with the rule that the plugin violates."""
    name = example.spec.name
    evicted = _evicted(example)
    assert evicted, f"{name} evicts no pod in its example, which proves nothing"
    _check_dry_run(example)
    _check_limits(example, len(evicted))
    assert _evicted(example, protects="all") == set(), f"{name} evicts pods that filters protect"
    for seed in range(_ORDERS):
        other = _evicted(example, seed=seed)
        assert other == evicted, (
            f"{name} depends on the order of arrival of objects: "
            f"{sorted(evicted ^ other)} are evicted in one order only"
        )


def _check_dry_run(example: DeschedulerPluginExample) -> None:
    world = _World(example, dryRun=True)
    before = world.contents()
    world.run()
    assert world.contents() == before, f"{example.spec.name} writes in a dry run"


def _check_limits(example: DeschedulerPluginExample, count: int) -> None:
    name = example.spec.name
    for limit in (0, 1):
        evicted = _evicted(example, maxNoOfPodsToEvictTotal=limit)
        assert len(evicted) <= min(limit, count), f"{name} evicts more than the limit of {limit}"
    assert _evicted(example, maxNoOfPodsToEvictPerNode=0) == set(), (
        f"{name} ignores the limit per node"
    )
    per_namespace = _evicted(example, maxNoOfPodsToEvictPerNamespace=0)
    assert per_namespace == set(), f"{name} ignores the limit per namespace"


def _evicted(
    example: DeschedulerPluginExample,
    *,
    protects: str = "",
    seed: int | None = None,
    **configuration: Any,
) -> set[str]:
    world = _World(example, protects=protects, seed=seed, **configuration)
    before = world.pods()
    world.run()
    return before - world.pods()


class _World:
    """The example's cluster with a descheduler that runs only its plugin."""

    def __init__(
        self,
        example: DeschedulerPluginExample,
        *,
        protects: str = "",
        seed: int | None = None,
        **more: Any,
    ) -> None:
        objects = list(example.objects)
        if seed is not None:
            order = np.random.default_rng(seed).permutation(len(objects))
            objects = [objects[index] for index in order]
        clock = VirtualClock(example.now_s)
        self._cluster = MemoryCluster(clock)
        if seed is None:
            self._cluster.load(objects)
        evictor = (
            {"labelSelector": {"matchLabels": {"no-pod": "has-this-label"}}} if protects else {}
        )
        profile = {
            "plugins": {
                example.point: {"enabled": [{"name": example.spec.name}]},
                "evict": _DEFAULT_EVICTOR,
                "filter": _DEFAULT_EVICTOR,
            },
            "pluginConfig": [
                {"name": example.spec.name, "args": dict(example.args)},
                {"name": "DefaultEvictor", "args": evictor},
            ],
        }
        data = {
            "apiVersion": "descheduler/v1alpha2",
            "kind": "DeschedulerConfiguration",
            "profiles": [profile],
            **more,
        }
        configuration = decode_descheduler_configuration(data, "suite")
        self._descheduler = Descheduler(
            self._cluster, clock, configuration, out_of_tree=[example.spec], source="suite"
        )
        self._descheduler.sync()
        if seed is not None:  # initial objects are listed by name, later ones arrive in order
            self._cluster.load(objects)

    def run(self) -> None:
        while self._descheduler.step():
            pass
        cycle = self._descheduler.last_cycle
        assert cycle is not None
        assert not cycle.problems, cycle.problems

    def pods(self) -> set[str]:
        listed = self._cluster.list(Pod).items
        return {pod.key for pod in listed if pod.metadata.deletion_timestamp is None}

    def contents(self) -> list[KubeObject]:
        """Return all objects but events."""
        kinds = (kind for kind in KINDS if kind is not Event)
        return [obj for kind in kinds for obj in self._cluster.list(kind).items]
