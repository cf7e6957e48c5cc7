"""Observer of a scheduler's work through the API server, independent of koordinator's code.

``Witness`` sees every pod get its node; the functions add up what nodes and devices have to bear.
"""

import json
import re
import socket
import threading
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from fractions import Fraction
from http.client import HTTPException, HTTPSConnection
from types import TracebackType
from typing import Any, Self

from tests.e2e.controlplane import ApiError
from tests.e2e.controlplane.endpoint import Endpoint
from tests.e2e.waiting import eventually

Manifest = dict[str, Any]

ALLOCATED = "scheduling.koordinator.sh/device-allocated"

_RETRY_AFTER_S = 0.1
_SUFFIXES = {"": Fraction(1), "m": Fraction(1, 1000), "k": Fraction(1000)} | {
    suffix: Fraction(1024**power) for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti"), start=1)
}


class Witness:
    """Watches all pods, over outages of the API server, while ``with`` lasts.

    ``nodes_of`` has by uid every node that a pod was ever seen on: one is right, two is a crime.
    """

    def __init__(self, api: Endpoint) -> None:
        self.nodes_of: defaultdict[str, set[str]] = defaultdict(set)
        self._api = api
        self._bound: dict[str, str] = {}  # namespace/name to node, of the pods that there are
        self._connection: HTTPSConnection | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="witness")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopping.set()
        connection = self._connection
        if connection is not None and connection.sock is not None:
            with suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    @property
    def bound(self) -> dict[str, str]:
        """The node of every pod that has one, by ``namespace/name``."""
        return dict(self._bound)

    def node_of(self, name: str, timeout_s: float = 30.0) -> str:
        """Wait until a pod, of whatever namespace, has a node, and return it."""
        return eventually(lambda: self._node_of(name), timeout_s)

    def wait_for(self, count: int, timeout_s: float = 60.0) -> None:
        """Wait until at least so many pods have a node."""
        eventually(lambda: len(self._bound) >= count, timeout_s)

    def check_no_pod_moved(self) -> None:
        """Raise AssertionError if a pod was seen on more than one node."""
        moved = {uid: nodes for uid, nodes in self.nodes_of.items() if len(nodes) > 1}
        assert not moved

    def _node_of(self, name: str) -> str:
        return next((node for key, node in self.bound.items() if key.endswith(f"/{name}")), "")

    def _watch(self) -> None:
        while not self._stopping.is_set():
            with suppress(ApiError, OSError, HTTPException, ValueError):
                self._list_and_watch()
            self._stopping.wait(_RETRY_AFTER_S)

    def _list_and_watch(self) -> None:
        listed = self._api.request("GET", "/api/v1/pods", timeout_s=10)
        self._bound = {}
        for item in listed["items"]:
            self._see("ADDED", item)
        version = listed["metadata"]["resourceVersion"]
        self._connection = HTTPSConnection("127.0.0.1", self._api.port, context=self._api.tls)
        try:
            self._connection.request(
                "GET",
                f"/api/v1/pods?watch=true&resourceVersion={version}",
                headers={"Authorization": f"Bearer {self._api.token}"},
            )
            for line in self._connection.getresponse():
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return
                self._see(event["type"], event["object"])
        finally:
            self._connection.close()

    def _see(self, kind: str, pod: Manifest) -> None:
        metadata, node = pod["metadata"], pod["spec"].get("nodeName", "")
        key = f"{metadata['namespace']}/{metadata['name']}"
        if node:
            self.nodes_of[metadata["uid"]].add(node)
        if node and kind != "DELETED":
            self._bound[key] = node
        else:
            self._bound.pop(key, None)


def overcommitted(api: Endpoint) -> dict[str, str]:
    """Return the overcommitted nodes, each with the exceeded resources."""
    nodes = {it["metadata"]["name"]: it for it in api.request("GET", "/api/v1/nodes")["items"]}
    return {
        name: f"{resource}: {float(amount)} of {headroom.get(resource, '0')}"
        for name, requested in _requested_of_nodes(pods(api)).items()
        if name in nodes
        for headroom in (nodes[name]["status"]["allocatable"],)
        for resource, amount in requested.items()
        if resource in ("cpu", "memory", "pods") and amount > quantity(headroom.get(resource, "0"))
    }


def overgiven_gpus(api: Endpoint) -> dict[str, str]:
    """Return the GPUs with more than 100 percent allocated, as ``node/minor``."""
    given: defaultdict[str, Fraction] = defaultdict(Fraction)
    for pod in pods(api):
        allocated = json.loads(pod["metadata"].get("annotations", {}).get(ALLOCATED, "{}"))
        for gpu in allocated.get("gpu", ()):
            key = f"{pod['spec']['nodeName']}/{gpu['minor']}"
            given[key] += quantity(gpu["resources"]["koordinator.sh/gpu-memory-ratio"])
    return {key: f"{float(percent)} %" for key, percent in given.items() if percent > 100}


def pods(api: Endpoint) -> list[Manifest]:
    """Return all pods."""
    items: list[Manifest] = api.request("GET", "/api/v1/pods")["items"]
    return items


def quantity(text: str) -> Fraction:
    """Return the amount behind ``100m`` or ``2Gi``."""
    number, suffix = re.fullmatch(r"([0-9.]+)([a-zA-Z]*)", text).groups()  # type: ignore[union-attr]
    return Fraction(number) * _SUFFIXES[suffix]


def _requested_of_nodes(manifests: Iterable[Manifest]) -> dict[str, dict[str, Fraction]]:
    requested: defaultdict[str, defaultdict[str, Fraction]] = defaultdict(
        lambda: defaultdict(Fraction)
    )
    for pod in manifests:
        node = pod["spec"].get("nodeName")
        if node:
            requested[node]["pods"] += 1
            for container in pod["spec"]["containers"]:
                for resource, amount in container["resources"].get("requests", {}).items():
                    requested[node][resource] += quantity(amount)
    return {node: dict(amounts) for node, amounts in requested.items()}
