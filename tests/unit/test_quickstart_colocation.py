"""The quick start of co-location is followed here, so that it stays true."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.markdown import code_blocks
from tests.unit.deploy.installed import NAMESPACE

from koordinator.api.codec import decode_object
from koordinator.api.core import ConfigMap
from koordinator.api.defaults import with_defaults
from koordinator.api.meta import ObjectMeta
from koordinator.api.pod import Pod
from koordinator.api.slo_config import CONFIG_NAME
from koordinator.manager.configuration.reader import SloConfig, read_config
from koordinator.simulator import Simulation, read_workload
from koordinator.simulator.managed_cluster import manage_once

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/quickstart-colocation.md"
EXAMPLE = ROOT / "examples/colocation.yaml"


def blocks() -> list[Any]:
    """Return the YAML of the page: values of the chart, a profile, a Deployment."""
    matches = code_blocks(PAGE.read_text("utf-8"), "yaml")
    return [yaml.load(block, yaml.CSafeLoader) for block in matches]


def configuration() -> ConfigMap:
    """Return the ConfigMap that the chart makes of the values."""
    sections = blocks()[0]["manager"]["config"]
    return ConfigMap(
        metadata=ObjectMeta(name=CONFIG_NAME, namespace=NAMESPACE),
        data={key: yaml.safe_dump(each, default_flow_style=True) for key, each in sections.items()},
    )


def taken_over(config_map: ConfigMap) -> SloConfig:
    """Return what the manager makes of it, which has to be all of it."""
    config, problems = read_config(config_map, None)
    assert not problems
    return config


def test_cluster_and_simulation_have_one_configuration() -> None:
    """The simulated configuration is the one that the cluster gets."""
    simulated = next(
        obj
        for manifest in read_workload(EXAMPLE).objects
        if isinstance(obj := decode_object(manifest), ConfigMap)
    )

    data = {key: yaml.load(text, yaml.CSafeLoader) for key, text in configuration().data.items()}
    assert data == {key: yaml.load(text, yaml.CSafeLoader) for key, text in simulated.data.items()}
    taken_over(simulated)


def test_the_profile_makes_batch_pods_of_the_deployment() -> None:
    """With the resources, the class and the priority that the page names."""
    _, profile, deployment = blocks()
    template = deployment["spec"]["template"]
    template["metadata"] |= {"name": "etl-0", "namespace": "default"}
    pod = with_defaults(decode_object({"apiVersion": "v1", "kind": "Pod", **template}))

    changes = manage_once([decode_object(profile), pod], now_s=0.0)

    (admitted,) = (obj for obj in changes.changed if isinstance(obj, Pod))
    assert admitted.metadata.labels["koordinator.sh/qosClass"] == "BE"
    assert admitted.spec.priority == 5000
    requests = admitted.spec.containers[0].resources.requests
    assert {name: str(amount) for name, amount in requests.items()} == {
        "kubernetes.io/batch-cpu": "1000",
        "kubernetes.io/batch-memory": "256Mi",
    }


@pytest.mark.slow
def test_the_example_does_more_batch_work_at_no_greater_risk() -> None:
    """The first two hours of it."""
    workload = read_workload(EXAMPLE)
    colocation = Simulation(workload, until_s=2 * 3600.0).run().report.colocation
    before = Simulation(workload, until_s=2 * 3600.0, colocates=False).run().report.colocation

    assert colocation is not None
    assert before is not None
    assert colocation.totals.best_effort_core_hours > 2 * before.totals.best_effort_core_hours
    assert colocation.totals.services_cpu == pytest.approx(before.totals.services_cpu, abs=0.01)
    assert colocation.totals.at_risk == pytest.approx(before.totals.at_risk, abs=0.01)
