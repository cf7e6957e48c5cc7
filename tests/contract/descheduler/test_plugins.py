"""Every plugin of the descheduler passes the suite; plugins that break a promise fail it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import replace
from tests.worlds import START_S, gpu_pod, metric, near, node, pod, spread, used, with_status

from koordinator.api.meta import KubeObject
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.descheduler.configuration import DeschedulerPluginArgs
from koordinator.descheduler.contract import DeschedulerPluginSpec, Handle
from koordinator.descheduler.profile import DESCHEDULER_PLUGINS
from koordinator.foundation.clock import to_datetime
from koordinator.simulator.research.openb import TraceNode
from koordinator.simulator.sources.openb import node_objects
from koordinator.testing.descheduler_plugins import DeschedulerPluginExample, check_plugin

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
WEB = {"app": "web"}


def _level(name: str) -> dict[str, Any]:
    return {"name": name, "nodeSelector": {"matchLabels": {"tier": name}}}


#: Extension point and arguments with which a plugin has something to say about ``cluster``.
ARGUMENTS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "LowNodeLoad": (
        "balance",
        {
            "lowThresholds": {"cpu": 30},
            "highThresholds": {"cpu": 60},
            "anomalyCondition": {"consecutiveAbnormalities": 1, "consecutiveNormalities": 1},
        },
    ),
    "CustomPriority": ("balance", {"evictionOrder": [_level("gold"), _level("bronze")]}),
    "FragmentationAware": ("balance", {"nodeFit": False}),
    "GPUDefragmentation": ("balance", {"pendingFor": "0s"}),
    "ScaleDownBinPack": (
        "balance",
        {
            "strategy": "EvictDirectly",
            "maxPodsToEvict": 2,
            "podSelectors": [{"name": "web", "selector": {"matchLabels": WEB}}],
        },
    ),
    "HighNodeUtilization": ("balance", {"thresholds": {"cpu": 20}}),
    "LowNodeUtilization": (
        "balance",
        {"thresholds": {"cpu": 20}, "targetThresholds": {"cpu": 50}},
    ),
    "PodLifeTime": ("deschedule", {"maxPodLifeTimeSeconds": 600}),
    "RemoveDuplicates": ("balance", {}),
    "RemoveFailedPods": ("deschedule", {}),
    "RemovePodsHavingTooManyRestarts": ("deschedule", {"podRestartThreshold": 5}),
    "RemovePodsViolatingInterPodAntiAffinity": ("deschedule", {}),
    "RemovePodsViolatingNodeAffinity": ("deschedule", {"nodeAffinityType": [REQUIRED]}),
    "RemovePodsViolatingNodeTaints": ("deschedule", {}),
    "RemovePodsViolatingTopologySpreadConstraint": ("balance", {}),
}
EVICTORS = {"DefaultEvictor", "MigrationController"}


def _owned(name: str, on: str, cpu: Any = 1, memory: str = "1Gi", **more: Any) -> Pod:
    made = pod(name, cpu, memory, on=on, owner=("ReplicaSet", "r"), **more)
    created = to_datetime(START_S - 7200 - len(name) * 10 - ord(name[-1]))
    return replace(made, metadata=replace(made.metadata, creation_timestamp=created))


def cluster() -> Sequence[KubeObject]:
    """Return a cluster in which much is wrong: each plugin finds something."""
    ssd = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
    misplaced = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [ssd]}}}
    apart = {"podAntiAffinity": near("db")}
    restarts = [{"name": "c", "restartCount": 9}]
    web = [
        _owned(f"web{i}", "n1", labels=WEB, topologySpreadConstraints=[spread()], images=("w",))
        for i in range(6)
    ]
    return [
        node("n1", 10, zone="a", labels={"tier": "gold"}, taints=["new=x:NoSchedule"]),
        node("n2", 10, zone="b", labels={"tier": "bronze", "disk": "ssd"}),
        node("n3", 10, zone="b"),
        *web,
        with_status(_owned("failed", "n1"), phase="Failed"),
        with_status(_owned("restless", "n2", "100m"), containerStatuses=restarts),
        _owned("misplaced", "n1", "100m", affinity=misplaced),
        *(_owned(f"db{i}", "n2", 2, labels={"app": "db"}, affinity=apart) for i in (1, 2)),
        _owned("lonely", "n3", "100m"),
        metric("n1", pods={f"web{i}": used("1300m") for i in range(6)}, system=used("500m")),
        metric("n2", system=used(4)),
        metric("n3", system=used(1)),
    ]


def gpu_cluster() -> Sequence[KubeObject]:
    """Return three nodes of two GPUs, each half used, and a pod that wants two."""
    machines = [TraceNode(f"n{i}", 10_000, 65_536, 2, "A100") for i in (1, 2, 3)]
    whole = {"gpu_core": 100, "gpu_memory_ratio": 100}
    owner = _owned("any", "n1").metadata.owner_references
    running = [gpu_pod(f"p{i}", f"n{i}", minors=[0], **whole) for i in (1, 2, 3)]
    return [
        *(obj for machine in machines for obj in node_objects(machine)),
        *(replace(p, metadata=replace(p.metadata, owner_references=owner)) for p in running),
        gpu_pod("waits", gpu_core=200, gpu_memory_ratio=200),
    ]


def example(spec: DeschedulerPluginSpec[Any]) -> DeschedulerPluginExample:
    point, args = ARGUMENTS[spec.name]
    objects = gpu_cluster() if spec.name == "GPUDefragmentation" else cluster()
    return DeschedulerPluginExample(spec, point, objects, START_S, args)


@pytest.mark.parametrize(
    "spec",
    [spec for spec in DESCHEDULER_PLUGINS if spec.name not in EVICTORS],
    ids=lambda spec: spec.name,
)
def test_plugins_keep_the_contract(spec: DeschedulerPluginSpec[Any]) -> None:
    """Dry run, limits, filters, and independence of the order of news."""
    check_plugin(example(spec))


class BadArgs(DeschedulerPluginArgs, frozen=True, kw_only=True):
    """Arguments without fields."""


@dataclass(frozen=True)
class Bad:
    """A plugin that runs the given action on the pods of the nodes."""

    handle: Handle
    act: Callable[[Handle, Sequence[Pod]], None]

    def deschedule(self, nodes: Sequence[Node]) -> None:
        pods = [p for each in nodes for p in self.handle.view.active_pods_on(each.metadata.name)]
        self.act(self.handle, pods)


def bad(act: Callable[[Handle, Sequence[Pod]], None]) -> DeschedulerPluginExample:
    def build(_: BadArgs, handle: Handle) -> Bad:
        return Bad(handle, act)

    spec = DeschedulerPluginSpec("Bad", BadArgs, build)
    return DeschedulerPluginExample(spec, "deschedule", cluster(), START_S)


def _silent(_handle: Handle, _pods: Sequence[Pod]) -> None:
    """Want nothing."""


def _writes(handle: Handle, pods: Sequence[Pod]) -> None:
    one = pods[0]
    handle.writer.delete(Pod, one.metadata.name, one.metadata.namespace)


def _asks_no_filter(handle: Handle, pods: Sequence[Pod]) -> None:
    handle.evictor.evict(pods[0])


def _takes_the_newest(handle: Handle, _pods: Sequence[Pod]) -> None:
    known = [p for p in handle.view.objects(Pod).values() if handle.evictor.filter(p)]
    if known:
        handle.evictor.evict(known[-1])


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (_silent, "proves nothing"),
        (_writes, "writes in a dry run"),
        (_asks_no_filter, "evicts pods that filters protect"),
        (_takes_the_newest, "depends on the order"),
    ],
)
def test_suite_rejects_faulty_plugins(act: Any, message: str) -> None:
    """The error names the rule that the plugin breaks."""
    with pytest.raises(AssertionError, match=message):
        check_plugin(bad(act))
