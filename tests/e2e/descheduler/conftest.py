"""A cluster whose Deployments are real, with ``koord scheduler`` that binds reservations."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.e2e.controlplane import ControlPlane
from tests.e2e.kubelet import FakeKubelet
from tests.e2e.scheduler_process import SchedulerProcess
from tests.e2e.session.manifests import Manifest, deployment, node, pod_spec
from tests.e2e.session.user import User

CONTROLLERS = ("deployment-controller", "replicaset-controller", "disruption-controller")
JOBS = "/apis/scheduling.koordinator.sh/v1alpha1/podmigrationjobs"
RESERVATIONS = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"
NODES = ("n1", "n2", "n3")
REPLICAS = 6
SCHEDULER = {
    "leaderElection": {"leaderElect": False},
    "profiles": [
        {
            "schedulerName": "koord-scheduler",
            "plugins": {
                "score": {"enabled": [{"name": "Reservation", "weight": 5000}]},
                **{
                    point: {"enabled": [{"name": "Reservation"}]}
                    for point in ("preFilter", "filter", "postFilter", "reserve")
                },
            },
        }
    ],
}
#: No plugin looks for pods: jobs are made by hand.
DESCHEDULER: Manifest = {
    "profiles": [
        {
            "pluginConfig": [
                {
                    "name": "MigrationController",
                    "args": {
                        "evictQPS": "2",
                        "maxMigratingPerNode": 4,
                        "maxMigratingPerWorkload": 5,
                        "maxUnavailablePerWorkload": 5,
                        "objectLimiters": {"workload": {"duration": "0s"}},
                    },
                }
            ]
        }
    ]
}


class Mover(User):
    """A user with a Deployment that has room to move, who makes jobs."""

    def __init__(self, controlplane: ControlPlane, namespace: str) -> None:
        super().__init__(controlplane, namespace)
        self._api = controlplane.api

    def settle(self) -> None:
        """Create nodes and a Deployment, and wait until it runs."""
        spec = pod_spec("1", schedulerName="koord-scheduler")
        self.apply(*(node(name, "4") for name in NODES), deployment("web", REPLICAS, spec))
        self.rolled_out()

    def rolled_out(self) -> None:
        """Wait until all replicas run."""
        self.kubectl("rollout", "status", "deployment/web", "--timeout=60s")

    def move(self, name: str, pod: str, **spec: Any) -> None:
        """``kubectl apply`` a job."""
        manifest = {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1",
            "kind": "PodMigrationJob",
            "metadata": {"name": name},
            "spec": {"podRef": {"namespace": self.namespace, "name": pod}, "ttl": "60s", **spec},
        }
        self.kubectl("apply", "--filename=-", stdin=json.dumps(manifest))

    def status(self, name: str) -> Any:
        """Return the status of a job; empty while it has none."""
        return self._api.request("GET", f"{JOBS}/{name}").get("status", {})

    def phase(self, name: str) -> str:
        """Return the phase of a job."""
        phase: str = self.status(name).get("phase", "")
        return phase

    def jobs(self) -> list[Any]:
        """Return all jobs."""
        jobs: list[Any] = self._api.request("GET", JOBS)["items"]
        return jobs

    def reservations(self) -> list[Any]:
        """Return all reservations."""
        reservations: list[Any] = self._api.request("GET", RESERVATIONS)["items"]
        return reservations

    def pods(self) -> dict[str, str]:
        """Return the pods that stay, and their nodes."""
        return {
            each["metadata"]["name"]: each["spec"].get("nodeName", "")
            for each in self.get("pods")
            if "deletionTimestamp" not in each["metadata"]
        }


@pytest.fixture(scope="module")
def scheduler(controlplane: ControlPlane) -> Iterator[SchedulerProcess]:
    """Run one scheduler while all tests of a module come and go."""
    with SchedulerProcess(controlplane, SCHEDULER, name="koord-scheduler-moves") as running:
        yield running


@pytest.fixture
def mover(
    controlplane: ControlPlane,
    scheduler: SchedulerProcess,
    kubelet: FakeKubelet,
    namespace: str,
) -> Mover:
    """Work beside a Deployment of six pods on three nodes."""
    assert scheduler.is_running, scheduler.last_words()
    del kubelet
    controlplane.start_controller_manager(CONTROLLERS)
    made = Mover(controlplane, namespace)
    made.settle()
    return made
