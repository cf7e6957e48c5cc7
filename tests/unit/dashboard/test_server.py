"""The dashboard over HTTP: pages, queries, the stream, and who gets what."""

import json
from collections.abc import Iterator
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace
from starlette.routing import Route
from tests.unit.dashboard.dashboards import HOSTILE, Browser, crowded, gpu_node, manifests, served
from tests.worlds import START_S, configuration, device, gpu_pod, made, node, pod

from koordinator.api.authentication import TokenReview, TokenReviewStatus, UserInfo
from koordinator.api.authorization import SubjectAccessReview, SubjectAccessReviewStatus
from koordinator.api.meta import KubeObject
from koordinator.dashboard.access import ReviewedAccess
from koordinator.dashboard.server import dashboard_application
from koordinator.foundation.clock import SystemClock, to_datetime

KindT = TypeVar("KindT", bound=KubeObject)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Show two full nodes and pods of two tenants that wait."""
    with served(manifests(crowded())) as found:
        yield found


# -- pages -----------------------------------------------------------------------------------


def test_only_our_own_files_may_run_in_the_page(browser: Browser) -> None:
    """No script stands in the page itself, and the browser is told to run none that does."""
    reply = browser.get("/")

    policy = reply.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert reply.text.count("<script") == reply.text.count('<script type="module"') == 1
    assert 'src="./dashboard.js"' in reply.text
    assert browser.get("/dashboard.js").headers["content-type"].startswith("text/javascript")


def test_a_name_of_somebody_else_gets_nothing() -> None:
    """Whose page lets its own name point to this machine is not answered."""
    with served(manifests(crowded()), hosts=("localhost", "127.0.0.1")) as found:
        assert found.get("/api/quotas", host="evil.example").status == 421
        assert found.get("/api/quotas", host="localhost:8765").status == 200


def test_a_form_of_another_page_can_not_be_posted(browser: Browser) -> None:
    """Only JSON is taken, which a page of somebody else may not send without asking."""
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
        ("/api/try", {"remove": ["node/nobody"]}),
        ("/api/try", {"configuration": "kind: Pod"}),
        ("/api/control", {"isPaused": True}),
        ("/api/control", [1]),
    ],
)
def test_what_can_not_be_meant_is_refused_with_a_sentence(
    browser: Browser, path: str, body: object
) -> None:
    """A reader's mistake is the reader's: 400 and what is wrong."""
    reply = browser.post(path, body)
    assert reply.status == 400
    assert reply.json["message"]


def test_what_is_not_there_is_not_found(browser: Browser) -> None:
    """Pods and nodes that don't exist are 404, with a sentence."""
    for path in ("/api/pod?name=blue/nobody", "/api/node?name=nobody"):
        reply = browser.get(path)
        assert reply.status == 404
        assert "nobody" in reply.json["message"]
    assert browser.get("/api/pod").status == 400


# -- queries ---------------------------------------------------------------------------------


def test_the_stream_begins_with_everything(browser: Browser) -> None:
    """A reader needs one frame to show the whole cluster."""
    frames = browser.frames()
    first = next(frames)
    frames.close()  # type: ignore[attr-defined]  # a generator

    assert first["kind"] == "full"
    assert first["nodes"]["names"] == ["a", "b"]
    assert first["totals"]["waiting"] == 4
    assert first["waiting"][0]["cause"] == "too little cpu is free"


def test_the_stream_tells_what_would_help(browser: Browser) -> None:
    """A remedy is found out a moment later: it was tried on a copy."""
    for frame in browser.frames():
        causes = frame.get("waiting", [])
        if causes and causes[0].get("help"):
            break
    assert "runs-a" in causes[0]["help"] or "runs-b" in causes[0]["help"]


def test_a_pod_is_explained_as_by_koord_explain(browser: Browser) -> None:
    """Causes, nearest nodes with what they lack, remedies, and the place in the queue."""
    told = browser.get("/api/pod?name=blue/waits-0").json

    assert told["verdict"] == "waits"
    assert told["nearest"][0]["lacks"] == {"cpu": "2"}
    assert told["remedies"]
    assert told["queue"]["position"] == 1


def test_all_pods_of_a_cause_can_be_asked_for(browser: Browser) -> None:
    """The frame names some; the page asks for the others."""
    listed = browser.get("/api/waiting?cause=too%20little%20cpu%20is%20free").json
    assert len(listed["pods"]) == 4


def test_a_node_opens_into_its_devices() -> None:
    """Who holds how much of which GPU; a broken one is shown as such."""
    objects = [
        *gpu_node("g", 3, unhealthy=[2]),
        gpu_pod("half", "g", minors=[1], gpu_core=50, gpu_memory_ratio=50),
    ]
    with served(manifests(objects)) as found:
        inside = found.get("/api/node?name=g").json

    (kind,) = inside["devices"]
    assert [one["isHealthy"] for one in kind["devices"]] == [True, True, False]
    assert kind["devices"][1]["holders"] == [{"pod": 0, "percent": 50, "functions": []}]
    assert inside["pods"][0]["pod"] == "default/half"


def quota(name: str, namespace: str, **amounts: Any) -> KubeObject:
    """Return a quota of some CPU, with a parent if given."""
    return made(
        "ElasticQuota",
        name,
        "scheduling.sigs.k8s.io/v1alpha1",
        metadata={"namespace": namespace},
        spec={kind: {"cpu": str(cpu)} for kind, cpu in amounts.items()},
    )


def tenants() -> list[KubeObject]:
    """Return two tenants, blue with more than its guarantee, red with nothing."""
    label = "quota.scheduling.koordinator.sh/name"
    return [
        node("n", cpu=10),
        quota("blue-quota", "blue", min=2, max=10),
        quota("red-quota", "red", min=6, max=10),
        pod("big", cpu=5, on="n", namespace="blue", labels={label: "blue-quota"}),
        pod("next", cpu=7, namespace="blue", labels={label: "blue-quota"}),
        pod("own", cpu=8, namespace="red", labels={label: "red-quota"}),
    ]


QUOTAS = configuration(plugins={"multiPoint": {"enabled": [{"name": "ElasticQuota"}]}})


def test_who_borrows_from_whom() -> None:
    """The tree is that of ``koord quota tree``."""
    with served(manifests(tenants(), QUOTAS)) as found:
        told = found.get("/api/quotas").json

    assert told["isOn"]
    by_name = {one["name"]: one for one in told["trees"][0]["quotas"]}
    assert by_name["blue-quota"]["used"]["cpu"] == "5"
    assert by_name["blue-quota"]["borrows"]


def test_what_needs_a_person() -> None:
    """A broken GPU and a node that is not ready are errors and come first."""
    objects = [node("g"), device("g", gpus=2, unhealthy=[0]), *crowded()]
    with served(manifests(objects)) as found:
        told = found.get("/api/attention").json

    assert told["items"][0]["severity"] == "error"
    assert told["items"][0]["about"] == "node/g"
    assert "unhealthy" in told["items"][0]["text"]
    assert told["notLookedAt"]


def test_what_would_be_different_with_another_node() -> None:
    """A node that is added takes pods that wait; nothing of it stays."""
    with served(manifests(crowded())) as found:
        manifest = json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": "new"},
                "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "10"}},
            }
        )
        told = found.post("/api/try", {"manifests": manifest}).json
        gone = found.post("/api/try", {"remove": ["pod/blue/runs-a"]}).json
        after = found.get("/api/pod?name=blue/waits-0").json

    assert told["placedBefore"] == 0
    assert {one["after"] for one in told["differences"]} == {"new"}
    assert told["waitingAfter"] < told["waitingBefore"]
    moved = {one["pod"]: one["after"] for one in gone["differences"]}
    assert moved["blue/waits-0"] == "a"
    assert after["verdict"] == "waits"


def test_what_would_happen_if_a_quota_got_more() -> None:
    """Guarantee and limit grow by so much; a quota or an amount that can't be meant is refused."""
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
    with served(manifests(objects, QUOTAS)) as found:

        def granted(quota: str, amount: str) -> Any:
            grant = {"quota": quota, "resource": "cpu", "amount": amount}
            return found.post("/api/try", {"grants": [grant]})

        more = granted("blue-quota", "8").json
        assert [one["after"] for one in more["differences"]] == ["n"]
        assert granted("blue-quota", "0").json["differ"] == 0
        for wrong in (granted("red-quota", "8"), granted("blue-quota", "much")):
            assert wrong.status == 400


def test_when_a_pod_would_start() -> None:
    """When the deadline of what runs is reached; without one the answer is that nobody knows."""
    runs = pod("runs", cpu=4, on="a")
    ends = replace(
        runs,
        spec=replace(runs.spec, active_deadline_seconds=600),
        status=replace(runs.status, start_time=to_datetime(START_S - 20)),
    )
    for running, at in ((ends, "2023-11-14T22:23:00Z"), (runs, "")):
        with served(manifests([node("a", cpu=4), running, pod("next", cpu=3)])) as found:
            told = found.get("/api/start?name=default/next").json
        assert told.get("at", "") == at
        assert bool(told.get("why")) is not bool(at)


def test_who_is_tried_next() -> None:
    """By priority, then by who came first; with the quota of each."""
    label = {"quota.scheduling.koordinator.sh/name": "blue-quota"}
    objects = [
        node("n", cpu=1),
        pod("low", cpu=9, labels=label),
        pod("high", cpu=9, priority=100),
    ]
    with served(manifests(objects, QUOTAS)) as found:
        told = found.get("/api/queue").json
    assert told["count"] == 2
    assert [(one["position"], one["pod"]) for one in told["pods"]] == [
        (1, "default/high"),
        (2, "default/low"),
    ]
    assert [one["quota"] for one in told["pods"]] == ["", "blue-quota"]


# -- rights ----------------------------------------------------------------------------------


class Rights:
    """An API server that knows who may list pods of which namespaces, and nodes."""

    USERS = ("blue", "red", "admin", "nobody")

    def create(self, obj: KindT) -> KindT:
        answer: Any = None
        if isinstance(obj, TokenReview):
            user = obj.spec.token.removesuffix("-token")
            known = user in self.USERS
            status = TokenReviewStatus(authenticated=known, user=UserInfo(username=user))
            answer = replace(obj, status=status)
        elif isinstance(obj, SubjectAccessReview):
            asked, user = obj.spec.resource_attributes, obj.spec.user
            assert asked is not None
            own = asked.resource == "pods" and asked.namespace == user
            allowed = user == "admin" or own
            answer = replace(obj, status=SubjectAccessReviewStatus(allowed=allowed))
        return answer


@pytest.fixture(scope="module")
def shared() -> Iterator[Browser]:
    """Show a cluster that two tenants share."""
    policy = ReviewedAccess(Rights(), SystemClock())
    with served(manifests(tenants(), QUOTAS), policy) as found:
        yield found


STOLEN, NOBODY, ADMIN, BLUE = "stolen", "nobody-token", "admin-token", "blue-token"
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
def test_without_a_token_that_is_good_nothing_is_told(shared: Browser, path: str) -> None:
    """The page itself is for everybody; what is in the cluster is not."""
    assert shared.get(f"/api/{path}", token=STOLEN).status == 401
    assert shared.get(f"/api/{path}", token=NOBODY).status == 403
    assert shared.get(f"/api/{path}").status == 403
    assert shared.get("/").status == 200


def test_a_tenant_sees_its_own_pods_and_nothing_of_the_other(shared: Browser) -> None:
    """Neither in the stream, nor in any answer, is there a word of the other tenant."""
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


def test_what_is_not_for_somebody_is_as_if_it_were_not_there(shared: Browser) -> None:
    """No endpoint, be it one that is added, answers otherwise about a pod of another tenant."""
    app = dashboard_application(shared.feed, lambda _: (), SystemClock())
    paths = [one.path for one in app.routes if isinstance(one, Route)]
    asked = [path for path in paths if path.startswith("/api/") and path != "/api/events"]
    assert len(asked) >= 15
    for path in asked:
        told = []
        for name in ("red/own", "red/0wn"):
            query = f"name={name}&text={name}&cause={name}&pod={name}&of=other"
            reply = shared.get(f"{path}?{query}", token=BLUE)
            told.append((reply.status, reply.text.replace(name, "")))
        assert told[0] == told[1], path


def test_who_may_list_everything_sees_everything(shared: Browser) -> None:
    """An administrator is told all of it."""
    frames = shared.frames("admin-token")
    first = next(frames)
    frames.close()  # type: ignore[attr-defined]  # a generator
    assert first["nodes"]["names"] == ["n"]
    assert shared.get("/api/node?name=n", token=ADMIN).status == 200


def test_who_held_which_gpu_is_asked_by_page_and_name() -> None:
    """What is no number is refused; more than a page has is not sent."""
    objects = [*gpu_node("g", 4), gpu_pod("p", "g", minors=[2], gpu_core=100, gpu_memory_ratio=100)]
    with served(manifests(objects)) as found:
        told = found.get("/api/devices?first=1&most=2").json
        assert (told["count"], told["lanes"]) == (4, [["g", 1], ["g", 2]])
        assert [(lane, pod) for lane, _, pod, *_ in told["bars"]] == [(1, "default/p")]
        assert found.get("/api/devices?text=default/p").json["lanes"] == [["g", 2]]
        for wrong in ("first=-1", "first=x", "most=1e9", f"first={'9' * 5000}"):
            assert found.get(f"/api/devices?{wrong}").status == 400


def test_another_run_is_beside_it() -> None:
    """Its curves come with the timeline, its GPUs on their own; without one there is none."""
    busy = [*gpu_node("g", 2), gpu_pod("p", "g", minors=[0], gpu_core=100, gpu_memory_ratio=100)]
    with served(manifests(gpu_node("g", 2)), other=manifests(busy)) as found:
        told = found.get("/api/timeline").json
        assert (told["gpu"][-1], told["other"]["gpu"][-1]) == (0, 500)
        assert told["other"]["title"] == "policy.yaml"
        assert found.get("/api/devices").json["bars"] == []
        assert len(found.get("/api/devices?of=other").json["bars"]) == 1
    with served(manifests(busy)) as found:
        assert "other" not in found.get("/api/timeline").json
        assert found.get("/api/devices?of=other").status == 404


def test_hostile_names_are_text_everywhere() -> None:
    """Whatever a pod, node or label is called, answers are JSON and say so."""
    objects = [
        node(HOSTILE, cpu=4, labels={"koordinator.sh/node-pool": HOSTILE}),
        pod(HOSTILE, cpu=9, namespace=HOSTILE),
    ]
    with served(manifests(objects)) as found:
        for path in ("quotas", "gangs", "attention", "timeline"):
            reply = found.get(f"/api/{path}")
            assert reply.headers["content-type"] == "application/json"
            assert reply.headers["x-content-type-options"] == "nosniff"
        frames = found.frames()
        first = next(frames)
        frames.close()  # type: ignore[attr-defined]  # a generator
    assert first["nodes"]["pools"] == [HOSTILE]
    assert first["waiting"][0]["named"][0]["pod"] == f"{HOSTILE}/{HOSTILE}"
