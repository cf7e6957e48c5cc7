"""Dashboard over HTTP: the page, queries, the event stream, and access rights."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace
from starlette.routing import Route
from tests.unit.dashboard.dashboards import HOSTILE, Browser, crowded, gpu_node, manifests, served
from tests.worlds import START_S, configuration, device, gpu_pod, made, node, pod

from koordinator.api.control_plane import (
    SubjectAccessReview,
    SubjectAccessReviewStatus,
    TokenReview,
    TokenReviewStatus,
    UserInfo,
)
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.dashboard.access import ReviewedAccess
from koordinator.dashboard.server import dashboard_application
from koordinator.foundation.clock import SystemClock, to_datetime

KindT = TypeVar("KindT", bound=KubeObject)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Show two full nodes and pending pods of two tenants."""
    with served(manifests(crowded())) as server:
        yield server


# -- pages -----------------------------------------------------------------------------------


def test_page_permits_only_its_own_scripts(browser: Browser) -> None:
    """The page has no inline script, and the policy forbids all others."""
    reply = browser.get("/")

    policy = reply.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert reply.text.count("<script") == reply.text.count('<script type="module"') == 1
    assert 'src="./dashboard.js"' in reply.text
    assert browser.get("/dashboard.js").headers["content-type"].startswith("text/javascript")


def test_unknown_host_header_is_refused() -> None:
    """The check protects against DNS rebinding."""
    with served(manifests(crowded()), hosts=("localhost", "127.0.0.1")) as server:
        assert server.get("/api/quotas", host="evil.example").status == 421
        assert server.get("/api/quotas", host="localhost:8765").status == 200


def test_body_other_than_json_is_rejected(browser: Browser) -> None:
    """A foreign page can only send JSON after a CORS preflight."""
    from tests.unit.process.clients import ask  # noqa: PLC0415

    headers = {"content-type": "text/plain"}
    reply = ask(browser.port, "/api/try", method="POST", body="{}", headers=headers)
    assert reply.status == 400
    assert "application/json" in reply.json["message"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/try", {"surprise": 1}),
        ("/api/try", {"manifests": "kind: Nonsense"}),
        ("/api/try", {"manifests": "{"}),
        ("/api/try", {"remove": ["node/missing"]}),
        ("/api/try", {"configuration": "kind: Pod"}),
        ("/api/control", {"isPaused": True}),
        ("/api/control", [1]),
    ],
)
def test_invalid_request_is_rejected_with_a_message(
    browser: Browser, path: str, body: object
) -> None:
    reply = browser.post(path, body)
    assert reply.status == 400
    assert reply.json["message"]


def test_missing_pods_and_nodes_are_404(browser: Browser) -> None:
    for path in ("/api/pod?name=blue/missing", "/api/node?name=missing"):
        reply = browser.get(path)
        assert reply.status == 404
        assert "missing" in reply.json["message"]
    assert browser.get("/api/pod").status == 400


# -- queries ---------------------------------------------------------------------------------


def test_stream_starts_with_a_full_frame(browser: Browser) -> None:
    frames = browser.frames()
    first = next(frames)
    frames.close()  # type: ignore[attr-defined]  # a generator

    assert first["kind"] == "full"
    assert first["nodes"]["names"] == ["a", "b"]
    assert first["totals"]["waiting"] == 4
    assert first["waiting"][0]["cause"] == "too little cpu is free"


def test_stream_has_a_remedy_soon(browser: Browser) -> None:
    """A dry run on a copy finds it."""
    for frame in browser.frames():
        causes = frame.get("waiting", [])
        if causes and causes[0].get("help"):
            break
    assert "runs-a" in causes[0]["help"] or "runs-b" in causes[0]["help"]


def test_pod_has_the_explanation_of_koord_explain(browser: Browser) -> None:
    """Causes, nearest nodes with their shortfall, remedies, and the place in the queue."""
    answer = browser.get("/api/pod?name=blue/waits-0").json

    assert answer["verdict"] == "waits"
    assert answer["nearest"][0]["lacks"] == {"cpu": "2"}
    assert answer["remedies"]
    assert answer["queue"]["position"] == 1


def test_all_pods_of_a_cause_are_listed(browser: Browser) -> None:
    """A frame has only some of them."""
    listed = browser.get("/api/waiting?cause=too%20little%20cpu%20is%20free").json
    assert len(listed["pods"]) == 4


def test_node_details_have_devices_and_holders() -> None:
    objects = [
        *gpu_node("g", 3, unhealthy=[2]),
        gpu_pod("half", "g", minors=[1], gpu_core=50, gpu_memory_ratio=50),
    ]
    with served(manifests(objects)) as server:
        inside = server.get("/api/node?name=g").json

    (kind,) = inside["devices"]
    assert [one["isHealthy"] for one in kind["devices"]] == [True, True, False]
    assert kind["devices"][1]["holders"] == [{"pod": 0, "percent": 50, "functions": []}]
    assert inside["pods"][0]["pod"] == "default/half"


def test_pages_of_the_documentation_are_served(browser: Browser) -> None:
    """The pages that the help links to are served as plain text, and no others."""
    linked = set(re.findall(r"\['([a-z-]+)', '", (ROOT / "frontend/src/help.tsx").read_text()))
    assert {"dashboard", "explain-pods"} <= linked
    for name in linked:
        page = browser.get(f"/docs/{name}.md")
        assert page.text == (ROOT / f"docs/how-to/{name}.md").read_text()
        assert page.headers["content-type"].startswith("text/plain")
    for path in ("nothing.md", "..%2F..%2FREADME.md", "%2e%2e%2fglossary.md", "dashboard"):
        assert browser.get(f"/docs/{path}").status == 404


@pytest.mark.parametrize(
    ("pods", "shown"),
    [
        ([], {"nvidia.com/gpu": ("0", "2")}),
        ([pod("p", on="g", requests={"nvidia.com/gpu": 1})], {"nvidia.com/gpu": ("1", "2")}),
        (
            [gpu_pod("p", "g", minors=[1], gpu_core=50, gpu_memory_ratio=50)],
            {
                "koordinator.sh/gpu-core": ("50", "200"),
                "koordinator.sh/gpu-memory-ratio": ("50", "200"),
            },
        ),
    ],
)
def test_amounts_of_a_node_have_the_resource_names_of_gpus_that_are_in_use(
    pods: list[Pod], shown: dict[str, tuple[str, str]]
) -> None:
    """The same GPUs are not shown a second time as an amount that no pod requests."""
    offered: dict[str, Any] = {"nvidia.com/gpu": 2}
    machine, report = gpu_node("g", 2, **offered)
    with served(manifests([machine, report, *pods])) as server:
        amounts = server.get("/api/node?name=g").json["resources"]

    named = {one["name"]: (one["used"], one["total"]) for one in amounts}
    assert {name: pair for name, pair in named.items() if "gpu" in name} == shown
    assert {"cpu", "pods"} < named.keys()


def quota(name: str, namespace: str, **amounts: Any) -> KubeObject:
    """Return a quota with amounts of CPU."""
    return made(
        "ElasticQuota",
        name,
        "scheduling.sigs.k8s.io/v1alpha1",
        metadata={"namespace": namespace},
        spec={kind: {"cpu": str(cpu)} for kind, cpu in amounts.items()},
    )


def tenants() -> list[KubeObject]:
    """Return two tenants: blue above its guarantee, red without pods."""
    label = "quota.scheduling.koordinator.sh/name"
    return [
        node("n", cpu=10),
        quota("blue-quota", "blue", min=2, max=10),
        quota("red-quota", "red", min=6, max=10),
        pod("big", cpu=5, on="n", namespace="blue", labels={label: "blue-quota"}),
        pod("next", cpu=7, namespace="blue", labels={label: "blue-quota"}),
        pod("own", cpu=8, namespace="red", labels={label: "red-quota"}),
    ]


ROOT = Path(__file__).parents[3]
QUOTAS = configuration(plugins={"multiPoint": {"enabled": [{"name": "ElasticQuota"}]}})


def test_quotas_show_loans() -> None:
    """The tree is that of ``koord quota tree``."""
    with served(manifests(tenants(), QUOTAS)) as server:
        answer = server.get("/api/quotas").json

    assert answer["isOn"]
    by_name = {one["name"]: one for one in answer["trees"][0]["quotas"]}
    assert by_name["blue-quota"]["used"]["cpu"] == "5"
    assert by_name["blue-quota"]["borrows"]


def test_attention_lists_errors_first() -> None:
    objects = [node("g"), device("g", gpus=2, unhealthy=[0]), *crowded()]
    with served(manifests(objects)) as server:
        answer = server.get("/api/attention").json

    assert answer["items"][0]["severity"] == "error"
    assert answer["items"][0]["about"] == "node/g"
    assert "unhealthy" in answer["items"][0]["text"]
    assert answer["notLookedAt"]


def test_what_if_with_another_node() -> None:
    """A new node takes pending pods in the copy; the cluster does not change."""
    with served(manifests(crowded())) as server:
        manifest = json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": "new"},
                "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "10"}},
            }
        )
        answer = server.post("/api/try", {"manifests": manifest}).json
        without = server.post("/api/try", {"remove": ["pod/blue/runs-a"]}).json
        after = server.get("/api/pod?name=blue/waits-0").json

    assert answer["placedBefore"] == 0
    assert {one["after"] for one in answer["differences"]} == {"new"}
    assert answer["waitingAfter"] < answer["waitingBefore"]
    moved = {one["pod"]: one["after"] for one in without["differences"]}
    assert moved["blue/waits-0"] == "a"
    assert after["verdict"] == "waits"


def test_what_if_with_a_larger_quota() -> None:
    """Min and max grow by the amount; an unknown quota or an invalid amount is rejected."""
    objects = [
        node("n", cpu=10),
        quota("blue-quota", "blue", min=2, max=2),
        pod(
            "p",
            cpu=3,
            namespace="blue",
            labels={"quota.scheduling.koordinator.sh/name": "blue-quota"},
        ),
    ]
    with served(manifests(objects, QUOTAS)) as server:

        def granted(quota: str, amount: str) -> Any:
            grant = {"quota": quota, "resource": "cpu", "amount": amount}
            return server.post("/api/try", {"grants": [grant]})

        more = granted("blue-quota", "8").json
        assert [one["after"] for one in more["differences"]] == ["n"]
        assert granted("blue-quota", "0").json["differ"] == 0
        for wrong in (granted("red-quota", "8"), granted("blue-quota", "much")):
            assert wrong.status == 400


def test_expected_start_follows_deadlines() -> None:
    """Without a deadline the answer has a reason instead of a time."""
    runs = pod("runs", cpu=4, on="a")
    ends = replace(
        runs,
        spec=replace(runs.spec, active_deadline_seconds=600),
        status=replace(runs.status, start_time=to_datetime(START_S - 20)),
    )
    for running, at in ((ends, "2023-11-14T22:23:00Z"), (runs, "")):
        with served(manifests([node("a", cpu=4), running, pod("next", cpu=3)])) as server:
            answer = server.get("/api/start?name=default/next").json
        assert answer.get("at", "") == at
        assert bool(answer.get("why")) is not bool(at)


def test_queue_is_in_scheduling_order() -> None:
    """Pods are ordered by priority, then by arrival, and have their quota."""
    label = {"quota.scheduling.koordinator.sh/name": "blue-quota"}
    objects = [
        node("n", cpu=1),
        pod("low", cpu=9, labels=label),
        pod("high", cpu=9, priority=100),
    ]
    with served(manifests(objects, QUOTAS)) as server:
        answer = server.get("/api/queue").json
    assert answer["count"] == 2
    assert [(one["position"], one["pod"]) for one in answer["pods"]] == [
        (1, "default/high"),
        (2, "default/low"),
    ]
    assert [one["quota"] for one in answer["pods"]] == ["", "blue-quota"]


# -- rights ----------------------------------------------------------------------------------


class Rights:
    """API server with permissions to list pods by namespace, and nodes."""

    USERS = ("blue", "red", "admin", "powerless")

    def create(self, obj: KindT) -> KindT:
        answer: Any = None
        if isinstance(obj, TokenReview):
            user = obj.spec.token.removesuffix("-token")
            known = user in self.USERS
            status = TokenReviewStatus(authenticated=known, user=UserInfo(username=user))
            answer = replace(obj, status=status)
        elif isinstance(obj, SubjectAccessReview):
            attributes, user = obj.spec.resource_attributes, obj.spec.user
            assert attributes is not None
            own = attributes.resource == "pods" and attributes.namespace == user
            allowed = user == "admin" or own
            answer = replace(obj, status=SubjectAccessReviewStatus(allowed=allowed))
        return answer


@pytest.fixture(scope="module")
def shared() -> Iterator[Browser]:
    """Show a cluster that two tenants share."""
    policy = ReviewedAccess(Rights(), SystemClock())
    with served(manifests(tenants(), QUOTAS), policy) as server:
        yield server


STOLEN, POWERLESS, ADMIN, BLUE = "stolen", "powerless-token", "admin-token", "blue-token"
PATHS = (
    "quotas",
    "gangs",
    "attention",
    "pod?name=blue/next",
    "node?name=n",
    "timeline",
    "devices",
    "decisions",
    "find?text=e",
    "events",
)


@pytest.mark.parametrize("path", PATHS)
def test_queries_need_a_valid_token_with_rights(shared: Browser, path: str) -> None:
    """The page itself is public."""
    assert shared.get(f"/api/{path}", token=STOLEN).status == 401
    assert shared.get(f"/api/{path}", token=POWERLESS).status == 403
    assert shared.get(f"/api/{path}").status == 403
    assert shared.get("/").status == 200


def test_tenant_sees_only_its_own_pods(shared: Browser) -> None:
    """The stream and the answers never contain the other tenant's name."""
    for user, other in (("blue", "red"), ("red", "blue")):
        token = f"{user}-token"
        frames = shared.frames(token)
        first = json.dumps(next(frames))
        frames.close()  # type: ignore[attr-defined]  # a generator
        own = {"blue": "next", "red": "own"}[user]
        paths = (
            "quotas",
            "gangs",
            "attention",
            "queue",
            "decisions",
            f"decisions?text={other}",
            "find?text=e",
            f"pod?name={user}/{own}",
        )
        texts = [first, *(shared.get(f"/api/{path}", token=token).text for path in paths)]
        for text in texts:
            assert other not in text
        assert f"{user}/{own}" in first
        assert shared.get("/api/node?name=n", token=token).status == 404
        assert shared.get("/api/devices", token=token).status == 403
        hidden = {"blue": "red/own", "red": "blue/next"}[user]
        assert shared.get(f"/api/pod?name={hidden}", token=token).status == 404
        assert shared.post("/api/try", {}, token).status == 403
        assert shared.post("/api/control", {}, token).status == 403


def test_foreign_pod_is_indistinguishable_from_a_missing_one(shared: Browser) -> None:
    """The test covers every endpoint of the application."""
    app = dashboard_application(shared.feed, lambda _: (), SystemClock())
    paths = [one.path for one in app.routes if isinstance(one, Route)]
    queries = [path for path in paths if path.startswith("/api/") and path != "/api/events"]
    assert len(queries) >= 15
    for path in queries:
        replies = []
        for name in ("red/own", "red/0wn"):
            query = f"name={name}&text={name}&cause={name}&pod={name}&of=other"
            reply = shared.get(f"{path}?{query}", token=BLUE)
            replies.append((reply.status, reply.text.replace(name, "")))
        assert replies[0] == replies[1], path


def test_administrator_sees_everything(shared: Browser) -> None:
    frames = shared.frames("admin-token")
    first = next(frames)
    frames.close()  # type: ignore[attr-defined]  # a generator
    assert first["nodes"]["names"] == ["n"]
    assert shared.get("/api/node?name=n", token=ADMIN).status == 200


def test_gpu_bars_are_paged_and_filtered_by_name() -> None:
    """Invalid numbers are rejected."""
    objects = [*gpu_node("g", 4), gpu_pod("p", "g", minors=[2], gpu_core=100, gpu_memory_ratio=100)]
    with served(manifests(objects)) as server:
        answer = server.get("/api/devices?first=1&most=2").json
        assert (answer["count"], answer["lanes"]) == (4, [["g", 1], ["g", 2]])
        assert [(lane, pod) for lane, _, pod, *_ in answer["bars"]] == [(1, "default/p")]
        assert server.get("/api/devices?text=default/p").json["lanes"] == [["g", 2]]
        for wrong in ("first=-1", "first=x", "most=1e9", f"first={'9' * 5000}"):
            assert server.get(f"/api/devices?{wrong}").status == 400


def test_second_run_is_served_for_comparison() -> None:
    """Curves of the second run come with the timeline, its GPU bars on request."""
    busy = [*gpu_node("g", 2), gpu_pod("p", "g", minors=[0], gpu_core=100, gpu_memory_ratio=100)]
    with served(manifests(gpu_node("g", 2)), other=manifests(busy)) as server:
        answer = server.get("/api/timeline").json
        assert (answer["gpu"][-1], answer["other"]["gpu"][-1]) == (0, 500)
        assert answer["other"]["title"] == "policy.yaml"
        assert server.get("/api/devices").json["bars"] == []
        assert len(server.get("/api/devices?of=other").json["bars"]) == 1
    with served(manifests(busy)) as server:
        assert "other" not in server.get("/api/timeline").json
        assert server.get("/api/devices?of=other").status == 404


def test_hostile_names_are_served_as_json() -> None:
    objects = [
        node(HOSTILE, cpu=4, labels={"koordinator.sh/node-pool": HOSTILE}),
        pod(HOSTILE, cpu=9, namespace=HOSTILE),
    ]
    with served(manifests(objects)) as server:
        for path in ("quotas", "gangs", "attention", "timeline"):
            reply = server.get(f"/api/{path}")
            assert reply.headers["content-type"] == "application/json"
            assert reply.headers["x-content-type-options"] == "nosniff"
        frames = server.frames()
        first = next(frames)
        frames.close()  # type: ignore[attr-defined]  # a generator
    assert first["nodes"]["pools"] == [HOSTILE]
    assert first["waiting"][0]["named"][0]["pod"] == f"{HOSTILE}/{HOSTILE}"
