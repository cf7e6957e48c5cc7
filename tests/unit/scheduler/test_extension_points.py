"""Extension points without a built-in plugin, through small plugins."""

from collections.abc import Callable
from typing import Any, ClassVar

from msgspec.structs import replace
from tests.worlds import configuration, embedded, node, pod

from koordinator.api.pod import Pod
from koordinator.scheduler.contract import NoArgs, PluginSpec, Reads
from koordinator.scheduler.snapshot import PodClass, ResourceAxis, Snapshot


class Planner:
    """Plugin that plans ``planned``, prefers ``preferred``, and schedules ``urgent`` first."""

    reads: ClassVar = Reads.NODE

    def __init__(self) -> None:
        self.planned = self.preferred = ""
        self.urgent: str | None = None
        self.bound: list[tuple[str, str]] = []

    def find_one_node(self, snapshot: Snapshot, _pod: PodClass) -> int | None:
        return snapshot.names[1].get(self.planned)

    def prefer_nodes(self, snapshot: Snapshot, _pod: PodClass) -> list[int]:
        row = snapshot.names[1].get(self.preferred)
        return [] if row is None else [row]

    def next_pod(self, _look_up: Callable[[str], Any]) -> str | None:
        return self.urgent

    def transform(self, given: Pod) -> Pod:
        if given.metadata.labels.get("scheduling.koordinator.sh/test") != "small":
            return given
        return replace(given, spec=pod(given.metadata.name, cpu=1).spec)

    def post_bind(self, given: Pod, node_name: str) -> None:
        self.bound.append((given.metadata.name, node_name))


def world(*objects: Any) -> tuple[Any, Planner]:
    planner = Planner()

    def build(_args: NoArgs, _axis: ResourceAxis) -> Planner:
        return planner

    config = configuration(
        plugins={
            "preFilter": {"enabled": [{"name": "Planner"}]},
            "postBind": {"enabled": [{"name": "Planner"}]},
        }
    )
    spec = PluginSpec("Planner", NoArgs, build)
    return embedded(*objects, config=config, out_of_tree=[spec], report=False), planner


def nodes_of(outcomes: list[Any]) -> dict[str, str]:
    return {outcome.pod: outcome.node for outcome in outcomes if hasattr(outcome, "node")}


def test_a_planned_node_is_taken_if_it_fits() -> None:
    """A planned node precedes scores; one that a filter rejects is dropped."""
    one, planner = world(node("a", cpu=8), node("b", cpu=2), pod("p", cpu=1), pod("q", cpu=4))
    planner.planned = "b"

    assert nodes_of(one.run_to_fixed_point()) == {"default/p": "b", "default/q": "a"}


def test_a_preferred_node_is_taken_if_it_fits() -> None:
    """Preferred nodes precede scores; where they do not fit, scores decide."""
    one, planner = world(
        node("a", cpu=8), node("b", cpu=2), node("c", cpu=4), pod("p", cpu=1), pod("q", cpu=4)
    )
    planner.preferred = "b"

    assert nodes_of(one.run_to_fixed_point()) == {"default/p": "b", "default/q": "a"}


def test_a_plugin_may_choose_the_next_pod() -> None:
    """The pod that it names precedes the head of the queue."""
    one, planner = world(node("a", cpu=2), pod("first", cpu=2), pod("urgent", cpu=2))
    planner.urgent = "default/urgent"

    assert nodes_of(one.run_to_fixed_point()) == {"default/urgent": "a"}


def test_filters_see_the_transformed_pod() -> None:
    """A pod with large requests is transformed to a small one."""
    labels = {"scheduling.koordinator.sh/test": "small"}
    one, _ = world(node("a", cpu=2), pod("p", cpu=64, labels=labels))

    assert nodes_of(one.run_to_fixed_point()) == {"default/p": "a"}


def test_post_bind_is_called_for_bound_pods() -> None:
    """The call has the node, once per pod."""
    one, planner = world(node("a", cpu=2), pod("p", cpu=1))
    one.run_to_fixed_point()

    assert planner.bound == [("p", "a")]
