"""The scheduler on a cluster: binds, status writes and retries."""

from collections.abc import Callable

import numpy as np
import pytest
from tests.unit.scheduler.conftest import NewEmbedded
from tests.unit.scheduler.watches import condition, events, later, only, places, stored
from tests.worlds import START_S, configuration, device, node, pod

from koordinator.api.event import Event
from koordinator.api.kubescheduler import KubeSchedulerConfiguration
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.cluster.port import Binding
from koordinator.foundation.arrays import IntArray
from koordinator.scheduler.contract import NoArgs, PluginSpec, Reads
from koordinator.scheduler.loop import Bound, Unschedulable
from koordinator.scheduler.snapshot import PodClass, ResourceAxis, Snapshot

FULL = (
    "0/1 nodes are available: 1 Insufficient cpu. "
    "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
)

# -- writes ------------------------------------------------------------------------------------


def test_a_bound_pod_has_its_node_a_condition_and_an_event(embedded: NewEmbedded) -> None:
    """As kube-scheduler and the API server write them."""
    one = embedded(node("n"), pod("p", cpu=1))

    assert places(one.scheduler.step()) == {"p": "n"}
    assert stored(one, "p").spec.node_name == "n"
    assert condition(one, "p") == ("True", "", "")
    assert events(one, "p") == [
        ("Normal", "Scheduled", "Binding", "Successfully assigned default/p to n")
    ]


def test_pod_that_fits_nowhere_has_a_reason(embedded: NewEmbedded) -> None:
    """Condition and event have the message, and the outcome names the main plugin."""
    one = embedded(node("n", cpu=1), pod("b", cpu=1, on="n"), pod("p", cpu=1))

    (failed,) = only(Unschedulable, one.scheduler.step())
    assert (failed.plugin, failed.reason) == ("NodeResourcesFit", "Insufficient cpu")
    assert failed.message == FULL
    assert condition(one, "p") == ("False", "Unschedulable", FULL)
    assert events(one, "p") == [("Warning", "FailedScheduling", "Scheduling", FULL)]


def test_message_of_a_cluster_without_nodes_differs(embedded: NewEmbedded) -> None:
    """The message is a different one."""
    one = embedded(pod("p"))

    (failed,) = only(Unschedulable, one.scheduler.step())
    assert failed.message == "no nodes available to schedule pods"


def test_unchanged_condition_is_not_written_again(embedded: NewEmbedded) -> None:
    """A failed pod is tried repeatedly, and its resource version stays the same."""
    one = embedded(node("n", cpu=1), pod("p", cpu=2))
    one.scheduler.step()
    version = stored(one, "p").metadata.resource_version

    assert only(Unschedulable, later(one, 301.0))
    assert stored(one, "p").metadata.resource_version == version


def test_events_name_the_scheduler_of_the_pod(embedded: NewEmbedded) -> None:
    """One process may have several profiles."""
    config = configuration()
    both = KubeSchedulerConfiguration(
        profiles=(*configuration(schedulerName="other").profiles, *config.profiles)
    )
    one = embedded(node("n"), pod("p", schedulerName="other"), config=both)
    one.scheduler.step()

    (event,) = one.cluster.list(Event).items
    assert event.reporting_controller == "other"


def test_reports_can_be_switched_off(embedded: NewEmbedded) -> None:
    """Simulations do this; the outcomes are complete."""
    one = embedded(node("n"), pod("p"), pod("q", cpu=99), report=False)
    one.scheduler.step()

    assert one.cluster.list(Event).items == []
    assert condition(one, "q") is None


# -- pending pods ------------------------------------------------------------------------------


def test_pods_are_scheduled_by_priority_then_arrival(embedded: NewEmbedded) -> None:
    """Two of them fit."""
    one = embedded(
        node("n", cpu=2),
        pod("a", cpu=1),
        pod("b", cpu=1, priority=0),
        pod("high", cpu=1, priority=9),
    )

    assert list(places(one.scheduler.step())) == ["high", "a"]


def test_a_gated_pod_waits_for_its_gates(embedded: NewEmbedded) -> None:
    """A gated pod is not tried, and scheduled once its gates are removed."""
    one = embedded(node("n"), pod("p", schedulingGates=[{"name": "g"}]))
    assert one.scheduler.step() == []
    waiting = one.scheduler.queue.get("default/p")
    assert waiting is not None
    assert waiting.message == "waiting for scheduling gates: [g]"

    one.cluster.patch(Pod, "p", "default", {"spec": {"schedulingGates": []}})
    assert places(one.scheduler.step()) == {"p": "n"}


def test_pods_of_other_schedulers_are_ignored(embedded: NewEmbedded) -> None:
    """Requests of foreign pods count once these are bound."""
    one = embedded(node("n", cpu=2), pod("theirs", cpu=2, schedulerName="theirs"))
    assert one.scheduler.step() == []

    one.cluster.bind([Binding("default", "theirs", "n")])
    one.cluster.create(pod("ours", cpu=1))
    assert only(Unschedulable, one.scheduler.step())


@pytest.mark.parametrize(
    ("event", "wakes"),
    [
        (lambda c: c.create(node("new")), True),
        (lambda c: c.delete(Pod, "b", "default"), True),
        (
            lambda c: c.patch(Node, "n", "", {"status": {"allocatable": {"cpu": "4"}}}, "status"),
            True,
        ),
        (lambda c: c.patch(Node, "n", "", {"metadata": {"labels": {"a": "b"}}}), False),
        (lambda c: c.create(device("n")), False),
        (lambda c: c.create(pod("other", schedulerName="theirs")), False),
    ],
)
def test_only_helpful_events_requeue_a_pod(
    embedded: NewEmbedded, event: Callable[[MemoryCluster], object], wakes: bool
) -> None:
    """The pod lacks cpu, so labels cannot help."""
    one = embedded(node("n", cpu=1), pod("b", cpu=1, on="n"), pod("p", cpu=1))
    one.scheduler.step()
    event(one.cluster)

    assert ("default/p" in {o.pod for o in later(one, 2.0)}) is wakes


def test_finished_pod_frees_its_node(embedded: NewEmbedded) -> None:
    """A finished pod need not be deleted."""
    one = embedded(node("n", cpu=1), pod("b", cpu=1, on="n"), pod("p", cpu=1))
    one.scheduler.step()

    one.cluster.patch(Pod, "b", "default", {"status": {"phase": "Succeeded"}}, "status")
    assert places(later(one, 2.0)) == {"p": "n"}


def test_a_pending_pod_may_change(embedded: NewEmbedded) -> None:
    """The pod tolerates the taint by then; selectors see its labels at placement."""
    one = embedded(node("n", taints=["a=1:NoSchedule"]), pod("p"))
    one.scheduler.step()

    tolerations = [{"key": "a", "operator": "Exists"}]
    one.cluster.patch(Pod, "p", "default", {"spec": {"tolerations": tolerations}})
    assert places(later(one, 2.0)) == {"p": "n"}


def test_a_pod_that_is_deleted_while_it_waits_is_forgotten(embedded: NewEmbedded) -> None:
    """A later pod of the same name is scheduled normally."""
    one = embedded(node("n", cpu=1), pod("p", cpu=2))
    one.scheduler.step()

    one.cluster.delete(Pod, "p", "default")
    one.cluster.create(pod("p", cpu=1))
    assert places(one.scheduler.step()) == {"p": "n"}


def test_waiting_pods_are_tried_again_after_five_minutes_at_the_latest(
    embedded: NewEmbedded,
) -> None:
    """No event is needed; an option sets the time."""
    one = embedded(node("n", cpu=1), pod("p", cpu=2), max_unschedulable_s=60.0)
    one.scheduler.step()

    assert one.scheduler.next_wakeup_s() == START_S + 60
    assert later(one, 59.0) == []
    assert only(Unschedulable, later(one, 2.0))


# -- plugins and profiles --------------------------------------------------------------------


class PreferLong:
    """Plugin that scores by the length of the node's name."""

    reads = Reads.NODE

    def score(self, snapshot: Snapshot, _pod: PodClass) -> IntArray:
        return np.array([len(name) for name in snapshot.node_names], np.int64)


def build_prefer_long(_args: NoArgs, _axis: ResourceAxis) -> PreferLong:
    return PreferLong()


def test_an_out_of_tree_plugin_is_enabled_by_name(embedded: NewEmbedded) -> None:
    """The plugin's weight counts, and decides between otherwise equal nodes."""
    spec = PluginSpec("PreferLong", NoArgs, build_prefer_long)
    cluster = [node("a"), node("longer"), pod("p")]
    without = embedded(*cluster, out_of_tree=[spec])
    weighty = [{"name": "PreferLong", "weight": 9}]
    config = configuration(plugins={"score": {"enabled": weighty}})
    enabled = embedded(*cluster, config=config, out_of_tree=[spec], explain=True)

    assert places(without.scheduler.step()) == {"p": "a"}
    (bound,) = only(Bound, enabled.scheduler.step())
    assert bound.node == "longer"
    assert bound.scorecard is not None
    assert bound.scorecard.scores["PreferLong"].tolist() == [9, 54]


def test_each_pod_uses_the_profile_that_it_names(embedded: NewEmbedded) -> None:
    """One profile packs, one spreads."""
    packing = configuration(
        schedulerName="packing",
        pluginConfig=[
            {"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}}
        ],
    )
    both = KubeSchedulerConfiguration(profiles=(*configuration().profiles, *packing.profiles))
    one = embedded(
        node("a", cpu=4, memory="8Gi"),
        node("b", cpu=4, memory="8Gi"),
        pod("there", cpu=1, memory="2Gi", on="b"),
        pod("p", cpu=1, memory="2Gi"),
        pod("q", cpu=1, memory="2Gi", schedulerName="packing"),
        config=both,
    )

    assert places(one.scheduler.step()) == {"p": "a", "q": "a"}
