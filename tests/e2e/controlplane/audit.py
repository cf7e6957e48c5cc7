"""Audit log of bindings by the API server: user, time and answer."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Request", "resources": [{"group": "", "resources": ["pods/binding"]}]},
        {"level": "None"},
    ],
}
_SUCCESS = range(200, 300)


@dataclass(frozen=True, slots=True)
class BindRequest:
    """One request to bind a pod, however it ended."""

    user: str
    pod: str  # namespace/name
    node: str
    began_s: float  # since the epoch, when the API server received it
    ended_s: float
    code: int

    @property
    def succeeded(self) -> bool:
        """Whether the pod got the node by it."""
        return self.code in _SUCCESS

    @property
    def timed_out(self) -> bool:
        """Whether the server gave up waiting for the write, which may have been done."""
        return self.code == HTTPStatus.GATEWAY_TIMEOUT


class AuditLog:
    """The log of one API server, which may be restarted."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "audit.log"
        self._policy_path = folder / "audit-policy.json"

    def flags(self) -> list[str]:
        """Return the flags of an API server that is to write the log."""
        self._policy_path.write_text(json.dumps(_POLICY))
        return [f"--audit-policy-file={self._policy_path}", f"--audit-log-path={self._path}"]

    def size(self) -> int:
        """Return the size of the log so far, in bytes."""
        return self._path.stat().st_size if self._path.exists() else 0

    def binds(self, since_byte: int = 0) -> list[BindRequest]:
        """Return the requests that were answered after ``since_byte``, in the order they came."""
        requests = [_bind_request(event) for event in self._events(since_byte)]
        return sorted(requests, key=lambda bind: bind.began_s)

    def _events(self, since_byte: int) -> Iterator[Any]:
        if not self._path.exists():
            return
        with self._path.open("rb") as log:
            log.seek(since_byte)
            for line in log:
                if line.endswith(b"\n"):  # otherwise the line is incomplete
                    yield json.loads(line)


def _bind_request(event: Any) -> BindRequest:
    pod = event["objectRef"]
    return BindRequest(
        user=event["user"]["username"],
        pod=f"{pod['namespace']}/{pod['name']}",
        node=event.get("requestObject", {}).get("target", {}).get("name", ""),
        began_s=_epoch_s(event["requestReceivedTimestamp"]),
        ended_s=_epoch_s(event["stageTimestamp"]),
        code=event["responseStatus"]["code"],
    )


def _epoch_s(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
