"""Absurd amounts in objects: they affect neither other pods nor the scheduler."""

import pytest
from tests.unit.scheduler.conftest import NewEmbedded
from tests.unit.scheduler.watches import only, places
from tests.worlds import node, pod

from koordinator.scheduler.loop import Unschedulable


@pytest.mark.parametrize("amount", ["9E", "8Ei", "9223372036854775807", "1e30"])
def test_pod_with_impossible_requests_waits_alone(embedded: NewEmbedded, amount: str) -> None:
    """The pod fits nowhere and has the reason, and the next pod is scheduled."""
    one = embedded(
        node("n", cpu=4),
        pod("absurd", cpu=amount, memory=amount, priority=10),
        pod("p", cpu=1),
    )
    done = one.run_to_fixed_point()

    assert places(done) == {"p": "n"}
    (failed,) = {outcome.pod: outcome for outcome in only(Unschedulable, done)}.values()
    assert failed.pod == "default/absurd"
    assert "Insufficient cpu" in failed.message
    one.state.validate()


@pytest.mark.parametrize("amount", ["9E", "8Ei"])
def test_allocations_beyond_64_bits_do_not_overflow(embedded: NewEmbedded, amount: str) -> None:
    """Two such pods leave nothing free on their node."""
    one = embedded(
        node("full", cpu=64),
        node("n", cpu=1),
        *(pod(name, cpu=amount, memory=amount, on="full") for name in "abc"),
        pod("p", cpu=1),
    )

    assert places(one.run_to_fixed_point()) == {"p": "n"}


def test_node_with_absurd_allocatable_takes_pods(embedded: NewEmbedded) -> None:
    """The scores of the node stay in their range."""
    one = embedded(node("vast", cpu="9E", memory="15Ei"), node("n", cpu=1), pod("p", cpu=2))

    assert places(one.run_to_fixed_point()) == {"p": "vast"}
