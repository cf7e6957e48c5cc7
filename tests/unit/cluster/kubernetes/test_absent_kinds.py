"""Kinds that are not installed are reported in one line, with the command that installs them."""

import pytest
from tests.unit.cluster.kubernetes.scripted_server import ScriptedServer, eventually

from koordinator.api.device import Device
from koordinator.api.dynamic_resources import (
    DeviceTaintRuleV1Alpha3,
    DeviceTaintRuleV1Beta2,
    ResourceClaim,
)
from koordinator.api.node_metric import NodeMetric
from koordinator.api.node_slo import NodeSlo
from koordinator.cluster.kubernetes.resources import INSTALL_COMMAND

RULES = (DeviceTaintRuleV1Alpha3, DeviceTaintRuleV1Beta2)
CUSTOM = (Device, NodeMetric, NodeSlo)
DEVICES = "GET /apis/scheduling.koordinator.sh/v1alpha1/devices"


def warnings(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Return message and missing kinds of each warning."""
    return [
        (each.getMessage(), each.__dict__["missing"])
        for each in caplog.records
        if "missing" in each.__dict__
    ]


@pytest.mark.slow
def test_all_missing_kinds_are_in_one_warning(
    server: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Kinds of Kubernetes have a line of their own: no command installs them.

    A kind whose versions are all missing is named once.
    """
    with server.cluster() as cluster:
        watch = cluster.watch([*CUSTOM, ResourceClaim, *RULES])
        server.wait_for(DEVICES)
        watch.refresh()
        server.wait_for(DEVICES, 2)
        assert eventually(lambda: len(warnings(caplog)) == 2)

    assert warnings(caplog) == [
        (
            f"custom resources are not installed; install them with: {INSTALL_COMMAND}",
            ", ".join(sorted(f"{it.PLURAL}.{it.API_VERSION.partition('/')[0]}" for it in CUSTOM)),
        ),
        (
            "the API server does not serve some kinds of Kubernetes; it works without them",
            "devicetaintrules.resource.k8s.io, resourceclaims.resource.k8s.io",
        ),
    ]
