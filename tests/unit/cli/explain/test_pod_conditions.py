"""Explanation for a user who may read pods of a namespace, and no nodes."""

import pytest
from msgspec.structs import replace
from tests.worlds import pod

from koordinator.api.meta import Condition
from koordinator.api.pod import PodStatus
from koordinator.cli.explain.command import UNSEEN, explain_by_conditions
from koordinator.foundation.errors import InputError

UNSCHEDULABLE = Condition(
    type="PodScheduled",
    status="False",
    reason="Unschedulable",
    message="0/3 nodes are available: 3 Insufficient cpu.",
)
PODS = (
    replace(pod("waits"), status=PodStatus(conditions=(UNSCHEDULABLE,))),
    pod("new"),
    pod("gated", schedulingGates=[{"name": "a"}]),
    pod("runs", on="n"),
    replace(pod("done"), status=PodStatus(phase="Succeeded")),
)


def test_the_condition_of_a_pod_is_its_cause() -> None:
    """Gates are named, and that the pod was never tried."""
    by_pod = {one.pod: one for one in explain_by_conditions(PODS)}

    assert {name: one.summary for name, one in by_pod.items()} == {
        "default/waits": "0/3 nodes are available: 3 Insufficient cpu.",
        "default/new": UNSEEN,
        "default/gated": "waiting for scheduling gates: a",
    }
    assert by_pod["default/gated"].causes[0].sentence == "it has scheduling gates: a"


def test_pods_that_do_not_wait_are_explained_if_they_are_named() -> None:
    """A name that no pod has is refused."""
    runs, done = explain_by_conditions(PODS, ["default/runs", "default/done"])
    assert (runs.verdict, runs.node, done.verdict) == ("placed", "n", "ended")

    with pytest.raises(InputError, match="there is no pod default/gone, or it may not be read"):
        explain_by_conditions(PODS, ["default/gone"])
