"""LowNodeLoad on a real API server: from NodeMetrics to replaced pods, with limits and restarts."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.e2e.controlplane import ControlPlane
from tests.e2e.controlplane.endpoint import Endpoint, free_port
from tests.e2e.descheduler.conftest import NODES, REPLICAS, SCHEDULER, Mover
from tests.e2e.descheduler_process import DeschedulerProcess
from tests.e2e.guarded import assert_guarded, unverified
from tests.e2e.koord_process import KOORD, KoordProcess
from tests.e2e.session import manifests
from tests.e2e.waiting import eventually

METRICS = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
NAMESPACE = "koordinator-system"
NAME = "koord-descheduler"
CHART = str(Path(__file__).parents[3] / "charts/koordinator")
SCHEDULER_KIND = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
}
MERGE = "application/merge-patch+json"
ARGS = {
    "LowNodeLoad": {
        "lowThresholds": {"cpu": 30},
        "highThresholds": {"cpu": 60},
        "anomalyCondition": {"consecutiveAbnormalities": 1, "consecutiveNormalities": 1},
    },
    "MigrationController": {
        "defaultJobMode": "EvictDirectly",
        "maxMigratingPerNode": 4,
        "maxMigratingPerWorkload": 5,
        "maxUnavailablePerWorkload": 5,
        "objectLimiters": {"workload": {"duration": "0s"}},
    },
}


def configuration(**more: Any) -> dict[str, Any]:
    """Return a configuration that balances by load, as soon as a node is too hot."""
    profile = {
        "plugins": {"balance": {"enabled": [{"name": "LowNodeLoad"}]}},
        "pluginConfig": [{"name": name, "args": args} for name, args in ARGS.items()],
    }
    return {"deschedulingInterval": "1s", "profiles": [profile], **more}


def reserving(**more: Any) -> dict[str, Any]:
    """Return the configuration with jobs that reserve a place first, as by default."""
    whole = configuration(**more)
    for each in whole["profiles"][0]["pluginConfig"]:
        each["args"] = {k: v for k, v in each["args"].items() if k != "defaultJobMode"}
    return whole


def _without_load_limit(text: str) -> str:
    """Return the scheduler's configuration for nodes without measured pods."""
    whole = yaml.safe_load(text)
    for each in whole["profiles"][0]["pluginConfig"]:
        if each["name"] == "LoadAwareScheduling":
            each["args"]["usageThresholds"] = {"cpu": 99, "memory": 99}
    return yaml.safe_dump(whole)


def report(controlplane: ControlPlane, pods: dict[str, str], namespace: str, hot: str) -> None:
    """Report what nodes of four cores use, as koordlet does: three cores on the hot one."""
    known = {each["metadata"]["name"] for each in controlplane.api.request("GET", METRICS)["items"]}
    for name in NODES:
        on_it = [pod for pod, place in pods.items() if place == name]
        usage = {"resources": {"cpu": f"{1500 // max(len(on_it), 1)}m"}} if name == hot else {}
        system = {"resources": {"cpu": "1500m" if name == hot else "100m", "memory": "1Gi"}}
        status = {
            "updateTime": datetime.now(UTC).isoformat(),  # noqa: TID251 -- the real time
            "nodeMetric": {"nodeUsage": system, "systemUsage": system},
            "podsMetric": [
                {"namespace": namespace, "name": pod, "podUsage": usage} for pod in on_it
            ],
        }
        if name not in known:
            kind = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric"}
            controlplane.api.request("POST", METRICS, {**kind, "metadata": {"name": name}})
        path = f"{METRICS}/{name}/status"
        controlplane.api.request("PATCH", path, {"status": status}, content_type=MERGE)


def cycles(process: KoordProcess) -> float:
    """Return how many cycles there were."""
    total = 0.0
    for line in process.get("/metrics").splitlines():
        if line.startswith("descheduler_cycle_duration_seconds_count"):
            total += float(line.rpartition(" ")[2])
    return total


@pytest.fixture
def started(controlplane: ControlPlane) -> Iterator[Callable[..., DeschedulerProcess]]:
    """Start deschedulers with a configuration; what they logged is shown, and has no fault."""
    made: list[DeschedulerProcess] = []

    def start(**more: Any) -> DeschedulerProcess:
        name = f"koord-load-{len(made)}"
        made.append(DeschedulerProcess(controlplane, configuration(**more), name=name))
        made[-1].start()
        return made[-1]

    yield start
    for each in made:
        each.kill()
        sys.stdout.write(each.log.read_text()[-10_000:])
        assert "Traceback" not in each.log.read_text()


def test_pods_leave_a_hot_node_within_the_limits(
    controlplane: ControlPlane, mover: Mover, started: Callable[..., DeschedulerProcess]
) -> None:
    """A dry run moves nothing; a limit of one pod moves one per cycle; a restart goes on."""
    before = mover.pods()
    hot = max(NODES, key=list(before.values()).count)
    report(controlplane, before, mover.namespace, hot)

    unproven = {"proveMoves": False}  # an evicted pod returns to the emptiest node
    looking = started(dryRun=True, **unproven)
    eventually(lambda: cycles(looking) >= 2)
    looking.kill()
    assert (mover.pods(), mover.jobs()) == (before, [])

    once = started(maxNoOfPodsToEvictTotal=1, deschedulingInterval="0s", **unproven)
    eventually(lambda: cycles(once) == 1)
    eventually(lambda: len(mover.jobs()) == 1)
    (job,) = mover.jobs()
    annotations = job["metadata"]["annotations"]
    assert annotations["koordinator.sh/evict-reason"] == (
        "node is overutilized, node cpu usage(75.00%)>threshold(60.00%)"
    )
    assert annotations["koordinator.sh/evict-trigger"] == "LowNodeLoad"
    moved = job["spec"]["podRef"]["name"]
    assert before[moved] == hot
    eventually(lambda: mover.phase(job["metadata"]["name"]) == "Succeeded")
    once.kill()  # after one cycle; the next process starts without state

    mover.rolled_out()
    assert moved not in mover.pods()
    assert len(mover.pods()) == REPLICAS
    report(controlplane, mover.pods(), mover.namespace, hot)
    again = started(maxNoOfPodsToEvictTotal=1, **unproven)
    eventually(lambda: len(mover.jobs()) == 2)
    again.stop()
    mover.rolled_out()


def test_the_installed_rights_are_enough(
    controlplane: ControlPlane, mover: Mover, helm: Callable[..., str]
) -> None:
    """Under its ServiceAccount it elects itself, sees who is too hot and has a pod moved."""
    api = controlplane.api
    api.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    chart = helm("template", "koordinator", CHART, f"--namespace={NAMESPACE}")
    controlplane.kubectl("apply", "--server-side", "--filename=-", stdin=chart)
    find = ("get", "-o=json", f"-n={NAMESPACE}")
    pod = json.loads(controlplane.kubectl(*find, f"deployment/{NAME}"))["spec"]["template"]["spec"]
    data = json.loads(controlplane.kubectl(*find, f"configmap/{NAME}-config"))["data"]
    config = yaml.safe_load(data[f"{NAME}-config"])
    config["profiles"] = reserving()["profiles"]
    config["maxNoOfPodsToEvictTotal"] = 1
    scheduler = json.loads(controlplane.kubectl(*find, "configmap/koord-scheduler-config"))["data"]
    proves_by = controlplane.state_dir / "installed-scheduler.yaml"
    proves_by.write_text(_without_load_limit(scheduler["koord-scheduler-config"]))
    port, secure_port = free_port(), free_port()
    config["metricsBindAddress"] = config["healthzBindAddress"] = f"127.0.0.1:{port}"
    file = controlplane.state_dir / "installed-descheduler.yaml"
    file.write_text(yaml.safe_dump(config))
    kubeconfig = controlplane.service_account_kubeconfig(NAMESPACE, pod["serviceAccountName"])
    own = ("--config", "--secure-port", "--scheduler-config")
    flags = [flag for flag in pod["containers"][0]["args"][1:] if not flag.startswith(own)]
    command = [
        *(str(KOORD), "descheduler", f"--config={file}", f"--kubeconfig={kubeconfig}"),
        *(f"--secure-port={secure_port}", "--bind-address=127.0.0.1", *flags),
        f"--scheduler-config={proves_by}",
    ]
    before = mover.pods()
    hot = max(NODES, key=list(before.values()).count)
    report(controlplane, before, mover.namespace, hot)

    with KoordProcess(controlplane, "installed-descheduler", command, port) as running:
        eventually(lambda: any(before.get(name) == hot for name in set(before) - set(mover.pods())))
        assert_guarded(Endpoint(secure_port, unverified()), api.token)
    text = running.log.read_text()
    assert "forbidden" not in text.lower()
    assert "Traceback" not in text


def test_plan_is_reviewed_and_applied(
    controlplane: ControlPlane, mover: Mover, started: Callable[..., DeschedulerProcess]
) -> None:
    """The descheduler makes the moves of the reviewed plan."""
    hot, cool, full = sorted(NODES, key=list(mover.pods().values()).count, reverse=True)
    rest = str(4 - list(mover.pods().values()).count(full))
    mover.apply(
        manifests.pod("filler", rest, nodeName=full)
    )  # one node is left that can take a pod
    before = mover.pods()
    report(controlplane, before, mover.namespace, hot)
    file = controlplane.state_dir / "plan-policy.yaml"
    kind = {"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerConfiguration"}
    file.write_text(yaml.safe_dump({**kind, **reserving(maxNoOfPodsToEvictTotal=1)}))
    kubeconfig = controlplane.kubeconfig()
    scheduler = controlplane.state_dir / "plan-scheduler.yaml"
    scheduler.write_text(yaml.safe_dump({**SCHEDULER_KIND, **SCHEDULER}))
    command = [
        *(str(KOORD), "descheduler", "plan", f"--config={file}", f"--kubeconfig={kubeconfig}"),
        f"--scheduler-config={scheduler}",
    ]

    shown = json.loads(subprocess.check_output([*command, "-o", "json"]))
    (move,) = shown["moves"]
    name = move["pod"].partition("/")[2]
    assert (before[name], move["target"], mover.jobs()) == (hot, cool, [])

    applied = json.loads(subprocess.check_output([*command, "-o", "json", "--apply"]))
    (job,) = mover.jobs()
    assert job["metadata"]["name"] == applied["jobs"][0]["metadata"]["name"]
    idle = reserving()
    idle["profiles"][0]["plugins"] = {}
    started(**idle)
    eventually(lambda: mover.phase(job["metadata"]["name"]) == "Succeeded", 60.0)
    mover.rolled_out()
    (fresh,) = set(mover.pods()) - set(before)
    assert mover.pods()[fresh] == applied["moves"][0]["target"] == cool
