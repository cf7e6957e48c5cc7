"""A scheduler behind an interposer, what it works on, and how to look at both."""

from collections.abc import Mapping
from typing import Any

from tests.e2e.controlplane import ControlPlane
from tests.e2e.fleet import Manifest, create
from tests.e2e.interposer import Interposer
from tests.e2e.scheduler_process import SchedulerProcess
from tests.e2e.waiting import eventually
from tests.e2e.witness import Witness

NODES = "/api/v1/nodes"
DEVICES = "/apis/scheduling.koordinator.sh/v1alpha1/devices"
WITHOUT_ELECTION = {"leaderElection": {"leaderElect": False}}
WITH_GPUS = WITHOUT_ELECTION | {
    "profiles": [{"plugins": {"multiPoint": {"enabled": [{"name": "DeviceShare"}]}}}]
}

_ATTEMPTS = "scheduler_schedule_attempts_total"


class Stage:
    """One test's share of the cluster.

    ``pods`` is the path of its pods; ``interposer`` stands between ``scheduler`` and the API
    server, ``api`` leads past it.
    """

    def __init__(
        self, controlplane: ControlPlane, namespace: str, interposer: Interposer, witness: Witness
    ) -> None:
        self.controlplane = controlplane
        self.api = controlplane.api
        self.inside = f"/api/v1/namespaces/{namespace}"
        self.pods = f"{self.inside}/pods"
        self.interposer = interposer
        self.witness = witness
        self.scheduler: SchedulerProcess

    def start(self, configuration: Mapping[str, Any] = WITHOUT_ELECTION) -> None:
        """Start the scheduler and wait until it has taken in the cluster."""
        self.scheduler = SchedulerProcess(
            self.controlplane,
            configuration,
            name=f"koord-scheduler-{self.interposer.endpoint.port}",
            kubeconfig=self.interposer.kubeconfig(self.controlplane),
        )
        self.scheduler.start()

    def add_nodes(self, *manifests: Manifest) -> None:
        """Create nodes."""
        create(self.api, NODES, manifests)

    def add_pods(self, *manifests: Manifest) -> None:
        """Create pods; which of several comes first is not sure."""
        create(self.api, self.pods, manifests)

    def delete_pod(self, name: str) -> None:
        """Delete a pod without grace period."""
        self.api.request("DELETE", f"{self.pods}/{name}")

    def bind(self, name: str, node: str) -> None:
        """Bind a pod as another scheduler would."""
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        binding = {"metadata": {"name": name}, "target": target}
        self.api.request("POST", f"{self.pods}/{name}/binding", binding)

    def touch(self, path: str) -> None:
        """Rewrite an object, so that watches report it."""
        patch = {"metadata": {"annotations": {"test/touched": "yes"}}}
        merge = "application/merge-patch+json"
        self.api.request("PATCH", path, patch, content_type=merge)

    def wait_for_waiting(self, count: int) -> None:
        """Wait until the scheduler has found no place for so many pods, and for no other ones."""
        series = 'scheduler_pending_pods{queue="unschedulable"}'
        eventually(lambda: self.scheduler.metric(series) == count)

    def count(self, result: str) -> float:
        """Return how many attempts to schedule had a result: scheduled, unschedulable or error."""
        labels = f'{{profile="default-scheduler",result="{result}"}}'
        return self.scheduler.metric(_ATTEMPTS + labels)

    def cached(self, kind: str) -> float:
        """Return how many nodes, pods or assumed_pods the scheduler knows."""
        return self.scheduler.metric(f'scheduler_cache_size{{type="{kind}"}}')

    def handled(self, event: str) -> float:
        """Return how many events such as NodeDelete the scheduler has taken in."""
        name = "scheduler_event_handling_duration_seconds_count"
        return self.scheduler.metric(f'{name}{{event="{event}"}}')

    def reasons(self, name: str) -> list[str]:
        """Return the reasons of the events about a pod."""
        events = self.api.request("GET", f"{self.inside}/events")["items"]
        return [it["reason"] for it in events if it["involvedObject"]["name"] == name]
