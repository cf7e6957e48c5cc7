"""AdmissionReview endpoint, and the JSON patch of its answer.

Reviewers run in the server's own thread, one after the other: they must not wait.

Source: k8s.io/api admission/v1/types.go; controller-runtime pkg/webhook/admission/http.go.
"""

import logging
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import perf_counter
from typing import Any, Final

import msgspec
from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from koordinator.api.control_plane import UserInfo
from koordinator.api.meta import JsonObject
from koordinator.api.nesting import TOO_DEEP
from koordinator.foundation.decoders import decoder_of
from koordinator.foundation.errors import Fault
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.process.health import Check, HealthEndpoint, Indicators
from koordinator.process.termination import FirstOfKind

LONGEST_BODY_BYTES = 8 << 20  # two objects of the largest size that the API server takes, and some
_BUCKETS_MS = tuple(0.001 * 2**power for power in range(20))
#: Labels of metrics; a client could say anything.
_OPERATIONS = frozenset({"CREATE", "UPDATE", "DELETE", "CONNECT", ""})
_UNAVAILABLE, _BAD_REQUEST = 503, 400

log = logging.getLogger(__name__)

_VERSION: Final = "admission.k8s.io/v1"
#: The API server understands the version in which it asks, and no other.
_VERSIONS: Final = frozenset({_VERSION, "admission.k8s.io/v1beta1"})


def json_patch(before: Any, after: Any) -> list[dict[str, Any]]:
    """Return the operations that make ``after`` of ``before``; none if they are equal.

    Lists of one length are compared place by place, others are replaced.
    """
    return list(_operations(before, after, ""))


def _operations(before: Any, after: Any, path: str) -> Iterator[dict[str, Any]]:
    if before is after or (before == after and type(before) is type(after)):
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for key in before:
            if key not in after:
                yield {"op": "remove", "path": f"{path}/{_escaped(key)}"}
        for key, value in after.items():
            if key not in before:
                yield {"op": "add", "path": f"{path}/{_escaped(key)}", "value": value}
            elif before[key] is not value:
                yield from _operations(before[key], value, f"{path}/{_escaped(key)}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _operations(old, new, f"{path}/{index}")
    else:
        yield {"op": "replace", "path": path, "value": after}


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


class Review(msgspec.Struct, frozen=True, rename="camel"):
    """Request of the API server for a review.  Its objects must not be changed."""

    uid: str
    operation: str = ""
    namespace: str = ""
    name: str = ""
    sub_resource: str = ""
    object: JsonObject | None = None
    old_object: JsonObject | None = None
    user_info: UserInfo = UserInfo()
    dry_run: bool | None = None  # whether it will not be stored, whatever the answer


@dataclass(frozen=True, slots=True)
class ReviewResponse:
    """``after`` is the object as it is to be stored, None: as it is; ``code`` is of a refusal."""

    allowed: bool = True
    after: JsonObject | None = None
    message: str = ""
    code: int = _BAD_REQUEST


ReviewHandler = Callable[[Review], ReviewResponse]


class _AdmissionReview(msgspec.Struct):
    request: Review | None = None
    api_version: str = msgspec.field(name="apiVersion", default=_VERSION)


_DECODER = decoder_of(_AdmissionReview)


class ReviewMetrics:
    """Durations of reviews, by hook, kind of object, operation and outcome."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._milliseconds = Histogram(
            "koord_manager_webhook_webhook_duration_milliseconds",
            "Time of a review.",
            ("webhook_type", "object_type", "operation", "plugin_name", "status"),
            buckets=_BUCKETS_MS,
            registry=registry,
        )
        self._failures = Counter(
            "koord_manager_webhook_internal_errors",
            "Errors of ours in reviews, which were refused or made without a profile, by hook.",
            ("plugin_name", "error"),
            registry=registry,
        )
        self._log = FirstOfKind()

    def __call__(self, fault: Fault) -> None:
        """Count and log the fault of a hook, and the part that the hook skipped."""
        self.failed(fault.source, fault.error)
        self._log(fault)

    def failed(self, path: str, error: Exception) -> None:
        """Count a review that failed with an unexpected error."""
        self._failures.labels(path, type(error).__name__).inc()

    def observe(self, path: str, operation: str, *, allowed: bool, seconds: float) -> None:
        """Count one review; an operation that Kubernetes doesn't have is ``other``."""
        kind, _, obj = path.strip("/").partition("-")
        status = "allowed" if allowed else "rejected"
        known = operation if operation in _OPERATIONS else "other"
        self._milliseconds.labels(kind, obj, known, path, status).observe(seconds * 1000)


def review_application(
    reviewers: Mapping[str, ReviewHandler],
    *,
    not_ready: Callable[[], str],
    checks: Sequence[Check] = (),
    metrics: ReviewMetrics | None = None,
) -> Starlette:
    """Return the ASGI application of reviewers by path, with ``/healthz``.

    ``not_ready`` returns why no review can be made yet, empty if it can; it is asked first each
    time, in the thread of the reviewers.
    """
    health = HealthEndpoint("healthz", checks, Indicators())

    async def healthz(_: Request) -> Response:
        verdict = health.report()
        return PlainTextResponse(verdict.text, 200 if verdict.healthy else 500)

    routes = [Route("/healthz", healthz)]
    for path, reviewer in reviewers.items():
        endpoint = _Endpoint(path, reviewer, not_ready, metrics)
        routes.append(Route(path, endpoint.review, methods=["POST"]))
    return Starlette(routes=routes, max_body_size=LONGEST_BODY_BYTES)


class _Endpoint:
    """One path."""

    def __init__(
        self,
        path: str,
        reviewer: ReviewHandler,
        not_ready: Callable[[], str],
        metrics: ReviewMetrics | None,
    ) -> None:
        self._path, self._reviewer = path, reviewer
        self._not_ready, self._metrics = not_ready, metrics

    async def review(self, request: Request) -> Response:
        body = await request.body()
        began_s = perf_counter()
        try:
            envelope = _DECODER.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return PlainTextResponse(f"not an AdmissionReview: {error}\n", _BAD_REQUEST)
        except RecursionError:
            return PlainTextResponse(f"not an AdmissionReview: {TOO_DEEP}\n", _BAD_REQUEST)
        review, version = envelope.request, envelope.api_version
        if version not in _VERSIONS:
            accepted = ", ".join(sorted(_VERSIONS))
            problem = (
                f"not an AdmissionReview: apiVersion must be one of {accepted}, got "
                f"{version[:100]!r}\n"
            )
            return PlainTextResponse(problem, _BAD_REQUEST)
        if review is None:
            return PlainTextResponse("not an AdmissionReview: it has no request\n", _BAD_REQUEST)
        if problem := self._not_ready():
            return PlainTextResponse(f"{problem}\n", _UNAVAILABLE)
        answer, text = self._answer(review, version)
        if self._metrics is not None:
            seconds = perf_counter() - began_s
            self._metrics.observe(
                self._path, review.operation, allowed=answer.allowed, seconds=seconds
            )
        return Response(text, media_type="application/json")

    def _answer(self, review: Review, version: str) -> tuple[ReviewResponse, bytes]:
        """Return the answer, and as it is sent; what a hook did not expect refuses the request."""
        try:
            answer = self._reviewer(review)
            return answer, msgspec.json.encode(_response(review, answer, version))
        except RecursionError:
            answer = ReviewResponse(allowed=False, message=f"the object is {TOO_DEEP}")
        except MemoryError:
            raise
        except Exception as error:
            log.exception("review failed", extra={"path": self._path})
            if self._metrics is not None:
                self._metrics.failed(self._path, error)
            answer = ReviewResponse(allowed=False, message="internal error, see the log", code=500)
        return answer, msgspec.json.encode(_response(review, answer, version))


def _response(review: Review, answer: ReviewResponse, version: str) -> dict[str, Any]:
    response: dict[str, Any] = {"uid": review.uid, "allowed": answer.allowed}
    if not answer.allowed:
        response["status"] = {"code": answer.code, "message": answer.message}
    elif answer.after is not None:
        patch = json_patch(review.object, answer.after)
        if patch:
            response["patchType"] = "JSONPatch"
            response["patch"] = b64encode(msgspec.json.encode(patch)).decode()
    return {
        "apiVersion": version,
        "kind": "AdmissionReview",
        "response": response,
    }
