"""Suspended Jobs on a real API server with the real Job controller: held back, let in, not lost."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.e2e.controlplane import ControlPlane
from tests.e2e.manager_process import ManagerProcess
from tests.e2e.waiting import eventually

QUOTA = "quota.scheduling.koordinator.sh/name"
FLAGS = ("--enabled-extensions=job", "--feature-gates=WebhookFramework=false")


def quota(name: str, cpu: int) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": name},
        "spec": {"max": {"cpu": str(cpu)}},
    }


def job(name: str, pods: int, quota_name: str = "team") -> dict[str, Any]:
    container = {
        "name": "c",
        "image": "busybox",
        "resources": {"requests": {"cpu": "1"}},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {QUOTA: quota_name}},
        "spec": {
            "suspend": True,
            "parallelism": pods,
            "completions": pods,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        },
    }


@pytest.fixture
def controllers(controlplane: ControlPlane) -> Iterator[None]:
    """Run the controllers that make pods of Jobs, and delete what belongs to what is gone."""
    controlplane.start_controller_manager(("job-controller", "garbage-collector-controller"))
    yield
    controlplane.stop_program("kube-controller-manager")


class Queues:
    """What somebody sees of jobs and units."""

    def __init__(self, controlplane: ControlPlane, namespace: str) -> None:
        self.api, self.namespace = controlplane.api, namespace

    def get(self, kind: str, name: str = "") -> Any:
        group = {
            "jobs": "apis/batch/v1",
            "pods": "api/v1",
            "queueunits": "apis/scheduling.x-k8s.io/v1alpha1",
            "elasticquotas": "apis/scheduling.sigs.k8s.io/v1alpha1",
        }[kind]
        path = f"/{group}/namespaces/{self.namespace}/{kind}"
        return self.api.request("GET", f"{path}/{name}" if name else path)

    def path(self, kind: str) -> str:
        return {
            "jobs": f"/apis/batch/v1/namespaces/{self.namespace}/jobs",
            "elasticquotas": (
                f"/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{self.namespace}/elasticquotas"
            ),
        }[kind]

    def pods_of(self, name: str) -> int:
        items = self.get("pods")["items"]
        return sum(it["metadata"]["labels"].get("job-name") == name for it in items)

    def unit(self, name: str) -> Any:
        return self.get("queueunits", name)

    def phase(self, name: str) -> str:
        return str(self.unit(name)["status"]["phase"])


def test_jobs_wait_without_pods_and_start_when_there_is_room(
    controlplane: ControlPlane, controllers: None, namespace: str
) -> None:
    """A manager that is killed meanwhile goes on where it was."""
    del controllers
    queues = Queues(controlplane, namespace)
    api = controlplane.api
    api.request("POST", queues.path("elasticquotas"), quota("team", 4))
    api.request("POST", queues.path("jobs"), job("first", 3))
    with ManagerProcess(controlplane, FLAGS) as manager:
        eventually(lambda: queues.pods_of("first") == 3)
        api.request("POST", queues.path("jobs"), job("second", 2))
        eventually(lambda: "has no room" in queues.unit("second")["status"].get("message", ""))
        assert queues.phase("second") == "Enqueued"
        assert queues.pods_of("second") == 0
        assert queues.get("jobs", "second")["spec"]["suspend"]
        versions = queues.unit("second")["metadata"]["resourceVersion"]
        manager.kill()
    assert queues.unit("second")["metadata"]["resourceVersion"] == versions
    api.request("DELETE", f"{queues.path('jobs')}/first?propagationPolicy=Background")
    with ManagerProcess(controlplane, FLAGS):
        eventually(lambda: queues.pods_of("second") == 2)
        owners = queues.unit("second")["metadata"]["ownerReferences"]
        assert [it["uid"] for it in owners] == [queues.get("jobs", "second")["metadata"]["uid"]]
        assert queues.phase("second") == "Dequeued"
        eventually(lambda: len(queues.get("queueunits")["items"]) == 1)
    # The Job controller alone takes its finalizer from pods, as long as it runs.
    api.request("DELETE", f"{queues.path('jobs')}/second?propagationPolicy=Background")
    eventually(lambda: not queues.get("pods")["items"])
