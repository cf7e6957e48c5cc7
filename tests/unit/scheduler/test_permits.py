"""Pods that wait for a permit."""

from typing import Any

import pytest
from tests.unit.scheduler.conftest import NewEmbedded
from tests.unit.scheduler.watches import events, later, only, places, stored
from tests.worlds import START_S, configuration, node, pod

from koordinator.api.kube_version import KubeVersion
from koordinator.api.kubescheduler import FeatureGates
from koordinator.api.pod import Pod
from koordinator.cluster.port import Binding
from koordinator.scheduler.contract import NoArgs, Permit, PluginSpec, Refusal
from koordinator.scheduler.features.explanations.explainer import explain
from koordinator.scheduler.loop import (
    Bound,
    Unschedulable,
)
from koordinator.scheduler.snapshot import ResourceAxis


class Patient:
    """Plugin with configurable permits by pod name."""

    answers: dict[str, Permit]

    def __init__(self, answers: dict[str, Permit]) -> None:
        self.answers = answers

    def permit(self, permitted: Pod, _node: str) -> Permit:
        return self.answers.get(permitted.metadata.name, Permit())


def patient(**answers: Permit) -> tuple[Patient, dict[str, Any]]:
    """Return the plugin and the configuration that enables it."""
    plugin = Patient(answers)

    def build(_args: NoArgs, _axis: ResourceAxis) -> Patient:
        return plugin

    config = configuration(plugins={"permit": {"enabled": [{"name": "Patient"}]}})
    return plugin, {"config": config, "out_of_tree": [PluginSpec("Patient", NoArgs, build)]}


def test_waiting_pod_keeps_its_node(embedded: NewEmbedded) -> None:
    """The pod is bound as soon as it is permitted."""
    plugin, switched_on = patient(p=Permit(wait_s=30))
    one = embedded(node("n", cpu=1), pod("p", cpu=1), pod("q", cpu=1), **switched_on)
    assert [o.pod for o in one.scheduler.step()] == ["default/q"]
    assert stored(one, "p").spec.node_name == ""
    assert one.scheduler.next_wakeup_s() == START_S + 30

    plugin.answers.clear()
    assert places(one.scheduler.step()) == {"p": "n"}


def test_permit_timeout_is_a_failure(embedded: NewEmbedded) -> None:
    """The pod is unreserved and backs off."""
    _, switched_on = patient(p=Permit(wait_s=30))
    one = embedded(node("n", cpu=1), pod("p", cpu=1), **switched_on)
    one.scheduler.step()

    (failed,) = only(Unschedulable, later(one, 30.0))
    assert failed.message == "timed out waiting for its permit"
    one.cluster.create(pod("q", cpu=1))
    assert places(one.scheduler.step()) == {"q": "n"}


def test_a_refused_permit_names_the_plugin(embedded: NewEmbedded) -> None:
    """The pod is unreserved."""
    _, switched_on = patient(p=Permit(refusal=Refusal("not today")))
    one = embedded(node("n", cpu=1), pod("p", cpu=1), pod("q", cpu=1), **switched_on)
    done = one.scheduler.step()

    assert places(done) == {"q": "n"}
    (failed,) = only(Unschedulable, done)
    assert (failed.plugin, failed.reason) == ("Patient", "not today")


def test_deleted_waiting_pod_is_unreserved(
    embedded: NewEmbedded,
) -> None:
    """The pod is neither bound nor reported."""
    plugin, switched_on = patient(p=Permit(wait_s=30))
    one = embedded(node("n", cpu=1), pod("p", cpu=1), **switched_on)
    one.scheduler.step()
    one.cluster.delete(Pod, "p", "default")
    plugin.answers.clear()
    one.cluster.create(pod("q", cpu=1))

    assert one.scheduler.step() == [Bound("default/q", "n")]
    assert events(one, "p") == []


def test_waiting_pod_bound_elsewhere_counts_there(
    embedded: NewEmbedded,
) -> None:
    """The reserved node becomes free."""
    plugin, switched_on = patient(p=Permit(wait_s=30))
    one = embedded(
        node("n", cpu=1), node("m", cpu=1, unschedulable=True), pod("p", cpu=1), **switched_on
    )
    one.scheduler.step()
    one.cluster.bind([Binding("default", "p", "m")])
    plugin.answers.clear()
    one.cluster.create(pod("q", cpu=1))

    assert one.scheduler.step() == [Bound("default/q", "n")]
    placed = one.state.pods.by_key
    assert {key: one.state.nodes.names[p.row] for key, p in placed.items()} == {
        "default/p": "m",
        "default/q": "n",
    }


def test_new_pod_of_the_same_name_is_scheduled_separately(
    embedded: NewEmbedded,
) -> None:
    """The new pod gets a node by its own requests."""
    plugin, switched_on = patient(p=Permit(wait_s=30))
    one = embedded(node("n", cpu=2), pod("p", cpu=1), **switched_on)
    one.scheduler.step()
    one.cluster.delete(Pod, "p", "default")
    plugin.answers.clear()
    one.cluster.create(pod("p", cpu=2))

    assert places(one.scheduler.step()) == {"p": "n"}
    assert one.state.nodes.requested[0, 0] == 2000


def test_waiting_pod_is_explained(embedded: NewEmbedded) -> None:
    """The explanation has the node and the awaited permit, and after the bind the node alone."""
    plugin, switched_on = patient(p=Permit(wait_s=30))
    one = embedded(node("n", cpu=1), pod("p", cpu=1), **switched_on)
    one.scheduler.step()
    waits = explain(one.scheduler.handle, "default/p")
    assert waits.summary == "it has a node, n, and waits for its permit"

    plugin.answers.clear()
    one.clock.advance_to(one.clock.now_s() + 1.0)
    one.scheduler.step()
    one.scheduler.step()
    assert "it is bound to n" in explain(one.scheduler.handle, "default/p").summary


@pytest.mark.parametrize(
    ("version", "suffix"), [("1.35", ""), ("1.37", " (in kube-scheduler memory).")]
)
def test_preempted_waiting_pod_is_not_deleted(
    embedded: NewEmbedded, version: str, suffix: str
) -> None:
    """The victim backs off without a condition of preemption; the preemptor gets its node."""
    plugin, switched_on = patient(p=Permit(wait_s=600))
    gates = FeatureGates.parse("", KubeVersion.parse(version))
    one = embedded(node("n", cpu=1), pod("p", cpu=1), gates=gates, **switched_on)
    one.scheduler.step()
    uid = one.cluster.create(pod("q", cpu=1, priority=10)).metadata.uid

    assert places(one.scheduler.step()) == {"q": "n"}
    left = stored(one, "p")
    assert left.metadata.deletion_timestamp is None
    assert [c.type for c in left.status.conditions] == ["PodScheduled"]
    preempted = ("Normal", "Preempted", "Preempting", f"Preempted by pod {uid} on node n{suffix}")
    assert preempted in events(one, "p")
    plugin.answers.clear()
    one.cluster.create(node("m", cpu=1))
    assert places(later(one, 2.0)) == {"p": "m"}
