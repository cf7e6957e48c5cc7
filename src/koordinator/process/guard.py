"""ASGI middleware that forwards only requests that an authorizer allows.

Source: k8s.io/apiserver pkg/endpoints/filters/{authentication,authorization}.go.
"""

from concurrent.futures import ThreadPoolExecutor

import msgspec
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from koordinator.process.authorization import AuthorizationOutcome, Authorizer, Decision
from koordinator.process.review_queue import BUSY, QueueFullError, ReviewQueue

_STATUS = {
    AuthorizationOutcome.UNAUTHENTICATED: (401, "Unauthorized"),
    AuthorizationOutcome.FORBIDDEN: (403, "Forbidden"),
}


class Guard:
    """An ASGI application in front of another.  The authorizer gets a thread of its own.

    So a slow API server delays those who must be authorized, but no health probe; and a client that
    sends many requests delays itself (``ReviewQueue``).
    """

    def __init__(self, app: ASGIApp, authorizer: Authorizer) -> None:
        self._app = app
        self._authorizer = authorizer
        self._thread = ThreadPoolExecutor(1, "authorization")
        self._queue = ReviewQueue(self._thread)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if path not in self._authorizer.always_allowed:
            token = bearer_token(Headers(scope=scope).get("authorization", ""))
            verb = scope["method"].lower()
            try:
                decision = await self._queue.decide(
                    scope, lambda: self._authorizer.decide(token, verb, path)
                )
            except QueueFullError:
                await BUSY(scope, receive, send)
                return
            if decision is None:
                return
            if decision.outcome is not AuthorizationOutcome.ALLOWED:
                await refusal_response(decision)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def bearer_token(authorization: str) -> str:
    """Return the token of an Authorization header; empty if it has none."""
    scheme, _, rest = authorization.strip().partition(" ")
    return rest.partition(" ")[0] if scheme.lower() == "bearer" else ""


def refusal_response(decision: Decision) -> Response:
    """Return the response to a request that is not allowed."""
    if decision.outcome is AuthorizationOutcome.UNKNOWN:
        return PlainTextResponse(f"{decision.message}\n", 500)
    code, reason = _STATUS[decision.outcome]
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": decision.message,
        "reason": reason,
        "code": code,
    }
    return Response(msgspec.json.encode(body), code, media_type="application/json")
