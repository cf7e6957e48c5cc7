"""Inter-pod affinity and anti-affinity."""

from typing import Any

import pytest
from tests.unit.scheduler.conftest import World
from tests.unit.scheduler.questions import built, hopeless, refused, scored
from tests.worlds import HOSTNAME, add, near, node, pod

from koordinator.api.codec import decode_object
from koordinator.api.meta import JsonObject, KubeObject
from koordinator.api.node import Node
from koordinator.scheduler.plugins.inter_pod_affinity import PLUGIN
from koordinator.scheduler.snapshot import ClusterState

FAR = "node(s) didn't match pod affinity rules"
CLOSE = "node(s) didn't match pod anti-affinity rules"
SHUNNED = "node(s) didn't satisfy existing pods anti-affinity rules"
WEB = {"app": "web"}


def nodes() -> tuple[Node, ...]:
    """Return two nodes in zone a, one in zone b, and one without a zone."""
    return node("a1", zone="a"), node("a2", zone="a"), node("b1", zone="b"), node("nowhere")


def namespace(name: str, **labels: str) -> KubeObject:
    metadata = {"name": name, "labels": labels}
    return decode_object({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})


def together(app: str = "web", **more: Any) -> JsonObject:
    return {"podAffinity": near(app, **more)}


def apart(app: str = "web", **more: Any) -> JsonObject:
    return {"podAntiAffinity": near(app, **more)}


# -- filter ----------------------------------------------------------------------------------


def test_affinity_accepts_the_whole_domain_of_a_matching_pod(world: World) -> None:
    """All nodes of the zone are accepted; evictions in another zone cannot help."""
    state = world(*nodes(), pod("friend", labels=WEB, on="a1"))
    plugin, pending = built(PLUGIN, state), pod("p", affinity=together())

    assert refused(plugin, state, pending) == {"b1": FAR, "nowhere": FAR}
    assert hopeless(plugin, state, pending) == {"b1", "nowhere"}


def test_the_first_of_a_group_may_start_anywhere_that_has_the_key(world: World) -> None:
    """The pod's affinity matches its own labels, and no such pod exists yet."""
    state = world(*nodes())
    plugin = built(PLUGIN, state)

    assert refused(plugin, state, pod("p", labels=WEB, affinity=together())) == {"nowhere": FAR}
    assert len(refused(plugin, state, pod("p", affinity=together()))) == 4  # not like itself


def test_a_group_that_has_started_holds_together(world: World) -> None:
    """The exception is for the first one only."""
    state = world(*nodes(), pod("first", labels=WEB, on="b1"))
    pending = pod("p", labels=WEB, affinity=together())

    assert set(refused(built(PLUGIN, state), state, pending)) == {"a1", "a2", "nowhere"}


def test_one_pod_must_match_all_terms(world: World) -> None:
    """One pod for each term is not enough."""
    terms = near("web")["requiredDuringSchedulingIgnoredDuringExecution"]
    terms += [
        {"topologyKey": "topology.kubernetes.io/zone", "labelSelector": {"matchLabels": {"x": "1"}}}
    ]
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    state = world(*nodes(), pod("web", labels=WEB, on="a1"), pod("x", labels={"x": "1"}, on="a1"))
    plugin, pending = built(PLUGIN, state), pod("p", affinity=affinity)
    assert len(refused(plugin, state, pending)) == 4

    add(state, pod("both", labels={"app": "web", "x": "1"}, on="b1"))
    assert set(refused(plugin, state, pending)) == {"a1", "a2", "nowhere"}


def test_anti_affinity_refuses_the_whole_domain(world: World) -> None:
    """The pod in the way could be evicted; a node without the key is in no domain."""
    state = world(*nodes(), pod("enemy", labels=WEB, on="a1"))
    plugin, pending = built(PLUGIN, state), pod("p", affinity=apart())

    assert refused(plugin, state, pending) == {"a1": CLOSE, "a2": CLOSE}
    assert hopeless(plugin, state, pending) == set()


def test_anti_affinity_of_placed_pods_excludes_others(world: World) -> None:
    """Terms of placed pods apply to a pod without terms."""
    state = world(*nodes(), pod("shy", on="a1", affinity=apart()))
    plugin = built(PLUGIN, state)

    assert refused(plugin, state, pod("p", labels=WEB)) == {"a1": SHUNNED, "a2": SHUNNED}
    assert refused(plugin, state, pod("p", labels={"app": "db"})) == {}


def test_the_first_broken_rule_is_the_reason(world: World) -> None:
    """The order is affinity, own anti-affinity, anti-affinity of placed pods."""
    shy = pod("shy", labels={"app": "db"}, on="b1", affinity=apart())
    state = world(*nodes(), shy, pod("enemy", labels={"app": "db"}, on="a1"))
    pending = pod("p", labels=WEB, affinity=together("db", key=HOSTNAME) | apart("db"))

    assert refused(built(PLUGIN, state), state, pending) == {
        "a1": CLOSE,
        "a2": FAR,
        "b1": CLOSE,
        "nowhere": FAR,
    }


def test_terms_select_the_own_namespace_by_default(world: World) -> None:
    """Others are selected by name, by labels of the namespace, or all with an empty selector."""
    state = world(
        *nodes(),
        namespace("team", kind="team"),
        pod("friend", labels=WEB, on="a1", namespace="team"),
    )
    plugin = built(PLUGIN, state)

    def accepted(**more: Any) -> bool:
        return "a2" not in refused(plugin, state, pod("p", affinity=together(**more)))

    assert not accepted()
    assert accepted(namespaces=["team"])
    assert not accepted(namespaces=["other"])
    assert accepted(namespaceSelector={})
    assert accepted(namespaceSelector={"matchLabels": {"kind": "team"}})
    assert not accepted(namespaceSelector={"matchLabels": {"kind": "other"}})


def test_namespace_counts_once_it_gets_the_label(world: World) -> None:
    """Earlier counts are computed again."""
    state = world(*nodes(), namespace("team"), pod("friend", labels=WEB, on="a1", namespace="team"))
    plugin = built(PLUGIN, state)
    selector = {"matchLabels": {"kind": "team"}}
    pending = pod("p", affinity=together(namespaceSelector=selector))
    assert len(refused(plugin, state, pending)) == 4

    add(state, namespace("team", kind="team"))
    assert set(refused(plugin, state, pending)) == {"b1", "nowhere"}


def test_the_first_of_a_group_in_a_selected_namespace_can_start(world: World) -> None:
    """The pod matches its own term by the present labels of its namespace."""
    state = world(*nodes(), namespace("default"))
    plugin = built(PLUGIN, state)
    selector = {"matchLabels": {"kind": "team"}}
    first = pod("p", labels=WEB, affinity=together(namespaceSelector=selector))
    assert len(refused(plugin, state, first)) == 4

    add(state, namespace("default", kind="team"))
    assert set(refused(plugin, state, first)) == {"nowhere"}


def test_match_label_keys_narrow_the_term_to_the_own_value(world: World) -> None:
    """A new version of an app excludes itself only; mismatchLabelKeys exclude others."""
    old = pod("old", labels=WEB | {"version": "1"}, on="a1")
    state = world(*nodes(), old)
    plugin = built(PLUGIN, state)

    def rejected(version: str, **more: Any) -> set[str]:
        labels = WEB | {"version": version}
        return set(refused(plugin, state, pod("p", labels=labels, affinity=apart(**more))))

    assert rejected("1", matchLabelKeys=["version"]) == {"a1", "a2"}
    assert rejected("2", matchLabelKeys=["version"]) == set()
    assert rejected("1", mismatchLabelKeys=["version"]) == set()
    assert rejected("2", mismatchLabelKeys=["version"]) == {"a1", "a2"}


# -- score -----------------------------------------------------------------------------------


@pytest.fixture
def two_webs(world: World) -> ClusterState:
    return world(
        *nodes(), pod("w1", labels=WEB, on="a1"), pod("w2", labels=WEB, on="a2"), pod("d", on="b1")
    )


def test_every_matching_pod_in_the_domain_adds_the_weight(two_webs: ClusterState) -> None:
    """Raw 2 * 30 in zone a, 0 elsewhere; scaled to 100 and 0."""
    plugin, pending = built(PLUGIN, two_webs), pod("p", affinity=together(weight=30))

    assert scored(plugin, two_webs, pending, raw=True) == {
        "a1": 60,
        "a2": 60,
        "b1": 0,
        "nowhere": 0,
    }
    assert scored(plugin, two_webs, pending) == {"a1": 100, "a2": 100, "b1": 0, "nowhere": 0}


def test_preferred_anti_affinity_subtracts(two_webs: ClusterState) -> None:
    """Together 10 by zone, apart 15 by host: a1 20 - 15, a2 20 - 15, others 0."""
    affinity = together(weight=10) | apart(weight=15, key=HOSTNAME)
    plugin, pending = built(PLUGIN, two_webs), pod("p", affinity=affinity)

    assert scored(plugin, two_webs, pending, raw=True) == {"a1": 5, "a2": 5, "b1": 0, "nowhere": 0}


def test_the_range_is_scaled_to_100(world: World) -> None:
    """Raw -20, -10 and 0: 0, 50, 100."""
    webs = [pod(f"w{i}", labels=WEB, on=name) for i, name in enumerate(["a1", "a1", "b1"])]
    state = world(node("a1"), node("b1"), node("c1"), *webs)
    pending = pod("p", affinity=apart(weight=10, key=HOSTNAME))

    assert scored(built(PLUGIN, state), state, pending) == {"a1": 0, "b1": 50, "c1": 100}


def test_terms_of_placed_pods_are_scored(world: World) -> None:
    """Preferred terms count with their weight, required ones with the weight of the arguments."""
    state = world(
        *nodes(),
        pod("likes", on="a1", affinity=together(weight=7)),
        pod("needs", on="b1", affinity=together()),
        pod("dislikes", on="b1", affinity=apart(weight=3)),
    )
    pending = pod("p", labels=WEB)

    def raw(**args: object) -> dict[str, int]:
        scores = scored(built(PLUGIN, state, **args), state, pending, raw=True)
        return {name: scores[name] for name in ("a1", "b1")} if scores else {}

    assert raw() == {"a1": 7, "b1": 1 - 3}
    assert raw(hardPodAffinityWeight=50) == {"a1": 7, "b1": 50 - 3}
    assert raw(hardPodAffinityWeight=0) == {"a1": 7, "b1": -3}
    assert raw(ignorePreferredTermsOfExistingPods=True) == {}


def test_pod_without_preferences_is_not_scored(two_webs: ClusterState) -> None:
    """A required term of its own does not score."""
    plugin = built(PLUGIN, two_webs)

    assert scored(plugin, two_webs, pod("p")) == {}
    assert scored(plugin, two_webs, pod("p", affinity=together())) == {}
