"""Topology spread constraints."""

from typing import Any

import pytest
from tests.unit.scheduler.conftest import World
from tests.unit.scheduler.questions import built, hopeless, refused, scored
from tests.worlds import HOSTNAME, ZONE, add, node, pod, service, spread

from koordinator.api.codec import decode_object
from koordinator.api.meta import JsonObject
from koordinator.api.pod import Pod
from koordinator.scheduler.plugins.pod_topology_spread import PLUGIN
from koordinator.scheduler.snapshot import ClusterState

REASON = "node(s) didn't match pod topology spread constraints"
MISSING = f"{REASON} (missing required label)"
WEB = {"app": "web"}


def webs(*names: str) -> list[Pod]:
    return [pod(f"w{index}", labels=WEB, on=name) for index, name in enumerate(names)]


def spreading(*constraints: JsonObject, **more: Any) -> Pod:
    return pod("p", labels=WEB, topologySpreadConstraints=list(constraints), **more)


@pytest.fixture
def zones(world: World) -> ClusterState:
    """Return a world with two webs in zone a, one in b, none in c."""
    return world(
        node("a1", zone="a"),
        node("a2", zone="a", taints=["x=1:NoSchedule"]),
        node("b1", zone="b"),
        node("c1", zone="c", labels={"disk": "ssd"}),
        *webs("a1", "a2", "b1"),
    )


# -- filter ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("skew", "rejected"), [(1, "a1 a2 b1"), (2, "a1 a2"), (3, "")])
def test_the_skew_counts_the_pod_itself(zones: ClusterState, skew: int, rejected: str) -> None:
    """2 + 1 - 0 in zone a, 1 + 1 - 0 in b, 0 + 1 - 0 in c."""
    names = refused(built(PLUGIN, zones), zones, spreading(spread(skew=skew)))

    assert names == dict.fromkeys(rejected.split(), REASON)


def test_a_pod_that_its_own_selector_does_not_match_is_not_counted(zones: ClusterState) -> None:
    """2 - 0 in zone a, 1 - 0 in b."""
    pending = pod("p", topologySpreadConstraints=[spread(skew=1)])

    assert set(refused(built(PLUGIN, zones), zones, pending)) == {"a1", "a2"}


def test_too_few_domains_make_the_minimum_zero(zones: ClusterState) -> None:
    """With c occupied as well the minimum is 1, unless four domains are required."""
    add(zones, pod("w9", labels=WEB, on="c1"))
    plugin = built(PLUGIN, zones)

    assert set(refused(plugin, zones, spreading(spread(minDomains=3)))) == {"a1", "a2"}
    assert len(refused(plugin, zones, spreading(spread(minDomains=4)))) == 4


def test_node_without_the_key_is_unresolvable(zones: ClusterState) -> None:
    """Where only the skew is too high, evictions could help."""
    add(zones, node("nowhere"))
    plugin, pending = built(PLUGIN, zones), spreading(spread(skew=2))

    assert refused(plugin, zones, pending)["nowhere"] == MISSING
    assert hopeless(plugin, zones, pending) == {"nowhere"}


def test_domains_without_eligible_nodes_do_not_count(zones: ClusterState) -> None:
    """Without c the minimum comes from b, unless the policy ignores the pod's selector."""
    elsewhere = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "disk", "operator": "DoesNotExist"}]}
                ]
            }
        }
    }
    plugin = built(PLUGIN, zones)

    def rejected(**more: Any) -> set[str]:
        return set(refused(plugin, zones, spreading(spread(**more), affinity=elsewhere)))

    # b: 1 + 1 - 1.  c: its own pods are not counted either, 0 + 1 - 1.
    assert rejected() == {"a1", "a2"}
    assert rejected(nodeAffinityPolicy="Ignore") == {"a1", "a2", "b1"}


def test_tainted_nodes_count_unless_the_policy_honors_taints(world: World) -> None:
    """Zone c is empty but tainted: 1 + 1 - 0 in b, or 1 + 1 - 1."""
    state = world(
        node("a1", zone="a"),
        node("b1", zone="b"),
        node("c1", zone="c", taints=["x=1:NoSchedule"]),
        *webs("a1", "b1"),
    )
    plugin = built(PLUGIN, state)

    assert set(refused(plugin, state, spreading(spread()))) == {"a1", "b1"}
    assert refused(plugin, state, spreading(spread(nodeTaintsPolicy="Honor"))) == {}
    tolerant = spreading(
        spread(nodeTaintsPolicy="Honor"), tolerations=[{"key": "x", "operator": "Exists"}]
    )
    assert set(refused(plugin, state, tolerant)) == {"a1", "b1"}


def test_match_label_keys_count_pods_of_the_same_version(zones: ClusterState) -> None:
    """Pods of the old version do not count; a key that the pod lacks is ignored."""
    plugin = built(PLUGIN, zones)
    constraint = spread(matchLabelKeys=["version"])
    labels = WEB | {"version": "2"}
    pending = pod("p", labels=labels, topologySpreadConstraints=[constraint])

    assert refused(plugin, zones, pending) == {}
    assert set(refused(plugin, zones, spreading(constraint))) == {"a1", "a2", "b1"}


def test_terminating_pods_and_other_namespaces_do_not_count(world: World) -> None:
    """Zone a has one of each and counts as empty."""
    state = world(
        node("a1", zone="a"),
        node("b1", zone="b"),
        pod("ending", labels=WEB, on="a1", deleted=True),
        pod("foreign", labels=WEB, on="a1", namespace="other"),
    )

    assert refused(built(PLUGIN, state), state, spreading(spread())) == {}


def test_several_constraints_must_all_hold(world: World) -> None:
    """By zone b is the one to go to, by host the empty one of a or b."""
    state = world(
        node("a1", zone="a"), node("b1", zone="b"), node("b2", zone="b"), *webs("a1", "b1", "a1")
    )
    both = spreading(spread(), spread(HOSTNAME))

    assert set(refused(built(PLUGIN, state), state, both)) == {"a1", "b1"}


# -- score -----------------------------------------------------------------------------------


@pytest.fixture
def uneven(world: World) -> ClusterState:
    """Return a world with three webs in zone a, one in b, none in c."""
    return world(
        node("a", zone="a"), node("b", zone="b"), node("c", zone="c"), *webs("a", "a", "a", "b")
    )


def test_crowded_domains_score_less(uneven: ClusterState) -> None:
    """Three domains weigh ln 5 = 1.609: 4.83, 1.61 and 0 round to 5, 2, 0; (5 + 0 - n) / 5."""
    pending = spreading(spread(soft=True))

    assert scored(built(PLUGIN, uneven), uneven, pending) == {"a": 0, "b": 60, "c": 100}


def test_a_higher_skew_evens_the_scores(uneven: ClusterState) -> None:
    """MaxSkew 5 adds 4: 9, 6, 4; (9 + 4 - n) / 9 is 44, 77, 100 %."""
    pending = spreading(spread(skew=5, soft=True))

    assert scored(built(PLUGIN, uneven), uneven, pending) == {"a": 44, "b": 77, "c": 100}


def test_by_host_every_node_is_a_domain(world: World) -> None:
    """Two nodes of one zone: 2 * ln 4 = 2.77 rounds to 3, and 0."""
    state = world(node("a1", zone="a"), node("a2", zone="a"), *webs("a1", "a1"))

    assert scored(built(PLUGIN, state), state, spreading(spread(HOSTNAME, soft=True))) == {
        "a1": 0,
        "a2": 100,
    }


def test_a_node_without_the_key_scores_nothing(uneven: ClusterState) -> None:
    """A node without the key is no domain, so the other scores stay."""
    add(uneven, node("nowhere"))
    pending = spreading(spread(soft=True))

    assert scored(built(PLUGIN, uneven), uneven, pending) == {
        "a": 0,
        "b": 60,
        "c": 100,
        "nowhere": 0,
    }


def test_without_matching_pods_all_nodes_are_equally_good(world: World) -> None:
    """100 each."""
    state = world(node("a", zone="a"), node("b", zone="b"))

    assert scored(built(PLUGIN, state), state, spreading(spread(soft=True))) == {"a": 100, "b": 100}


# -- defaults --------------------------------------------------------------------------------


def test_pods_of_a_service_are_spread_by_host_and_zone(world: World) -> None:
    """A: 2 ln 4 + 2 by host, 2 ln 4 + 4 by zone, 11.5 or 12; b: 2 + 4.  (12 + 6 - n) / 12."""
    state = world(
        node("a", zone="a"), node("b", zone="b"), service("web", app="web"), *webs("a", "a")
    )
    plugin = built(PLUGIN, state)

    assert scored(plugin, state, pod("p", labels=WEB)) == {"a": 50, "b": 100}
    assert scored(plugin, state, pod("p", labels={"app": "db"})) == {}
    assert refused(plugin, state, pod("p", labels=WEB)) == {}


def test_system_defaults_do_not_need_the_keys(world: World) -> None:
    """A node without zone is scored by host alone."""
    state = world(node("a", zone="a"), node("nowhere"), service("web", app="web"), *webs("a", "a"))
    scores = scored(built(PLUGIN, state), state, pod("p", labels=WEB), raw=True)

    # a: 2 ln 4 + 2 and 2 ln 4 + 4 (a domain for the nodes without zone); nowhere: 2
    assert scores == {"a": 12, "nowhere": 2}


def test_selector_of_the_controller_applies(world: World) -> None:
    """The controller's selector replaces that of a service."""
    replica_set = decode_object(
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {"name": "rs", "namespace": "default"},
            "spec": {"selector": {"matchLabels": WEB}},
        }
    )
    state = world(node("a", zone="a"), node("b", zone="b"), replica_set, *webs("a", "a"))
    owned = pod("p", labels=WEB, owner=("ReplicaSet", "rs"))

    assert scored(built(PLUGIN, state), state, owned) == {"a": 50, "b": 100}


def test_constraints_of_the_arguments_replace_the_defaults(world: World) -> None:
    """A hard one filters; an empty list switches defaults off."""
    state = world(node("a", zone="a"), node("b", zone="b"), service("web", app="web"), *webs("a"))
    hard = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
    listed = built(PLUGIN, state, defaultingType="List", defaultConstraints=[hard])
    none = built(PLUGIN, state, defaultingType="List")
    pending = pod("p", labels=WEB)

    assert refused(listed, state, pending) == {"a": REASON}
    assert (refused(none, state, pending), scored(none, state, pending)) == ({}, {})


def test_own_constraints_replace_the_defaults(world: World) -> None:
    """Own constraints replace the default ones in any mode."""
    state = world(node("a", zone="a"), node("b", zone="b"), service("web", app="web"), *webs("a"))

    assert scored(built(PLUGIN, state), state, spreading(spread())) == {}
