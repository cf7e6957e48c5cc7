"""What /apis/v1/plugins/LoadAwareScheduling/node/NAME tells."""

from tests.unit.scheduler.asking import built, scored
from tests.unit.scheduler.conftest import World
from tests.worlds import START_S, add, metric, node, pod, used

from koordinator.scheduler.app.load_page import load_page
from koordinator.scheduler.plugins.load_aware import PLUGIN


def test_a_node_shows_its_pods_and_what_they_add(world: World) -> None:
    """As quantities; pods that a measurement shows fully are no part of the delta."""
    prod = {"koordinator.sh/priority-class": "koord-prod"}
    state = world(node("n"), pod("old", cpu=1, on="n", labels=prod))
    state.advance(START_S)
    add(state, pod("new", cpu=2, memory="1Gi", on="n"))
    add(state, metric("n", cpu=1, pods={"old": used("300m", "1Gi")}, prod=["old"]))
    assert scored(built(PLUGIN, state), state, pod("asking"))

    page = load_page(state, "n")

    assert [(it["timestamp"], it["pod"]["metadata"]["name"]) for it in page.pop("pods")] == [
        ("1970-01-01T00:00:00Z", "old"),
        ("2023-11-14T22:13:20Z", "new"),
    ]
    assert page == {
        "prodUsage": {"cpu": "300m", "memory": "1Gi"},
        "nodeDelta": {"cpu": "1700m", "memory": "751619277"},
        "prodDelta": {"cpu": "1700m", "memory": "751619277"},
        "nodeEstimated": {"cpu": "2550m", "memory": "961334477"},
        "nodeDeltaPods": ["default/new"],
        "prodDeltaPods": ["default/new"],
        "nodeEstimatedPods": ["default/new", "default/old"],
    }


def test_of_unknown_nodes_nothing_is_told(world: World) -> None:
    """Nor where no profile looks at loads; without a report there are only the pods."""
    state = world(node("n"), pod("p", on="n"))
    assert load_page(state, "n") == load_page(state, "m") == {}
    scored(built(PLUGIN, state), state, pod("asking"))

    assert load_page(state, "n").keys() == {"pods"}
