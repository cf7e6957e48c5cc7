"""Suspended Jobs on a real API server with the real Job controller: queued, admitted, not lost."""

import json
from collections.abc import Iterator
from pathlib import Path
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
    """Run the Job controller and the garbage collector."""
    controlplane.start_controller_manager(("job-controller", "garbage-collector-controller"))
    yield
    controlplane.stop_program("kube-controller-manager")


class Queues:
    """Jobs and queue units as a user sees them."""

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


#: As the Deployments of koord-queue's chart have them, but for the path of the file.
ORIGINAL_FLAGS = (
    "--v=4 --oversellrate=1 --qps=50 --burst=50 --enableVisibilityServer=false "
    "--leader-elect=false --enabled-extensions=job"
)
ORIGINAL_CONFIGURATION = """
apiVersion: scheduling.k8s.io/v1
kind: KoordQueueConfiguration
plugins:
- name: Priority
- name: ElasticQuota
pluginConfigs: {}
"""


def tree(child: str) -> dict[str, Any]:
    """Return quotas as koord-queue's own scenarios have them."""
    limits = {"kube-queue/max-jobs": 2, "cpu": 100, "memory": "100Gi"}
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1beta1",
        "kind": "ElasticQuotaTree",
        "metadata": {"name": "elasticquotatree", "namespace": "kube-system"},
        "spec": {
            "root": {
                "name": "root",
                "max": {"cpu": 999900, "memory": "400000Gi", "kube-queue/max-jobs": 10000000000},
                "min": {"cpu": 9999, "memory": "40Gi"},
                "children": [{"name": child, "max": limits}],
            }
        },
    }


def test_files_flags_and_objects_of_koord_queue_work_unchanged(
    controlplane: ControlPlane, controllers: None, namespace: str, tmp_path: Path
) -> None:
    """A tree of quotas, a queue of one's own that blocks, jobs that name both.

    Source: koord-queue pkg/test/e2e: elasticquotas.yaml, block.queue.yaml, jobs.yaml.
    """
    del controllers
    queues = Queues(controlplane, namespace)
    file = tmp_path / "plugin.yaml"
    file.write_text(ORIGINAL_CONFIGURATION)
    own = {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "Queue",
        "metadata": {
            "name": "test-queue",
            "namespace": "koord-queue",
            "annotations": {"kube-queue/available-quota": "child-1"},
            "labels": {"create-by-kubequeue": "false"},
        },
        "spec": {"queuePolicy": "Block"},
    }
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "koord-queue"}}
    listed = {"apiVersion": "v1", "kind": "List", "items": [space, tree("child-1"), own]}
    controlplane.kubectl("apply", "--filename=-", stdin=json.dumps(listed))
    flags = (*ORIGINAL_FLAGS.split(), f"--config={file}", FLAGS[1])
    with ManagerProcess(controlplane, flags):
        for name in ("pi-1", "pi-2", "pi-3"):
            made = job(name, 2)
            made["metadata"] |= {
                "labels": {"quota.scheduling.alibabacloud.com/name": "child-1"},
                "annotations": {"kube-queue/queue-name": "test-queue"},
            }
            controlplane.api.request("POST", queues.path("jobs"), made)
        eventually(lambda: queues.pods_of("pi-1") == queues.pods_of("pi-2") == 2)
        eventually(lambda: "2 jobs of at most 2" in queues.unit("pi-3")["status"]["message"])
        assert queues.unit("pi-3")["spec"]["queue"] == "test-queue"
        assert queues.pods_of("pi-3") == 0
        path = f"{queues.path('jobs')}/pi-1?propagationPolicy=Background"
        controlplane.api.request("DELETE", path)
        eventually(lambda: queues.pods_of("pi-3") == 2)
    for name in ("pi-2", "pi-3"):
        path = f"{queues.path('jobs')}/{name}?propagationPolicy=Background"
        controlplane.api.request("DELETE", path)
    eventually(lambda: not queues.get("pods")["items"])
