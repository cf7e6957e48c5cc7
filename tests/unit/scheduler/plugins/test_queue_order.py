"""Queue order and gates: PrioritySort, SchedulingGates, DefaultBinder."""

from tests.unit.scheduler.conftest import World
from tests.unit.scheduler.questions import built
from tests.worlds import pod

from koordinator.scheduler.plugins import default_binder, priority_sort, scheduling_gates
from koordinator.scheduler.snapshot import ObjectTable


def test_the_highest_priority_comes_first(world: World) -> None:
    """A pod without priority has 0."""
    plugin = built(priority_sort.PLUGIN, world())
    pods = [pod("low", priority=-5), pod("none"), pod("high", priority=10)]

    assert [p.metadata.name for p in sorted(pods, key=plugin.queue_sort)] == ["high", "none", "low"]


def test_a_gated_pod_does_not_enter(world: World) -> None:
    """The message names all gates."""
    plugin = built(scheduling_gates.PLUGIN, world())
    gated = pod("p", schedulingGates=[{"name": "a.io/x"}, {"name": "b.io/y"}])

    refusal = plugin.pre_enqueue(gated, ObjectTable())
    assert refusal is not None
    assert refusal.reason == "waiting for scheduling gates: [a.io/x b.io/y]"
    assert plugin.pre_enqueue(pod("p"), ObjectTable()) is None


def test_default_binder_accepts_every_pod(world: World) -> None:
    """Nothing is asked of the pod."""
    assert built(default_binder.PLUGIN, world()).bind(pod("p"))
