"""Cycles of the descheduler: when they run, on which nodes, and what stops them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from tests.unit.descheduler.world import DeschedulerWorld, profile_of
from tests.worlds import made, node, pod

from koordinator.api.core import Namespace
from koordinator.api.meta import KubeObject
from koordinator.api.node import Node
from koordinator.descheduler.app import TOO_SMALL
from koordinator.descheduler.configuration import DeschedulerPluginArgs
from koordinator.descheduler.contract import DeschedulerPluginSpec, Handle
from koordinator.descheduler.metrics import DeschedulerMetrics
from koordinator.foundation.errors import InputError


class EvictAllArgs(DeschedulerPluginArgs, frozen=True, kw_only=True):
    """``problem`` is raised after the evictions."""

    problem: str = ""


@dataclass(frozen=True)
class EvictAll:
    """Plugin that evicts every pod."""

    args: EvictAllArgs
    handle: Handle

    def deschedule(self, nodes: Sequence[Node]) -> None:
        for each in nodes:
            for one in self.handle.view.pods_on(each.metadata.name):
                self.handle.evictor.evict(one, "because")
        if self.args.problem:
            raise InputError(self.args.problem)


def build(args: EvictAllArgs, handle: Handle) -> EvictAll:
    return EvictAll(args, handle)


EVICT_ALL = DeschedulerPluginSpec("EvictAll", EvictAllArgs, build)


def world(*objects: KubeObject, args: Any = None, **configuration: Any) -> DeschedulerWorld:
    profile = profile_of("deschedule", "EvictAll", args)
    return DeschedulerWorld(*objects, profile=profile, out_of_tree=[EVICT_ALL], **configuration)


PODS = [
    pod("a1", on="n1"),
    pod("a2", on="n1"),
    pod("b1", on="n2"),
    pod("b2", on="n2", namespace="other"),
]
CLUSTER: list[KubeObject] = [
    node("n1", labels={"pool": "x"}),
    node("n2", labels={"pool": "x"}),
    node("n3"),
    *PODS,
]


@pytest.mark.parametrize(
    ("limits", "evicted"),
    [
        ({}, {"a1", "a2", "b1", "b2"}),
        ({"maxNoOfPodsToEvictPerNode": 1}, {"a1", "b1"}),
        ({"maxNoOfPodsToEvictPerNamespace": 2}, {"a1", "a2", "b2"}),
        ({"maxNoOfPodsToEvictTotal": 3}, {"a1", "a2", "b1"}),
        ({"maxNoOfPodsToEvictTotal": 0}, set()),
        ({"dryRun": True}, set()),
    ],
)
def test_limits_hold_in_a_cycle(limits: Any, evicted: set[str]) -> None:
    """Per node, per namespace and altogether the eviction beyond the limit is refused."""
    assert world(*CLUSTER, **limits).evicted() == evicted


def test_a_dry_run_counts_against_the_limits() -> None:
    """A dry run reports the same evictions as a real run."""
    one = world(*CLUSTER, dryRun=True, maxNoOfPodsToEvictTotal=3)
    assert one.evicted() == set()
    assert one.descheduler.last_cycle is not None
    assert one.descheduler.last_cycle.evicted == 3


def test_limits_are_reset_in_each_cycle() -> None:
    """A pod protected by a limit is evicted in the next cycle."""
    one = world(*CLUSTER, maxNoOfPodsToEvictTotal=3, deschedulingInterval="60s")
    assert one.evicted() == {"a1", "a2", "b1"}
    one.clock.advance_to(one.clock.now_s() + 59)
    assert one.evicted() == set()
    one.clock.advance_to(one.clock.now_s() + 1)
    assert one.evicted() == {"b2"}


def test_without_an_interval_a_single_cycle_runs() -> None:
    """No further step is due."""
    one = world(*CLUSTER)
    assert one.evicted()
    assert one.descheduler.next_wakeup_s() is None


def test_cycle_includes_only_selected_and_ready_nodes() -> None:
    """The configuration's selector counts for the cluster, as readiness does."""
    selector = {"matchLabels": {"pool": "x"}}
    one = world(*CLUSTER, pod("c", on="n3"), nodeSelector=selector)
    assert one.evicted() == {"a1", "a2", "b1", "b2"}


@pytest.mark.parametrize("names", [(), ("n1",)])
def test_cluster_with_fewer_than_two_nodes_is_skipped(names: Sequence[str]) -> None:
    """An eviction could only disrupt."""
    one = world(*map(node, names), pod("a", on="n1"))
    assert one.evicted() == set()
    assert one.descheduler.last_cycle is not None
    assert one.descheduler.last_cycle.problems == (TOO_SMALL,)


def test_error_of_a_plugin_ends_the_cycle_and_is_reported() -> None:
    """The next cycle runs as scheduled."""
    one = world(*CLUSTER, args={"problem": "no"}, deschedulingInterval="60s")
    one.evicted()
    assert one.descheduler.last_cycle is not None
    assert one.descheduler.last_cycle.problems == ["EvictAll: no"]
    assert one.descheduler.next_wakeup_s() == one.clock.now_s() + 60


def test_follower_evicts_nothing() -> None:
    """A standby follows the cluster and evicts no pod."""
    one = world(*CLUSTER)
    assert one.descheduler.step(leads=False) == 0
    assert one.pods() == {"a1", "a2", "b1", "b2"}


@pytest.mark.parametrize(
    ("plugins", "message"),
    [
        ({"balance": {"enabled": [{"name": "EvictAl"}]}}, 'did you mean "EvictAll"'),
        ({"balance": {"enabled": [{"name": "EvictAll"}]}}, "does not extend balance"),
        ({"evict": {"disabled": [{"name": "*"}]}}, "no evict plugin is enabled"),
    ],
)
def test_invalid_profile_is_rejected(plugins: Any, message: str) -> None:
    """The message names the path and what would be accepted."""
    profile = profile_of("deschedule", "EvictAll")
    profile["plugins"] |= plugins
    with pytest.raises(InputError, match=message) as refused:
        DeschedulerWorld(profile=profile, out_of_tree=[EVICT_ALL])
    assert refused.value.path.startswith("profiles[0].plugins.")
    assert refused.value.source == "test"


def evicted_series(registry: CollectorRegistry) -> set[tuple[str, str]]:
    """Return namespace and node of the series that count evictions."""
    return {
        (sample.labels["namespace"], sample.labels["node"])
        for family in registry.collect()
        for sample in family.samples
        if sample.name == "descheduler_pods_evicted_total"
    }


@pytest.mark.parametrize("leads", [True, False])
def test_series_of_nodes_deleted_between_terms_of_leadership_are_removed(*, leads: bool) -> None:
    """The descheduler of the next term finds them missing, also while it follows another one."""
    registry = CollectorRegistry()
    metrics = DeschedulerMetrics(registry)
    namespaces = [made("Namespace", name) for name in ("default", "other")]
    world(*CLUSTER, *namespaces, metrics=metrics).evicted()
    assert evicted_series(registry) == {("default", "n1"), ("default", "n2"), ("other", "n2")}

    remaining = (*CLUSTER[1:3], PODS[2])
    after = world(*remaining, namespaces[0], metrics=metrics, deschedulingInterval="60s")
    after.descheduler.end_cycles()
    after.descheduler.step(leads=leads)

    assert evicted_series(registry) == {("default", "n2")}


def test_series_of_deleted_nodes_and_namespaces_are_removed() -> None:
    """Series of deleted namespaces would accumulate otherwise."""
    registry = CollectorRegistry()
    one = world(*CLUSTER, made("Namespace", "other"), metrics=DeschedulerMetrics(registry))
    one.evicted()

    def series() -> set[tuple[str, str]]:
        return evicted_series(registry)

    assert series() == {("default", "n1"), ("default", "n2"), ("other", "n2")}
    one.cluster.delete(Node, "n1")
    one.descheduler.step()
    assert series() == {("default", "n2"), ("other", "n2")}
    one.cluster.delete(Namespace, "other")
    one.descheduler.step()
    assert series() == {("default", "n2")}
