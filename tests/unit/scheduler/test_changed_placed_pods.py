"""Changes of running pods: what plugins read of them counts at once, as after a restart."""

import pytest
from tests.unit.scheduler.conftest import World
from tests.worlds import node, pod

from koordinator.api.annotations.gang import NETWORK_TOPOLOGY_SELECTOR
from koordinator.api.annotations.pod_qos import ESTIMATED_SCALING_FACTORS
from koordinator.scheduler.ingest import Ingest


@pytest.mark.parametrize("key", [NETWORK_TOPOLOGY_SELECTOR, ESTIMATED_SCALING_FACTORS.key])
def test_annotations_that_plugins_read_of_running_pods(world: World, key: str) -> None:
    """Pods that others want to be near to, and factors for the estimated load."""
    state, before = world(node("n"), pod("p", 1, on="n")), pod("p", 1, on="n")
    after = pod("p", 1, on="n", annotations={key: "job"})

    Ingest(state).put_placed(after, state.placed("default/p"), before)

    placed = state.placed("default/p")
    assert placed is not None
    assert placed.pod_class.annotations == after.metadata.annotations
