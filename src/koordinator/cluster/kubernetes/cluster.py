"""A cluster behind a kube-apiserver: the verbs of the port as HTTP requests.

One thread with an event loop does the network; objects are decoded in the caller's thread.
Source: https://kubernetes.io/docs/reference/using-api/api-concepts/.
"""

import asyncio
import dataclasses
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar
from weakref import WeakSet

import msgspec
import numpy as np
from msgspec.structs import replace

from koordinator.api.codec import decode, encode
from koordinator.api.dynamic_resources import ResourceClaim
from koordinator.api.kube_version import KubeVersion
from koordinator.api.meta import JsonObject, KubeObject, LabelSelector
from koordinator.api.nesting import TOO_DEEP
from koordinator.api.pod import Pod
from koordinator.api.selectors import selector_text
from koordinator.cluster.kubernetes import opaque_parts, writes
from koordinator.cluster.kubernetes.background import EventLoopThread, TokenBucket
from koordinator.cluster.kubernetes.binding import BindingSender, KubernetesBinds
from koordinator.cluster.kubernetes.credentials import Credentials
from koordinator.cluster.kubernetes.kubelet_pods import KubeletFollower, KubeletSource
from koordinator.cluster.kubernetes.mailbox import Follower, Mailbox
from koordinator.cluster.kubernetes.pages import ListQuery, Pager, decode_page
from koordinator.cluster.kubernetes.reflector import Reflector
from koordinator.cluster.kubernetes.reports import Reports
from koordinator.cluster.kubernetes.resources import (
    AbsentKinds,
    collection_path,
    object_path,
    with_query,
)
from koordinator.cluster.kubernetes.transport import ObserveRequest, Request, Transport
from koordinator.cluster.kubernetes.watch import KubernetesWatch, View, watch_object
from koordinator.cluster.port import (
    NO_SELECTORS,
    NO_TRANSFORMS,
    Binding,
    Listing,
    PodReport,
    Report,
    Transform,
)
from koordinator.foundation.clock import Clock, to_datetime
from koordinator.foundation.decoders import decode_json
from koordinator.foundation.errors import (
    BugError,
    ClusterError,
    ConflictError,
    InputError,
    InvalidError,
    NotFoundError,
)

KindT = TypeVar("KindT", bound=KubeObject)

PAGE_SIZE = 1000  # objects
SILENCE_S = 150.0  # a stream brings a bookmark every minute
_MAILBOX_BYTES = 8 << 20  # per watched kind
_COMPARISONS = 4  # lists of versions at a time, so that few connections have to be opened
_OVERWRITES = 5  # tries to replace an object that others write at the same time


class _ApiResource(msgspec.Struct):
    name: str = ""


class _ApiResourceList(msgspec.Struct):
    resources: tuple[_ApiResource, ...] = ()


class KubernetesCluster:
    """Implements ``port.Cluster``.

    ``may_write``        asked in the network's thread just before each write is sent: whether this
                         process still leads
    ``lateness_s``       how long after that a write may be done at the latest, whatever happens to
                         the network; None: as long as kernel and server take
    ``qps``, ``burst``   of all requests but watches and reports; None is unlimited
    ``binds_in_flight``  bindings at a time
    ``timeout_s``        for a call with all its retries; the server gives up a write as soon
    ``page_size``        objects per page of a list
    ``silence_s``        after how long without a word a stream counts as broken
    ``kubelet``          where pods are watched; None: at the API server, as everything else
    ``observe``          called with verb, status, host and duration in seconds of every request, in
                         the network's thread
    """

    def __init__(
        self,
        credentials: Credentials,
        clock: Clock,
        *,
        may_write: Callable[[], bool] = lambda: True,
        lateness_s: float | None = None,
        qps: float | None = None,
        burst: int = 1,
        binds_in_flight: int = 64,
        timeout_s: float = 30.0,
        page_size: int = PAGE_SIZE,
        silence_s: float = SILENCE_S,
        user_agent: str = "koordinator",
        kubelet: KubeletSource | None = None,
        observe: ObserveRequest | None = None,
    ) -> None:
        self._clock = clock
        self._connection = credentials.connection
        self._kubelet = kubelet
        self._page_size = page_size
        self._silence_s = silence_s
        self._wakeup = threading.Event()
        self._is_woken = False
        self._watches: list[KubernetesWatch] = []
        self._binds: WeakSet[KubernetesBinds] = WeakSet()
        self._background = EventLoopThread("kubernetes")
        self._absent = AbsentKinds()
        self._comparisons = asyncio.Semaphore(_COMPARISONS)

        async def connect() -> Transport:
            return Transport(
                credentials,
                limiter=TokenBucket(qps, burst),
                may_write=may_write,
                lateness_s=lateness_s,
                timeout_s=timeout_s,
                observe=observe,
                user_agent=user_agent,
                chance=np.random.default_rng(),
            )

        self._transport = self._background.run(connect())
        self._server_timeout = self._transport.server_time(timeout_s)
        self._reports = Reports(self._transport, lambda: self._binder.is_busy)
        self._binder = BindingSender(self._transport, self._reports, binds_in_flight)

    def __enter__(self) -> Self:
        """Return the cluster."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Cancel all requests and close all connections; idempotent."""
        if self._background.is_closed:
            return
        for watch in self._watches:
            watch.close()
        self._background.call_soon(self._binder.close)
        self._background.close(self._transport.close)

    # ---- reading

    def get(self, kind_type: type[KindT], name: str, namespace: str = "") -> KindT:
        return _decoded(self._get(kind_type, name, namespace), kind_type)

    def list(
        self,
        kind_type: type[KindT],
        *,
        namespace: str | None = None,
        label_selector: LabelSelector | None = None,
        field_selector: str = "",
    ) -> Listing[KindT]:
        """Return objects as ``port.Cluster.list``; none of a kind that is not installed."""
        selection = ListQuery(kind_type, namespace, selector_text(label_selector), field_selector)
        pager = Pager(self._transport, selection, self._page_size)
        items: list[KindT] = []
        coming = self._background.start(pager.next(None))
        while True:
            try:
                page = self._background.wait(coming)
            except NotFoundError:
                return Listing((), "")
            if page.is_first:
                items.clear()
            if page.next_page:  # comes while this one is decoded
                coming = self._background.start(pager.next(page))
            items += decode_page(page, kind_type)[0]
            if not page.next_page:
                return Listing(items, page.resource_version)

    def list_data(
        self, kind_type: type[KubeObject], *, field_selector: str = ""
    ) -> Sequence[JsonObject]:
        """Return all objects of a kind as plain data, with the fields that our types don't have.

        As in a list of the API server, objects have no ``apiVersion`` and ``kind``.
        """
        pager = Pager(self._transport, ListQuery(kind_type, fields=field_selector), self._page_size)
        items: list[JsonObject] = []
        page = None
        while page is None or page.next_page:
            try:
                page = self._background.run(pager.next(page))
            except NotFoundError:
                return ()
            if page.is_first:
                items.clear()
            items += decode_json(page.body, dict[str, Any])["items"] or ()
        return items

    # ---- writing

    def create(self, obj: KindT) -> KindT:
        kind_type, meta = type(obj), obj.metadata
        if meta.resource_version:
            raise InvalidError(
                f'{obj.PLURAL} "{obj.key}": metadata.resourceVersion: must not be set on '
                f"objects to be created, got {meta.resource_version!r}"
            )
        path = collection_path(kind_type, meta.namespace)
        return _decoded(self._write("POST", path, encode(obj)), kind_type)

    def update(self, obj: KindT) -> KindT:
        return self._replace(obj, status=False)

    def update_status(self, obj: KindT) -> KindT:
        return self._replace(obj, status=True)

    def patch(
        self,
        kind_type: type[KindT],
        name: str,
        namespace: str,
        merge_patch: JsonObject,
        subresource: str = "",
    ) -> KindT:
        if subresource not in ("", "status"):
            raise NotFoundError(f"subresource: must be empty or 'status', got {subresource!r}")
        path = object_path(kind_type, name, namespace, subresource)
        body = writes.status_part(merge_patch, kind_type) if subresource else merge_patch
        try:
            answer = self._write("PATCH", path, msgspec.json.encode(body), writes.MERGE_PATCH)
        except InvalidError as error:
            if kind_type is not ResourceClaim or opaque_parts.REFUSAL not in str(error):
                raise
            answer = self._put_claim(name, namespace, path, body, error)
        return _decoded(answer, kind_type)

    def delete(
        self,
        kind_type: type[KubeObject],
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        grace_period_s: int | None = None,
    ) -> None:
        options = writes.deletion(uid, grace_period_s)
        path = object_path(kind_type, name, namespace)
        if kind_type is Pod:
            self._background.run(self._reports.deliver(namespace, name))
        self._write("DELETE", path, msgspec.json.encode(options))

    def evict(
        self, namespace: str, name: str, *, uid: str = "", grace_period_s: int | None = None
    ) -> None:
        body = writes.eviction(namespace, name, uid, grace_period_s)
        path = object_path(Pod, name, namespace, "eviction")
        self._background.run(self._reports.deliver(namespace, name))
        self._write("POST", path, msgspec.json.encode(body))

    def bind(self, bindings: Sequence[Binding]) -> KubernetesBinds:
        binds = KubernetesBinds(len(bindings), self._wakeup)
        self._binds.add(binds)
        self._background.call_soon(self._binder.start, binds, tuple(bindings))
        return binds

    def report(self, reports: Sequence[Report]) -> None:
        """Write conditions, nominations and events in the background.

        The transition time of a condition changes if its status differs from the pod in the watches
        of this instance, or if they do not have the pod.
        """
        if self._background.is_closed:
            return
        timed = [self._timed(r) if isinstance(r, PodReport) else r for r in reports]
        self._background.call_soon(self._reports.add, timed)

    # ---- watching

    def watch(
        self,
        kind_types: Sequence[type[KubeObject]],
        field_selectors: Mapping[type[KubeObject], str] = NO_SELECTORS,
        transforms: Mapping[type[KubeObject], Transform] = NO_TRANSFORMS,
    ) -> KubernetesWatch:
        selections = [ListQuery(kind, fields=field_selectors.get(kind, "")) for kind in kind_types]
        channels = self._background.run(self._follow(selections))
        views = {kind: View(kind, transforms.get(kind)) for kind in kind_types}
        watch = KubernetesWatch(self._background, views, channels)
        self._watches = [*(w for w in self._watches if w.is_open), watch]
        return watch

    def watch_object(
        self,
        kind_type: type[KubeObject],
        name: str,
        namespace: str,
        on_change: Callable[[], None],
    ) -> None:
        """Call ``on_change`` after every change of one object, until the cluster is closed.

        It is called in the network's thread and must not block.  Without the permission, or while
        the server is away, it is not called: the caller also polls.
        """
        watching = watch_object(
            self._transport, kind_type, name, namespace, on_change, silence_s=self._silence_s
        )
        self._background.start(watching)

    def wait(self, timeout_s: float) -> bool:
        deadline_s = time.monotonic() + timeout_s
        while True:
            self._wakeup.clear()  # before looking: what comes after the look sets it again
            has_news = any(w.has_changes for w in self._watches)
            if self._is_woken or has_news or any(b.has_changes for b in self._binds):
                self._is_woken = False
                return True
            if not self._wakeup.wait(deadline_s - time.monotonic()):
                return False

    def wake(self) -> None:
        """End the current or the next ``wait``; may be called from any thread."""
        self._is_woken = True
        self._wakeup.set()

    def server_version(self, patience_s: float | None = None) -> KubeVersion:
        """Return the minor release of the API server; wait ``patience_s`` at most.

        Raises NotFoundError for an answer without a version, ClusterError if there is no answer.
        """
        return self._background.run(self._transport.server_version(patience_s))

    def unserved(self, kind_types: Sequence[type[KubeObject]]) -> Sequence[type[KubeObject]]:
        """Return the kinds that the API server does not serve in their version, in order.

        Raises ClusterError if there is no answer.
        """
        served: dict[str, set[str]] = {}
        for version in dict.fromkeys(kind.API_VERSION for kind in kind_types):
            root = f"/apis/{version}" if "/" in version else f"/api/{version}"
            try:
                body = self._background.run(self._transport.call(Request("GET", root)))
            except NotFoundError:
                served[version] = set()
            else:
                listed = decode_json(body, _ApiResourceList).resources
                served[version] = {each.name for each in listed}
        return [kind for kind in kind_types if kind.PLURAL not in served[kind.API_VERSION]]

    def try_create(self, obj: KubeObject) -> None:
        """Have the API server admit a new object without storing it.

        Raises as ``create``, and ClusterError if a webhook that admission requires fails.
        """
        path = collection_path(type(obj), obj.metadata.namespace)
        path = with_query(path, dryRun="All", timeout=self._server_timeout)
        request = Request("POST", path, encode(obj))
        self._background.run(self._transport.call(request))

    # ---- steps of the verbs

    def _get(self, kind_type: type[KubeObject], name: str, namespace: str) -> bytes:
        request = Request("GET", object_path(kind_type, name, namespace))
        return self._background.run(self._transport.call(request))

    def _write(
        self, verb: str, path: str, body: bytes, content_type: str = "application/json"
    ) -> bytes:
        path = with_query(path, timeout=self._server_timeout)
        request = Request(verb, path, body, content_type)
        return self._background.run(self._transport.call(request))

    def _replace(self, obj: KindT, *, status: bool) -> KindT:
        """Replace the stored object, and keep its fields that our type does not have."""
        kind_type, meta = type(obj), obj.metadata
        subresource = "status" if status else ""
        path = object_path(kind_type, meta.name, meta.namespace, subresource)
        for last in [False] * (_OVERWRITES - 1) + [True]:
            body = self._get(kind_type, meta.name, meta.namespace)
            stored = _decoded(body, kind_type)
            try:
                raw = decode_json(body)
            except RecursionError:  # what can't be read can't be kept either
                raise InvalidError(f"{kind_type.KIND} {obj.key} is {TOO_DEEP}") from None
            whole = writes.replacement(raw, stored, obj, status=status)
            if whole is None:
                return stored
            try:
                return _decoded(self._write("PUT", path, msgspec.json.encode(whole)), kind_type)
            except ConflictError:
                if last or meta.resource_version:
                    raise
        raise BugError("the last try raises or returns")

    def _put_claim(
        self, name: str, namespace: str, path: str, patch: JsonObject, refused: InvalidError
    ) -> bytes:
        """Apply a patch to a claim with a PUT that keeps opaque parts byte by byte."""
        path_of = object_path(ResourceClaim, name, namespace)
        request = Request("GET", path_of, accept=opaque_parts.PROTOBUF)
        stored = self._background.run(self._transport.call(request))
        amended = opaque_parts.amended_claim(stored, patch)
        if amended is None:
            try:
                raise refused
            finally:
                del refused  # the traceback refers to this frame
        return self._write("PUT", path, amended, opaque_parts.PROTOBUF)

    def _timed(self, report: PodReport) -> PodReport:
        condition = report.condition
        if condition is None or condition.last_transition_time is not None:
            return report
        since = to_datetime(self._clock.now_s())
        key = f"{report.namespace}/{report.name}"
        for watch in self._watches:
            pod = watch.known(Pod, key)
            for known in pod.status.conditions if pod is not None else ():
                if (known.type, known.status) == (condition.type, condition.status):
                    since = known.last_transition_time or since
        timed = replace(condition, last_transition_time=since)
        return dataclasses.replace(report, condition=timed)

    async def _follow(self, selections: Sequence[ListQuery]) -> Sequence[tuple[Mailbox, Follower]]:
        channels = []
        for selection in selections:
            mailbox = Mailbox(_MAILBOX_BYTES, self._wakeup)
            follower = self._follower(selection, mailbox)
            follower.start()
            channels.append((mailbox, follower))
        return channels

    def _follower(self, selection: ListQuery, mailbox: Mailbox) -> Follower:
        if self._kubelet is not None and selection.kind_type is Pod:
            return KubeletFollower(
                self._transport, self._connection, self._clock, self._kubelet, mailbox
            )
        return Reflector(
            self._transport,
            selection,
            mailbox,
            page_size=self._page_size,
            silence_s=self._silence_s,
            absent=self._absent,
            comparisons=self._comparisons,
        )


def _decoded(body: bytes, kind_type: type[KindT]) -> KindT:
    try:
        return decode(body, kind_type)
    except InputError as error:
        raise ClusterError(f"the answer of the API server cannot be decoded: {error}") from None
