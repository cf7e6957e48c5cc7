"""Environment of a suite: a control plane with all controllers, simulated nodes, and us."""

import json
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from http.client import HTTPException
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml
from tests.e2e import network
from tests.e2e.controlplane import ControlPlane
from tests.e2e.controlplane.builds import cached, folder_key, go_build
from tests.e2e.controlplane.endpoint import Endpoint
from tests.e2e.controlplane.errors import ApiError, ControlPlaneError
from tests.e2e.koord_process import KOORD
from tests.e2e.kubelet import FakeKubelet
from tests.e2e.manager_process import ManagerProcess
from tests.e2e.real_node import RealNode, find_programs, missing
from tests.e2e.real_node.images import FOREVER, SHELL, pack_images
from tests.e2e.scheduler_process import SchedulerProcess
from tests.e2e.waiting import eventually

Manifest = dict[str, Any]

#: Of Kubernetes 1.37, off by default: the suite enables them.
_GATES = (
    "GenericWorkload",
    "DRADeviceCompatibilityGroups",
    "DRAOptionalNodeOperations",
    "DRAPartitionableDevicesType",
    "DRAResourcePoolStatus",
    "DRAWorkloadResourceClaims",
)
_APIS = ",".join(
    f"{version}=true"
    for version in (
        "scheduling.k8s.io/v1beta1",
        "scheduling.k8s.io/v1alpha3",
        "resource.k8s.io/v1alpha3",
        "resource.k8s.io/v1beta1",
        "resource.k8s.io/v1beta2",
    )
)
_ALL_GATES = ",".join(f"{gate}=true" for gate in _GATES)
_SERVER_FLAGS = (f"--feature-gates={_ALL_GATES}", f"--runtime-config={_APIS}")
_SCHEDULER_GATES = f"--feature-gates={_ALL_GATES}"
#: What the pods of the suite run, and its driver's, whose program is ours: see ``proxy``.
_IMAGES = {
    "registry.k8s.io/pause:3.10.2": FOREVER,
    "registry.k8s.io/e2e-test-images/busybox:1.37.0-2": SHELL,
    "registry.k8s.io/sig-storage/hostpathplugin:v1.17.1": SHELL,
}
_PROXY = Path(__file__).parent / "proxy"
_INSTALLED = Path(__file__).parents[2] / "deploy/koordinator.yaml"
_HOOKS = "/apis/admissionregistration.k8s.io/v1"
_MERGE = "application/merge-patch+json"
#: Run beside the cluster, or not at all.
_NOT_RUN_THERE = frozenset({"Deployment", "DaemonSet", "PodDisruptionBudget"})
_NODES = ("n0", "n1", "n2")
_CPUS, _NUMA_NODES = 16, 2
#: The suite counts on two, on one node: what is left there is to be too little.
_GPUS = {"n0": 2}
_GPU = "koordinator.sh/gpu"
_REPORT_EVERY_S = 5.0
_POD_ENDS_S = 2.5


@contextmanager
def kubernetes(state: Path) -> Iterator[ControlPlane]:
    """Run ``koord scheduler`` in place of kube-scheduler, without any configuration."""
    with _cluster(state, _SERVER_FLAGS) as running:
        for number, name in enumerate(_NODES):
            running.api.request("POST", "/api/v1/nodes", _node(name, f"zone-{number % 2}"))
        with (
            FakeKubelet(running.api, keeps_allocatable=True),
            SchedulerProcess(running, flags=[_SCHEDULER_GATES]),
        ):
            _run_addons(running.api)
            yield running


@contextmanager
def claims(state: Path) -> Iterator[ControlPlane]:
    """Run the same with one real node, to which the suite's drivers hand out devices."""
    problem = missing() or ("" if network.enter() else "a real node needs a network namespace")
    if problem:
        raise ControlPlaneError(problem)
    programs = find_programs()
    with (
        _cluster(state, _SERVER_FLAGS) as running,
        RealNode(running, programs, state / "node") as node,
        SchedulerProcess(running, flags=[_SCHEDULER_GATES]),
    ):
        archive = state / "images.tar"
        pack_images(programs.busybox, archive, _IMAGES, {"hostpathplugin": _proxy()})
        node.inside([programs.ctr, "-n", "k8s.io", "images", "import", archive])
        node.start_kubelet({"featureGates": dict.fromkeys(_GATES, True)})
        yield running


@contextmanager
def koordinator(
    state: Path, scheduler_config: Path, left_out: Sequence[str] = ()
) -> Iterator[ControlPlane]:
    """Run what ``deploy/koordinator.yaml`` installs, with the original's own scheduler's file.

    Its profile also serves the default scheduler's name: the suite's pods with quotas name none.
    Webhooks with these names are ``left_out``.
    """
    with _cluster(state, []) as running, ExitStack() as stack:
        api = running.api
        crds = subprocess.run([KOORD, "crds"], stdout=subprocess.PIPE, text=True, check=True)
        running.kubectl("apply", "--server-side", "--filename=-", stdin=crds.stdout)
        running.kubectl("wait", "crd", "--all", "--for=condition=Established", "--timeout=60s")
        installed = [it for it in yaml.safe_load_all(_INSTALLED.read_text()) if it]
        kept = [it for it in installed if it["kind"] not in _NOT_RUN_THERE]
        running.kubectl("apply", "--server-side", "--filename=-", stdin=yaml.safe_dump_all(kept))
        for name in _NODES:
            api.request("POST", "/api/v1/nodes", _node(name, "zone-0"))
            for path, manifest in _reports(name):
                api.request("POST", path, manifest)
        # As long as real ones, so that it is seen what a pod waits for.
        stack.enter_context(FakeKubelet(api, ends_after_s=_POD_ENDS_S))
        gates = "--feature-gates=MultiQuotaTree=true"
        manager = ManagerProcess(running, [gates])
        _call_by_port(api, manager.webhook_port, left_out)
        stack.enter_context(manager)
        eventually(lambda: _listed(api), 60)
        stack.enter_context(_Agents(api))
        file = yaml.safe_load(scheduler_config.read_text())["data"]["koord-scheduler-config"]
        configuration = yaml.safe_load(file)
        configuration["leaderElection"] = {"leaderElect": False}  # there is but one
        (profile,) = configuration["profiles"]
        configuration["profiles"].append({**profile, "schedulerName": "default-scheduler"})
        more = f"{gates},ElasticQuotaGuaranteeUsage=true"
        stack.enter_context(SchedulerProcess(running, configuration, flags=[more]))
        yield running


@contextmanager
def _cluster(state: Path, flags: Sequence[str]) -> Iterator[ControlPlane]:
    """Run a control plane with all admission and all controllers, in a network of its own."""
    network.enter()
    with ControlPlane(state, admission_off=(), apiserver_flags=flags) as running:
        gates = [flag for flag in flags if flag.startswith("--feature-gates")]
        running.start_controller_manager(["*"], gates)
        yield running


def _run_addons(api: Endpoint) -> None:
    """Have what the suite looks for on every node, and waits a minute for before many specs."""
    account = "/api/v1/namespaces/kube-system/serviceaccounts/default"
    eventually(lambda: api.request("GET", account), 60)
    for name in _NODES:
        addon = f"kube-proxy-fluentd-elasticsearch-node-problem-detector-{name}"
        spec = {"nodeName": name, "containers": [{"name": "c", "image": "none"}]}
        pod = {"metadata": {"name": addon}, "spec": spec}
        api.request("POST", "/api/v1/namespaces/kube-system/pods", pod)


def _proxy() -> Path:
    def build(folder: Path) -> None:
        go_build(_PROXY, ".", folder / "proxy", [])

    return cached("suite-proxy", folder_key(_PROXY), build) / "proxy"


def _node(name: str, zone: str) -> Manifest:
    amounts = {
        "cpu": str(_CPUS),
        "memory": "32Gi",
        "ephemeral-storage": "100Gi",
        "pods": "110",
    }
    number = _NODES.index(name) + 1
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "topology.kubernetes.io/zone": zone,
                "topology.kubernetes.io/region": "region",
            },
        },
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "addresses": [
                {"type": "InternalIP", "address": f"192.0.2.{number}"},
                {"type": "Hostname", "address": name},
            ],
        },
    }


def _reports(name: str) -> Iterator[tuple[str, Manifest]]:
    """Yield the reports of a node agent about CPUs and GPUs, each with its path."""
    per_numa = _CPUS // _NUMA_NODES
    cpus = [
        {"id": i, "core": i // 2, "socket": i // per_numa, "node": i // per_numa}
        for i in range(_CPUS)
    ]
    resources = [
        {"name": key, "capacity": much, "allocatable": much, "available": much}
        for key, much in {"cpu": str(per_numa), "memory": "16Gi"}.items()
    ]
    basic = {
        "cpuModel": "a model",
        "hyperThreadEnabled": True,
        "turboEnabled": True,
        "catL3CbmMask": "7ff",
        "vendorID": "GenuineIntel",
    }
    yield (
        "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies",
        {
            "apiVersion": "topology.node.k8s.io/v1alpha1",
            "kind": "NodeResourceTopology",
            "metadata": {
                "name": name,
                "annotations": {
                    "node.koordinator.sh/cpu-topology": json.dumps({"detail": cpus}),
                    "node.koordinator.sh/cpu-basic-info": json.dumps(basic),
                },
            },
            "topologyPolicies": ["None"],
            "zones": [
                {"name": f"node-{numa}", "type": "Node", "resources": resources}
                for numa in range(_NUMA_NODES)
            ],
        },
    )
    if name not in _GPUS:
        return
    card = {f"{_GPU}-core": "100", f"{_GPU}-memory": "80Gi", f"{_GPU}-memory-ratio": "100"}
    devices = [
        {
            "type": "gpu",
            "minor": minor,
            "health": True,
            "id": f"GPU-{name}-{minor}",
            "resources": card,
            "topology": {
                "socketID": minor,
                "nodeID": minor,
                "pcieID": f"pci000{minor}",
                "busID": f"0000:{minor:02x}:00.0",
            },
        }
        for minor in range(_GPUS[name])
    ]
    yield (
        "/apis/scheduling.koordinator.sh/v1alpha1/devices",
        {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1",
            "kind": "Device",
            "metadata": {"name": name},
            "spec": {"devices": devices},
        },
    )


class _Agents:
    """Plays what the node agents report of usage: idle nodes, from ``with`` to its end."""

    def __init__(self, api: Endpoint) -> None:
        self._api = api
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._report, name="agents", daemon=True)

    def __enter__(self) -> Self:
        """Start."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""
        self._stopping.set()
        self._thread.join()

    def _report(self) -> None:
        idle = {"resources": {"cpu": "500m", "memory": "1Gi"}}
        while not self._stopping.wait(_REPORT_EVERY_S):
            now = datetime.now(UTC).isoformat()  # noqa: TID251 -- the real time
            status = {
                "updateTime": now,
                "nodeMetric": {"nodeUsage": idle, "systemUsage": idle},
            }
            for name in _NODES:
                path = f"/apis/slo.koordinator.sh/v1alpha1/nodemetrics/{name}/status"
                try:
                    self._api.request("PATCH", path, {"status": status}, content_type=_MERGE)
                except (ApiError, OSError, HTTPException):
                    continue  # the manager has not made it yet; or it comes next time


def _call_by_port(api: Endpoint, port: int, left_out: Sequence[str]) -> None:
    """Route webhook calls of the API server, which is outside the pod network, to the manager."""
    for kind in ("mutating", "validating"):
        path = f"{_HOOKS}/{kind}webhookconfigurations/koordinator-{kind}-webhook-configuration"
        annotations = api.request("GET", path)["metadata"]["annotations"]
        template = [
            hook for hook in json.loads(annotations["template"]) if hook["name"] not in left_out
        ]
        for hook in template:
            service = hook["clientConfig"].pop("service")
            hook["clientConfig"]["url"] = f"https://127.0.0.1:{port}{service['path']}"
        change = {"metadata": {"annotations": {"template": json.dumps(template)}}}
        api.request("PATCH", path, change, content_type=_MERGE)


def _listed(api: Endpoint) -> Any:
    """Return the webhooks that the manager has listed: the API server calls it."""
    path = f"{_HOOKS}/mutatingwebhookconfigurations/koordinator-mutating-webhook-configuration"
    return api.request("GET", path).get("webhooks")
