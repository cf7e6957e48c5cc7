"""Fake kubelet: nodes for a control plane without machines.

It keeps Leases and the Ready condition of its nodes current, reports for every bound pod that
it runs and is ready, and ends pods that are deleted.  It uses nothing of koordinator's, so that it
is a witness of its own of what koordinator wrote.
"""

import asyncio
import json
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Coroutine
from datetime import UTC, datetime
from ipaddress import IPv4Address
from types import TracebackType
from typing import Any, Self

import aiohttp
from tests.e2e.controlplane.endpoint import Endpoint

Manifest = dict[str, Any]

_WORKERS = 32
_LEASE_DURATION_S = 40  # this and the renewal are the kubelet's defaults
_RENEW_EVERY_S = 10
_RETRY_AFTER_S = 0.2
_LONGEST_EVENT_BYTES = 16 << 20
_HOST_IP = "192.0.2.1"
_FIRST_POD_IP = IPv4Address("10.64.0.1")
_STRATEGIC_PATCH = "application/strategic-merge-patch+json"
_APPLY = "application/apply-patch+yaml"
_UNREACHABLE = (aiohttp.ClientError, TimeoutError, OSError)


class FakeKubelet:
    """Plays the named nodes, or all that there are and will be.

    Runs in a thread of its own from ``start`` to ``stop``; ``stop`` is a power cut: nodes and pods
    stay as they are.  A request that the API server refuses ends it; ``stop`` then raises why.
    If it ``keeps_allocatable``, extended resources are allocatable as the capacity has them.  A pod
    that is deleted ``ends_after_s``, or when its hooks are through.
    """

    def __init__(
        self,
        api: Endpoint,
        nodes: Collection[str] | None = None,
        *,
        keeps_allocatable: bool = False,
        ends_after_s: float = 0.0,
    ) -> None:
        self._api = api
        self._keeps_allocatable = keeps_allocatable
        self._ends_after_s = ends_after_s
        self._chosen = nodes
        self._nodes: dict[str, str] = {}  # name to uid, of those played that exist
        self._early: defaultdict[str, list[Manifest]] = defaultdict(list)  # pods seen before node
        self._handled: set[tuple[str, str]] = set()  # queued actions with the uid of their pod
        self._pod_ip = _FIRST_POD_IP
        self._failure: BaseException | None = None
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fake-kubelet", daemon=True)

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""
        self.stop()

    def start(self) -> None:
        """Begin."""
        self._thread.start()
        self._started.wait()

    def stop(self) -> None:
        """End, and raise what went wrong meanwhile.  Stopping twice is allowed."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join()
        if self._failure is not None:
            raise RuntimeError("the fake kubelet failed") from self._failure

    def _run(self) -> None:
        try:
            asyncio.run(self._play())
        except BaseException as error:  # noqa: BLE001 -- raised by stop
            self._failure = error

    async def _play(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        self._todo: asyncio.Queue[Coroutine[Any, Any, Any]] = asyncio.Queue()
        self._started.set()
        connector = aiohttp.TCPConnector(ssl=self._api.tls or False, limit=0)
        async with aiohttp.ClientSession(
            self._api.url,
            headers={"Authorization": f"Bearer {self._api.token}"},
            connector=connector,
            read_bufsize=_LONGEST_EVENT_BYTES,
        ) as self._session:
            tasks = [
                asyncio.create_task(self._watch_nodes()),
                asyncio.create_task(self._watch_pods()),
                asyncio.create_task(self._renew_leases()),
                *(asyncio.create_task(self._work()) for _ in range(_WORKERS)),
                stopping := asyncio.create_task(self._stopping.wait()),
            ]
            ended, going = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in going:
                task.cancel()
            # Before the tasks notice: they would begin a TLS farewell that outlives the loop.
            await connector.close(abort_ssl=True)
            await asyncio.wait(going)
            await asyncio.sleep(0)  # for the last transports to note that they are closed
            while not self._todo.empty():
                self._todo.get_nowait().close()
            for task in ended - {stopping}:
                task.result()

    async def _work(self) -> None:
        while True:
            await (await self._todo.get())

    # Nodes

    async def _watch_nodes(self) -> None:
        async for event, node in self._follow("/api/v1/nodes"):
            name = node["metadata"]["name"]
            if self._chosen is not None and name not in self._chosen:
                continue
            if event == "DELETED":
                self._nodes.pop(name, None)
                continue
            if name not in self._nodes:
                self._nodes[name] = node["metadata"]["uid"]
                self._todo.put_nowait(self._renew_lease(name))
                for pod in self._early.pop(name, []):
                    self._see_pod(pod)
            conditions = node.get("status", {}).get("conditions", [])
            if ("Ready", "True") not in [(c["type"], c["status"]) for c in conditions]:
                path = f"/api/v1/nodes/{name}/status"
                ready = _condition("Ready") | {
                    "reason": "KubeletReady",
                    "lastHeartbeatTime": _now(),
                }
                status: Manifest = {"status": {"conditions": [ready]}}
                self._todo.put_nowait(self._send("PATCH", path, status, _STRATEGIC_PATCH))
            if self._keeps_allocatable and (change := _allocatable_change(node)):
                path = f"/api/v1/nodes/{name}/status"
                status = {"status": {"allocatable": change}}
                self._todo.put_nowait(self._send("PATCH", path, status, _STRATEGIC_PATCH))

    async def _renew_leases(self) -> None:
        while True:
            await asyncio.sleep(_RENEW_EVERY_S)
            for name in self._nodes:
                self._todo.put_nowait(self._renew_lease(name))

    async def _renew_lease(self, node: str) -> None:
        if node not in self._nodes:
            return
        path = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node}"
        owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": self._nodes[node]}
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": node, "ownerReferences": [owner]},
            "spec": {
                "holderIdentity": node,
                "leaseDurationSeconds": _LEASE_DURATION_S,
                "renewTime": _now("microseconds"),
            },
        }
        await self._send("PATCH", f"{path}?fieldManager=kubelet&force=true", lease, _APPLY)

    # Pods

    async def _watch_pods(self) -> None:
        async for event, pod in self._follow("/api/v1/pods", {"fieldSelector": "spec.nodeName!="}):
            if event != "DELETED":
                self._see_pod(pod)

    def _see_pod(self, pod: Manifest) -> None:
        node, metadata = pod["spec"]["nodeName"], pod["metadata"]
        if node not in self._nodes:
            if self._chosen is None or node in self._chosen:
                self._early[node].append(pod)
        elif "deletionTimestamp" in metadata:
            if metadata["deletionGracePeriodSeconds"] > 0:  # 0: only finalizers keep it
                self._do_once("end", pod)
        elif pod["status"]["phase"] == "Pending":
            self._do_once("run", pod)

    def _do_once(self, verb: str, pod: Manifest) -> None:
        metadata = pod["metadata"]
        if (verb, metadata["uid"]) in self._handled:
            return
        self._handled.add((verb, metadata["uid"]))
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        if verb == "end":
            body = {"gracePeriodSeconds": 0, "preconditions": {"uid": metadata["uid"]}}
            self._loop.call_later(
                max(self._ends_after_s, _stopping_s(pod)),
                lambda: self._todo.put_nowait(self._send("DELETE", path, body)),
            )
        else:
            self._pod_ip += 1
            running = {"metadata": {"uid": metadata["uid"]}, "status": _running(pod, self._pod_ip)}
            self._todo.put_nowait(self._send("PATCH", f"{path}/status", running, _STRATEGIC_PATCH))

    # Requests

    async def _follow(
        self, path: str, parameters: dict[str, str] | None = None
    ) -> AsyncIterator[tuple[str, Manifest]]:
        """Yield event and object, for ever; starts from a new list whenever the stream breaks."""
        selection = parameters or {}
        while True:
            try:
                async with self._session.get(path, params=selection) as response:
                    listed = await _answer(response)
                for item in listed["items"]:
                    yield "ADDED", item
                watch = {"watch": "1", "resourceVersion": listed["metadata"]["resourceVersion"]}
                async with self._session.get(
                    path,
                    params=selection | watch,
                    timeout=aiohttp.ClientTimeout(total=None),
                ) as response:
                    try:
                        async for line in response.content:
                            event = json.loads(line)
                            if event["type"] == "ERROR":
                                break
                            yield event["type"], event["object"]
                    finally:
                        _cut(response)
            except _UNREACHABLE:
                pass
            await asyncio.sleep(_RETRY_AFTER_S)

    async def _send(
        self, method: str, path: str, body: Manifest, content_type: str = "application/json"
    ) -> None:
        """Send until the server accepts it; skip objects that are deleted or have another uid."""
        headers = {"Content-Type": content_type}
        while True:
            try:
                async with self._session.request(
                    method, path, data=json.dumps(body), headers=headers
                ) as response:
                    if response.status not in (404, 409):
                        await _answer(response)
                    return
            except _UNREACHABLE:
                await asyncio.sleep(_RETRY_AFTER_S)


def _allocatable_change(node: Manifest) -> dict[str, str | None]:
    """Return what has to change so that extended resources can be had as they are there."""
    capacity, allocatable = (
        {key: amount for key, amount in node["status"].get(each, {}).items() if "/" in key}
        for each in ("capacity", "allocatable")
    )
    removed: dict[str, str | None] = dict.fromkeys(allocatable.keys() - capacity.keys())
    changed = {k: amount for k, amount in capacity.items() if allocatable.get(k) != amount}
    return removed | changed


def _stopping_s(pod: Manifest) -> float:
    """Return how long the hooks of a pod hold up its end."""
    hooks = [it.get("lifecycle", {}).get("preStop", {}) for it in pod["spec"]["containers"]]
    sleep_s = max((hook.get("sleep", {}).get("seconds", 0) for hook in hooks), default=0)
    return float(min(sleep_s, pod["metadata"]["deletionGracePeriodSeconds"]))


def _cut(response: aiohttp.ClientResponse) -> None:
    """Close without TLS's farewells, for which the loop would have to live on."""
    if response.connection is not None and response.connection.transport is not None:
        response.connection.transport.abort()


async def _answer(response: aiohttp.ClientResponse) -> Any:
    """Return the decoded answer; raises ClientError to try again, RuntimeError if that is vain."""
    if response.status in (410, 429) or response.status >= 500:
        raise aiohttp.ClientError(f"HTTP {response.status}")
    if response.status >= 400:
        raise RuntimeError(f"{response.method} {response.url}: {await response.text()}")
    return json.loads(await response.read())


def _running(pod: Manifest, pod_ip: IPv4Address) -> Manifest:
    spec, now = pod["spec"], _now()
    conditions = ["Initialized", "ContainersReady", "Ready"]
    if "PodScheduled" not in [it["type"] for it in pod["status"].get("conditions", ())]:
        conditions.append("PodScheduled")  # a pod that was created with a node, as a static pod
    return {
        "phase": "Running",
        "startTime": now,
        "hostIP": _HOST_IP,
        "hostIPs": [{"ip": _HOST_IP}],
        "podIP": str(pod_ip),
        "podIPs": [{"ip": str(pod_ip)}],
        "conditions": [_condition(it) for it in conditions],
        "initContainerStatuses": [
            _container(it, _up(now) if it.get("restartPolicy") == "Always" else _completed(now))
            for it in spec.get("initContainers", [])
        ],
        "containerStatuses": [_container(it, _up(now)) for it in spec["containers"]],
    }


def _container(container: Manifest, state: Manifest) -> Manifest:
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "ready": True,
        "started": "running" in state,
        "restartCount": 0,
        "state": state,
    }


def _up(now: str) -> Manifest:
    return {"running": {"startedAt": now}}


def _completed(now: str) -> Manifest:
    return {
        "terminated": {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}
    }


def _condition(kind: str) -> Manifest:
    return {"type": kind, "status": "True", "lastTransitionTime": _now()}


def _now(precision: str = "seconds") -> str:
    now = datetime.now(UTC)  # noqa: TID251 -- the API server has the real time as well
    return now.replace(tzinfo=None).isoformat(timespec=precision) + "Z"
