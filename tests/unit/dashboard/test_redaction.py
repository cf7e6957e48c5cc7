"""Redaction: a reader of one namespace gets no names of others in any message."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.dashboard.dashboards import settled
from tests.worlds import configuration, made, node, pod

from koordinator.api.meta import KubeObject
from koordinator.dashboard.access import REDACTED, PrivateNames, Redactor, ViewScope
from koordinator.dashboard.attention import attention
from koordinator.dashboard.frames import FrameEncoder
from koordinator.dashboard.node_details import node_details
from koordinator.dashboard.overview import OverviewBuilder
from koordinator.dashboard.queries import explanation, gang_report, quota_report, waiting_pods
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
    """Return all answers for a scope, as they are sent."""
    handle = world.scheduler.handle
    overview = OverviewBuilder(handle).build(NOW)
    redactor = Redactor.of(handle.state, scope)
    encoder = FrameEncoder(scope, {})
    published, frame = encoder.next(overview, {}, redactor.names)
    causes = {one.cause for one in published.waiting}
    sent: list[Any] = [
        frame.decode(),
        [[one.pod for one in waiting_pods(overview, redactor, cause)] for cause in causes],
        [explanation(handle, name, scope) for name in pods],
        gang_report(handle).visible_to(scope),
        quota_report(handle).visible_to(scope),
        [item.text for item in attention(handle, overview, scope).items],
    ]
    if scope.sees_nodes:
        sent.append([node_details(handle, name, scope) for name in handle.state.nodes.rows])
    return json.dumps(sent, default=str)


def quota(name: str, namespace: str, low: int, high: int, **labels: str) -> KubeObject:
    amounts = {"min": {"cpu": str(low)}, "max": {"cpu": str(high)}}
    meta = {"namespace": namespace, "labels": labels}
    group = "scheduling.sigs.k8s.io/v1alpha1"
    return made("ElasticQuota", name, group, metadata=meta, spec=amounts)


def test_foreign_gang_of_a_gang_group_is_redacted() -> None:
    """The shortage is shown without the foreign gang's name."""
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
    assert MARK in answers(world, ViewScope(), ["own/m0", "own/m1"])
    for scope in (OWN, BLIND):
        sent = answers(world, scope, ["own/m0", "own/m1"])
        assert MARK not in sent
        assert "own/m0" in sent


def test_names_of_foreign_quotas_are_redacted() -> None:
    """Parents whose limit is reached and lenders are covered."""
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
    sent = answers(world, OWN, ["own/waits"])
    assert MARK not in sent
    assert "quota" in sent


def test_foreign_pods_in_the_way_are_redacted() -> None:
    """Pods on the node, ahead in the queue and possible victims are covered."""
    world = settled(
        node("n", cpu=4),
        pod("zebra-1", cpu=3, on="n", namespace="zebra-ns"),
        pod("zebra-2", cpu=3, namespace="zebra-ns", priority=9),
        pod("big", cpu=3, namespace="own"),
        config=STOCK,
    )
    for scope in (OWN, BLIND):
        assert MARK not in answers(world, scope, ["own/big"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gang zebra-ns/g waits for own/m0", f"gang {REDACTED} waits for own/m0"),
        ('PodGroup "zebra-ns/g".', f'PodGroup "{REDACTED}".'),
        ("0/5 nodes: Insufficient nvidia.com/gpu", "0/5 nodes: Insufficient nvidia.com/gpu"),
        ("node affinity/selector of SpineLayer/s0", "node affinity/selector of SpineLayer/s0"),
        ("quota zebra-q lends", f"quota {REDACTED} lends"),
        ("zebra-q.", f"{REDACTED}."),
    ],
)
def test_names_are_replaced_and_words_are_not(text: str, expected: str) -> None:
    """Resources, counts of nodes and network domains are not names of objects."""
    names = PrivateNames({"zebra-q": frozenset({"zebra-ns"})}, frozenset(), frozenset())
    assert Redactor(OWN, names).text(text) == expected


NAMES = st.from_regex(r"[a-z]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)


@settings(max_examples=examples(25))
@given(NAMES.filter(lambda name: name != "own"), NAMES, st.sampled_from(" \"',;:()[]"))
def test_foreign_names_are_removed_next_to_any_punctuation(
    namespace: str, name: str, mark: str
) -> None:
    """A scope of everything leaves the text unchanged."""
    text = f"x{mark}{namespace}/{name}{mark}y"
    words = {"affinity/selector", "and/or"}
    if f"{namespace}/{name}" not in words:
        assert f"{namespace}/{name}" not in Redactor(OWN).text(text)
    assert Redactor(ViewScope()).text(text) == text
