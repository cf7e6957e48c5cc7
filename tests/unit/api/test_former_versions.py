"""Configurations of kubescheduler.config.k8s.io v1beta2 and v1beta3."""

import logging
from typing import Any

import pytest

from koordinator.api.kubescheduler import (
    KubeSchedulerConfiguration,
    LoadAwareSchedulingArgs,
    Plugins,
    decode_args,
    decode_configuration,
)
from koordinator.foundation.errors import InputError
from koordinator.scheduler.contract import points_of
from koordinator.scheduler.plugin_lists import STOCK_PLUGINS, merge
from koordinator.scheduler.profile import UPSTREAM_POINTS, builtin_plugins

GROUP = "kubescheduler.config.k8s.io"
POINTS = {
    spec.name: points_of(spec) | UPSTREAM_POINTS.get(spec.name, frozenset())
    for spec in builtin_plugins()
}


def read(version: str, **fields: Any) -> KubeSchedulerConfiguration:
    head = {"apiVersion": f"{GROUP}/{version}", "kind": "KubeSchedulerConfiguration"}
    return decode_configuration(head | fields, "old.yaml")


def score_weights(configuration: KubeSchedulerConfiguration) -> dict[str, int]:
    plugins = configuration.profiles[0].plugins or Plugins()
    return dict(merge(plugins, STOCK_PLUGINS, POINTS)["score"])


@pytest.mark.parametrize("version", ["v1beta2", "v1beta3"])
def test_former_version_is_read_with_a_warning(
    version: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The warning names the file, the version and the version that it is read as."""
    with caplog.at_level(logging.WARNING):
        result = read(version, parallelism=4)

    assert result.parallelism == 4
    assert result.api_version == f"{GROUP}/v1"
    assert f"{GROUP}/{version} is read as {GROUP}/v1" in caplog.text
    assert caplog.records[0].file == "old.yaml"  # type: ignore[attr-defined]


def test_weights_of_v1beta2_stay_in_force() -> None:
    """v1 has raised three default weights; v1beta3 has the same ones as v1."""
    raised = {"TaintToleration": 3, "NodeAffinity": 2, "InterPodAffinity": 2}
    current = score_weights(read("v1"))

    assert {name: current[name] for name in raised} == raised
    assert score_weights(read("v1beta3")) == current
    assert score_weights(read("v1beta2")) == current | dict.fromkeys(raised, 1)


def test_explicit_and_disabled_score_plugins_of_v1beta2_stay() -> None:
    """Only plugins that the file leaves at their default get the former default weight."""
    score = {
        "enabled": [{"name": "NodeAffinity", "weight": 7}, {"name": "InterPodAffinity"}],
        "disabled": [{"name": "TaintToleration"}],
    }
    result = score_weights(read("v1beta2", profiles=[{"plugins": {"score": score}}]))

    assert result["NodeAffinity"] == 7
    assert result["InterPodAffinity"] == 1
    assert "TaintToleration" not in result


def test_all_score_plugins_disabled_in_v1beta2_stay_disabled() -> None:
    """``*`` leaves the enabled ones only."""
    score = {"enabled": [{"name": "ImageLocality"}], "disabled": [{"name": "*"}]}

    result = score_weights(read("v1beta2", profiles=[{"plugins": {"score": score}}]))

    assert result == {"ImageLocality": 1}


def test_removed_plugins_and_fields_are_left_out_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Kubernetes has removed them; each warning has the path of the field."""
    points = {"filter": {"enabled": [{"name": "EBSLimits"}, {"name": "NodePorts"}]}}
    with caplog.at_level(logging.WARNING):
        result = read("v1beta2", healthzBindAddress="0.0.0.0:0", profiles=[{"plugins": points}])

    plugins = result.profiles[0].plugins or Plugins()
    assert [each.name for each in plugins.filter.enabled] == ["NodePorts"]
    fields = [record.field for record in caplog.records]  # type: ignore[attr-defined]
    assert fields[1:3] == ["healthzBindAddress", "profiles[0].plugins.filter.enabled[0]"]


def test_arguments_of_a_former_version_are_decoded() -> None:
    """In a file of that version and in a file of v1."""
    arguments = {
        "apiVersion": f"{GROUP}/v1beta2",
        "kind": "LoadAwareSchedulingArgs",
        "usageThresholds": {"cpu": 65},
    }
    config = [{"name": "LoadAwareScheduling", "args": arguments}]
    result = read("v1beta2", profiles=[{"pluginConfig": config}]).profiles[0].plugin_config[0]

    assert result.args["apiVersion"] == f"{GROUP}/v1"
    decoded = decode_args(LoadAwareSchedulingArgs, arguments, "args", "old.yaml")
    assert decoded.usage_thresholds == {"cpu": 65}


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"profiles": 3}, "profiles"),
        ({"profiles": [3]}, "profiles[0]"),
        ({"profiles": [{"plugins": {"score": []}}]}, "profiles[0].plugins.score"),
        ({"profiles": [{"plugins": {"score": {"enabled": {}}}}]}, "profiles[0].plugins.score"),
        ({"profiles": [{"pluginConfig": [1]}]}, "profiles[0].pluginConfig[0]"),
        ({"parallelisms": 1}, "parallelisms"),
    ],
)
def test_errors_of_a_former_version_name_the_field(fields: dict[str, Any], path: str) -> None:
    """Conversion leaves wrong parts to the decoder."""
    with pytest.raises(InputError) as raised:
        read("v1beta2", **fields)

    assert raised.value.path.startswith(path)


def test_version_that_never_existed_is_rejected() -> None:
    """The message names the accepted version."""
    with pytest.raises(InputError, match=r"must be .*/v1, got"):
        read("v1alpha9")
