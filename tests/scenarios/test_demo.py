"""The beginning of the demo's day: what it is there to show does happen."""

import numpy as np
import pytest

from koordinator.foundation.clock import VirtualClock
from koordinator.simulator import Simulation, demo_workload

pytestmark = pytest.mark.integration


@pytest.mark.slow
def test_the_demo_has_something_to_show() -> None:
    """GPUs are busy, shared ones too; the nightly batch has to wait; nothing is overcommitted."""
    simulation = Simulation(demo_workload(), until_s=3.75 * 3_600, stopwatch=VirtualClock())
    report = simulation.run().report
    nodes = simulation.world.embedded.state.nodes

    assert max(report.samples.pods_pending) > 50
    assert min(report.samples.allocated["gpu-serve"].gpu) > 0.5
    assert min(report.samples.allocated["gpu-train"].gpu) > 0.4
    assert report.total.finished > 500
    assert (nodes.requested <= nodes.allocatable).all()
    assert (nodes.gpus.used <= nodes.gpus.total).all()
    assert np.count_nonzero(nodes.gpus.used) > 0
