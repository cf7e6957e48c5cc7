"""Resource claims are refused, not ignored."""

from tests.unit.scheduler.conftest import NewEmbedded, World
from tests.unit.scheduler.questions import built, refused
from tests.worlds import node, pod

from koordinator.scheduler.loop import Unschedulable
from koordinator.scheduler.plugins.dynamic_resources import PLUGIN, REASON
from koordinator.scheduler.snapshot import Snapshot

CLAIM = {"name": "gpu", "resourceClaimTemplateName": "gpu"}


def test_pods_with_claims_are_refused_whatever_the_node(world: World) -> None:
    """And no eviction would help."""
    state = world(node("n"))
    plugin = built(PLUGIN, state)
    refusal = plugin.prefilter(Snapshot(state), state.classes.of(pod("p", resourceClaims=[CLAIM])))

    assert (refusal.reason, refusal.resolvable) == (REASON, False)


def test_pods_without_claims_are_none_of_its_business(world: World) -> None:
    """Neither refused nor filtered."""
    state = world(node("n"))
    plugin = built(PLUGIN, state)

    assert plugin.prefilter(Snapshot(state), state.classes.of(pod("p"))) is None
    assert refused(plugin, state, pod("p")) == {}


def test_the_message_says_what_is_missing(embedded: NewEmbedded) -> None:
    """As for every refusal before the nodes are looked at."""
    one = embedded(node("n"), pod("p", resourceClaims=[CLAIM]))

    (outcome,) = one.scheduler.step()
    assert isinstance(outcome, Unschedulable)
    assert (outcome.plugin, outcome.reason) == ("DynamicResources", REASON)
    assert outcome.message.startswith(f"0/1 nodes are available: {REASON}.")
