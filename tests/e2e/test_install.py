"""The chart and the plain manifests, with a real helm and a real API server."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.e2e.controlplane import ControlPlane, ControlPlaneError

from koordinator.api.kubescheduler import decode_configuration

ROOT = Path(__file__).parents[2]
CHART = str(ROOT / "charts/koordinator")
CRDS = str(ROOT / "charts/koordinator/crds")
MANIFESTS = str(ROOT / "deploy/koordinator.yaml")
NAMESPACE = "koordinator-system"

Helm = Callable[..., str]
Objects = dict[tuple[str, str], Any]


@pytest.fixture
def release(helm: Helm) -> Helm:
    """Run a helm command on the release ``koordinator``."""
    return lambda verb, *more: helm(verb, "koordinator", *more, f"--namespace={NAMESPACE}")


def by_name(manifests: str) -> Objects:
    """Return the objects of a YAML stream by kind and name."""
    loaded = [each for each in yaml.safe_load_all(manifests) if each]
    return {(each["kind"], each["metadata"]["name"]): each for each in loaded}


def rendered(helm: Helm, *arguments: str) -> Objects:
    """Return the objects of the chart with these values."""
    return by_name(helm("template", "koordinator", CHART, f"--namespace={NAMESPACE}", *arguments))


def stored_versions(controlplane: ControlPlane) -> dict[tuple[str, str], str]:
    """Return the resource version of everything that the manifests and CRDs consist of."""
    files = ("--filename", MANIFESTS, "--filename", CRDS)
    listed = json.loads(controlplane.kubectl("get", *files, "--output=json"))["items"]
    return {
        (it["kind"], it["metadata"]["name"]): it["metadata"]["resourceVersion"] for it in listed
    }


def test_helm_finds_nothing_to_complain_about(helm: Helm) -> None:
    """Warnings count."""
    assert "1 chart(s) linted, 0 chart(s) failed" in helm("lint", "--strict", CHART)


def test_the_plain_manifests_are_the_chart_with_its_default_values(helm: Helm) -> None:
    """After a change of the chart: the command at the top of ``deploy/koordinator.yaml``."""
    plain = by_name(Path(MANIFESTS).read_text("utf-8"))
    namespace = plain.pop(("Namespace", NAMESPACE))

    assert plain == rendered(helm)
    assert namespace == yaml.safe_load((ROOT / "deploy/namespace.yaml").read_text("utf-8"))


def test_strict_tenancy_is_on_in_scheduler_and_manager(helm: Helm) -> None:
    """Beside the gates that are stated."""
    more = "--set=tenancy.strict=true,manager.featureGates=MultiQuotaTree=true"
    objects = rendered(helm, more)

    def gates(name: str) -> str:
        (container,) = objects["Deployment", name]["spec"]["template"]["spec"]["containers"]
        flag, *_ = [it for it in container["args"] if it.startswith("--feature-gates=")]
        return str(flag).partition("=")[2]

    assert gates("koord-scheduler") == "StrictTenancy=true"
    assert gates("koord-manager") == "StrictTenancy=true,MultiQuotaTree=true"


@pytest.mark.parametrize(
    ("values", "warning"),
    [
        ({"scheduler": {"replica": 3}}, "replica"),
        ({"tenancy": {"strict": "yes"}}, "/tenancy/strict"),
        ({"scheduler": {"replicas": "two"}}, "/scheduler/replicas"),
        ({"scheduler": {"log": {"format": "xml"}}}, "/scheduler/log/format"),
        ({"scheduler": {"config": {"profile": []}}}, "profile"),
        ({"scheduler": {"config": {"profiles": []}}}, "/scheduler/config/profiles"),
        ({"scheduler": {"config": {"leaderElection": {"resourceName": "x"}}}}, "resourceName"),
        ({"scheduler": {"audit": True}}, "/scheduler/audit"),
        ({"scheduler": {"audit": {"dir": "/var/log"}}}, "dir"),
        ({"image": {"pullPolicy": "Sometimes"}}, "/image/pullPolicy"),
        ({"image": {"repository": "Not A Name"}}, "/image/repository"),
        ({"image": {"digest": "latest"}}, "/image/digest"),
        ({"koordlets": {}}, "koordlets"),
        ({"koordlet": {"featureGates": "CoreSched"}}, "/koordlet/featureGates"),
        ({"koordlet": {"port": 0}}, "/koordlet/port"),
    ],
)
def test_bad_values_are_refused_by_name(
    helm: Helm, tmp_path: Path, values: dict[str, Any], warning: str
) -> None:
    """Misspelt values, and values that would have no effect, fail the installation."""
    file = tmp_path / "values.json"
    file.write_text(json.dumps(values))

    with pytest.raises(ControlPlaneError, match=warning):
        rendered(helm, f"--values={file}")


def test_the_configuration_is_the_values_with_the_lease_of_the_namespace(
    helm: Helm, tmp_path: Path
) -> None:
    """Profiles and durations are the operator's, the lease follows from where it is installed."""
    file = tmp_path / "values.json"
    own = {
        "leaderElection": {"leaseDuration": "30s"},
        "profiles": [{"schedulerName": "mine"}, {"schedulerName": "default-scheduler"}],
    }
    file.write_text(json.dumps({"scheduler": {"config": own}}))
    objects = rendered(helm, f"--values={file}", "--namespace=elsewhere")
    text = objects["ConfigMap", "koord-scheduler-config"]["data"]["koord-scheduler-config"]
    configuration = decode_configuration(yaml.safe_load(text), "koord-scheduler-config")

    assert [each.scheduler_name for each in configuration.profiles] == ["mine", "default-scheduler"]
    assert str(configuration.leader_election.lease_duration) == "30s"
    assert configuration.leader_election.resource_namespace == "elsewhere"
    assert configuration.leader_election.resource_name == "koord-scheduler"


ORIGINAL_VALUES: dict[str, Any] = {
    "crds": {"managed": False},
    "installation": {"namespace": "elsewhere", "roleListGroups": ["*"]},
    "featureGates": "MultiQuotaTree=true",
    "imageRepositoryHost": "registry.example.com",
    "imagePullSecrets": {},
    "koordlet": {
        "image": {"repository": "x", "tag": "v1"},
        "features": "CPUBurst=true",
        "log": {"level": "4"},
        "hostDirs": {"kubeletLibDir": "/data/kubelet/", "koordletTSDBDir": ""},
        "nodeAffinity": {"podAffinity": {}},
        "runtimeClassName": "runc",
        "metrics": {"port": 9400},
        "enableServiceMonitor": True,
    },
    "manager": {"metrics": {"addr": "", "port": 8081}, "resyncPeriod": "0"},
    "serviceAccount": {"annotations": {"a": "b"}},
    "scheduler": {
        "port": 10251,
        "compatible122FeatureGates": "CompatibleCSIStorageCapacity=true",
        "enableJobPreemption": True,
        "deviceShare": {"gpuShareUnsupportedModels": [{"vendor": "v", "model": "m"}]},
        "hostNetwork": True,
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}},
    },
    "descheduler": {"port": 10251},
    "deviceDaemon": {"image": {"tag": "v1"}},
}


def test_values_of_the_original_have_their_effect(helm: Helm, tmp_path: Path) -> None:
    """Under the names of the original's chart."""
    file = tmp_path / "values.json"
    file.write_text(json.dumps(ORIGINAL_VALUES))
    objects = rendered(helm, f"--values={file}")

    namespaces = {each["metadata"].get("namespace") for each in objects.values()}
    assert namespaces <= {None, "elsewhere", "kube-system"}
    assert ("Namespace", "elsewhere") in objects
    agent = objects["DaemonSet", "koordlet"]["spec"]["template"]["spec"]
    flags = agent["containers"][0]["args"]
    assert {"--secure-port=9400", "--feature-gates=CPUBurst=true"} < set(flags)
    assert agent["affinity"] == {"podAffinity": {}}
    assert agent["runtimeClassName"] == "runc"
    folders = {
        each["name"]: each["hostPath"]["path"] for each in agent["volumes"] if "hostPath" in each
    }
    assert folders["kubelet"] == "/data/kubelet/"
    manager = objects["Deployment", "koord-manager"]["spec"]["template"]["spec"]
    assert "--feature-gates=MultiQuotaTree=true" in manager["containers"][0]["args"]
    assert objects["ServiceAccount", "koord-manager"]["metadata"]["annotations"] == {"a": "b"}
    scheduler = objects["Deployment", "koord-scheduler"]["spec"]["template"]["spec"]
    assert scheduler["hostNetwork"]
    assert scheduler["affinity"].keys() == {"nodeAffinity"}
    assert ("ServiceMonitor", "koordlet") in objects
    assert ("DaemonSet", "koord-device-daemon") in objects


def test_values_of_the_original_change_the_scheduler_configuration(
    helm: Helm, tmp_path: Path
) -> None:
    """Preemption for jobs, models that are not shared, and the namespace of quotas."""
    file = tmp_path / "values.json"
    file.write_text(json.dumps(ORIGINAL_VALUES))
    objects = rendered(helm, f"--values={file}")
    text = objects["ConfigMap", "koord-scheduler-config"]["data"]["koord-scheduler-config"]
    configuration = decode_configuration(yaml.safe_load(text), "koord-scheduler-config")
    (profile,) = configuration.profiles
    arguments = {each.name: each.args for each in profile.plugin_config}

    assert configuration.leader_election.resource_namespace == "elsewhere"
    assert arguments["Coscheduling"]["enablePreemption"]
    assert arguments["Coscheduling"]["awareNetworkTopology"]
    models = arguments["DeviceShare"]["gpuShareUnsupportedModels"]
    assert models == [{"vendor": "v", "model": "m"}]
    assert arguments["ElasticQuota"]["quotaGroupNamespace"] == "elsewhere"
    assert profile.plugins is not None
    enabled = [each.name for each in profile.plugins.post_filter.enabled]
    assert enabled == ["Reservation", "ElasticQuota", "Coscheduling"]


def test_notes_list_values_of_the_original_that_differ(helm: Helm, tmp_path: Path) -> None:
    """The notes name each value; without such values the notes have no list."""
    file = tmp_path / "values.json"
    file.write_text(json.dumps(ORIGINAL_VALUES))
    install = ("install", "koordinator", CHART, "--dry-run=client", f"--namespace={NAMESPACE}")
    unknown = "--set=koordlet.enableServiceMonitor=false"  # the API server has no such kind
    notes = helm(*install, f"--values={file}", unknown).partition("NOTES:")[2]

    for name in ("crds.managed", "imageRepositoryHost", "koordlet.image", "scheduler.port",
                 "descheduler.port", "manager.resyncPeriod", "koordlet.metrics.port",
                 "scheduler.compatible122FeatureGates", "deviceDaemon.image"):  # fmt: skip
        assert f"  {name}: " in notes
    assert "manager.metrics.addr" not in notes
    assert "original's chart" not in helm(*install).partition("NOTES:")[2]


@pytest.mark.parametrize("chart", ["koordinator", "koordinator-yarn-copilot", "hami-daemon"])
def test_every_image_can_be_pinned_by_its_digest(helm: Helm, chart: str) -> None:
    """A tag may point to something else tomorrow, a digest never does."""
    digest = "sha256:" + "0123456789abcdef" * 4
    settings = [f"--set={key}.digest={digest}" for key in ("image", "daemon.hamiCore.image")]
    if chart != "hami-daemon":
        del settings[1:]
    text = helm("template", "x", str(ROOT / "charts" / chart), *settings)

    images = re.findall(r"^ +image: (\S+)$", text, re.MULTILINE)
    assert images
    assert all(image.endswith(f"@{digest}") for image in images), images


def test_switches_add_and_take_away_objects(helm: Helm) -> None:
    """By default monitoring is off and priority classes are on."""
    usual = rendered(helm)
    other = rendered(helm, "--set=scheduler.monitorEnabled=true", "--set=priorityClasses=false")

    assert {kind for kind, _ in other} - {kind for kind, _ in usual} == {"ServiceMonitor"}
    assert {kind for kind, _ in usual} - {kind for kind, _ in other} == {"PriorityClass"}


def test_alerts_are_of_the_installed_components(helm: Helm) -> None:
    """The leader of a component that is not installed would be missing for ever."""

    def groups(*settings: str) -> list[Any]:
        objects = rendered(helm, "--set=alerts.enabled=true", *settings)
        listed: list[Any] = objects["PrometheusRule", "koordinator"]["spec"]["groups"]
        return listed

    every = yaml.safe_load((ROOT / "charts/koordinator/files/alerts.yaml").read_text("utf-8"))
    assert groups() == every["groups"]
    left = groups("--set=manager.enabled=false,descheduler.enabled=false,koordlet.enabled=false")
    assert [group["name"] for group in left] == ["koordinator.scheduler", "koordinator.processes"]


def test_access_can_be_restricted(helm: Helm, controlplane: ControlPlane) -> None:
    """The API server accepts network policies, monitors and the clients allowed to send reviews."""
    objects = rendered(
        helm,
        "--set=networkPolicy.webhookFrom[0].ipBlock.cidr=10.0.0.10/32",
        "--set=manager.monitorEnabled=true",
        "--set=koordlet.monitorEnabled=true",
        "--set=manager.webhook.clientCA=apiserver-ca",
        "--set=manager.webhook.clientNames={kube-apiserver}",
    )
    names = {kind: {name for of_kind, name in objects if of_kind == kind} for kind, _ in objects}
    assert names["NetworkPolicy"] == {"koord-descheduler", "koord-manager", "koord-scheduler"}
    assert names["ServiceMonitor"] == {"koord-manager", "koordlet"}
    assert {"koord-manager-metrics", "koordlet-metrics"} < names["Service"]
    pod = objects["Deployment", "koord-manager"]["spec"]["template"]["spec"]
    assert {
        "--webhook-client-ca-file=/client-ca/ca.crt",
        "--webhook-client-names=kube-apiserver",
    } < set(pod["containers"][0]["args"])
    assert pod["volumes"][0]["secret"]["secretName"] == "apiserver-ca"

    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    controlplane.api.request("POST", "/api/v1/namespaces", namespace)
    known = [each for (kind, _), each in objects.items() if kind != "ServiceMonitor"]
    controlplane.kubectl(
        "apply", "--server-side", "--dry-run=server", "-f=-", stdin=yaml.safe_dump_all(known)
    )


def test_decisions_are_audited_in_memory_or_on_a_volume(
    helm: Helm, controlplane: ControlPlane
) -> None:
    """The audit is off by default; on a volume every replica has its own folder."""

    def flags(objects: Objects) -> set[str]:
        (container,) = deployed(objects)["containers"]
        return {flag for flag in container["args"] if "audit" in flag}

    def deployed(objects: Objects) -> Any:
        return objects["Deployment", "koord-scheduler"]["spec"]["template"]["spec"]

    assert flags(rendered(helm)) == set()
    assert flags(rendered(helm, "--set=scheduler.audit.enabled=true")) == {"--audit"}

    kept = rendered(helm, "--set=scheduler.audit.volume.emptyDir.sizeLimit=640Mi")
    assert flags(kept) == {"--audit-dir=/audit"}
    pod = deployed(kept)
    (container,) = pod["containers"]
    assert {"name": "audit", "emptyDir": {"sizeLimit": "640Mi"}} in pod["volumes"]
    (mount,) = (it for it in container["volumeMounts"] if it["name"] == "audit")
    assert (mount["mountPath"], mount["subPathExpr"]) == ("/audit", "$(POD_NAME)")
    assert "readOnly" not in mount
    assert [it["name"] for it in container["env"]] == ["POD_NAME"]
    manifest = json.dumps(kept["Deployment", "koord-scheduler"])
    controlplane.kubectl("create", "namespace", NAMESPACE)
    controlplane.kubectl("apply", "--dry-run=server", "--filename=-", stdin=manifest)


def test_manager_and_agent_can_be_left_out(helm: Helm) -> None:
    """Installations with the original's manager and agent keep them."""
    objects = rendered(helm, "--set=manager.enabled=false", "--set=koordlet.enabled=false")

    assert not [name for _, name in objects if "manager" in name or "webhook" in name]
    assert not [name for _, name in objects if "koordlet" in name or "slo" in name]
    assert ("Deployment", "koord-scheduler") in objects


def test_applying_the_manifests_twice_changes_nothing(controlplane: ControlPlane) -> None:
    """The API server accepts every object, and stores each as it was given."""
    apply = ("apply", "--server-side", "--filename", CRDS, "--filename", MANIFESTS)
    controlplane.kubectl(*apply)
    first = stored_versions(controlplane)
    controlplane.kubectl(*apply)

    assert stored_versions(controlplane) == first


def test_helm_installs_upgrades_and_uninstalls(release: Helm, controlplane: ControlPlane) -> None:
    """An upgrade to the same is none, a new configuration restarts the pods; CRDs stay."""

    def deployment() -> Any:
        get = ("get", "deployment/koord-scheduler", f"--namespace={NAMESPACE}", "--output=json")
        return json.loads(controlplane.kubectl(*get))

    release("install", CHART, "--create-namespace")
    installed = deployment()
    release("upgrade", CHART)
    assert deployment()["metadata"]["generation"] == installed["metadata"]["generation"]

    release("upgrade", CHART, "--set=scheduler.config.podMaxBackoffSeconds=20")
    upgraded = deployment()
    assert upgraded["spec"]["template"] != installed["spec"]["template"]
    assert upgraded["spec"]["selector"] == installed["spec"]["selector"]

    release("uninstall")
    with pytest.raises(ControlPlaneError, match="NotFound"):
        deployment()
    assert "devices.scheduling.koordinator.sh" in controlplane.kubectl("get", "crds")


@pytest.fixture
def installed(controlplane: ControlPlane) -> ControlPlane:
    """Return the control plane with everything installed."""
    apply = ("apply", "--server-side", "--filename", CRDS, "--filename", MANIFESTS)
    controlplane.kubectl(*apply)
    return controlplane


def test_pods_are_admitted_under_the_restricted_standard(installed: ControlPlane) -> None:
    """The namespace may enforce the strictest pod security there is."""
    enforce = "pod-security.kubernetes.io/enforce=restricted"
    installed.kubectl("label", "namespace", NAMESPACE, enforce)
    get = ("get", "deployment/koord-scheduler", f"--namespace={NAMESPACE}", "--output=json")
    template = json.loads(installed.kubectl(*get))["spec"]["template"]
    template["metadata"] |= {"name": "koord-scheduler", "namespace": NAMESPACE}
    pod = {"apiVersion": "v1", "kind": "Pod", **template}

    created = installed.kubectl("create", "--filename=-", "--dry-run=server", stdin=json.dumps(pod))
    assert "pod/koord-scheduler created" in created


def is_allowed(installed: ControlPlane, verb: str, what: str) -> bool:
    """Return whether who has only the token may do it; ``what`` is group/resource[/sub] [name]."""
    path, _, name = what.partition(" ")
    group, resource, subresource = (*path.split("/"), "")[:3]
    attributes = {
        "verb": verb,
        "group": group,
        "resource": resource,
        "subresource": subresource,
        "name": name,
        "namespace": NAMESPACE,
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    account = installed.service_account_kubeconfig(NAMESPACE, "koord-scheduler")
    create = ("create", "--filename=-", "--output=json", "--validate=false")
    answer = installed.kubectl(*create, stdin=json.dumps(review), kubeconfig=account)
    allowed: bool = json.loads(answer)["status"]["allowed"]
    return allowed


def test_the_token_of_the_service_account_is_enough_and_not_too_much(
    installed: ControlPlane,
) -> None:
    """The API server's own answers."""
    expected = {
        ("create", "/pods/binding"): True,
        ("patch", "/pods/status"): True,
        ("watch", "/nodes"): True,
        ("watch", "scheduling.koordinator.sh/devices"): True,
        ("update", "coordination.k8s.io/leases koord-scheduler"): True,
        ("update", "coordination.k8s.io/leases another"): False,
        ("create", "/pods"): False,
        ("patch", "/nodes"): True,
        ("update", "/pods"): False,
        ("delete", "/nodes"): False,
        ("get", "/secrets"): False,
        ("get", "/configmaps"): False,
        ("create", "/serviceaccounts/token"): False,
    }

    assert {question: is_allowed(installed, *question) for question in expected} == expected
