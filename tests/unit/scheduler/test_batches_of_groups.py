"""Events of trees of PodGroups and of their pods that alternate in one batch."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.scheduler.test_composite_pod_groups import composite, leaf, members
from tests.worlds import embedded, node

from koordinator.api.kubescheduler import FeatureGates
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.simulator import Embedded

TREES = FeatureGates.parse(
    "GenericWorkload=true,TopologyAwareWorkloadScheduling=true,CompositePodGroup=true"
)
NAMES = ("a", "b", "c")


def world() -> Embedded:
    """Return a scheduler that has listed a cluster without nodes."""
    one = embedded(gates=TREES)
    one.scheduler.step()
    return one


def replanted(one: Embedded) -> int:
    """Return how often gangs have got new terms or members."""
    cycle = one.scheduler.cycles["default-scheduler"]
    (active,) = cycle.profile.gangs
    return sum(gang.version for gang in active.plugin.gangs.gangs.values())


def test_the_cost_of_alternating_events_is_linear() -> None:
    """Each of twice as many groups is changed as often as before."""
    changes = []
    for count in (15, 30):
        one = world()
        one.cluster.create(composite("job", count))
        for at in range(count):
            one.cluster.create(leaf(f"g{at}", 1, "job"))
            (pod,) = members(f"g{at}", 1)
            one.cluster.create(pod)
        one.scheduler.step()
        changes.append(replanted(one) / count)

    assert changes[0] == changes[1]


@given(data=st.data())
@settings(max_examples=examples(15))
def test_a_batch_has_the_outcome_of_one_event_at_a_time(data: st.DataObject) -> None:
    """Groups and pods come and go, and the nodes come last."""
    together, apart = world(), world()
    for one in (together, apart):
        one.cluster.create(composite("job", 2))
    kept = dict[str, KubeObject]()
    for _ in range(data.draw(st.integers(2, 10))):
        name, is_group = data.draw(st.sampled_from(NAMES)), data.draw(st.booleans())
        obj = leaf(name, 1, "job") if is_group else members(name, 1)[0]
        key = f"{name} {is_group}"
        deleted = kept.pop(key, None)
        for one in (together, apart):
            if deleted is not None:
                one.cluster.delete(type(deleted), deleted.metadata.name, "default")
            else:
                one.cluster.create(obj)
        if deleted is None:
            kept[key] = obj
        apart.scheduler.step()
    together.scheduler.step()

    assert _bound(together, [node("n")]) == _bound(apart, [node("n")])


def _bound(one: Embedded, nodes: Sequence[KubeObject]) -> dict[str, str]:
    """Add nodes, schedule, and return the nodes of the pods."""
    one.load(nodes)
    one.run_to_fixed_point()
    one.scheduler.validate()
    return {pod.metadata.name: pod.spec.node_name for pod in one.cluster.list(Pod).items}
