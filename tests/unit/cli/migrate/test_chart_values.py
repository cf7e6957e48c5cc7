"""Values of the original's charts: findings, and conversion."""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.cli.migrate.invocation import check_trees, document, run
from tests.unit.deploy.installed import CHART

from koordinator.cli.migrate.chart_values import SETTINGS, TYPES, check_values, is_values
from koordinator.cli.migrate.conversion import converted_values
from koordinator.cli.migrate.documents import FindingStatus
from koordinator.foundation.errors import InputError

CHARTS = os.environ.get("KOORDINATOR_CHARTS", "")  # a checkout of the original's charts
RELEASES = ("1.4.1", "1.5.0", "1.6.0", "1.7.0", "1.8.0")


def converted(values: Any) -> Any:
    return converted_values([document(values)])


def statuses(values: Any) -> dict[str, FindingStatus]:
    return {each.field: each.status for each in check_values(document(values))}


@pytest.mark.parametrize(
    ("original", "here"),
    [
        ({"featureGates": "MultiQuotaTree=true"},
         {"manager": {"featureGates": "MultiQuotaTree=true"}}),
        ({"koordlet": {"features": "CPUBurst=true, CoreSched=true"}},
         {"koordlet": {"featureGates": "CPUBurst=true,CoreSched=true"}}),
        ({"koordlet": {"metrics": {"port": 9400}}}, {"koordlet": {"port": 9400}}),
        ({"koordlet": {"enableServiceMonitor": True}}, {"koordlet": {"monitorEnabled": True}}),
        ({"scheduler": {"log": {"level": "5"}}}, {"scheduler": {"log": {"level": 5}}}),
        ({"manager": {"webhook": {"port": "9876"}}}, {"manager": {"webhook": {"port": 9876}}}),
        ({"manager": {"hostNetwork": "true"}}, {"manager": {"hostNetwork": True}}),
        ({"scheduler": {"featureGates": "A=true, B=true"}},
         {"scheduler": {"featureGates": "A=true,B=true"}}),
        ({"manager": {"nodeSelector": "", "tolerations": {}}}, {}),
        ({"scheduler": {"replicas": "three", "hostNetwork": "yes", "log": "4"}}, {}),
        ({"featureGates": {"A": True}}, {}),
        ({"deviceDaemon": {"image": {"tag": "v1.8.0"}}}, {"deviceDaemon": {"enabled": True}}),
        ({"imagePullSecrets": [{"name": "a"}]}, {"imagePullSecrets": [{"name": "a"}]}),
        ({"imagePullSecrets": {}}, {}),
        ({"koordlet": {"features": ""}}, {}),
        ({"imageRepositoryHost": "registry.example.com", "crds": {"managed": True}}, {}),
        ({"manager": {"resyncPeriod": "0"}, "scheduler": {"port": 10251}}, {}),
    ],
)  # fmt: skip
def test_settings_are_converted(original: Any, here: Any) -> None:
    """To the names and types of this chart; settings without counterpart are left out."""
    assert converted(original) == here


@pytest.mark.parametrize("title", ["USER-SUPPLIED VALUES:", "COMPUTED VALUES:"])
def test_output_of_helm_get_values_is_read_with_its_title(tmp_path: Path, title: str) -> None:
    """Helm prints the title unless it is called with ``-o yaml``."""
    file = tmp_path / "values.yaml"
    file.write_text(f"{title}\nmanager:\n  replicas: 3\n")

    assert yaml.safe_load(run("values", str(file)).stdout) == {"manager": {"replicas": 3}}


@pytest.mark.parametrize(
    ("values", "field", "status", "message"),
    [
        ({"scheduler": {"log": {"level": "5"}}}, "scheduler.log.level",
         "converted", "here the number 5"),
        ({"scheduler": {"hostNetwork": "false"}}, "scheduler.hostNetwork",
         "converted", "here the boolean false"),
        ({"scheduler": {"featureGates": "ResizePod=true, MultiQuotaTree=true"}},
         "scheduler.featureGates", "converted", "here ResizePod=true,MultiQuotaTree=true"),
        ({"scheduler": {"replicas": "three"}}, "scheduler.replicas",
         "action", "must be an integer, got 'three'"),
        ({"scheduler": {"replicas": True}}, "scheduler.replicas",
         "action", "must be an integer, got True"),
        ({"scheduler": {"hostNetwork": "yes"}}, "scheduler.hostNetwork",
         "action", "must be true or false, got 'yes'"),
        ({"scheduler": {"log": "4"}}, "scheduler.log", "action", "must be a mapping, got '4'"),
        ({"featureGates": {"A": True}}, "featureGates",
         "action", "must be text, got {'A': True}"),
        ({"koordlet": 5, "manager": {}}, "koordlet", "action", "must be a mapping, got 5"),
        ({"manager": {"tolerations": {"operator": "Exists"}}}, "manager.tolerations",
         "action", "must be a list, got {'operator': 'Exists'}"),
    ],
)  # fmt: skip
def test_values_of_another_type_are_converted_or_reported(
    values: Any, field: str, status: str, message: str
) -> None:
    """Text of numbers and booleans works in the original's templates; the schema rejects it."""
    (finding,) = [each for each in check_values(document(values)) if each.field == field]

    assert (finding.status, finding.message) == (status, message)


def test_types_of_settings_are_those_of_the_schema() -> None:
    """Of every setting with a counterpart."""
    schema = yaml.load((CHART / "values.schema.json").read_text("utf-8"), yaml.CSafeLoader)
    names = {int: "integer", bool: "boolean", str: "string", dict: "object", list: "array"}
    for setting in SETTINGS.values():
        if not setting.target:
            continue
        node = schema
        for name in setting.target.split("."):
            node = _resolved(schema, node)["properties"][name]
        node = _resolved(schema, node)
        accepted = node.get("type", "string")  # an enum is one of texts
        wanted = TYPES.get(setting.target.rpartition(".")[2], str)
        if "anyOf" not in node and setting.target != "imagePullSecrets":
            assert accepted == names[wanted], setting.target


@pytest.mark.parametrize(
    ("values", "hint"),
    [
        ({"scheduler": {"replica": 3}}, '"replicas"?'),
        ({"koordlet": {"featureGates": ""}}, '"features"?'),
        ({"manager": {"webhok": {"port": 1}}}, '"webhook"?'),
        ({"koordlet": {"tolerations": []}}, ""),
        ({"koordlet": {"extraArgs": []}}, ""),
    ],
)  # fmt: skip
def test_suggestions_are_of_the_same_component(values: Any, hint: str) -> None:
    """A setting of another component would not do the same."""
    (finding,) = [each for each in check_values(document(values)) if each.status == "action"]

    assert finding.message.partition("did you mean ")[2] == hint


@pytest.mark.parametrize(
    ("root", "chart"),
    [
        ("koordYarnOperator", "koordinator-yarn-copilot"),
        ("hadoopVersion", "hadoop-yarn"),
        ("daemon", "hami-daemon"),
        ("oversellrate", "koord-queue"),
    ],
)  # fmt: skip
def test_values_of_another_chart_of_the_original_are_rejected(root: str, chart: str) -> None:
    """Charts of the original have value names in common with the chart koordinator."""
    with pytest.raises(InputError, match=f"got values of {chart}"):
        is_values(document({"installation": {"namespace": "a"}, root: {}}))


@pytest.mark.parametrize(
    "values",
    [
        {"installation": {"namespace": "koord"}},
        {"serviceAccount": {"annotations": {"a": "b"}}},
        {"koordlet": {"nodeAffinity": {"nodeAffinity": {}}, "runtimeClassName": "runc"}},
        {"koordlet": {"hostDirs": {"kubeletLibDir": "/data/kubelet"}}},
        {"scheduler": {"tolerations": [{"operator": "Exists"}], "hostNetwork": True}},
        {"scheduler": {"enableJobPreemption": True}},
        {"scheduler": {"deviceShare": {"gpuShareUnsupportedModels": [{"vendor": "v"}]}}},
        {"descheduler": {"featureGates": "DisablePVCReservation=true", "replicas": 3}},
        {"webhookConfiguration": {"failurePolicy": {"pods": "Fail"}, "timeoutSeconds": 9}},
        {"manager": {"resources": {"limits": {"cpu": "1"}}, "nodeSelector": {"a": "b"}}},
    ],
)  # fmt: skip
def test_settings_with_the_same_name_stay(values: Any) -> None:
    """Conversion returns them unchanged, and the check reports them as the same."""
    assert converted(values) == values
    (component,) = values
    assert {
        status
        for field, status in statuses(values).items()
        if field.startswith(component) and not field.endswith("elasticquotas")
        and field != "scheduler.enableJobPreemption"
    } <= {FindingStatus.SAME}  # fmt: skip


@pytest.mark.parametrize(
    ("values", "field", "status"),
    [
        ({"imageRepositoryHost": "x"}, "imageRepositoryHost", "differs"),
        ({"crds": {"managed": False}}, "crds.managed", "differs"),
        ({"crds": {"devices": True}}, "crds.devices", "same"),
        ({"manager": {"metrics": {"addr": ""}}}, "manager.metrics.addr", "same"),
        ({"manager": {"metrics": {"addr": "10.0.0.1"}}}, "manager.metrics.addr", "differs"),
        ({"scheduler": {"port": 10251}}, "scheduler.port", "differs"),
        (
            {"koordlet": {"resources": {"limits": {"cpu": "200m", "memory": "256Mi"}}}},
            "koordlet.resources.limits.cpu",
            "differs",
        ),
        ({"koordlet": {"hostDirs": {"koordletTSDBDir": "/a"}}},
         "koordlet.hostDirs.koordletTSDBDir", "ignored"),
        ({"scheduler": {"image": {"tag": "v1"}}}, "scheduler.image", "ignored"),
        ({"featureGates": "NoSuchGate=true"}, "featureGates", "action"),
        ({"koordlet": {"features": "NoSuchGate=true"}}, "koordlet.features", "action"),
        ({"scheduler": {"featureGates": "A=maybe"}}, "scheduler.featureGates", "action"),
        ({"scheduler": {"replica": 3}}, "scheduler.replica", "action"),
        ({"koordlet": {}, "nameOverride": "x"}, "nameOverride", "action"),
    ],
)  # fmt: skip
def test_settings_that_differ_are_reported(values: Any, field: str, status: str) -> None:
    """With the path of the original."""
    assert statuses(values)[field] == status


def test_different_defaults_are_reported_where_the_values_do_not_set_them() -> None:
    """The failure policy of quotas, preemption by jobs, and the device daemon."""
    fields = {
        "webhookConfiguration.failurePolicy.elasticquotas",
        "scheduler.enableJobPreemption",
        "deviceDaemon",
    }
    every = {
        "webhookConfiguration": {"failurePolicy": {"elasticquotas": "Ignore"}},
        "scheduler": {"enableJobPreemption": False},
        "deviceDaemon": {"nodeAffinity": {}},
    }

    differing = [field for field, status in statuses({"koordlet": {}}).items()]
    assert set(differing) == fields
    assert FindingStatus.DIFFERS not in statuses(every).values()


def test_misspelt_setting_gets_a_suggestion(tmp_path: Path) -> None:
    """The exit status for a misspelt setting is 1."""
    report = check_trees(tmp_path, {"scheduler": {"replica": 3}})

    assert report.status == 1
    assert 'did you mean "replicas"?' in report.of("scheduler.replica")["message"]


def test_values_are_recognized_by_their_names() -> None:
    """Manifests and unrelated files are not values."""
    assert is_values(document({"koordlet": {}}))
    assert not is_values(document({"koordlet": {}, "kind": "List", "apiVersion": "v1"}))
    assert not is_values(document({"replicaCount": 1}))


def test_later_files_override_earlier_ones() -> None:
    """As Helm does with several files of values."""
    first = {"scheduler": {"replicas": 2, "hostNetwork": True}}
    second = {"scheduler": {"replicas": 3}}

    result = converted_values([document(first), document(second)])
    assert result == {"scheduler": {"replicas": 3, "hostNetwork": True}}


def config_map(name: str, **data: str) -> Any:
    meta = {"name": name, "namespace": "koordinator-system"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


def test_sections_of_slo_controller_config_become_values() -> None:
    """A default section that was deleted in the cluster is removed here, too."""
    result = converted(
        config_map("slo-controller-config", **{"colocation-config": '{"enable": true}'})
    )

    sections = {"colocation-config": {"enable": True}, "resource-threshold-config": None}
    assert result == {"manager": {"config": sections}}


def test_scheduler_configuration_becomes_values_of_v1() -> None:
    """Without the fields that the chart sets itself."""
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1beta3",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"resourceName": "koord-scheduler", "leaseDuration": "30s"},
        "clientConnection": {"kubeconfig": "/a"},
        "profiles": [{"schedulerName": "koord-scheduler"}],
    }
    data = {"koord-scheduler-config": yaml.safe_dump(configuration)}
    result = converted(config_map("koord-scheduler-config", **data))

    config = result["scheduler"]["config"]
    assert config.keys() == {"leaderElection", "profiles"}
    assert config["leaderElection"] == {"leaseDuration": "30s"}
    assert config["profiles"][0]["schedulerName"] == "koord-scheduler"


def test_descheduler_configuration_becomes_values() -> None:
    """Without versions and addresses."""
    configuration = {
        "apiVersion": "descheduler/v1alpha2",
        "kind": "DeschedulerConfiguration",
        "healthzBindAddress": "0.0.0.0:10251",
        "leaderElection": {"resourceName": "koord-descheduler"},
        "deschedulingInterval": "10s",
    }
    result = converted(config_map("any", file=yaml.safe_dump(configuration)))

    assert result == {"descheduler": {"config": {"deschedulingInterval": "10s"}}}


def test_values_are_printed_with_warnings_about_what_differs(tmp_path: Path) -> None:
    """Standard output has YAML for helm --values."""
    file = tmp_path / "values.yaml"
    file.write_text("imageRepositoryHost: registry.example.com\nscheduler: {log: {level: '3'}}\n")
    result = run("values", str(file))

    assert result.exit_code == 0
    assert yaml.load(result.stdout, yaml.CSafeLoader) == {"scheduler": {"log": {"level": 3}}}
    assert "set image.repository" in " ".join(result.stderr.split())


def test_chart_accepts_every_setting_and_its_target() -> None:
    """Values of the original's chart unchanged, and every path that a conversion writes."""
    schema = yaml.load((CHART / "values.schema.json").read_text("utf-8"), yaml.CSafeLoader)
    for path, setting in SETTINGS.items():
        for target in (path, setting.target):
            node = schema
            for name in filter(None, target.split(".")):
                node = _resolved(schema, node)["properties"][name]
            assert node


def _resolved(schema: Any, node: Any) -> Any:
    while "$ref" in node:
        for name in node["$ref"].split("/"):
            node = schema if name == "#" else node[name]
    return node


@pytest.mark.skipif(not CHARTS, reason="KOORDINATOR_CHARTS names no checkout of the charts")
@pytest.mark.parametrize("release", RELEASES)
def test_real_values_of_the_original_need_no_change(release: str) -> None:
    """Every default of every release is known."""
    values = yaml.load(
        (Path(CHARTS) / f"versions/v{release}/values.yaml").read_text("utf-8"), yaml.CSafeLoader
    )

    assert FindingStatus.ACTION not in statuses(values).values()
