"""Caches of DeviceShare never change a decision."""

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.equipped_nodes import machine_pods, machines
from tests.examples import examples
from tests.unit.scheduler.questions import built
from tests.worlds import renamed, world

from koordinator.scheduler.contract import AllocationResult
from koordinator.scheduler.plugins.device_share import PLUGIN
from koordinator.scheduler.snapshot import Snapshot


@settings(
    max_examples=examples(20),
    deadline=None,
    phases=(Phase.generate,),
    suppress_health_check=[HealthCheck.too_slow],
)
@given(data=st.data())
def test_allocation_equals_that_of_a_new_plugin(data: st.DataObject) -> None:
    """An allocation stays the same while pods of few kinds are created and deleted."""
    state = world(*data.draw(machines("m0")), *data.draw(machines("m1")))
    plugin, kinds = built(PLUGIN, state), [data.draw(machine_pods()) for _ in range(3)]
    for attempt in range(data.draw(st.integers(1, 25))):
        pod, row = (
            renamed(data.draw(st.sampled_from(kinds)), f"p{attempt}"),
            data.draw(st.integers(0, 1)),
        )
        pod_class, view = state.classes.of(pod), Snapshot(state)[np.array([row])]
        if plugin.filter(view, pod_class).codes.any():
            continue
        result = plugin.reserve(view, pod_class, None)
        assert result == built(PLUGIN, state).reserve(view, pod_class, None)
        if isinstance(result, AllocationResult):
            state.place(pod.key, pod, pod_class, row, result.pod_allocation)
        for key in data.draw(
            st.lists(st.sampled_from(sorted(state.pods.by_key) or [""]), max_size=1)
        ):
            state.displace(key)
