"""What a reader who sees one namespace is told of others: nothing, in whatever sentence."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.dashboard.dashboards import settled
from tests.worlds import configuration, made, node, pod

from koordinator.api.meta import KubeObject
from koordinator.dashboard.access import ViewScope
from koordinator.dashboard.attention import attention
from koordinator.dashboard.frames import FrameEncoder
from koordinator.dashboard.node_details import node_details
from koordinator.dashboard.overview import OverviewBuilder
from koordinator.dashboard.queries import explanation, gang_report, quota_report, waiting_pods
from koordinator.dashboard.redaction import SOMEBODY, PrivateNames, Redactor
from koordinator.dashboard.sources import SourcePhase, SourceStatus
from koordinator.simulator.embedded import STOCK, Embedded

OWN = ViewScope(frozenset({"own"}), sees_nodes=True)
BLIND = ViewScope(frozenset({"own"}), sees_nodes=False)
NOW = SourceStatus(phase=SourcePhase.LIVE, now_s=2e9)
MARK = "zebra"  # part of every name of the other tenant
QUOTA = "quota.scheduling.koordinator.sh/name"
GANG = "pod-group.scheduling.sigs.k8s.io"
PROFILE = configuration(
    plugins={
        "multiPoint": {"enabled": [{"name": name} for name in ("ElasticQuota", "Reservation")]},
        "queueSort": {"enabled": [{"name": "Coscheduling"}], "disabled": [{"name": "*"}]},
        **{point: {"enabled": [{"name": "Coscheduling"}]} for point in ("preEnqueue", "permit")},
    }
)


def answers(world: Embedded, scope: ViewScope, pods: Sequence[str]) -> str:
    """Return all that a page can ask, as it is sent."""
    handle = world.scheduler.handle
    overview = OverviewBuilder(handle).build(NOW)
    redactor = Redactor.of(handle.state, scope)
    encoder = FrameEncoder(scope, {})
    published, frame = encoder.next(overview, {}, redactor.names)
    causes = {one.cause for one in published.waiting}
    told: list[Any] = [
        frame.decode(),
        [[one.pod for one in waiting_pods(overview, redactor, cause)] for cause in causes],
        [explanation(handle, name, scope) for name in pods],
        gang_report(handle).visible_to(scope),
        quota_report(handle).visible_to(scope),
        [item.text for item in attention(handle, overview, scope).items],
    ]
    if scope.sees_nodes:
        told.append([node_details(handle, name, scope) for name in handle.state.nodes.rows])
    return json.dumps(told, default=str)


def quota(name: str, namespace: str, low: int, high: int, **labels: str) -> KubeObject:
    amounts = {"min": {"cpu": str(low)}, "max": {"cpu": str(high)}}
    meta = {"namespace": namespace, "labels": labels}
    group = "scheduling.sigs.k8s.io/v1alpha1"
    return made("ElasticQuota", name, group, metadata=meta, spec=amounts)


def test_a_gang_that_waits_for_a_gang_of_somebody_else_does_not_say_whose() -> None:
    """Gangs of one group start together: what lacks is told, whom it belongs to is not."""
    groups = json.dumps(["own/mine", "zebra-ns/zebra-gang"])
    both = {"gang.scheduling.koordinator.sh/groups": groups}
    world = settled(
        node("n", cpu=8),
        *(
            made(
                "PodGroup",
                name,
                "scheduling.sigs.k8s.io/v1alpha1",
                metadata={"namespace": namespace, "annotations": both},
                spec={"minMember": 2},
            )
            for namespace, name in (("own", "mine"), ("zebra-ns", "zebra-gang"))
        ),
        *(pod(f"m{n}", cpu=1, namespace="own", labels={GANG: "mine"}) for n in range(2)),
        pod("zebra-0", cpu=1, namespace="zebra-ns", labels={GANG: "zebra-gang"}),
        config=PROFILE,
    )
    whole = answers(world, ViewScope(), ["own/m0", "own/m1"])
    assert MARK in whole
    for scope in (OWN, BLIND):
        told = answers(world, scope, ["own/m0", "own/m1"])
        assert MARK not in told
        assert "own/m0" in told


def test_a_quota_of_somebody_else_has_no_name() -> None:
    """Neither as parent whose limit is reached, nor as the one that has lent."""
    parent = {"quota.scheduling.koordinator.sh/is-parent": "true"}
    child = {"quota.scheduling.koordinator.sh/parent": "zebra-all"}
    world = settled(
        node("n", cpu=30),
        quota("zebra-all", "zebra-ns", 10, 12, **parent),
        quota("mine", "own", 2, 30, **child),
        quota("zebra-team", "zebra-ns", 8, 30, **child),
        pod("zebra-runs", cpu=5, on="n", namespace="zebra-ns", labels={QUOTA: "zebra-team"}),
        pod("waits", cpu=9, namespace="own", labels={QUOTA: "mine"}),
        config=PROFILE,
    )
    told = answers(world, OWN, ["own/waits"])
    assert MARK not in told
    assert "quota" in told


def test_who_stands_in_the_way_is_not_told() -> None:
    """Neither on the node, nor before it in the queue, nor who would have to go."""
    world = settled(
        node("n", cpu=4),
        pod("zebra-1", cpu=3, on="n", namespace="zebra-ns"),
        pod("zebra-2", cpu=3, namespace="zebra-ns", priority=9),
        pod("big", cpu=3, namespace="own"),
        config=STOCK,
    )
    for scope in (OWN, BLIND):
        told = answers(world, scope, ["own/big"])
        assert MARK not in told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("gang zebra-ns/g waits for own/m0", f"gang {SOMEBODY} waits for own/m0"),
        ('PodGroup "zebra-ns/g".', f'PodGroup "{SOMEBODY}".'),
        ("0/5 nodes: Insufficient nvidia.com/gpu", "0/5 nodes: Insufficient nvidia.com/gpu"),
        ("node affinity/selector of SpineLayer/s0", "node affinity/selector of SpineLayer/s0"),
        ("quota zebra-q lends", f"quota {SOMEBODY} lends"),
        ("zebra-q.", f"{SOMEBODY}."),
    ],
)
def test_names_are_replaced_and_words_are_not(text: str, told: str) -> None:
    """Resources, counts of nodes and domains of the network are no names of objects."""
    names = PrivateNames({"zebra-q": frozenset({"zebra-ns"})}, frozenset(), frozenset())
    assert Redactor(OWN, names).text(text) == told


NAMES = st.from_regex(r"[a-z]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)


@settings(max_examples=60)
@given(NAMES.filter(lambda name: name != "own"), NAMES, st.sampled_from(" \"',;:()[]"))
def test_no_object_of_another_namespace_is_left_in_a_text(
    namespace: str, name: str, mark: str
) -> None:
    """Whatever stands around it; who sees everything is told everything."""
    text = f"x{mark}{namespace}/{name}{mark}y"
    words = {"affinity/selector", "and/or"}
    if f"{namespace}/{name}" not in words:
        assert f"{namespace}/{name}" not in Redactor(OWN).text(text)
    assert Redactor(ViewScope()).text(text) == text
