"""What the chart has from the code, and what its values accept."""

import json
import tomllib
from pathlib import Path

import msgspec
import pytest
import yaml
from tests.unit.deploy.installed import CHART, OBJECTS, ROOT, VALUES

from koordinator.api.codec import decode
from koordinator.api.config_map import ConfigMap
from koordinator.api.kubescheduler import DeviceShareArgs, KubeSchedulerConfiguration
from koordinator.api.kubescheduler.structs import ConfigStruct
from koordinator.api.qos import SHIPPED_PRIORITY_CLASSES
from koordinator.cli.crds import run
from koordinator.domain.devices.templates import read_templates

SCHEMA = json.loads((CHART / "values.schema.json").read_text("utf-8"))
#: The chart must know these itself: the roles and the program's version follow from them.
FIXED = {"apiVersion", "kind", "leaderElect", "resourceLock", "resourceName", "resourceNamespace"}
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
        name: found["value"] for (kind, name), found in OBJECTS.items() if kind == "PriorityClass"
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
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

    assert chart["appVersion"] == chart["version"] == project["version"]


def test_the_schema_knows_every_value_and_the_fields_of_the_configuration() -> None:
    """A misspelt value or a misspelt field of the configuration's top level is refused by Helm."""
    accepted = SCHEMA["properties"]["scheduler"]["properties"]["config"]["properties"]
    configuration = KubeSchedulerConfiguration()
    election = json_names(type(configuration.leader_election))
    connection = json_names(type(configuration.client_connection))

    assert set(VALUES) == set(SCHEMA["properties"]) - {"global"}
    assert set(VALUES["scheduler"]) == set(SCHEMA["properties"]["scheduler"]["properties"])
    assert set(accepted) == json_names(KubeSchedulerConfiguration) - FIXED
    assert set(accepted["leaderElection"]["properties"]) == election - FIXED
    assert set(accepted["clientConnection"]["properties"]) == connection - MEANINGLESS
