"""Bindings in flight, and the outcome of those whose response was lost.

A binding is one POST; before Kubernetes 1.35 a PATCH writes its labels first.  Without a response
its outcome is unknown, and the pod is read instead.  The API server drops a request that takes
longer than its ``timeout``, counted from its arrival; ``Transport`` bounds the time until the
arrival.  So a binding of a former leader takes effect before another replica can lead, or never.
Source of what the server answers: kubernetes pkg/registry/core/pod/storage/storage.go
``BindingREST``.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Sequence
from http import HTTPStatus

import msgspec

from koordinator.api.kube_version import OLDEST, V1_35, KubeVersion
from koordinator.api.pod import Pod
from koordinator.cluster.kubernetes.background import Backoff, WorkerPool
from koordinator.cluster.kubernetes.failures import FencedError, UnreachableError, read_status
from koordinator.cluster.kubernetes.reports import Reports
from koordinator.cluster.kubernetes.resources import object_path, with_query
from koordinator.cluster.kubernetes.transport import BINDING_SHARE, Request, Transport
from koordinator.cluster.kubernetes.writes import MERGE_PATCH
from koordinator.cluster.port import Binding
from koordinator.foundation.decoders import decode_json
from koordinator.foundation.errors import (
    ClusterError,
    ConflictError,
    InvalidError,
    NotFoundError,
)
from koordinator.foundation.lazy_dataclass import dataclass

_SERVER_S = 5  # how long the server may work on one binding
_ANSWER_S = _SERVER_S + 1.0
_FIRST_DELAY_S, _LAST_DELAY_S = 0.2, 5.0
#: Parts of the messages of final 409 responses.  An error of etcd is a 409 as well, but leaves open
#: whether the pod is bound.
_REFUSALS = ("already assigned", "being deleted", "schedulingGates", "Precondition failed")


class KubernetesBinds:
    """Implements ``port.Binds``.  ``wakeup`` is set when a binding ends."""

    def __init__(self, count: int, wakeup: threading.Event) -> None:
        self._wakeup = wakeup
        self._ended: deque[tuple[int, ClusterError | None]] = deque()
        self._results: list[ClusterError | None] = [None] * count
        self._left = count
        self._all_ended = threading.Event()
        if not count:
            self._all_ended.set()

    def finished(self) -> list[tuple[int, ClusterError | None]]:
        return [self._ended.popleft() for _ in range(len(self._ended))]

    def results(self) -> list[ClusterError | None]:
        self._all_ended.wait()
        self._ended.clear()
        return list(self._results)

    @property
    def has_changes(self) -> bool:
        """Whether ``finished`` would return something."""
        return bool(self._ended)

    def end(self, index: int, error: ClusterError | None) -> None:
        """Record the result of one binding; called by the network thread."""
        self._results[index] = error
        self._ended.append((index, error))
        self._left -= 1
        if not self._left:
            self._all_ended.set()
        self._wakeup.set()


_Job = tuple[KubernetesBinds, int, Binding]


class BindingSender:
    """Sender of bindings: ``in_flight`` at a time, in the order of the calls.

    Runs on the loop.
    """

    def __init__(self, transport: Transport, reports: Reports, in_flight: int) -> None:
        self._transport = transport
        self._reports = reports
        self._in_flight = in_flight
        self._jobs: deque[_Job] = deque()
        self._worker_pool = WorkerPool(self._work)
        self._server: KubeVersion | None = None  # None: not asked yet

    @property
    def is_busy(self) -> bool:
        """Return whether bindings wait for others in flight: the server is the bottleneck."""
        return bool(self._jobs)

    def start(self, binds: KubernetesBinds, bindings: Sequence[Binding]) -> None:
        """Start binding: queued events and conditions of these pods are dropped."""
        for index, binding in enumerate(bindings):
            self._reports.withdraw(binding.namespace, binding.name)
            self._jobs.append((binds, index, binding))
        self._worker_pool.start_workers(
            min(self._in_flight, self._worker_pool.size + len(self._jobs))
        )

    def close(self) -> None:
        """Fail all queued bindings; those in flight end when they are cancelled."""
        while self._jobs:
            binds, index, _ = self._jobs.popleft()
            binds.end(index, ClusterError("not sent: the connection was closed"))

    async def _work(self) -> None:
        while self._jobs:
            binds, index, binding = self._jobs.popleft()
            error: ClusterError | None = ClusterError(
                "the connection was closed before the server answered"
            )
            try:
                error = await self._bind(binding)
            finally:
                binds.end(index, error)

    async def _bind(self, binding: Binding) -> ClusterError | None:
        await self._reports.wait_until_sent(binding.namespace, binding.name)
        if binding.labels:
            try:
                await self._write_labels(binding)
            except ClusterError as error:
                return error
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._transport.timeout_s
        backoff = Backoff(_FIRST_DELAY_S, _LAST_DELAY_S, self._transport.chance)
        request = _request(binding, self._transport.server_time(_SERVER_S, BINDING_SHARE))
        is_unsure = False  # whether this or an earlier try may have succeeded
        while True:
            tried = await self._try(request)
            is_unsure |= tried.may_have_happened
            if tried.is_final and not is_unsure:
                return tried.error
            left_s = deadline_s - loop.time()
            if is_unsure and tried.error is not None:
                try:
                    if await self._is_bound(binding, max(left_s, 1.0)):
                        return None
                except ClusterError as known:
                    return known
            delay_s = backoff.next_s() if tried.delay_s is None else tried.delay_s
            if tried.is_final or delay_s >= left_s:
                return tried.error
            await self._transport.pause(delay_s)

    async def _write_labels(self, binding: Binding) -> None:
        """Write the labels of a binding to the pod, if the API server drops them from bindings.

        Before 1.35 it does, as its gate PodTopologyLabelsAdmission is off.
        """
        if self._server is None:
            try:
                self._server = await self._transport.server_version()
            except (NotFoundError, InvalidError):
                self._server = OLDEST  # unknown: on any release the labels may come first
        if self._server >= V1_35:
            return
        path = object_path(Pod, binding.name, binding.namespace)
        path = with_query(path, timeout=self._transport.server_time(_SERVER_S, BINDING_SHARE))
        metadata = {"uid": binding.uid} if binding.uid else {}
        body = msgspec.json.encode({"metadata": {**metadata, "labels": dict(binding.labels)}})
        await self._transport.call(Request("PATCH", path, body, MERGE_PATCH))

    async def _try(self, request: Request) -> "_Tried":
        try:
            reply = await self._transport.attempt(request, _ANSWER_S)
        except FencedError as fenced:
            return _Tried(fenced, is_final=True)
        except UnreachableError as lost:
            return _Tried(lost, is_final=lost.hopeless, may_have_happened=lost.sent)
        if reply.succeeded:
            return _Tried(None, is_final=True)
        status = read_status(reply.body)
        error = self._transport.error(request, reply.code, status)
        if reply.retry_after_s is not None:
            return _Tried(error, is_final=False, delay_s=reply.retry_after_s)
        is_broken = reply.code >= HTTPStatus.INTERNAL_SERVER_ERROR or (
            reply.code == HTTPStatus.CONFLICT
            and not any(text in (status.message or "") for text in _REFUSALS)
        )
        return _Tried(error, is_final=not is_broken, may_have_happened=is_broken)

    async def _is_bound(self, binding: Binding, patience_s: float) -> bool:
        """Return whether the pod is bound to this node.  Raises ConflictError for another node."""
        path = object_path(Pod, binding.name, binding.namespace)
        body = await self._transport.call(Request("GET", path), patience_s=patience_s)
        pod = decode_json(body, _BoundPod)
        if binding.uid and pod.metadata.uid != binding.uid:
            raise ConflictError(
                f"pod {binding.namespace}/{binding.name}: there is another one of that name now"
            )
        node = pod.spec.node_name or ""
        if not node:
            return False
        annotations = pod.metadata.annotations or {}
        if node != binding.node or not binding.annotations.items() <= annotations.items():
            raise ConflictError(
                f"pod {binding.namespace}/{binding.name} is already assigned to node {node!r}"
            )
        return True


@dataclass(frozen=True, slots=True)
class _Tried:
    """Outcome of one request."""

    error: ClusterError | None
    is_final: bool  # asking again would give the same
    may_have_happened: bool = False
    delay_s: float | None = None  # when the server wants to be asked again


class _Metadata(msgspec.Struct):
    uid: str = ""
    annotations: dict[str, str] | None = None


class _Spec(msgspec.Struct):
    node_name: str | None = msgspec.field(name="nodeName", default=None)


class _BoundPod(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec


def _request(binding: Binding, server_time: str) -> Request:
    metadata: dict[str, object] = {"namespace": binding.namespace, "name": binding.name}
    if binding.uid:
        metadata["uid"] = binding.uid
    if binding.annotations:
        metadata["annotations"] = dict(binding.annotations)
    if binding.labels:
        metadata["labels"] = dict(binding.labels)
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": metadata,
        "target": {"apiVersion": "v1", "kind": "Node", "name": binding.node},
    }
    path = object_path(Pod, binding.name, binding.namespace, "binding")
    return Request("POST", with_query(path, timeout=server_time), msgspec.json.encode(body))
