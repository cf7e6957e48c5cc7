"""Duration of stages, and the transitions between them."""

import math

import numpy as np
import pytest
from tests import worlds

from koordinator.api.core import Toleration
from koordinator.foundation.errors import BugError
from koordinator.simulator.stages import (
    NODE_MOVES,
    POD_MOVES,
    UNREACHABLE,
    Constant,
    Distribution,
    Exponential,
    LogNormal,
    NodeEvent,
    NodeStage,
    PodEvent,
    PodStage,
    Uniform,
    next_node_stage,
    next_pod_stage,
    reachable,
    seconds_tolerated,
    unreachable,
)


@pytest.mark.parametrize(
    ("distribution", "median_s"),
    [
        (Constant(5.0), 5.0),
        (Exponential(100.0), 100 * math.log(2)),
        (LogNormal(60.0, 0.8), 60.0),
        (Uniform(10.0, 30.0), 20.0),
    ],
)
def test_half_of_the_draws_are_shorter_than_the_median(
    distribution: Distribution, median_s: float
) -> None:
    """Each distribution means what its parameters say."""
    rng = np.random.default_rng(1)
    draws = [distribution.draw(rng) for _ in range(4_000)]

    assert np.median(draws) == pytest.approx(median_s, rel=0.06)


def test_long_draws_can_be_cut() -> None:
    """No draw exceeds the most that is allowed."""
    rng = np.random.default_rng(1)

    assert max(LogNormal(60.0, 2.0, most_s=90.0).draw(rng) for _ in range(100)) == 90.0


def test_ended_pods_never_move_again() -> None:
    """FINISHED and LOST have no transitions; an attempt is a bug, which is named."""
    assert not {stage for stage, _ in POD_MOVES} & {PodStage.FINISHED, PodStage.LOST}
    with pytest.raises(BugError, match="pod a/b: event done is invalid in stage lost"):
        next_pod_stage(PodStage.LOST, PodEvent.DONE, "a/b")


def test_every_stage_of_a_node_leads_back_to_ready() -> None:
    """A repair ends every failure; a node that is down can't fail again."""
    for stage in (NodeStage.SILENT, NodeStage.UNREACHABLE):
        assert NODE_MOVES[stage, NodeEvent.REPAIRED] is NodeStage.READY
        assert next_node_stage(stage, NodeEvent.FAILED) is None


def test_an_unreachable_node_looks_as_kubernetes_leaves_it() -> None:
    """Ready is Unknown, both taints are there; what else the node has stays; recovery undoes it."""
    node = reachable(worlds.node("n", taints=["own=1:NoSchedule"]), 0.0)

    lost = unreachable(node, 60.0)
    back = reachable(lost, 120.0)

    assert [(c.type, c.status) for c in lost.status.conditions] == [("Ready", "Unknown")]
    assert [(t.key, t.effect) for t in lost.spec.taints] == [
        ("own", "NoSchedule"),
        (UNREACHABLE, "NoSchedule"),
        (UNREACHABLE, "NoExecute"),
    ]
    assert back.spec == node.spec
    assert [(c.type, c.status) for c in back.status.conditions] == [("Ready", "True")]


@pytest.mark.parametrize(
    ("tolerations", "seconds"),
    [
        ((), 0.0),
        ((Toleration(key="other", operator="Exists"),), 0.0),
        ((Toleration(key=UNREACHABLE, operator="Exists"),), math.inf),
        ((Toleration(key=UNREACHABLE, operator="Exists", toleration_seconds=-5),), 0.0),
        (
            (
                Toleration(operator="Exists"),
                Toleration(key=UNREACHABLE, operator="Exists", toleration_seconds=300),
                Toleration(key=UNREACHABLE, operator="Exists", toleration_seconds=30),
            ),
            30.0,
        ),
    ],
)
def test_the_shortest_toleration_counts(
    tolerations: tuple[Toleration, ...], seconds: float
) -> None:
    """Pods leave at once without a toleration; one without seconds is unlimited."""
    assert seconds_tolerated(tolerations) == seconds
