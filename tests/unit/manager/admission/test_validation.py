"""Validation of pods, quotas, nodes, configuration and bindings."""

import json
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from tests.unit.manager.admission.requests import lookup, pod, profile, request
from tests.unit.manager.configuration.test_checks import config, selected

from koordinator.api.codec import to_manifest
from koordinator.api.control_plane import UserInfo
from koordinator.foundation.errors import InputError
from koordinator.manager.admission.gates import (
    DEFAULT_GATES,
    BindingRules,
    ManagerFeature,
    parse_gates,
    validate_binding,
)
from koordinator.manager.admission.hooks import validate_config_map
from koordinator.manager.admission.lookup import Denial
from koordinator.manager.admission.metadata import mutate_node_status, validate_node
from koordinator.manager.admission.pod_validation import validate_pod
from koordinator.manager.admission.profiles import mutate_reservation
from koordinator.manager.admission.quotas import mutate_quota, validate_quota
from koordinator.manager.metrics import BindingMetrics

QOS = "koordinator.sh/qosClass"
CPUS = "pod.spec.containers[*].resources.requests"


def asks(**amounts: str) -> Any:
    """Return a container."""
    return {"resources": {"requests": amounts}}


def labelled(qos: str, priority: int | None = None, **requests: Any) -> Any:
    """Return a pod of a QoS class."""
    spec: dict[str, Any] = {} if priority is None else {"priority": priority}
    return pod(asks(**requests), labels={QOS: qos} if qos else {}, **spec)


def denial(manifest: Any, *objects: Any, gates: Any = frozenset(), **more: Any) -> str:
    """Return why a pod is refused; empty if it isn't."""
    try:
        validate_pod(request(manifest, **more), lookup(*objects), DEFAULT_GATES | gates)
    except Denial as refused:
        return str(refused)
    return ""


@pytest.mark.parametrize(
    ("qos", "priority", "band"),
    [
        ("BE", None, ""),
        ("BE", 9500, "koord-prod"),
        ("LSR", None, ""),
        ("LSR", 7500, "koord-mid"),
        ("LSR", 5500, "koord-batch"),
        ("LSR", 3500, "koord-free"),
    ],
)
def test_what_cannot_be_combined(qos: str, priority: int | None, band: str) -> None:
    """The table of QoS class and priority."""
    assert denial(labelled(qos, priority, cpu="1")) == (
        f"Pod: Forbidden: {QOS}={qos} and priorityClass={band} cannot be used in combination"
    )


@pytest.mark.parametrize(
    ("qos", "priority"),
    [
        ("BE", 5500),
        ("BE", 7500),
        ("BE", 3500),
        ("LSR", 9500),
        ("LSE", None),
        ("LS", None),
        ("", 5500),
        ("", None),
        ("SYSTEM", None),
        ("LSE", 5500),
    ],
)
def test_what_can_be_combined(qos: str, priority: int | None) -> None:
    """Everything else."""
    assert not denial(labelled(qos, priority, cpu="1"))


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        (
            labelled("LSR", 9500),
            f"{CPUS}: Required value: LSR Pod must declare the requested CPUs",
        ),
        (
            labelled("LSE", None, cpu="2500m"),
            f'{CPUS}: Invalid value: "2500m": the requested CPUs of LSR Pod must be integer',
        ),
        (
            pod(asks(**{"kubernetes.io/batch-cpu": "1k"}), labels={QOS: "LS"}),
            (
                f"labels.{QOS}: Required value: "
                "must specify koordinator QoS BE with koordinator colocation resources"
            ),
        ),
        (
            pod(annotations={"scheduling.koordinator.sh/reserve-pod": "true"}),
            (
                "annotations.scheduling.koordinator.sh/reserve-pod: Forbidden: "
                "cannot set in annotations"
            ),
        ),
    ],
)
def test_resources_that_a_class_cannot_have(manifest: Any, message: str) -> None:
    """In the words of the original."""
    assert denial(manifest) == message


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (labelled("LS"), labelled("BE", 5500), f'labels.{QOS}: Invalid value: "BE"'),
        (labelled("LS"), labelled(""), f'labels.{QOS}: Invalid value: ""'),
        (
            labelled("LS", 9500),
            labelled("LS", 5500),
            'spec.priority: Invalid value: "koord-batch": field is immutable',
        ),
        (
            pod(labels={"koordinator.sh/priority": "1"}),
            pod(labels={"koordinator.sh/priority": "2"}),
            'labels.koordinator.sh/priority: Invalid value: "2": field is immutable',
        ),
    ],
)
def test_what_a_pod_may_not_become(old: Any, new: Any, message: str) -> None:
    """Class and priority are promises to others."""
    assert message in denial(new, old=old, operation="UPDATE")
    assert not denial(old, old=old, operation="UPDATE")


def test_the_order_within_a_band_may_be_set_free() -> None:
    """By a gate."""
    old, new = (pod(labels={"koordinator.sh/priority": each}) for each in "12")

    gates = frozenset({ManagerFeature.SKIP_PRIORITY})
    assert not denial(new, old=old, operation="UPDATE", gates=gates)


def test_all_problems_of_a_group_are_reported_together() -> None:
    """The user corrects them at once."""
    result = denial(labelled("LSR", 5500))

    assert result.startswith("[Pod: Forbidden")
    assert result.endswith("must declare the requested CPUs]")


@pytest.mark.parametrize(
    ("amounts", "user_text"),
    [
        ({"gpu": "0"}, "must be greater than zero"),
        ({"gpu": "150"}, "must be percentage of 100"),
        ({"gpu": "100", "gpu.shared": "1"}, "GPU and GPU share at same time"),
        ({"gpu.shared": "1"}, "GPU memory and GPU memory ratio all is zero"),
        (
            {"gpu.shared": "1", "gpu-memory": "1Gi", "gpu-memory-ratio": "50"},
            "declare GPU memory and GPU memory ratio",
        ),
        ({"gpu.shared": "2", "gpu-memory-ratio": "50", "gpu-core": "55"}, "gpuCore must multiple"),
        ({"gpu.shared": "2", "gpu-memory-ratio": "55"}, "gpuMemoryRatio must multiple"),
        ({"gpu.shared": "2", "gpu-memory-ratio": "200", "gpu-core": "100"}, ""),
        ({"gpu": "200"}, ""),
    ],
)
def test_gpus_that_cannot_be_had(amounts: dict[str, str], user_text: str) -> None:
    """Checked where the gate is on."""
    manifest = pod(asks(**{f"koordinator.sh/{name}": each for name, each in amounts.items()}))

    result = denial(manifest, gates=frozenset({ManagerFeature.VALIDATE_DEVICES}))
    assert user_text in result if user_text else not result
    assert not denial(manifest)
    starting = pod({}, initContainers=[{"name": "i", **manifest["spec"]["containers"][0]}])
    assert denial(starting, gates=frozenset({ManagerFeature.VALIDATE_DEVICES})) == result


def quota(name: str, parent: str = "", *, is_parent: bool = False, **labels: str) -> Any:
    """Return a quota of 10 CPUs."""
    prefix = "quota.scheduling.koordinator.sh/"
    own = {f"{prefix}parent": parent} if parent else {}
    own |= {f"{prefix}is-parent": "true"} if is_parent else {}
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": name, "namespace": "default", "labels": own | labels},
        "spec": {"max": {"cpu": "10"}, "min": {"cpu": "10"}},
    }


def test_pods_belong_to_the_leaves_of_a_quota_tree() -> None:
    """A gate permits pods in parents."""
    label = {"quota.scheduling.koordinator.sh/name": "dept"}
    parent = quota("dept", is_parent=True)

    assert "which is a parent" in denial(pod(labels=label), parent)
    gates = frozenset({ManagerFeature.PARENT_QUOTA_PODS})
    assert not denial(pod(labels=label), parent, gates=gates)
    assert not denial(pod(labels=label), quota("dept"))


def test_quotas_are_filled_in_and_checked() -> None:
    """A child gets its parent's tree and weights; one without parent is refused."""
    tree = {"quota.scheduling.koordinator.sh/tree-id": "7"}
    world = lookup(quota("dept", is_parent=True, **tree))
    child = quota("team", "dept")

    filled = mutate_quota(request(child), world, DEFAULT_GATES)
    assert filled["metadata"]["labels"] == child["metadata"]["labels"] | tree
    weight = "quota.scheduling.koordinator.sh/shared-weight"
    assert json.loads(filled["metadata"]["annotations"][weight]) == {"cpu": "10"}
    validate_quota(request(filled), world, DEFAULT_GATES)

    with pytest.raises(Denial, match="nobody"):
        validate_quota(request(quota("x", "nobody")), world, DEFAULT_GATES)


def test_a_quota_in_use_cannot_be_deleted() -> None:
    """By children or by pods, labelled or in its namespace."""
    label = {"quota.scheduling.koordinator.sh/name": "team"}
    used = pod(labels=label) | {"apiVersion": "v1", "kind": "Pod"}
    world = lookup(quota("dept", is_parent=True), quota("team", "dept"), used)

    for name, user_text in (("dept", "1 child quota"), ("team", "1 pod")):
        with pytest.raises(Denial, match=user_text):
            validate_quota(
                request({}, "DELETE", quota(name, is_parent=name == "dept")), world, DEFAULT_GATES
            )


def test_configured_labels_are_required() -> None:
    """By a ConfigMap, with exceptions."""
    rules = [{"name": "owner", "requiredLabels": ["team", "app"], "namespaceWhitelist": ["free"]}]
    there = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "pod-enhanced-validator-config", "namespace": "koordinator-system"},
        "data": {"enable": "True", "rules": json.dumps(rules)},
    }
    on = frozenset({ManagerFeature.ENHANCED_VALIDATOR})
    skip = {"pod.koordinator.sh/skip-enhanced-validation": "true"}

    assert denial(pod(), there, gates=on) == "required labels are missing: [team app]"
    assert denial(pod(labels={"app": "x"}), there, gates=on) == "required label 'team' is missing"
    assert not denial(pod(labels=skip), there, gates=on)
    assert not denial(pod(), there)


NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": {"pool": "x"}}}


def test_a_node_may_not_be_labelled_into_two_strategies() -> None:
    """Only a change of its labels is looked at."""
    sections = {"nodeStrategies": [selected("a", pool="x"), selected("b", zone="1")]}
    world = lookup(config(system=sections))
    both = {**NODE, "metadata": {"name": "n", "labels": {"pool": "x", "zone": "1"}}}

    validate_node(request(both, "CREATE"), world, DEFAULT_GATES)
    validate_node(request(both, "UPDATE", both), world, DEFAULT_GATES)
    with pytest.raises(Denial, match="ExistNodeConfict"):
        validate_node(request(both, "UPDATE", NODE), world, DEFAULT_GATES)


def test_the_configuration_is_checked_where_it_changes() -> None:
    """With the nodes that exist; other ConfigMaps pass."""
    entries = [selected("a", pool="x"), selected("b", zone="1")]
    new = to_manifest(config(system={"nodeStrategies": entries}))
    both = {**NODE, "metadata": {"name": "n", "labels": {"pool": "x", "zone": "1"}}}

    validate_config_map(request(new), lookup(NODE), DEFAULT_GATES)
    validate_config_map(request(new, "UPDATE", new), lookup(both), DEFAULT_GATES)
    with pytest.raises(Denial, match="ExistNodeConfict"):
        validate_config_map(request(new), lookup(both), DEFAULT_GATES)
    other = {**new, "metadata": {**new["metadata"], "name": "other"}}
    validate_config_map(request(other), lookup(both), DEFAULT_GATES)


def test_what_a_kubelet_reports_is_amplified() -> None:
    """The other fields of the node stay unchanged."""
    ratio = {"node.koordinator.sh/resource-amplification-ratio": '{"cpu":1.50}'}
    old = {**NODE, "metadata": {"name": "n", "annotations": ratio}}
    new = {**old, "status": {"allocatable": {"cpu": "15900m", "pods": "110"}, "phase": "x"}}
    update = request(new, "UPDATE", old, subresource="status")

    result = mutate_node_status(update, lookup(), DEFAULT_GATES)

    assert result["status"] == {"allocatable": {"cpu": "23850m", "pods": "110"}, "phase": "x"}
    raw = result["metadata"]["annotations"]["node.koordinator.sh/raw-allocatable"]
    assert json.loads(raw) == {"cpu": "15900m"}
    assert mutate_node_status(request(new), lookup(), DEFAULT_GATES) == new


def test_the_template_of_a_reservation_gets_profiles_too() -> None:
    """By its own labels, whatever the namespace; its resources stay."""
    template = pod(asks(cpu="1"), labels={"app": "a"})
    made = {"metadata": {"name": "r"}, "spec": {"template": template}}
    fits = profile(
        qosClass="BE",
        selector={"matchLabels": {"app": "a"}},
        namespaceSelector={"matchLabels": {"x": "y"}},
    )

    result = mutate_reservation(request(made), lookup(fits), DEFAULT_GATES)

    assert result["spec"]["template"]["metadata"]["labels"] == {"app": "a", QOS: "BE"}
    assert result["spec"]["template"]["spec"] == template["spec"]


@pytest.mark.parametrize(
    ("rules", "user", "decision"),
    [
        (BindingRules(), "eve", ""),
        (BindingRules(user_names=("koord",)), "eve", ""),
        (BindingRules(user_names=("koord",), namespaces=("*",)), "eve", "denied"),
        (BindingRules(user_names=("koord",), namespaces=("a",)), "eve", "out_of_scope"),
        (
            BindingRules(user_names=("koord",), namespaces=("default",)),
            "sa:koord-scheduler",
            "allowed_username",
        ),
        (BindingRules(user_names=("koord",), namespaces=("*",), dry_run=True), "eve", "dry_run"),
        (
            BindingRules(
                user_names=("koord",), namespaces=("*",), excluded_namespaces=("default",)
            ),
            "eve",
            "excluded_ns",
        ),
        (
            BindingRules(user_names=("koord",), namespaces=("*",), bypass_labels=("x",)),
            "eve",
            "bypass_label",
        ),
        (
            BindingRules(user_names=("koord",), namespaces=("*",), bypass_annotations=("y",)),
            "eve",
            "bypass_annotation",
        ),
    ],
)
def test_binding_requires_a_permission(rules: BindingRules, user: str, decision: str) -> None:
    """Listed users may bind; others only where a bypass applies.  A metric counts reasons."""
    there = pod(labels={"x": ""}, annotations={"y": ""}) | {"apiVersion": "v1", "kind": "Pod"}
    ask = request(
        {"metadata": {"name": "p"}}, subresource="binding", requester=UserInfo(username=user)
    )
    registry = CollectorRegistry()
    decided = BindingMetrics(registry).decided

    if decision == "denied":
        with pytest.raises(Denial) as caught:
            validate_binding(ask, lookup(there), rules, decided)
        assert caught.value.code == 403
    else:
        validate_binding(ask, lookup(there), rules, decided)

    counts = {
        sample.labels["decision"]: sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name.endswith("decisions_total")
    }
    assert counts == ({decision: 1.0} if decision else {})


def test_gates_are_switched_by_name() -> None:
    """A gate that is unknown, or not of the manager, is refused."""
    assert parse_gates("") == DEFAULT_GATES
    on = parse_gates("MultiQuotaTree=true, PodMutatingWebhook=false")
    assert ManagerFeature.MULTI_QUOTA_TREE in on
    assert ManagerFeature.POD_MUTATING not in on
    assert parse_gates("EnableQuotaAdmission=false") == DEFAULT_GATES
    assert parse_gates("AllAlpha=true,NodeMutatingWebhook=false") == frozenset(ManagerFeature) - {
        ManagerFeature.NODE_MUTATING
    }
    assert parse_gates("AllAlpha=false") == DEFAULT_GATES - {ManagerFeature.SYNC_GPU_SHARED}
    assert parse_gates("AllBeta=false") == {ManagerFeature.SYNC_GPU_SHARED}
    for wrong in ("Nothing=true", "MultiQuotaTree", "DisablePVCReservation=true"):
        with pytest.raises(InputError, match="--feature-gates"):
            parse_gates(wrong)


DEEP = '{"x":' + "[" * 200 + "]" * 200 + "}"


def test_malformed_annotations_are_rejected() -> None:
    """Components would ignore malformed annotations silently.  Foreign annotations pass."""
    key = "scheduling.koordinator.sh/resource-spec"
    for creating in (
        request(pod(annotations={key: DEEP})),
        request(pod(annotations={key: DEEP}), "UPDATE", pod()),
    ):
        with pytest.raises(Denial, match=r"annotations\[.*resource-spec\]: nested too deep"):
            validate_pod(creating, lookup(), frozenset())
    validate_pod(request(pod(annotations={"example.com/a": DEEP})), lookup(), frozenset())


def test_an_annotation_that_is_there_already_does_not_freeze_its_pod() -> None:
    """Finalizers must come off it."""
    evil = pod(annotations={"scheduling.koordinator.sh/resource-spec": DEEP})

    validate_pod(request(evil, "UPDATE", evil), lookup(), frozenset())
