"""Descheduler plans on the dashboard."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace
from tests.unit.cli.descheduler.test_plan import policy
from tests.unit.dashboard.dashboards import Browser, manifests, served
from tests.unit.dashboard.test_server import Rights
from tests.unit.descheduler.migration.world import replicas
from tests.worlds import START_S, made, metric, node, pod, used

from koordinator.api.kubescheduler import NO_GATES, FeatureGates
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod, SchedulingGroup
from koordinator.cli.input.configuration import read_configuration
from koordinator.dashboard.access import ReviewedAccess
from koordinator.dashboard.whatif import UNFOLLOWED, MovePlanner, example_policy
from koordinator.foundation.clock import SystemClock
from koordinator.foundation.errors import ClusterError

POLICY = json.dumps(policy())
SCHEDULER = read_configuration("koordinator")


def hot() -> list[KubeObject]:
    """Return a hot node, a cool one, and a pod that may move between them."""
    return [
        node("n1", 10),
        node("n2", 10),
        *replicas("web", on=["n1"], cpu=1),
        metric("n1", pods={"web-0": used(1)}, system=used(6)),
        metric("n2"),
    ]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with served(manifests(hot(), SCHEDULER), move_policy=POLICY) as server:
        yield server


def section(page: Any, title: str) -> Any:
    (match,) = [one for one in page["sections"] if one["title"] == title]
    return match


def test_plan_lists_moves_and_changes_nothing(browser: Browser) -> None:
    begun = browser.get("/api/policy").json
    assert begun == {"policy": POLICY, "origin": "a test"}

    page = browser.post("/api/plan", {"policy": begun["policy"]}).json
    (row,) = section(page, "Moves")["tables"][0]["rows"]
    assert row[1:4] == ["default/web-0", "n1", "n2"]
    assert "1 move" in page["facts"]
    assert [one["pod"] for one in browser.get("/api/node?name=n1").json["pods"]] == [
        "default/web-0"
    ]


@pytest.mark.parametrize(
    ("gates", "is_moved"),
    [("", True), ("GenericWorkload=true,TopologyAwareWorkloadScheduling=true", False)],
)
def test_plan_follows_the_gates_of_the_scheduler(gates: str, *, is_moved: bool) -> None:
    """A PodGroup of Kubernetes keeps its pods in one rack."""
    group = made(
        "PodGroup",
        "web",
        "scheduling.k8s.io/v1beta1",
        metadata={"namespace": "default"},
        spec={
            "schedulingPolicy": {"basic": {}},
            "schedulingConstraints": {"topology": [{"key": "rack"}]},
        },
    )
    objects = [
        *(node(name, 10, labels={"rack": name}) for name in ("n1", "n2")),
        *hot()[2:],
        pod("other", 1, on="n1"),
        group,
    ]
    in_group = SchedulingGroup(pod_group_name="web")
    objects = [
        replace(one, spec=replace(one.spec, scheduling_group=in_group))
        if isinstance(one, Pod)
        else one
        for one in objects
    ]
    planner = MovePlanner(POLICY, "a test", lambda _: (), lambda _: ())
    page = planner.plan(objects, POLICY, SCHEDULER, FeatureGates.parse(gates), START_S)

    assert ("1 move" in page.facts) == is_moved


def test_sample_policy_is_valid(browser: Browser) -> None:
    page = browser.post("/api/plan", {"policy": example_policy(SCHEDULER)}).json
    assert section(page, "Moves")["text"] == "No pod moves."


@pytest.mark.parametrize(
    "body",
    [
        {"policy": "kind: Pod"},
        {"policy": "nonsense: ["},
        {"policy": ""},
        {},
        {"x": ""},
    ],
)
def test_invalid_policy_is_rejected_with_a_message(browser: Browser, body: object) -> None:
    reply = browser.post("/api/plan", body)
    assert reply.status == 400
    assert reply.json["message"]


def test_plan_needs_every_right() -> None:
    """A plan names pods and nodes of all tenants."""
    with served(manifests(hot(), SCHEDULER), ReviewedAccess(Rights(), SystemClock())) as server:
        tenant, admin = "blue-token", "admin-token"
        assert server.post("/api/plan", {"policy": POLICY}, tenant).status == 403
        assert server.get("/api/policy", tenant).status == 403
        assert server.post("/api/plan", {"policy": POLICY}, admin).status == 200


def test_unreadable_kinds_are_listed_in_the_plan() -> None:
    """The plan is computed without them."""

    def read(kind: type[KubeObject]) -> list[KubeObject]:
        if kind is UNFOLLOWED[0]:
            raise ClusterError("forbidden")
        return []

    planner = MovePlanner(POLICY, "a test", lambda _: (), lambda _: (), read)
    page = planner.plan(hot(), POLICY, SCHEDULER, NO_GATES, 0.0)
    assert (
        page.facts[-1] == "ignored objects of kind PriorityClass, which cannot be read: forbidden"
    )
