"""A cluster as the originals' suites use it: objects in by the API, outcomes looked up there."""

import json
from typing import Any

from tests.e2e.controlplane.binaries import kubernetes_minor
from tests.e2e.controlplane.endpoint import Endpoint
from tests.e2e.controlplane.errors import ApiError
from tests.e2e.waiting import eventually

Manifest = dict[str, Any]
#: The version of DeviceTaintRules that the release has.
_RULES = {33: "v1alpha3", 34: "v1alpha3", 35: "v1alpha3", 36: "v1beta2"}
TAINT_RULES = f"resource.k8s.io/{_RULES.get(kubernetes_minor(), 'v1')}"


HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
FAKE = "example.com/fake"  # an extended resource
ALLOCATED = "scheduling.koordinator.sh/reservation-allocated"
DEVICES = "scheduling.koordinator.sh/device-allocated"
STATUS = "scheduling.koordinator.sh/resource-status"
SOON_S = 30.0
MERGE = "application/merge-patch+json"
_NOT_FOUND = 404
_PATHS = {
    "ConfigMap": "/api/v1/namespaces/{namespace}/configmaps",
    "ElasticQuota": "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{namespace}/elasticquotas",
    "ElasticQuotaProfile": (
        "/apis/quota.koordinator.sh/v1alpha1/namespaces/{namespace}/elasticquotaprofiles"
    ),
    "DeviceClass": "/apis/resource.k8s.io/v1/deviceclasses",
    "DeviceTaintRule": f"/apis/{TAINT_RULES}/devicetaintrules",
    "Device": "/apis/scheduling.koordinator.sh/v1alpha1/devices",
    "LimitRange": "/api/v1/namespaces/{namespace}/limitranges",
    "Node": "/api/v1/nodes",
    "NodeMetric": "/apis/slo.koordinator.sh/v1alpha1/nodemetrics",
    "NodeResourceTopology": "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies",
    "PersistentVolume": "/api/v1/persistentvolumes",
    "PersistentVolumeClaim": "/api/v1/namespaces/{namespace}/persistentvolumeclaims",
    "Pod": "/api/v1/namespaces/{namespace}/pods",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets",
    "PodGroup": "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{namespace}/podgroups",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "ReplicaSet": "/apis/apps/v1/namespaces/{namespace}/replicasets",
    "Reservation": "/apis/scheduling.koordinator.sh/v1alpha1/reservations",
    "ResourceClaim": "/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims",
    "ResourceSlice": "/apis/resource.k8s.io/v1/resourceslices",
    "RuntimeClass": "/apis/node.k8s.io/v1/runtimeclasses",
    "Service": "/api/v1/namespaces/{namespace}/services",
    "Workload": "/apis/scheduling.k8s.io/v1alpha1/namespaces/{namespace}/workloads",
}


class SuiteCluster:
    """Works in one namespace; pods are for ``scheduler_name``."""

    def __init__(self, api: Endpoint, namespace: str) -> None:
        self.api, self.namespace = api, namespace
        self.scheduler_name = "default-scheduler"

    def path(self, kind: str, name: str = "") -> str:
        """Return the path of the objects of a kind, or of one."""
        return f"{_PATHS[kind].format(namespace=self.namespace)}/{name}".rstrip("/")

    def create(self, *manifests: Manifest) -> Manifest:
        """Create objects in this order; return the last as it was stored.

        Returns after pods can name a new PriorityClass.  Raises ApiError if one is refused.
        """
        stored: Manifest = {}
        for manifest in manifests:
            stored = self.api.request("POST", self.path(manifest["kind"]), manifest)
            if manifest["kind"] == "PriorityClass":
                self._wait_for_class(manifest["metadata"]["name"])
        return stored

    def _wait_for_class(self, name: str) -> None:
        """Return when admission, which watches the classes, knows a PriorityClass."""
        probe = self.pod("probe", priorityClassName=name)
        path = f"{self.path('Pod')}?dryRun=All"
        eventually(lambda: self.api.request("POST", path, probe), SOON_S)

    def refusal(self, manifest: Manifest) -> str:
        """Create an object that ought to be refused; return why, empty if it was not."""
        try:
            self.create(manifest)
        except ApiError as error:
            return str(error)
        return ""

    def get(self, kind: str, name: str) -> Manifest:
        """Return an object as it is stored; empty if it is not there."""
        try:
            manifest: Manifest = self.api.request("GET", self.path(kind, name))
        except ApiError as error:
            if error.status != _NOT_FOUND:
                raise
            return {}
        return manifest

    def all(self, kind: str) -> list[Manifest]:
        """Return all objects of a kind."""
        listed: list[Manifest] = self.api.request("GET", self.path(kind))["items"]
        return listed

    def patch(self, kind: str, name: str, change: Manifest, subresource: str = "") -> None:
        """Merge a change into an object."""
        path = f"{self.path(kind, name)}/{subresource}".rstrip("/")
        self.api.request("PATCH", path, change, content_type=MERGE)

    def delete(self, kind: str, name: str) -> None:
        """Delete an object."""
        self.api.request("DELETE", self.path(kind, name))

    # -- pods --------------------------------------------------------------------------------

    def pod(
        self,
        name: str,
        requests: dict[str, str] | None = None,
        *,
        labels: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
        on: str = "",
        **spec: Any,
    ) -> Manifest:
        """Return a pod of one container; ``on`` is the name of the only node for it."""
        if on:
            field = {"key": "metadata.name", "operator": "In", "values": [on]}
            terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
            required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
            spec["affinity"] = {**spec.get("affinity", {}), "nodeAffinity": required}
        container: Manifest = {"name": "main", "image": "pause"}
        if requests:
            container["resources"] = {"requests": requests, "limits": requests}
        ports = spec.pop("ports", None)
        if ports:
            container["ports"] = ports
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": labels or {}, "annotations": annotations or {}},
            "spec": {
                "schedulerName": self.scheduler_name,
                "terminationGracePeriodSeconds": 1,
                "containers": [container],
                **spec,
            },
        }

    def run(self, name: str, requests: dict[str, str] | None = None, **more: Any) -> str:
        """Create a pod and wait until it has a node; return that."""
        self.create(self.pod(name, requests, **more))
        return self.node_of(name)

    def fail(self, name: str, requests: dict[str, str] | None = None, **more: Any) -> str:
        """Create a pod and wait until it is reported as unschedulable; return the reason."""
        self.create(self.pod(name, requests, **more))
        return self.failure_of(name)

    def node_of(self, name: str) -> str:
        """Wait until a pod has a node; return that."""
        return eventually(lambda: str(self.get("Pod", name)["spec"].get("nodeName", "")), SOON_S)

    def failure_of(self, name: str) -> str:
        """Wait until a pod is reported as unschedulable; return the reason."""

        def message() -> str:
            conditions = self.get("Pod", name)["status"].get("conditions", ())
            failures = (
                c for c in conditions if (c["type"], c["status"]) == ("PodScheduled", "False")
            )
            return next((str(c.get("message", "")) for c in failures), "")

        why = eventually(message, SOON_S)
        assert "nodeName" not in self.get("Pod", name)["spec"]
        return why

    def message_of(self, name: str) -> str:
        """Return the message of a pod's condition PodScheduled; empty without one."""
        conditions = self.get("Pod", name)["status"].get("conditions", ())
        return next((c.get("message", "") for c in conditions if c["type"] == "PodScheduled"), "")

    def bound_pods(self) -> set[str]:
        """Return the names of the pods that have a node."""
        return {p["metadata"]["name"] for p in self.all("Pod") if p["spec"].get("nodeName")}

    def is_going(self, name: str) -> bool:
        """Whether a pod is deleted, or being deleted."""
        pod = self.get("Pod", name)
        return not pod or "deletionTimestamp" in pod["metadata"]

    def annotation(self, name: str, key: str, kind: str = "Pod") -> Any:
        """Return the decoded value of an annotation; None if there is none."""
        text = self.get(kind, name)["metadata"].get("annotations", {}).get(key)
        return None if text is None else json.loads(text)

    # -- reservations ------------------------------------------------------------------------

    def reserve(
        self,
        name: str,
        requests: dict[str, str] | None = None,
        *,
        owner: str = "owner",
        pod: Manifest | None = None,
        template: Manifest | None = None,
        **spec: Any,
    ) -> str:
        """Create a reservation for pods with the label ``owner`` and wait; return its node.

        ``pod`` is added to the spec of its template, ``template`` to its metadata.
        """
        self.create(
            self.reservation(name, requests, owner=owner, pod=pod, template=template, **spec)
        )
        eventually(lambda: self.reserved(name).get("phase") == "Available", SOON_S)
        return str(self.reserved(name)["nodeName"])

    def reservation(
        self,
        name: str,
        requests: dict[str, str] | None = None,
        *,
        owner: str = "owner",
        pod: Manifest | None = None,
        template: Manifest | None = None,
        **spec: Any,
    ) -> Manifest:
        """Return a reservation; see ``reserve``."""
        amounts = requests or {"cpu": "1", "memory": "1Gi"}
        container = {
            "name": "main",
            "image": "pause",
            "resources": {"requests": amounts, "limits": amounts},
        }
        return {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1",
            "kind": "Reservation",
            "metadata": {"name": name, "labels": spec.pop("labels", {})},
            "spec": {
                "owners": [{"labelSelector": {"matchLabels": {owner: "true"}}}],
                "template": {
                    "metadata": {"namespace": self.namespace, **(template or {})},
                    "spec": {
                        "schedulerName": self.scheduler_name,
                        "containers": [container],
                        **(pod or {}),
                    },
                },
                **spec,
            },
        }

    def reserved(self, name: str) -> Manifest:
        """Return the status of a reservation."""
        status: Manifest = self.get("Reservation", name).get("status", {})
        return status

    def reservation_of(self, name: str) -> str:
        """Return the name of the reservation that a pod uses; empty if it uses none."""
        used = self.annotation(name, ALLOCATED)
        return used["name"] if used else ""

    def is_used_by(self, name: str, *pods: str) -> bool:
        """Wait until a reservation is used by these pods, and by no others."""

        def owners() -> bool:
            current = self.reserved(name).get("currentOwners", ())
            return sorted(one["name"] for one in current) == sorted(pods)

        return eventually(owners, SOON_S)


def node(
    name: str,
    cpu: str = "8",
    *,
    labels: dict[str, str] | None = None,
    more: dict[str, str] | None = None,
) -> Manifest:
    """Return a node; ``more`` are further resources, or other amounts."""
    amounts = {"cpu": cpu, "memory": "32Gi", "pods": "110", **(more or {})}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {HOST: name, **(labels or {})}},
        "spec": {},
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def priority_class(name: str, value: int) -> Manifest:
    """Return a PriorityClass."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    }


def replica_set(name: str, replicas: int, pod: Manifest) -> Manifest:
    """Return a ReplicaSet of copies of a pod."""
    labels = pod["metadata"]["labels"]
    template = {"metadata": {"labels": labels}, "spec": pod["spec"]}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": template,
        },
    }


def having(key: str, *values: str, operator: str = "In") -> Manifest:
    """Return the ``affinity`` of a pod that goes only to nodes with such a label."""
    expression: Manifest = {"key": key, "operator": operator}
    if values:
        expression["values"] = list(values)
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def apart(key: str, value: str) -> Manifest:
    """Return the ``affinity`` of a pod that shares a node with no pod of that label."""
    term = {"labelSelector": {"matchLabels": {key: value}}, "topologyKey": HOST}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def spread(key: str, label: str, when: str = "DoNotSchedule") -> list[Manifest]:
    """Return constraints that spread pods with a label over domains."""
    selector = {"matchExpressions": [{"key": label, "operator": "Exists"}]}
    return [
        {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": when,
            "labelSelector": selector,
        }
    ]
