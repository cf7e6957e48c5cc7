"""Background writes: conditions of pods, nominations, patches, events.

While bindings are queued, reports are sent at a low rate, so that they hardly delay bindings.  The
queue is bounded; the oldest events are dropped first.
Source: kubernetes pkg/scheduler/backend/api_dispatcher (one waiting call per pod);
k8s.io/client-go tools/events (an event that exists is patched).
"""

import asyncio
import dataclasses
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from koordinator.api.codec import encode, joined_patches, to_manifest
from koordinator.api.defaults import DEFAULT_NAMESPACE
from koordinator.api.event import CoreEvent, Event
from koordinator.api.meta import Condition, JsonObject, KubeObject
from koordinator.api.pod import Pod
from koordinator.cluster.kubernetes.background import Backoff, TokenBucket, WorkerPool
from koordinator.cluster.kubernetes.failures import FencedError, ForbiddenError
from koordinator.cluster.kubernetes.resources import collection_path, object_path
from koordinator.cluster.kubernetes.transport import Request, Transport
from koordinator.cluster.kubernetes.writes import MERGE_PATCH, status_part
from koordinator.cluster.port import ObjectPatch, PodReport, Report, guarded
from koordinator.foundation.errors import (
    AlreadyExistsError,
    ClusterError,
    ConflictError,
    InvalidError,
    NotFoundError,
)
from koordinator.foundation.lazy_dataclass import dataclass

LIMIT = 20_000  # reports that wait
_IN_FLIGHT = 16
_TRICKLE_PER_S = 20.0  # while bindings wait; one costs the server about as much as the other
_TRIES = 5
_FIRST_DELAY_S, _LAST_DELAY_S = 0.5, 15.0
_FINAL = (NotFoundError, ConflictError, InvalidError, FencedError)

log = logging.getLogger(__name__)

_Key = tuple[str, str]  # namespace, name


@dataclass(slots=True)
class _PendingStatus:
    """All that waits to be written to the status of one pod."""

    uid: str
    conditions: dict[str, Condition]
    nominated_node: str | None = None
    tries: int = 0

    def take_in(self, report: PodReport) -> None:
        if report.nominated_node is not None:
            self.nominated_node = report.nominated_node
        new = report.condition
        if new is None:
            return
        old = self.conditions.get(new.type)
        if old is not None and old.status == new.status:
            new = replace(new, last_transition_time=old.last_transition_time)
        self.conditions[new.type] = new


@dataclass(slots=True)
class _StatusInFlight:
    """A status on its way."""

    landed: asyncio.Event
    is_withdrawn: bool = False


@dataclass(slots=True)
class _PendingPatch:
    """All that waits to be written to one object."""

    patch: ObjectPatch
    tries: int = 0

    def take_in(self, newer: ObjectPatch) -> None:
        if newer.uid == self.patch.uid:
            both = joined_patches(self.patch.merge_patch, newer.merge_patch)
            newer = dataclasses.replace(newer, merge_patch=both)
        self.patch = newer


_PatchKey = tuple[type[KubeObject], str, str, str]  # kind, namespace, name, subresource


@dataclass(slots=True)
class _PendingEvent:
    """An event that waits."""

    event: Event
    tries: int = 0


class Reports:
    """Queue of reports and its workers; ``is_busy`` returns whether bindings are queued.

    Runs on the loop.
    """

    def __init__(self, transport: Transport, is_busy: Callable[[], bool]) -> None:
        self._transport = transport
        self._is_busy = is_busy
        self._trickle = TokenBucket(_TRICKLE_PER_S, burst=int(_TRICKLE_PER_S))
        self._backoff = Backoff(_FIRST_DELAY_S, _LAST_DELAY_S, transport.chance)
        self._statuses: dict[_Key, deque[_PendingStatus]] = {}
        self._patches: dict[_PatchKey, _PendingPatch] = {}
        self._notes: dict[_Key, _PendingEvent] = {}
        self._statuses_in_flight: dict[_Key, _StatusInFlight] = {}
        self._patches_in_flight: set[_PatchKey] = set()
        self._notes_in_flight: set[_Key] = set()
        self._worker_pool = WorkerPool(self._work)
        self._is_forbidden = False  # logged once
        self._resume_s = 0.0  # on the clock of the loop; the server failed

    def add(self, reports: Sequence[Report]) -> None:
        """Queue reports."""
        for report in reports:
            if isinstance(report, Event):
                key = (report.metadata.namespace or DEFAULT_NAMESPACE, report.metadata.name)
                self._notes.pop(key, None)  # the newer one has its place at the end
                self._notes[key] = _PendingEvent(report)
            elif isinstance(report, ObjectPatch):
                self._add_patch(report)
            else:
                self._add_status(report)
            if self._waiting > LIMIT:
                waiting: dict[Any, Any] = self._notes or self._patches or self._statuses
                del waiting[next(iter(waiting))]
        self._start_workers()

    @property
    def _waiting(self) -> int:
        return len(self._notes) + len(self._patches) + len(self._statuses)

    def withdraw(self, namespace: str, name: str) -> None:
        """Drop what waits to be written to the status of a pod, and don't try again what flies."""
        self._statuses.pop((namespace, name), None)
        if (flight := self._statuses_in_flight.get((namespace, name))) is not None:
            flight.is_withdrawn = True

    async def wait_until_sent(self, namespace: str, name: str) -> None:
        """Wait until nothing is on its way to the status of a pod."""
        if (flight := self._statuses_in_flight.get((namespace, name))) is not None:
            await flight.landed.wait()

    async def deliver(self, namespace: str, name: str) -> None:
        """Send at once what waits to be written to the status of a pod, and wait for the answers.

        A failed write is retried later, and the caller does not wait for the retry.
        """
        pod = (namespace, name)
        while (flight := self._statuses_in_flight.get(pod)) is not None:
            await flight.landed.wait()
        while pod in self._statuses and await self._send_status(pod):
            pass

    def _add_status(self, report: PodReport) -> None:
        waiting = self._statuses.setdefault((report.namespace, report.name), deque())
        if not waiting or waiting[-1].uid != report.uid:
            waiting.append(_PendingStatus(report.uid, {}))
        waiting[-1].take_in(report)

    def _add_patch(self, patch: ObjectPatch) -> None:
        key = (patch.kind_type, patch.namespace, patch.name, patch.subresource)
        waiting = self._patches.get(key)
        if waiting is None:
            self._patches[key] = _PendingPatch(patch)
        else:
            waiting.take_in(patch)

    def _start_workers(self) -> None:
        most = 1 if self._is_busy() else _IN_FLIGHT
        self._worker_pool.start_workers(min(most, self._worker_pool.size + self._waiting))

    async def _work(self) -> None:
        while self._waiting:
            pause_s = self._resume_s - asyncio.get_running_loop().time()
            if pause_s > 0:
                await self._transport.pause(pause_s)
            elif not self._is_busy():
                self._start_workers()
                if not await self._send_next():
                    return
            elif self._worker_pool.size > 1:
                return
            elif not self._trickle.try_take():
                await asyncio.sleep(1 / _TRICKLE_PER_S)
            elif not await self._send_next():
                return

    async def _send_next(self) -> bool:
        """Send the oldest report, statuses first; return False if nothing can be sent."""
        for pod in self._statuses:
            if pod not in self._statuses_in_flight:
                await self._send_status(pod)
                return True
        for key in self._patches:
            if key not in self._patches_in_flight:
                await self._send_patch(key)
                return True
        for name in self._notes:
            if name not in self._notes_in_flight:
                await self._send_note(name)
                return True
        return False

    async def _send_status(self, pod: _Key) -> bool:
        """Send the oldest report about a pod; return False if it is worth another try."""
        waiting = self._statuses[pod]
        status = waiting.popleft()
        if not waiting:
            del self._statuses[pod]
        flight = self._statuses_in_flight[pod] = _StatusInFlight(asyncio.Event())
        namespace, name = pod
        request = Request(
            "PATCH",
            object_path(Pod, name, namespace, "status"),
            msgspec.json.encode(_status_patch(status)),
            "application/strategic-merge-patch+json",
        )
        try:
            is_done = await self._try(request, status)
        finally:
            del self._statuses_in_flight[pod]
            flight.landed.set()
        if not is_done and not flight.is_withdrawn:
            self._statuses.setdefault(pod, deque()).appendleft(status)
        return is_done

    async def _send_patch(self, key: _PatchKey) -> None:
        kind_type, namespace, name, subresource = key
        waiting = self._patches.pop(key)
        body = guarded(waiting.patch)
        self._patches_in_flight.add(key)
        request = Request(
            "PATCH",
            object_path(kind_type, name, namespace, subresource),
            msgspec.json.encode(status_part(body) if subresource else body),
            MERGE_PATCH,
        )
        try:
            is_done = await self._try(request, waiting)
        finally:
            self._patches_in_flight.discard(key)
        if not is_done:
            newer = self._patches.get(key)
            self._patches[key] = waiting
            if newer is not None:
                waiting.take_in(newer.patch)

    async def _send_note(self, key: _Key) -> None:
        note = self._notes.pop(key)
        self._notes_in_flight.add(key)
        namespace, name = key
        create = Request("POST", collection_path(Event, namespace), encode(note.event))
        patch = Request(
            "PATCH",
            object_path(CoreEvent, name, namespace),
            msgspec.json.encode(_event_patch(note.event)),
            MERGE_PATCH,
        )
        try:
            is_done = await self._try(create, note, if_exists=patch)
        finally:
            self._notes_in_flight.discard(key)
        if not is_done:
            self._notes.setdefault(key, note)

    async def _try(
        self,
        request: Request,
        report: _PendingStatus | _PendingPatch | _PendingEvent,
        if_exists: Request | None = None,
    ) -> bool:
        """Send a report; return False if it is worth another try."""
        report.tries += 1
        try:
            try:
                await self._transport.call(request, rate_limited=False)
            except AlreadyExistsError:
                if if_exists is not None:
                    await self._transport.call(if_exists, rate_limited=False)
        except ClusterError as error:
            if isinstance(error, _FINAL) or report.tries >= _TRIES:
                self._log_dropped(error)
                return True
            self._resume_s = asyncio.get_running_loop().time() + self._backoff.next_s()
            return False
        self._backoff.reset()
        return True

    def _log_dropped(self, error: ClusterError) -> None:
        """Log why nothing came of a report; that a right is missing is worth a warning, once."""
        is_news = isinstance(error, ForbiddenError) and not self._is_forbidden
        self._is_forbidden = self._is_forbidden or is_news
        level = logging.WARNING if is_news else logging.DEBUG
        log.log(level, "report dropped", extra={"error": str(error)})


def _status_patch(status: _PendingStatus) -> JsonObject:
    """Return a strategic merge patch: conditions are merged by their type."""
    patch: JsonObject = {}
    if status.conditions:
        patch["conditions"] = [_condition_patch(c) for c in status.conditions.values()]
    if status.nominated_node is not None:
        patch["nominatedNodeName"] = status.nominated_node or None
    if status.uid:
        return {"metadata": {"uid": status.uid}, "status": patch}
    return {"status": patch}


def _condition_patch(condition: Condition) -> JsonObject:
    """Include empty fields, since the condition replaces the old one."""
    absent = {"reason": None, "message": None, "lastProbeTime": None, "observedGeneration": None}
    present: JsonObject = msgspec.to_builtins(condition)
    return {**absent, **present}


def _event_patch(event: Event) -> JsonObject:
    """Return the event as an event of the core API, all of whose fields may change."""
    core = CoreEvent(
        type=event.type,
        reason=event.reason,
        message=event.note,
        action=event.action,
        involved_object=event.regarding,
        related=event.related,
        event_time=event.event_time,
        reporting_component=event.reporting_controller,
        reporting_instance=event.reporting_instance,
        series=event.series,
    )
    manifest = to_manifest(core)
    return {"series": None} | {k: v for k, v in manifest.items() if k not in ("apiVersion", "kind")}
