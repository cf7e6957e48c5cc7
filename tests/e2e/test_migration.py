"""Upgrade from the original's chart to this chart and back, with a real helm and API server.

The original is a small chart with the traits that matter: CRDs, namespace and ConfigMaps in its
templates.  With KOORDINATOR_CHARTS, a checkout of the original's charts, its releases are used too.
"""

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from tests.e2e.conftest import running_controlplane
from tests.e2e.controlplane import ControlPlane
from tests.e2e.waiting import eventually

from koordinator.api.schema import all_crds

ROOT = Path(__file__).parents[2]
CHART = str(ROOT / "charts/koordinator")
CHARTS = os.environ.get("KOORDINATOR_CHARTS", "")
RELEASES = [f"{CHARTS}/versions/v{each}" for each in ("1.4.1", "1.6.0", "1.8.0") if CHARTS]
NAMESPACE: Final = "koordinator-system"
SLO: Final = "slo-controller-config"
GROUP: Final = "scheduling.koordinator.sh"
ADOPTED: Final = ("Queue", "QueueUnit", "ElasticQuotaTree")  # kinds that the original lacks

Helm = Callable[..., str]
Stored = dict[str, dict[str, Any]]


@pytest.fixture(scope="session")
def controlplane(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """Run a control plane of its own: releases and CRDs come and go."""
    with running_controlplane(request, tmp_path_factory.mktemp("migration")) as running:
        yield running


@pytest.fixture
def bare(controlplane: ControlPlane) -> ControlPlane:
    """Return the control plane after its CRDs are deleted, with their objects.

    The API server cannot list the objects of a CRD that is deleted right after its creation, and
    tries again after up to minutes; a change of the CRD brings that forward.
    """
    attempts = itertools.count()

    def is_bare() -> bool:
        changed = f"--overwrite=true example.com/attempt={next(attempts)}".split()
        controlplane.kubectl("annotate", "crd", "--all", *changed)
        return not controlplane.kubectl("get", "crd", "--output=name")

    controlplane.kubectl("delete", "crd", "--all", "--wait=false")
    eventually(is_bare, timeout_s=120)
    return controlplane


VALUES: Final = {
    "crds": {"managed": True},
    "installation": {"namespace": NAMESPACE, "roleListGroups": ["*"]},
    "featureGates": "MultiQuotaTree=true",
    "imageRepositoryHost": "registry.example.com",
    "koordlet": {"features": "CPUBurst=true", "log": {"level": "4"}},
    "scheduler": {"replicas": 1, "port": 10251, "enableJobPreemption": True},
}


def original_like(folder: Path) -> Path:
    """Write a chart that keeps its objects where the original's chart does."""
    chart = folder / "original"
    (chart / "templates").mkdir(parents=True)
    head = {"apiVersion": "v2", "name": "koordinator", "version": "1.8.0", "appVersion": "1.8.0"}
    (chart / "Chart.yaml").write_text(yaml.safe_dump(head))
    (chart / "values.yaml").write_text(yaml.safe_dump(VALUES))
    crds = [crd for crd in all_crds() if crd["spec"]["names"]["kind"] not in ADOPTED]
    (chart / "templates/crds.yaml").write_text(yaml.safe_dump_all(crds))
    (chart / "templates/all.yaml").write_text(yaml.safe_dump_all(_objects()))
    return chart


def _objects() -> Iterator[dict[str, Any]]:
    def made(version: str, kind: str, name: str, **fields: Any) -> dict[str, Any]:
        inside = {} if kind in ("Namespace", "PriorityClass") else {"namespace": NAMESPACE}
        return {"apiVersion": version, "kind": kind, "metadata": {"name": name} | inside} | fields

    yield made("v1", "Namespace", NAMESPACE)
    yield made("v1", "Secret", "koordinator-webhook-certs")
    yield made("v1", "ConfigMap", SLO, data={"colocation-config": '{"enable": true}'})
    yield made("scheduling.k8s.io/v1", "PriorityClass", "koord-batch", value=5000)
    labels = {"koord-app": "koord-scheduler"}
    command = ["/koord-scheduler", "--port=10251", "--logtostderr=true"]
    container = {"name": "scheduler", "image": "registry.example.com/x:1", "command": command}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    yield made("apps/v1", "Deployment", "koord-scheduler", spec=spec)


def user_objects() -> list[dict[str, Any]]:
    """Return objects that users and components have created."""
    allocated = json.dumps({"gpu": [{"minor": 0, "resources": {"koordinator.sh/gpu-core": "100"}}]})
    container = {"name": "main", "image": "x", "resources": {}}
    return [
        {"apiVersion": "v1", "kind": "Node",
         "metadata": {"name": "node-1", "labels": {"node.koordinator.sh/gpu-model": "A100"}}},
        {"apiVersion": f"{GROUP}/v1alpha1", "kind": "Device", "metadata": {"name": "node-1"},
         "spec": {"devices": [{"type": "gpu", "minor": 0, "id": "GPU-0", "health": True,
                               "resources": {"koordinator.sh/gpu-core": "100"}}]}},
        {"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "ElasticQuota",
         "metadata": {"name": "team", "namespace": "default"},
         "spec": {"max": {"cpu": "8"}, "min": {"cpu": "4"}}},
        {"apiVersion": f"{GROUP}/v1alpha1", "kind": "Reservation", "metadata": {"name": "r"},
         "spec": {"owners": [{"labelSelector": {"matchLabels": {"app": "a"}}}], "ttl": "24h",
                  "template": {"spec": {"containers": [container]}}}},
        {"apiVersion": "v1", "kind": "Pod",
         "metadata": {"name": "p", "namespace": "default",
                      "labels": {"koordinator.sh/qosClass": "BE"},
                      "annotations": {f"{GROUP}/device-allocated": allocated}},
         "spec": {"nodeName": "node-1", "containers": [container]}},
    ]  # fmt: skip


CREATED: Final = ("node/node-1", "device/node-1", "elasticquota/team", "reservation/r", "pod/p")


def stored(controlplane: ControlPlane) -> Stored:
    """Return the created objects without their bookkeeping."""
    by_name = {}
    for name in CREATED:
        text = controlplane.kubectl("get", name, "--namespace=default", "--output=json")
        by_name[name] = json.loads(text)
        for field in ("managedFields", "resourceVersion", "generation"):
            by_name[name]["metadata"].pop(field, None)
    return by_name


def crd_uids(controlplane: ControlPlane) -> dict[str, str]:
    listed = json.loads(controlplane.kubectl("get", "crd", "--output=json"))["items"]
    return {each["metadata"]["name"]: each["metadata"]["uid"] for each in listed}


def config(controlplane: ControlPlane) -> Any:
    get = ("get", "configmap", SLO, f"--namespace={NAMESPACE}", "--output=json")
    return json.loads(controlplane.kubectl(*get))


def deployed_words(controlplane: ControlPlane) -> list[str]:
    """Return command and arguments of the scheduler's container."""
    get = ("get", "deployment", "koord-scheduler", f"--namespace={NAMESPACE}", "--output=json")
    spec = json.loads(controlplane.kubectl(*get))["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    return [*container.get("command", ()), *container.get("args", ())]


def koord(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("koord")
    command = [str(program), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("release", ["", *RELEASES], ids=lambda path: Path(path).name or "small")
def test_upgrade_from_the_original_and_back_loses_nothing(
    bare: ControlPlane, helm: Helm, tmp_path: Path, release: str
) -> None:
    """Devices, quotas, reservations, pods, batch resources and changed settings stay.

    CRDs keep their identity: deleting one would delete its objects.
    """
    controlplane = bare
    original = Path(release) if release else original_like(tmp_path)
    helm("install", "koordinator", str(original), "--namespace=default")
    controlplane.kubectl("wait", "crd", "--all", "--for=condition=Established", "--timeout=600s")
    create = yaml.safe_dump_all(user_objects())
    controlplane.kubectl("apply", "--server-side", "--filename=-", stdin=create)
    batch = {"status": {"allocatable": {"kubernetes.io/batch-cpu": "2000"}}}
    patch = ("patch", "--type=merge", f"--patch={json.dumps(batch)}")
    controlplane.kubectl(*patch, "node", "node-1", "--subresource=status")
    changed = {"colocation-config": '{"enable":true,"cpuReclaimThresholdPercent":55}'}
    patch = ("patch", "--type=merge", f"--patch={json.dumps({'data': changed})}")
    controlplane.kubectl(*patch, "configmap", SLO, f"--namespace={NAMESPACE}")
    before, uids = stored(controlplane), crd_uids(controlplane)

    kubeconfig = f"--kubeconfig={controlplane.kubeconfig()}"
    checked = koord("migrate", "check", kubeconfig, "--output=json")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    kinds = {each["kind"] for each in json.loads(checked.stdout)["findings"]}
    assert {"Device", "ElasticQuota", "Reservation", "Node", "Pod", "Deployment"} < kinds

    config_map = tmp_path / "config-map.json"
    config_map.write_text(json.dumps(config(controlplane)))
    values = tmp_path / "converted.yaml"
    converted = koord("migrate", "values", str(original / "values.yaml"), str(config_map))
    values.write_text(converted.stdout)
    output = helm("upgrade", "koordinator", CHART, "--namespace=default", f"--values={values}")

    assert "Do not apply\ncharts/koordinator/crds/" in output  # a rollback would be refused
    assert stored(controlplane) == before
    assert uids.items() <= crd_uids(controlplane).items()
    assert "queueunits.scheduling.x-k8s.io" in crd_uids(controlplane)
    section = json.loads(config(controlplane)["data"]["colocation-config"])
    assert section["cpuReclaimThresholdPercent"] == 55
    assert deployed_words(controlplane)[0] == "scheduler"

    unchanged = str(original / "values.yaml")
    helm("upgrade", "koordinator", CHART, "--namespace=default", f"--values={unchanged}")
    assert stored(controlplane) == before

    helm("rollback", "koordinator", "1", "--namespace=default")
    assert stored(controlplane) == before
    assert uids.items() <= crd_uids(controlplane).items()
    assert deployed_words(controlplane)[0] == "/koord-scheduler"
