"""Totals that facts of nodes alone determine, which classes of pods share."""

from typing import Any

import numpy as np
from tests.worlds import configuration, embedded, node, pod

from koordinator.api.node import Node
from koordinator.scheduler.cycle import SchedulingCycle
from koordinator.scheduler.cycle.evaluation import Evaluation
from koordinator.scheduler.cycle.score_table import UNFIT
from koordinator.simulator import Embedded


def evaluation(one: Embedded, name: str, **more: Any) -> Evaluation:
    """Return the evaluation of a pod, up to date."""
    cycle: SchedulingCycle = next(iter(one.scheduler.cycles.values()))
    pod_class = one.state.classes.of(pod(name, **more))
    return cycle._evaluator.of(pod_class)


def world() -> Embedded:
    """Return a cluster of a labelled, a tainted and a plain node."""
    return embedded(
        node("a", labels={"disk": "ssd"}),
        node("b", taints=["dedicated=x:NoSchedule"]),
        node("c"),
        config=configuration(),
    )


def test_pods_that_differ_in_their_requests_share_the_totals_of_node_facts() -> None:
    """A pod with a node selector has totals of its own."""
    one = world()
    small, large = evaluation(one, "small", cpu="1"), evaluation(one, "large", cpu="2")
    selecting = evaluation(one, "selecting", nodeSelector={"disk": "ssd"})

    assert small is not large
    assert small.node_totals is large.node_totals
    assert (selecting.node_totals != UNFIT).tolist() == [True, False, False]
    assert (small.node_totals != UNFIT).tolist() == [True, False, True]


def test_shared_totals_follow_a_changed_node() -> None:
    """Each class finds the new facts at its next evaluation, whichever comes first."""
    one = world()
    before = evaluation(one, "small", cpu="1").node_totals.copy()
    evaluation(one, "large", cpu="2")
    one.cluster.patch(Node, "b", "", {"spec": {"taints": None}})
    one.cluster.patch(Node, "c", "", {"spec": {"unschedulable": True}})
    one.scheduler.step()
    large, small = evaluation(one, "large", cpu="2"), evaluation(one, "small", cpu="1")

    assert (before != UNFIT).tolist() == [True, False, True]
    assert small.node_totals is large.node_totals
    assert (small.node_totals != UNFIT).tolist() == [True, True, False]
    assert np.array_equal(small.totals != UNFIT, large.totals != UNFIT)
