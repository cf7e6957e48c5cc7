"""Sweeping of unused classes and resources changes no decision."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.keywords import as_keywords
from tests.worlds import HOSTNAME, START_S, ZONE, near, node, pod

from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.foundation.errors import NotFoundError
from koordinator.scheduler.loop import Bound, SchedulerOptions, Unschedulable
from koordinator.scheduler.snapshot import ClusterState
from koordinator.scheduler.snapshot.axis import ResourceAxis
from koordinator.simulator import Embedded
from koordinator.simulator.embedded import STOCK

NAMES = st.integers(0, 5)
MOST_IDLE = 300  # classes without pods
#: What is done, to whom, and of what kind.
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("pod", "pod", "pod", "gone", "node", "drain", "wait")), NAMES, NAMES
    ),
    min_size=1,
    max_size=25,
)


def _spread(own: str) -> dict[str, Any]:
    selector = {"matchLabels": {"own": own}}
    must = "DoNotSchedule"
    return {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": must,
        "labelSelector": selector,
    }


def _pod(name: str, kind: int, own: str) -> Pod:
    """Return a pod of one of six kinds; ``own`` is a label, resource, port or similar."""
    labels = {"own": own}
    match kind:
        case 0:
            return pod(name, 1, labels=labels)
        case 1:
            apart = near("", HOSTNAME, labelSelector={"matchLabels": labels})
            return pod(name, 1, labels=labels, affinity={"podAntiAffinity": apart})
        case 2:
            return pod(name, 1, labels=labels, topologySpreadConstraints=[_spread(own)])
        case 3:
            return pod(name, 1, labels=labels, requests={f"example.com/{own}": 1})
        case 4:
            return pod(name, 1, ports=[f"10.0.0.1:80{len(own)}/TCP"], nodeSelector={"disk": own})
        case _:
            close = near("", ZONE, weight=10, labelSelector={"matchLabels": labels})
            return pod(name, 1, labels=labels, affinity={"podAffinity": close})


def _node(name: str, own: str) -> Node:
    return node(
        name,
        4,
        zone=f"zone-{own[-1]}",
        labels={"disk": own},
        taints=[f"soft={own}:PreferNoSchedule"],
        **as_keywords({f"example.com/{own}": 2}),
    )


class ReplayOutcomes:
    """World that applies recorded steps."""

    def __init__(self, new_classes: int) -> None:
        state = ClusterState(new_classes=new_classes)
        self.world = Embedded(
            STOCK, now_s=START_S, options=SchedulerOptions(report=False), state=state
        )
        self.world.load([_node("n0", "own0"), _node("n1", "own1")])

    def do(self, number: int, step: tuple[str, int, int]) -> list[tuple[str, str]]:
        """Apply a step, and return the outcome of each pod."""
        world, (what, name, kind) = self.world, step
        own = f"own{name}"
        if what == "pod":
            world.cluster.load([_pod(f"p{number}", kind, own)], admit=True)
        elif what == "gone":
            self._lose(Pod, f"p{max(number - name - 1, 0)}", "default")
        elif what == "node":
            self._lose(Node, f"n{kind}")
            world.cluster.load([_node(f"n{kind}", own)])
        elif what == "drain":
            self._lose(Node, f"n{kind}")
        else:
            world.clock.advance_to(world.clock.now_s() + 60)
        world.clock.advance_to(world.clock.now_s() + 1)
        outcomes = world.run_to_fixed_point()
        world.state.validate()
        return [
            (one.pod, one.node if isinstance(one, Bound) else one.message)
            for one in outcomes
            if isinstance(one, Bound | Unschedulable)
        ]

    def _lose(self, kind: type[Any], name: str, namespace: str = "") -> None:
        try:
            self.world.cluster.force_delete(self.world.cluster.get(kind, name, namespace))
        except NotFoundError:
            return


@settings(max_examples=examples(20), deadline=None)
@given(steps=STEPS)
def test_sweeping_at_every_step_equals_never_sweeping(
    steps: list[tuple[str, int, int]],
) -> None:
    """Placements, their order and messages are equal, and all counts are right."""
    forgetful, mindful = ReplayOutcomes(1), ReplayOutcomes(1 << 30)

    for number, step in enumerate(steps):
        assert forgetful.do(number, step) == mindful.do(number, step)


def test_idle_classes_are_few() -> None:
    """Jobs of ever new labels leave some hundreds of them, at 10 to 40 KiB each."""
    state = ClusterState()
    for number in range(400):
        state.classes.of(pod(f"p{number}", labels={"job": str(number)}))
        state.advance(START_S)
        assert len(state.classes) <= MOST_IDLE


def test_unused_column_is_reused() -> None:
    """Columns of the configuration are kept."""
    axis = ResourceAxis()
    kept, lent = axis.index("example.com/kept"), axis.transient_index("example.com/gone")

    axis.keep_only(())

    assert axis.transient_index("example.com/new") == lent
    assert axis.index("example.com/kept") == kept
    assert axis.generation == 1


def test_resource_is_evaluated_after_its_column_was_reused() -> None:
    """Another resource may have used the column meanwhile."""
    replayed = ReplayOutcomes(1)
    for number in range(12):
        replayed.do(2 * number, ("pod", number % 6, 3))
        replayed.do(2 * number + 1, ("gone", 0, 0))
    state = replayed.world.state

    assert len(state.axis) < 4 + 6 + 3
    assert replayed.do(99, ("pod", 0, 3)) == [("default/p99", "n0")]
