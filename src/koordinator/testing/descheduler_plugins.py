"""What every plugin of the descheduler promises, be it one of ours or of anybody else.

A package with a plugin of its own calls ``check_plugin`` with a ``DeschedulerPluginExample`` in
which the plugin wants some pod to go: a suite in which a plugin never speaks would say nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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

_DEFAULT_EVICTOR = {"disabled": [{"name": "*"}], "enabled": [{"name": "DefaultEvictor"}]}
_ORDERS = 3  # in which objects become known


@dataclass(frozen=True, slots=True)
class DeschedulerPluginExample:
    """A cluster in which a plugin with these arguments wants pods to go, all owned by somebody."""

    spec: DeschedulerPluginSpec[Any]
    point: str  # deschedule or balance
    objects: Sequence[KubeObject]
    now_s: float
    args: Mapping[str, Any] = field(default_factory=dict)


def check_plugin(example: DeschedulerPluginExample) -> None:
    """Raise AssertionError that says which promise the plugin breaks."""
    name = example.spec.name
    gone = _evicted(example)
    assert gone, f"{name} wants no pod to go: the example says nothing"
    _check_the_dry_run(example)
    _check_limits(example, len(gone))
    assert _evicted(example, protects="all") == set(), f"{name} evicts pods that filters keep"
    for seed in range(_ORDERS):
        found = _evicted(example, seed=seed)
        assert found == gone, (
            f"{name} depends on the order in which objects become known: "
            f"{sorted(gone ^ found)} go in one order only"
        )


def _check_the_dry_run(example: DeschedulerPluginExample) -> None:
    world = _World(example, dryRun=True)
    before = world.contents()
    world.run()
    assert world.contents() == before, f"{example.spec.name} writes in a dry run"


def _check_limits(example: DeschedulerPluginExample, count: int) -> None:
    name = example.spec.name
    for limit in (0, 1):
        found = _evicted(example, maxNoOfPodsToEvictTotal=limit)
        assert len(found) <= min(limit, count), f"{name} evicts more than the limit of {limit}"
    assert _evicted(example, maxNoOfPodsToEvictPerNode=0) == set(), f"{name} knows no node limit"
    per_namespace = _evicted(example, maxNoOfPodsToEvictPerNamespace=0)
    assert per_namespace == set(), f"{name} knows no limit of a namespace"


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
    """The example's cluster with a descheduler that runs its plugin alone."""

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
        evictor = {"labelSelector": {"matchLabels": {"nobody": "has-this"}}} if protects else {}
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
        if seed is not None:  # what is there at first comes in the order of names
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
