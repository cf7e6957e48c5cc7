"""Consistency of the chart with the code, and the schema of its values."""

import json
import tomllib
from pathlib import Path

import msgspec
import pytest
import yaml
from tests.unit.deploy.installed import CHART, OBJECTS, ROOT, VALUES

from koordinator.api.codec import decode
from koordinator.api.core import ConfigMap
from koordinator.api.kubescheduler import DeviceShareArgs, FeatureGates, KubeSchedulerConfiguration
from koordinator.api.kubescheduler.structs import ConfigStruct
from koordinator.api.qos import SHIPPED_PRIORITY_CLASSES
from koordinator.cli.crds import run
from koordinator.domain.devices.model import read_templates
from koordinator.manager.admission.gates import DEFAULT_GATES, ManagerFeature

SCHEMA = json.loads((CHART / "values.schema.json").read_text("utf-8"))
#: The chart must know these itself: the roles and the program's version follow from them.
FIXED = {"apiVersion", "kind", "leaderElect", "resourceLock", "resourceName", "resourceNamespace"}
#: Values of the original's chart that have another name here, or no effect.
ORIGINAL = {"crds", "featureGates", "imageRepositoryHost", "installation"}
ORIGINAL_OF_SCHEDULER = {
    "compatible122FeatureGates",
    "compatibleBelow122FeatureGates",
    "image",
    "port",
}
#: In a pod the connection follows from the ServiceAccount.
MEANINGLESS = {"kubeconfig"}


def json_names(struct: type[ConfigStruct]) -> set[str]:
    """Return the fields of a struct as the file spells them."""
    return {each.encode_name for each in msgspec.structs.fields(struct)}


@pytest.mark.slow
def test_crds_are_those_of_the_types(tmp_path: Path) -> None:
    """After a change of a type: ``koord crds --output charts/koordinator/crds``."""
    run(str(tmp_path))
    made = {file.name: file.read_text("utf-8") for file in tmp_path.iterdir()}

    assert {file.name: file.read_text("utf-8") for file in (CHART / "crds").iterdir()} == made


def test_priority_classes_are_those_of_the_protocol() -> None:
    """Priorities decide who is preempted: name and value are fixed."""
    classes = {
        name: manifest["value"]
        for (kind, name), manifest in OBJECTS.items()
        if kind == "PriorityClass"
    }

    assert classes == {str(band): value for band, value in SHIPPED_PRIORITY_CLASSES.items()}


def test_virtual_templates_can_be_read_by_the_scheduler() -> None:
    """Under the name that the arguments of DeviceShare have by default."""
    defaults = DeviceShareArgs().gpu_shared_resource_templates_config
    key = ("ConfigMap", defaults.config_map_name)
    templates = read_templates(decode(OBJECTS[key], ConfigMap))
    amounts = {
        "huawei.com/npu-core": 5,
        "huawei.com/npu-cpu": 1,
        "koordinator.sh/gpu-memory": 16 << 30,
    }

    assert templates.matching(amounts) == {"huawei-Ascend-910B3": ("vir05_1c_16g",)}
    assert OBJECTS[key]["metadata"]["namespace"] == defaults.config_map_namespace


def test_the_version_of_the_chart_is_that_of_the_program() -> None:
    """The image's tag follows from it."""
    chart = yaml.load((CHART / "Chart.yaml").read_text("utf-8"), yaml.CSafeLoader)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

    assert chart["appVersion"] == chart["version"] == project["version"]


def test_the_schema_knows_every_value_and_the_fields_of_the_configuration() -> None:
    """A misspelt value or a misspelt field of the configuration's top level is refused by Helm."""
    accepted = SCHEMA["properties"]["scheduler"]["properties"]["config"]["properties"]
    configuration = KubeSchedulerConfiguration()
    election = json_names(type(configuration.leader_election))
    connection = json_names(type(configuration.client_connection))

    assert set(VALUES) == set(SCHEMA["properties"]) - {"global"} - ORIGINAL
    scheduler = set(SCHEMA["properties"]["scheduler"]["properties"])
    assert set(VALUES["scheduler"]) == scheduler - ORIGINAL_OF_SCHEDULER
    assert set(accepted) == json_names(KubeSchedulerConfiguration) - FIXED
    assert set(accepted["leaderElection"]["properties"]) == election - FIXED
    assert set(accepted["clientConnection"]["properties"]) == connection - MEANINGLESS


def test_the_descheduler_proves_moves_with_the_gates_of_the_scheduler() -> None:
    """The descheduler's deployment has the scheduler's gates in a flag with another name."""
    flags = [
        (CHART / f"templates/{component}/deployment.yaml").read_text("utf-8").splitlines()
        for component in ("koord-scheduler", "koord-descheduler")
    ]
    gates = '{{- with include "koordinator.gates" (dict "gates" .Values.scheduler.featureGates'
    scheduler, descheduler = (
        lines[[gates in line for line in lines].index(True) + 1].strip() for lines in flags
    )

    assert scheduler == "- --feature-gates={{ . }}"
    assert descheduler == "- --scheduler-feature-gates={{ . }}"


def test_strict_tenancy_is_a_gate_of_scheduler_and_manager() -> None:
    """The gate is off unless the value is on."""
    assert VALUES["tenancy"] == {"strict": False}
    for component in ("koord-scheduler", "koord-manager"):
        template = (CHART / f"templates/{component}/deployment.yaml").read_text("utf-8")
        assert 'include "koordinator.gates"' in template
    gate = "StrictTenancy"
    assert gate in (CHART / "templates/_helpers.tpl").read_text("utf-8")
    assert gate in [*ManagerFeature]
    assert gate in FeatureGates.parse(f"{gate}=true")
    assert gate not in DEFAULT_GATES
