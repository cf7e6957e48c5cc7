"""``koord manager --once``: admission and controllers on manifests."""

from typing import Any

import pytest
from tests.unit.manager.admission.requests import profile
from tests.unit.manager.configuration.test_checks import config
from tests.unit.manager.node_resources.nodes import NOW, amounts, metric, node, pod

from koordinator.api.codec import decode_object
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.foundation.errors import InvalidError
from koordinator.manager.admission.gates import parse_gates
from koordinator.simulator.managed_cluster import manage_once

NOW_S = NOW.timestamp()


def written(name: str = "job", **spec: Any) -> Any:
    """Return a pod as a user writes it."""
    container = {"name": "c", "resources": {"requests": {"cpu": "2"}}}
    meta = {"name": name, "namespace": "default", "labels": {"app": "etl"}}
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": meta}
    return decode_object({**manifest, "spec": {"containers": [container], **spec}})


ETL = decode_object(
    profile(
        "etl",
        selector={"matchLabels": {"app": "etl"}},
        qosClass="BE",
        priorityClassName="koord-batch",
    )
)


def test_differences_are_reported() -> None:
    """Objects of nodes are created, the node and the new pod are changed, the rest isn't."""
    objects = [
        config(colocation={"enable": True}),
        node(amounts(10, "10G")),
        metric(used=amounts(0, 0)),
        pod("web", amounts(1, "1G")),
        ETL,
        written(),
    ]
    changes = manage_once(objects, now_s=NOW_S)

    assert [obj.KIND for obj in changes.created] == ["NodeSLO"]
    by_kind = {obj.KIND: obj for obj in changes.changed}
    assert by_kind.keys() == {"Pod", "Node", "NodeMetric"}
    job, machine = by_kind["Pod"], by_kind["Node"]
    assert isinstance(job, Pod)
    assert isinstance(machine, Node)
    assert job.metadata.labels["koordinator.sh/qosClass"] == "BE"
    assert [*job.spec.containers[0].resources.requests] == ["kubernetes.io/batch-cpu"]
    assert str(machine.status.allocatable["kubernetes.io/batch-cpu"]) == "5k"
    assert changes.deleted == []


def test_a_pod_that_admission_refuses_ends_it() -> None:
    """The message names webhook and pod."""
    wrong = written(priority=9500)
    wrong.metadata.labels["koordinator.sh/qosClass"] = "BE"

    with pytest.raises(InvalidError, match=r"vpod\.koordinator\.sh.*Pod default/job.*combination"):
        manage_once([wrong], now_s=NOW_S)


def test_the_configuration_is_only_refused_where_its_hook_is_on() -> None:
    """With the hook off it has no effect, and an event states the reason."""
    bad = config(system={"clusterStrategy": {"watermarkScaleFactor": 500}})
    bad.metadata.labels["koordinator.sh/configmap-type"] = "slo-controller-config"

    (event,) = manage_once([bad], now_s=NOW_S).created
    assert event.KIND == "Event"
    with pytest.raises(InvalidError, match="must be 400 or less"):
        manage_once([bad], gates=parse_gates("ConfigMapValidatingWebhook=true"), now_s=NOW_S)


def test_amplified_amounts_show_where_the_node_hook_is_enabled() -> None:
    """In the write with the ratio itself; the kubelet's amounts are kept."""
    amplification = {"enable": True, "resourceAmplificationRatio": {"cpu": 1.5}}
    objects = [
        config(colocation={"enable": True}, resource_amplification=amplification),
        node(amounts(10, "10G")),
    ]

    plain = manage_once(objects, now_s=NOW_S).changed
    gates = parse_gates("NodeMutatingWebhook=true")
    shown = manage_once(objects, gates=gates, now_s=NOW_S).changed

    assert [str(n.status.allocatable["cpu"]) for n in plain if isinstance(n, Node)] == ["10"]
    (machine,) = (n for n in shown if isinstance(n, Node))
    assert str(machine.status.allocatable["cpu"]) == "15"
    assert '"10"' in machine.metadata.annotations["node.koordinator.sh/raw-allocatable"]
