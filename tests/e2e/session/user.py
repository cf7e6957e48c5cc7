"""User with kubectl in one namespace."""

import json
from typing import Any
from urllib.request import Request, urlopen

from tests.e2e.controlplane import ControlPlane
from tests.e2e.session.manifests import Manifest
from tests.e2e.waiting import eventually

SOON_S = 15.0  # a pod that waits is looked at again after 10 s at the latest
SCHEDULED = "PodScheduled"


class User:
    """Acts through kubectl, and looks at the API server's answers."""

    def __init__(self, controlplane: ControlPlane, namespace: str) -> None:
        self.namespace = namespace
        self._controlplane = controlplane

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl in the namespace and return what it printed."""
        command = (*arguments, f"--namespace={self.namespace}")
        return self._controlplane.kubectl(*command, stdin=stdin)

    def apply(self, *manifests: Manifest) -> None:
        """``kubectl apply`` them in this order."""
        listed = {"apiVersion": "v1", "kind": "List", "items": manifests}
        self.kubectl("apply", "--filename=-", stdin=json.dumps(listed))

    def path(self, plural: str, name: str = "", prefix: str = "/api/v1") -> str:
        """Return the path of objects in the namespace."""
        return f"{prefix}/namespaces/{self.namespace}/{plural}/{name}".rstrip("/")

    def get(self, plural: str, name: str = "", prefix: str = "/api/v1") -> Any:
        """Return an object of the namespace, or all in a list."""
        answer = self._controlplane.api.request("GET", self.path(plural, name, prefix))
        return answer if name else answer["items"]

    def nodes_of(self, *pods: str, within_s: float = SOON_S) -> list[str]:
        """Wait until every pod has a node; return the nodes in the order of the pods."""

        def nodes() -> list[str] | None:
            names = [self.get("pods", pod)["spec"].get("nodeName", "") for pod in pods]
            return names if all(names) else None

        eventually(lambda: nodes() is not None, within_s)
        return nodes() or []

    def node_of(self, pod: str, within_s: float = SOON_S) -> str:
        """Wait until the pod has a node; return it."""
        return self.nodes_of(pod, within_s=within_s)[0]

    def refusal_of(self, pod: str) -> Manifest:
        """Wait until the pod is reported as unschedulable; return the condition."""

        def refusal() -> Manifest | None:
            condition = self.condition_of(pod, SCHEDULED)
            return condition if condition.get("reason") == "Unschedulable" else None

        return eventually(refusal) or {}

    def described_events(self, pod: str) -> list[list[str]]:
        """Return what ``kubectl describe`` shows: type, reason, age, from, message."""
        lines = self.kubectl("describe", f"pod/{pod}").splitlines()
        return [line.split(maxsplit=4) for line in lines[lines.index("Events:") + 3 :] if line]

    def wait_for_refusal(self, pod: str, reason: str) -> None:
        """Wait until the pod is reported as unschedulable with the reason, among others."""
        eventually(lambda: reason in self.condition_of(pod, SCHEDULED).get("message", ""), SOON_S)

    def condition_of(self, pod: str, kind: str) -> Manifest:
        """Return a condition of the pod; empty if there is none of that type."""
        conditions = self.get("pods", pod)["status"].get("conditions", [])
        return next((it for it in conditions if it["type"] == kind), {})

    def validity(self, plural: str, name: str, prefix: str) -> str:
        """Return the status of an object's condition ``Valid``; empty if it has none."""
        conditions = self.get(plural, name, prefix).get("status", {}).get("conditions", ())
        return next((one["status"] for one in conditions if one["type"] == "Valid"), "")

    def is_pending(self, pod: str) -> bool:
        """Whether the pod has no node."""
        return "nodeName" not in self.get("pods", pod)["spec"]

    def events_of(self, pod: str) -> list[Manifest]:
        """Return the events about a pod, as the core API has them, oldest first."""
        about = [it for it in self.get("events") if it["involvedObject"]["name"] == pod]
        return sorted(about, key=lambda it: it["eventTime"] or it["firstTimestamp"])

    def event_of(self, pod: str, reason: str) -> Manifest:
        """Wait for an event about a pod; return the first of that reason."""

        def event() -> Manifest | None:
            return next((it for it in self.events_of(pod) if it["reason"] == reason), None)

        return eventually(event) or {}

    def now(self) -> str:
        """Return the resourceVersion of the cluster as it is: a beginning for ``history``."""
        listed = self._controlplane.api.request("GET", self.path("pods"))
        version: str = listed["metadata"]["resourceVersion"]
        return version

    def history(self, plural: str, name: str, since: str) -> list[Manifest]:
        """Return the states that an object of the namespace has been in since then."""
        api = self._controlplane.api
        only = f"fieldSelector=metadata.name={name}"
        query = f"watch=1&timeoutSeconds=1&resourceVersion={since}&{only}"
        headers = {"Authorization": f"Bearer {api.token}"}
        request = Request(f"{api.url}{self.path(plural)}?{query}", headers=headers)  # noqa: S310
        with urlopen(request, context=api.tls, timeout=30) as answer:  # noqa: S310 -- https
            return [json.loads(line)["object"] for line in answer]
