"""AdmissionReviews over HTTPS: what is answered, and with which certificate."""

import json
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from tests.unit.process.clients import Reply, ask, certificate_of

from koordinator.api.core import Secret
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.foundation.clock import VirtualClock
from koordinator.process.admission_reviews import (
    Review,
    ReviewMetrics,
    ReviewResponse,
    review_application,
)
from koordinator.process.certificates import ReplaceableContext
from koordinator.process.http_server import HttpServer
from koordinator.process.serving_secret import ServingSecret, self_signed

NAMES = ("localhost", "127.0.0.1")
NOW_S = 1_767_225_600.0
DAY_S = 86_400.0


def labelling(review: Review) -> ReviewResponse:
    """Add a label; reject the user ``nobody``."""
    if review.user_info.username == "nobody":
        return ReviewResponse(allowed=False, message="who are you?", code=403)
    if review.name == "bug":
        raise ZeroDivisionError
    return ReviewResponse(after={**(review.object or {}), "metadata": {"labels": {"a": "b"}}})


@contextmanager
def serving(
    not_ready: Callable[[], str] = lambda: "", registry: CollectorRegistry | None = None
) -> Iterator[int]:
    """Serve without TLS; yield the port."""
    metrics = ReviewMetrics(registry) if registry is not None else None
    app = review_application({"/mutate-pod": labelling}, not_ready=not_ready, metrics=metrics)
    server = HttpServer(app, "127.0.0.1", 0)
    server.start()
    try:
        yield server.port
    finally:
        server.stop()


def post(port: int, body: Any) -> Reply:
    """Send a body as the API server does."""
    text = body if isinstance(body, str) else json.dumps(body)
    return ask(port, "/mutate-pod", method="POST", body=text)


def review(name: str = "p", user: str = "me") -> dict[str, Any]:
    """Return an AdmissionReview."""
    fields = {"uid": "u", "name": name, "object": {"x": 1}, "userInfo": {"username": user}}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": fields}


def test_a_change_is_answered_as_a_patch() -> None:
    """With the uid of the question; the time is measured."""
    registry = CollectorRegistry()
    with serving(registry=registry) as port:
        response = post(port, review()).json["response"]

    assert (response["uid"], response["allowed"]) == ("u", True)
    assert response["patchType"] == "JSONPatch"
    assert json.loads(b64decode(response["patch"])) == [
        {"op": "add", "path": "/metadata", "value": {"labels": {"a": "b"}}}
    ]
    labels = {
        "webhook_type": "mutate",
        "object_type": "pod",
        "operation": "",
        "plugin_name": "/mutate-pod",
        "status": "allowed",
    }
    name = "koord_manager_webhook_webhook_duration_milliseconds_count"
    assert registry.get_sample_value(name, labels) == 1


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_an_answer_has_the_version_of_the_question(version: str) -> None:
    """The original's webhook of ConfigMaps is asked in v1beta1 only, and v1 is not understood."""
    with serving() as port:
        answer = post(port, review() | {"apiVersion": f"admission.k8s.io/{version}"}).json

    assert answer["apiVersion"] == f"admission.k8s.io/{version}"
    assert answer["response"]["patchType"] == "JSONPatch"


def test_a_refusal_has_code_and_message() -> None:
    """A bug of ours is a refusal, too, and does not end the server."""
    with serving() as port:
        refused = post(port, review(user="nobody")).json["response"]
        bug = post(port, review("bug")).json["response"]

    assert refused == {
        "uid": "u",
        "allowed": False,
        "status": {"code": 403, "message": "who are you?"},
    }
    assert (bug["allowed"], bug["status"]["code"]) == (False, 500)


@pytest.mark.parametrize(
    "body",
    ["{", "[]", "{}", '{"request": {"uid": 7}}', '{"apiVersion": "v2", "request": {"uid": "u"}}'],
)
def test_invalid_review_is_a_bad_request(body: str) -> None:
    """The API server then applies the failure policy."""
    with serving() as port:
        assert post(port, body).status == 400
        assert ask(port, "/healthz").status == 200


def test_reviews_fail_before_the_cluster_is_synced() -> None:
    """The API server then applies the failure policy."""
    with serving(lambda: "not yet") as port:
        reply = post(port, review())

    assert (reply.status, reply.text) == (503, "not yet\n")


@pytest.mark.slow
def test_clients_cannot_create_metrics() -> None:
    """An operation that Kubernetes doesn't have counts as other; what is no hook, not at all."""
    registry = CollectorRegistry()
    with serving(registry=registry) as port:
        for operation in ("CREATE", "made-up", "made up, too"):
            forged = review()
            forged["request"]["operation"] = operation
            assert post(port, forged).status == 200
        assert ask(port, "/made-up", method="POST", body=json.dumps(review())).status == 404

    samples = [sample for family in registry.collect() for sample in family.samples]
    counts = {
        (each.labels["operation"], each.labels["plugin_name"]): each.value
        for each in samples
        if each.name.endswith("_count")
    }
    assert counts == {("CREATE", "/mutate-pod"): 1, ("other", "/mutate-pod"): 2}


def test_a_certificate_is_replaced_while_it_serves() -> None:
    """The next connection sees the new one."""
    old, new = self_signed(NAMES, NOW_S), self_signed(NAMES, NOW_S)
    context = ReplaceableContext(old)
    server = HttpServer(
        review_application({}, not_ready=lambda: ""), "127.0.0.1", 0, context.context
    )
    server.start()
    try:
        assert certificate_of(server.port) == old.certificate
        context.replace(new)
        assert certificate_of(server.port) == new.certificate
    finally:
        server.stop()


def secret(cluster: MemoryCluster, clock: VirtualClock, *more: str) -> ServingSecret:
    """Return the Secret as one replica sees it."""
    return ServingSecret(cluster, clock, "ns", "certs", (*NAMES, *more))


def test_all_replicas_serve_with_one_certificate() -> None:
    """Made by the first, kept in a Secret."""
    clock = VirtualClock(NOW_S)
    cluster = MemoryCluster(clock)

    first = secret(cluster, clock).current()

    assert secret(cluster, clock).current() == first
    assert first.trusted == first.pair.certificate
    assert len(cluster.list(Secret).items) == 1


def test_a_certificate_is_renewed_half_a_year_before_its_end() -> None:
    """Servers with the old certificate are still trusted."""
    clock = VirtualClock(NOW_S)
    cluster = MemoryCluster(clock)
    old = secret(cluster, clock).current()

    clock.advance_to(NOW_S + (3650 - 183) * DAY_S)
    assert secret(cluster, clock).current() == old
    clock.advance_to(NOW_S + (3650 - 181) * DAY_S)
    new = secret(cluster, clock).current()

    assert new.pair != old.pair
    assert new.trusted == new.pair.certificate + old.pair.certificate


def test_unusable_secret_is_regenerated() -> None:
    """Names that are missing, or a content that is none."""
    clock = VirtualClock(NOW_S)
    cluster = MemoryCluster(clock)
    old = secret(cluster, clock).current()

    assert secret(cluster, clock, "other.example").current() != old
    cluster.patch(Secret, "certs", "ns", {"data": {"cert.pem": "bm9uc2Vuc2U="}})
    assert secret(cluster, clock).current().pair.certificate.startswith(b"-----BEGIN")


def test_a_body_nested_too_deep_is_refused_and_the_next_one_is_answered() -> None:
    """Wherever it is nested: one object must not take the webhook from all others."""
    deep = "[" * 50_000 + "]" * 50_000
    body = '{"request":{"uid":"u","object":{"x":%s}}}'
    with serving() as port:
        assert post(port, body % deep).status == 400
        assert post(port, review()).json["response"]["allowed"] is True


def test_a_review_that_recurses_is_a_refusal_with_a_reason() -> None:
    """The user sees what is wrong, and no stack."""

    def recursing(_: Review) -> ReviewResponse:
        raise RecursionError("maximum recursion depth exceeded")

    app = review_application({"/mutate-pod": recursing}, not_ready=lambda: "")
    server = HttpServer(app, "127.0.0.1", 0)
    server.start()
    try:
        response = post(server.port, review()).json["response"]
    finally:
        server.stop()

    assert response["allowed"] is False
    assert response["status"] == {
        "code": 400,
        "message": "the object is nested too deep; at most 100 levels are allowed",
    }
