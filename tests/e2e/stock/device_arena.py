"""Claims of devices: what kube-scheduler decides on a real API server, and what is decided here.

The stock scheduler takes the pods of a world one after the other.  Before each of them the same
objects are read from the API server and decided about by ``koordinator.simulator.Embedded``.
"""

import json
import re
from collections import Counter
from dataclasses import dataclass, field

from tests.e2e.claims import PREFIX, release_claims
from tests.e2e.controlplane import ControlPlane
from tests.e2e.controlplane.binaries import kubernetes_gates
from tests.e2e.controlplane.endpoint import Endpoint
from tests.e2e.stock.device_worlds import ADMIN, HOST, DeviceWorld, Manifest
from tests.e2e.waiting import eventually

from koordinator.api.codec import decode_object, encode_part
from koordinator.api.dynamic_resources import ResourceClaim
from koordinator.foundation.quantity import Quantity
from koordinator.scheduler.loop import Bound, SchedulerOptions, Unschedulable
from koordinator.simulator import Embedded

_MERGE = "application/merge-patch+json"
_FORCED = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
_KINDS = {
    "/api/v1/nodes": ("v1", "Node"),
    f"{PREFIX}/deviceclasses": ("resource.k8s.io/v1", "DeviceClass"),
    f"{PREFIX}/resourceslices": ("resource.k8s.io/v1", "ResourceSlice"),
    f"{PREFIX}/resourceclaims": ("resource.k8s.io/v1", "ResourceClaim"),
    "/api/v1/pods": ("v1", "Pod"),
}
PROBE = "probe.example.com"  # driver of a device by which the scheduler shows that it knows all
FREED = "deallocation of ResourceClaim completed"  # the pod is tried again at once
ERROR = 'running "DynamicResources" filter plugin: '
#: The original's error for a pod with an allocated and a new claim if two nodes are feasible.
SCORE_FAILS = "is smaller than number of claims"


@dataclass(frozen=True, slots=True)
class DeviceDecision:
    """Outcome for a pod: its node, or the message without one."""

    node: str
    message: str = ""
    allocations: Manifest = field(default_factory=dict)  # by name of a claim


@dataclass(frozen=True, slots=True)
class DecidedHere:
    """Outcome for a pod in this scheduler."""

    bound: Bound | None
    refused: Unschedulable | None  # also before it was bound
    allocations: Manifest  # by name of a claim

    @property
    def summary(self) -> str:
        """Decision as a user sees it."""
        if self.bound is not None:
            return f"on {self.bound.node}"
        return self.refused.message if self.refused is not None else "nothing"

    def totals(self) -> dict[str, int]:
        """Return the scores of the feasible nodes."""
        if self.bound is None:
            return {}
        card = self.bound.scorecard
        table = card.score_table() if card is not None else {}
        return {node: int(row["total"]) for node, row in table.items()} or {self.bound.node: 0}

    def rejections(self) -> list[str]:
        """Return why nodes would not do."""
        cards = [each.scorecard for each in (self.bound, self.refused) if each is not None]
        return [why for card in cards if card is not None for _, why in card.rejections().values()]


class DeviceArena:
    """The cluster.  ``build`` a world, then ``compare`` what becomes of each of its pods."""

    def __init__(self, controlplane: ControlPlane, namespace: str, scheduler: str) -> None:
        """Label the ``namespace`` for admin access; ``scheduler`` is the name of the stock one."""
        self._api: Endpoint = controlplane.api
        self._namespace, self._scheduler = namespace, scheduler
        self._world = DeviceWorld(0, ())
        self._gates = kubernetes_gates()
        self._builds = 0
        labels = {"metadata": {"labels": {ADMIN: "true"}}}
        self._patch(f"/api/v1/namespaces/{namespace}", labels)

    # -- the cluster of a world --------------------------------------------------------------

    def build(self, world: DeviceWorld) -> None:
        """Replace the cluster; returns when the scheduler knows all of it."""
        self.clear()
        self._world, self._builds = world, self._builds + 1
        self._gates = kubernetes_gates(",".join(f"{gate}=true" for gate in world.gates))
        for path, manifests in zip(
            _KINDS, (world.nodes, world.classes, world.slices), strict=False
        ):
            for manifest in manifests:
                self._api.request("POST", path, manifest)
        for claim in world.claims:
            stored = self._api.request("POST", self._path("resourceclaims"), claim_of(claim))
            if "status" in claim:
                self._patch(f"{_path_of(stored)}/status", {"status": claim["status"]})
        self._wait_until_known()

    def clear(self) -> None:
        """Take away what the world had."""
        self._api.request("DELETE", f"/api/v1/namespaces/{self._namespace}/pods", _FORCED)
        release_claims(self._api)
        for path in list(_KINDS)[:3]:
            self._api.request("DELETE", path, _FORCED)

    def _wait_until_known(self) -> None:
        """Create a pod that claims a separate device on the newest node."""
        name = f"probe-{self._builds}"
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        device = {"name": "d", "attributes": {"build": {"int": self._builds}}}
        spec = {"driver": PROBE, "allNodes": True, "pool": pool, "devices": [device]}
        self._api.request("POST", f"{PREFIX}/resourceslices", _named(name, spec))
        mine = f'device.attributes["{PROBE}"].?build.orValue(0) == {self._builds}'
        selectors = [{"cel": {"expression": f'device.driver == "{PROBE}" && {mine}'}}]
        self._api.request("POST", f"{PREFIX}/deviceclasses", _named(name, {"selectors": selectors}))
        exactly = {"deviceClassName": name}
        devices = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
        self._api.request("POST", self._path("resourceclaims"), _named(name, devices))
        container = {"name": "main", "image": "none", "resources": {"claims": [{"name": "c"}]}}
        spec = {
            "nodeSelector": {HOST: self._world.nodes[-1]["metadata"]["name"]},
            "tolerations": [{"operator": "Exists"}],
            "containers": [container],
            "resourceClaims": [{"name": "c", "resourceClaimName": name}],
        }
        probe = self._create_pod(_named(name, spec))
        eventually(lambda: self._api.request("GET", _path_of(probe))["spec"].get("nodeName"))
        self._api.request("DELETE", _path_of(probe), _FORCED)
        claim = f"{self._path('resourceclaims')}/{name}"
        self._patch(f"{claim}/status", {"status": {"allocation": None, "reservedFor": None}})
        self._patch(claim, {"metadata": {"finalizers": None}})
        self._api.request("DELETE", claim)
        for plural in ("resourceslices", "deviceclasses"):
            self._api.request("DELETE", f"{PREFIX}/{plural}/{name}")

    # -- decisions ---------------------------------------------------------------------------

    def compare(self, pod: Manifest) -> str:
        """Return how the decisions about a pod differ; it stays where the original puts it."""
        before = self._objects()
        manifest = {"metadata": {"name": pod["metadata"]["name"]}, "spec": pod["spec"]}
        created = self._create_pod(manifest)
        ours = self._ours(before, created)
        if not self._is_complete(pod):
            self._api.request("DELETE", _path_of(created), _FORCED)
            return f"ours {ours.summary} though a claim is not there" if ours.bound else ""
        theirs = self._theirs(created)
        if theirs.node:
            return self._other_place(before, created, ours, theirs)
        self._api.request("DELETE", _path_of(created), _FORCED)
        return self._other_refusal(before, created, ours, theirs)

    def _objects(self) -> list[Manifest]:
        return [
            {"apiVersion": version, "kind": kind, **each}
            for path, (version, kind) in _KINDS.items()
            for each in self._api.request("GET", path)["items"]
            if each["metadata"].get("deletionTimestamp") is None
        ]

    def _ours(self, before: list[Manifest], pod: Manifest, node: str = "") -> DecidedHere:
        """Return what is decided here, of one node alone if it is named."""
        spec = {**pod["spec"], "schedulerName": "default-scheduler"}
        if node:
            spec["nodeSelector"] = {HOST: node}
        pending = {**pod, "apiVersion": "v1", "kind": "Pod", "spec": spec}
        options = SchedulerOptions(report=False, explain=True)
        world = Embedded(options=options, gates=self._gates)
        world.load([decode_object(each) for each in (*before, pending)])
        outcomes = world.scheduler.step()
        for claim in world.cluster.list(ResourceClaim).items:
            ready = _made_ready(json.loads(encode_part(claim.status)))
            if ready:
                meta, status = claim.metadata, {"status": {"devices": ready}}
                world.cluster.patch(ResourceClaim, meta.name, meta.namespace, status, "status")
        outcomes += world.run_to_fixed_point()
        claims = world.cluster.list(ResourceClaim).items
        return DecidedHere(
            next((each for each in outcomes if isinstance(each, Bound)), None),
            next((each for each in reversed(outcomes) if isinstance(each, Unschedulable)), None),
            {
                each.metadata.name: json.loads(encode_part(each.status.allocation))
                for each in claims
                if each.status.allocation is not None
            },
        )

    def _theirs(self, created: Manifest) -> DeviceDecision:
        decided = eventually(lambda: self._decided(created)) or {}
        node = decided["spec"].get("nodeName", "")
        if not node:
            return DeviceDecision("", _condition(decided)["message"])
        return DeviceDecision(
            node,
            "",
            {each["metadata"]["name"]: _allocation(each) for each in self._claims(created)},
        )

    def _decided(self, created: Manifest) -> Manifest | None:
        """Return the pod when it is bound or refused; drivers make its devices ready."""
        pod: Manifest = self._api.request("GET", _path_of(created))
        if pod["spec"].get("nodeName"):
            return pod
        message = _condition(pod).get("message", "")
        if message and FREED not in message and "waiting for" not in message:
            return pod
        for claim in self._claims(created):
            self._make_ready(claim)
        return None

    def _make_ready(self, claim: Manifest) -> None:
        ready = _made_ready(claim.get("status", {}))
        if ready:
            self._patch(f"{_path_of(claim)}/status", {"status": {"devices": ready}})

    def _claims(self, pod: Manifest) -> list[Manifest]:
        names = {each.get("resourceClaimName") for each in pod["spec"].get("resourceClaims", ())}
        every = self._api.request("GET", self._path("resourceclaims"))["items"]
        return [each for each in every if each["metadata"]["name"] in names]

    def _is_complete(self, pod: Manifest) -> bool:
        entries = pod["spec"].get("resourceClaims", ())
        return len(self._claims(pod)) == len({each.get("resourceClaimName") for each in entries})

    # -- differences -------------------------------------------------------------------------

    def _other_refusal(
        self, before: list[Manifest], pod: Manifest, ours: DecidedHere, theirs: DeviceDecision
    ) -> str:
        """Return how a refusal differs; one node's error ends the attempt there, and not here."""
        if SCORE_FAILS in theirs.message and ours.bound:
            return ""
        difference = f"ours {ours.summary}\n  theirs {theirs.message}"
        if not theirs.message.startswith(ERROR):
            return "" if ours.bound is None and ours.summary == theirs.message else difference
        wanted = _in_general(theirs.message.removeprefix(ERROR))
        for node in self._world.nodes:  # each alone: what one node serves changes what others can
            there = self._ours(before, pod, node["metadata"]["name"])
            if wanted in map(_in_general, there.rejections()):
                return ""
        return difference

    def _other_place(
        self, before: list[Manifest], pod: Manifest, ours: DecidedHere, theirs: DeviceDecision
    ) -> str:
        totals = ours.totals()
        best = sorted(name for name, total in totals.items() if total == max(totals.values()))
        if theirs.node not in best:
            return f"ours {ours.summary}, best {best}\n  theirs {theirs.node}"
        was = {
            each["metadata"]["name"]: _allocation(each)
            for each in before
            if each["kind"] == "ResourceClaim"
        }
        got = self._ours(before, pod, theirs.node).allocations
        for name, allocation in theirs.allocations.items():
            mine, other = _comparable(got.get(name, {})), _comparable(allocation)
            if was.get(name) or not self._is_settled(theirs.node, pod):
                continue
            if mine != other:
                return f"on {theirs.node} claim {name} has {mine}\n  theirs {other}"
        return ""

    def _is_settled(self, node: str, pod: Manifest) -> bool:
        """Return whether there is one order of pools and slices alone, by driver.

        In the original both come in the order of a map.
        """
        sliced = Counter(
            each["spec"]["driver"]
            for each in self._world.slices
            if each["spec"].get("devices") and each["spec"].get("nodeName", node) == node
        )
        names = {
            part["deviceClassName"]
            for claim in self._claims(pod)
            for request in claim["spec"]["devices"]["requests"]
            for part in request.get("firstAvailable", [request.get("exactly")])
        }
        text = {each["metadata"]["name"]: str(each["spec"]) for each in self._world.classes}
        drivers = {
            driver
            for name in names
            for driver in sliced
            if "device.driver ==" not in text.get(name, "") or driver in text[name]
        }
        return sum(sliced[driver] for driver in drivers) <= 1 or (
            all(sliced[driver] <= 1 for driver in drivers)
            and all("device.driver ==" in text.get(name, "") for name in names)
        )

    # -- objects -----------------------------------------------------------------------------

    def _path(self, plural: str) -> str:
        return f"{PREFIX}/namespaces/{self._namespace}/{plural}"

    def _create_pod(self, manifest: Manifest) -> Manifest:
        spec = {**manifest["spec"], "schedulerName": self._scheduler}
        path = f"/api/v1/namespaces/{self._namespace}/pods"
        stored: Manifest = self._api.request("POST", path, {**manifest, "spec": spec})
        return stored

    def _patch(self, path: str, patch: Manifest) -> None:
        self._api.request("PATCH", path, patch, content_type=_MERGE)


def claim_of(manifest: Manifest) -> Manifest:
    """Return a claim without namespace and status."""
    return {"metadata": {"name": manifest["metadata"]["name"]}, "spec": manifest["spec"]}


def _named(name: str, spec: Manifest) -> Manifest:
    return {"metadata": {"name": name}, "spec": spec}


def _path_of(stored: Manifest) -> str:
    meta = stored["metadata"]
    path: str = meta.get("selfLink", "")
    is_pod = "containers" in stored["spec"]
    prefix, plural = ("/api/v1", "pods") if is_pod else (PREFIX, "resourceclaims")
    return path or f"{prefix}/namespaces/{meta['namespace']}/{plural}/{meta['name']}"


def _condition(pod: Manifest) -> Manifest:
    conditions = pod["status"].get("conditions", ())
    return next((each for each in conditions if each["type"] == "PodScheduled"), {})


def _allocation(claim: Manifest) -> Manifest:
    allocation: Manifest = claim.get("status", {}).get("allocation", {})
    return allocation


def _made_ready(status: Manifest) -> list[Manifest]:
    """Return the driver conditions of devices with binding conditions; empty if they are set."""
    if status.get("devices"):
        return []
    condition = {"status": "True", "reason": "Made", "message": ""}
    condition["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    names = ("driver", "pool", "device", "shareID")
    return [
        {
            **{name: result[name] for name in names if result.get(name)},
            "conditions": [{**condition, "type": kind} for kind in result["bindingConditions"]],
        }
        for result in _allocation({"status": status}).get("devices", {}).get("results", ())
        if result.get("bindingConditions")
    ]


def _comparable(allocation: Manifest) -> Manifest:
    """Return an allocation without what is drawn, amounts as numbers, defaults left out."""
    devices = allocation.get("devices", {})
    results = []
    for result in devices.get("results", ()):
        shown = {key: value for key, value in result.items() if value and key != "shareID"}
        shown["isShare"] = "shareID" in result
        if "consumedCapacity" in shown:
            amounts = shown["consumedCapacity"].items()
            shown["consumedCapacity"] = {name: Quantity.parse(it).nanos for name, it in amounts}
        if "tolerations" in shown:
            shown["tolerations"] = [
                {"operator": "Equal"} | {key: value for key, value in each.items() if value}
                for each in shown["tolerations"]
            ]
        results.append(shown)
    config = [{k: v for k, v in each.items() if v} for each in devices.get("config", ())]
    return {"results": results, "config": config, "on": allocation.get("nodeSelector")}


def _in_general(error: str) -> str:
    """Return an error without the device or pool, which are chosen at random."""
    return re.sub(r"(device|pool) \S+|currently (invalid|being updated)", r"\1", error)
