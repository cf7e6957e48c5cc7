"""One cluster in which two schedulers decide about the same pods, one after the other."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tests.e2e.controlplane import ApiError, ControlPlane
from tests.e2e.controlplane.binaries import kubernetes_gates
from tests.e2e.controlplane.endpoint import Endpoint
from tests.e2e.stock.scenarios import (
    CSI,
    DRIVER,
    IMMEDIATE,
    LOCAL,
    NAMESPACES,
    POLITE,
    PRIORITIES,
    SCENARIO,
    Manifest,
    Scenario,
)
from tests.e2e.waiting import eventually

from koordinator.api.codec import decode_object
from koordinator.simulator import schedule

_MERGE = "application/merge-patch+json"
_FORCED = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
_STORAGE = "/apis/storage.k8s.io/v1"
_BUDGETS = "/apis/policy/v1"
_NOT_FOUND = 404
_PATIENCE_S = 5.0  # until a pod has taken the place that preemption made


@dataclass(frozen=True, slots=True)
class Decision:
    """Outcome for a pod, as its users see it."""

    node: str  # that it has, or that is kept for it; empty: none
    is_bound: bool
    message: str  # of the condition of a pod without a node
    events: tuple[tuple[str, ...], ...]  # of refusal, and about victims
    victims: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Running:
    """A pod that has a node: what it was made of, and what became of that."""

    given: Manifest
    stored: Manifest


class Arena:
    """The cluster.  ``build`` a scenario, then call ``try_pod`` with each scheduler."""

    def __init__(self, controlplane: ControlPlane, suffix: str) -> None:
        self._api: Endpoint = controlplane.api
        self._namespaces = {short: f"{short}-{suffix}" for short in NAMESPACES}
        self._common: list[Manifest] = []  # what all scenarios have and pods refer to
        self._objects: list[Manifest] = []  # but pods
        self._pods: dict[str, _Running] = {}
        self._kept = 0

    def prepare(self) -> None:
        """Create what all scenarios have."""
        for short, name in self._namespaces.items():
            labels = {"team": short}
            manifest = _headed("v1", "Namespace", {"name": name, "labels": labels})
            self._common.append(self._create("/api/v1/namespaces", manifest))
        for name, value in PRIORITIES.items():
            manifest = {"metadata": {"name": name}, "value": value}
            if name == POLITE:
                manifest["preemptionPolicy"] = "Never"
            self._create("/apis/scheduling.k8s.io/v1/priorityclasses", manifest)
        for name, mode in ((LOCAL, "WaitForFirstConsumer"), (IMMEDIATE, "Immediate")):
            self._create_class(name, "kubernetes.io/no-provisioner", mode)
        self._create_class(CSI, DRIVER, "WaitForFirstConsumer")
        overhead = {"podFixed": {"cpu": "330m", "memory": "210Mi"}}
        heavy = {"metadata": {"name": "heavy"}, "handler": "heavy", "overhead": overhead}
        self._create("/apis/node.k8s.io/v1/runtimeclasses", heavy)

    def _create_class(self, name: str, provisioner: str, mode: str) -> None:
        manifest = {
            **_headed("storage.k8s.io/v1", "StorageClass", {"name": name}),
            "provisioner": provisioner,
            "volumeBindingMode": mode,
        }
        self._common.append(self._create(f"{_STORAGE}/storageclasses", manifest))

    # -- the cluster of a scenario -----------------------------------------------------------

    def build(self, scenario: Scenario, schedulers: Iterable[str]) -> None:
        """Replace the cluster; returns when all schedulers know the new nodes."""
        self._clear()
        for service in scenario.services:
            self._add(self._path(service, "services"), service)
        for claim in scenario.claims:
            self._add_claim(claim)
        for volume in scenario.volumes:
            self._add_volume(volume)
        for budget in scenario.budgets:
            path = self._path(budget, "poddisruptionbudgets", _BUDGETS)
            self._add(path, budget, budget["status"])
        for csi_node in scenario.csi_nodes:
            self._add(f"{_STORAGE}/csinodes", csi_node)
        for node in scenario.nodes:
            self._add("/api/v1/nodes", node)
        for pod in scenario.bound:
            self._put_back(self._inside(pod))
        for scheduler in schedulers:
            self._wait_until_known(scenario, scheduler)

    def _clear(self) -> None:
        self._objects, self._pods, self._kept = [], {}, 0
        for namespace in self._namespaces.values():
            inside = f"namespaces/{namespace}"
            for path in (
                f"/api/v1/{inside}/pods",
                f"/api/v1/{inside}/services",
                f"/api/v1/{inside}/persistentvolumeclaims",
                f"{_BUDGETS}/{inside}/poddisruptionbudgets",
            ):
                self._api.request("DELETE", path, _FORCED)
        for path in ("/api/v1/persistentvolumes", "/api/v1/nodes", f"{_STORAGE}/csinodes"):
            self._api.request("DELETE", path, _FORCED)

    def _wait_until_known(self, scenario: Scenario, scheduler: str) -> None:
        """Ask about a pod that no node of the scenario can hold, until all of them say so."""
        count = len(scenario.nodes)
        expected = f"{count} Insufficient cpu"
        container = {"name": "main", "image": "probe", "resources": {"requests": {"cpu": "999"}}}
        probe = {
            "metadata": {"name": "probe", "namespace": NAMESPACES[0]},
            "spec": {
                "schedulerName": scheduler,
                "nodeSelector": {SCENARIO: str(scenario.seed)},
                "tolerations": [{"operator": "Exists"}],
                "containers": [container],
            },
        }

        def is_known() -> bool:
            pod = self._create_pod(self._inside(probe))
            condition = self._wait_for_condition(pod)
            self._delete(pod)
            return expected in condition["message"]

        eventually(is_known)

    # -- decisions ---------------------------------------------------------------------------

    def try_pod(self, manifest: Manifest, scheduler: str, *, keep: bool) -> Decision:
        """Schedule a pod; then restore the previous state unless the pod is kept."""
        pod = self._inside(manifest)
        pod["spec"]["schedulerName"] = scheduler
        before = dict(self._pods)
        created = self._create_pod(pod)
        give_up = time.monotonic() + _PATIENCE_S
        decided = eventually(lambda: self._final(created, give_up)) or {}
        present = {_key(it) for path in self._pod_paths() for it in self._list(path)}
        victims = [key for key in before if key not in present]
        is_bound = "nodeName" in decided["spec"]
        node = decided["spec"].get("nodeName") or decided["status"].get("nominatedNodeName", "")
        events = [self._event(before[key].stored, "Preempted", created) for key in victims]
        if victims or not is_bound:
            events.append(self._event(created, "FailedScheduling", created))
        decision = Decision(
            node=node,
            is_bound=is_bound,
            message="" if node else _refusal(decided)["message"],
            events=tuple(sorted(events)),
            victims=tuple(sorted(victims)),
        )
        if keep and is_bound:
            self._keep(pod, decided, victims)
        else:
            self._delete(created)
            for key in victims:
                self._put_back(before[key].given)
        return decision

    def best_nodes(self, manifest: Manifest) -> set[str]:
        """Return the nodes with the highest total score for the pod, from ``koord schedule``."""
        pod = self._inside(manifest)
        pod["spec"]["schedulerName"] = "default-scheduler"
        stored = self._create_pod({**pod, "spec": {**pod["spec"], "schedulerName": "nobody"}})
        self._delete(stored)
        stored["spec"]["schedulerName"] = "default-scheduler"
        running = [it.stored for it in self._pods.values()]
        every = [*self._common, *self._objects, *running, stored]
        result = schedule(
            [decode_object(it) for it in every], explain=True, gates=kubernetes_gates()
        )
        (placement,) = result.placements
        assert placement.scorecard is not None
        table = placement.scorecard.score_table()
        best = max(scores["total"] for scores in table.values())
        return {node for node, scores in table.items() if scores["total"] == best}

    def _final(self, created: Manifest, give_up: float) -> Manifest | None:
        """Return the pod if it has a node, or is refused and has no node kept for it.

        A node that is kept should be taken soon; at ``give_up`` that is not waited for any longer.
        """
        pod: Manifest = self._api.request("GET", _path_of(created))
        if pod["spec"].get("nodeName"):
            return pod
        is_kept = "nominatedNodeName" in pod["status"] and time.monotonic() < give_up
        return None if is_kept or not _refusal(pod) else pod

    def _wait_for_condition(self, pod: Manifest) -> Manifest:
        return eventually(lambda: _refusal(self._api.request("GET", _path_of(pod))))

    def _event(self, about: Manifest, reason: str, pod: Manifest) -> tuple[str, ...]:
        """Wait for an event; the pod's uid in its text is replaced by a placeholder."""
        meta = about["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/events"
        selector = f"involvedObject.uid={meta['uid']},reason={reason}"

        def first() -> Manifest | None:
            items = self._list(f"{path}?fieldSelector={selector}")
            return min(items, key=lambda it: str(it["eventTime"])) if items else None

        event = eventually(first) or {}
        message = event["message"].replace(pod["metadata"]["uid"], "<uid>")
        is_own = event["reportingComponent"] == pod["spec"]["schedulerName"]
        reporter = "its scheduler" if is_own else event["reportingComponent"]
        return meta["name"], event["type"], reason, event["action"], reporter, message

    # -- objects -----------------------------------------------------------------------------

    def _inside(self, manifest: Manifest) -> Manifest:
        """Return a copy in the real namespace."""
        metadata = {**manifest["metadata"]}
        metadata["namespace"] = self._namespaces.get(metadata["namespace"], metadata["namespace"])
        return {**manifest, "metadata": metadata, "spec": {**manifest["spec"]}}

    def _path(self, manifest: Manifest, plural: str, prefix: str = "/api/v1") -> str:
        namespace = self._namespaces[manifest["metadata"]["namespace"]]
        return f"{prefix}/namespaces/{namespace}/{plural}"

    def _pod_paths(self) -> list[str]:
        return [f"/api/v1/namespaces/{it}/pods" for it in self._namespaces.values()]

    def _list(self, path: str) -> list[Manifest]:
        items: list[Manifest] = self._api.request("GET", path)["items"]
        return items

    def _create(self, path: str, manifest: Manifest, status: Manifest | None = None) -> Manifest:
        stored: Manifest = self._api.request("POST", path, manifest)
        if status is not None:
            path = f"{path}/{stored['metadata']['name']}/status"
            stored = self._api.request("PATCH", path, {"status": status}, content_type=_MERGE)
        return stored

    def _add(self, path: str, manifest: Manifest, status: Manifest | None = None) -> Manifest:
        if "namespace" in manifest["metadata"]:
            manifest = self._inside(manifest)
        stored = self._create(path, manifest, status)
        kind = {key: manifest[key] for key in ("apiVersion", "kind")}
        self._objects.append({**stored, **kind})
        return stored

    def _add_claim(self, claim: Manifest) -> None:
        is_bound = "volumeName" in claim["spec"]
        path = self._path(claim, "persistentvolumeclaims")
        self._add(path, claim, {"phase": "Bound" if is_bound else "Pending"})

    def _add_volume(self, volume: Manifest) -> None:
        name = volume["metadata"]["name"]
        claim = next(it for it in self._objects if it["spec"].get("volumeName") == name)
        meta = claim["metadata"]
        reference = {"kind": "PersistentVolumeClaim", "apiVersion": "v1"}
        reference |= {key: meta[key] for key in ("namespace", "name", "uid")}
        spec = {**volume["spec"], "claimRef": reference}
        self._add("/api/v1/persistentvolumes", {**volume, "spec": spec}, {"phase": "Bound"})

    def _create_pod(self, manifest: Manifest) -> Manifest:
        path = f"/api/v1/namespaces/{manifest['metadata']['namespace']}/pods"
        return {**self._create(path, manifest), "apiVersion": "v1", "kind": "Pod"}

    def _put_back(self, pod: Manifest) -> None:
        """Create a pod that runs on its node."""
        stored = self._create_pod(pod)
        self._set_running(stored, pod)

    def _keep(self, pod: Manifest, stored: Manifest, victims: Iterable[str]) -> None:
        """Start the pod, after all earlier pods."""
        for key in victims:
            del self._pods[key]
        self._kept += 1
        started = f"2026-01-02T{self._kept:02}:00:00Z"
        spec = {**pod["spec"], "nodeName": stored["spec"]["nodeName"]}
        status = {"phase": "Running", "startTime": started}
        self._set_running(stored, {**pod, "spec": spec, "status": status})

    def _set_running(self, stored: Manifest, pod: Manifest) -> None:
        path, patch = f"{_path_of(stored)}/status", {"status": pod["status"]}
        answer = self._api.request("PATCH", path, patch, content_type=_MERGE)
        running = {**answer, "apiVersion": "v1", "kind": "Pod"}
        self._pods[_key(stored)] = _Running(pod, running)

    def _delete(self, pod: Manifest) -> None:
        try:
            self._api.request("DELETE", _path_of(pod), _FORCED)
        except ApiError as error:
            if error.status != _NOT_FOUND:
                raise


def _refusal(pod: Manifest) -> Any:
    conditions = pod["status"].get("conditions", [])
    return next((it for it in conditions if it["type"] == "PodScheduled"), {})


def _key(pod: Manifest) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _path_of(pod: Manifest) -> str:
    meta = pod["metadata"]
    return f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"


def _headed(api_version: str, kind: str, metadata: Manifest) -> Manifest:
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}
