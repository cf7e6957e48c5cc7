"""Mutation of pods on creation."""

import json
from copy import deepcopy
from typing import Any

import pytest
from tests.unit.manager.admission.requests import (
    lookup,
    namespace,
    pod,
    priority_class,
    profile,
    request,
)

from koordinator.api.codec import decode_object
from koordinator.api.device import Device, DeviceType
from koordinator.api.qos import PriorityBand
from koordinator.domain.devices.requests import device_requests
from koordinator.foundation.quantity import Quantity
from koordinator.manager.admission.gates import DEFAULT_GATES, ManagerFeature, parse_gates
from koordinator.manager.admission.lookup import Denial
from koordinator.manager.admission.pod_mutation import mutate_pod, translated
from koordinator.manager.node_resources.calculation import gpu_resources

QOS, SUB = "koordinator.sh/qosClass", "koordinator.sh/priority"
BATCH = priority_class("koord-batch", 5000)
MID = priority_class("koord-mid", 7000)
BATCH_CPU, BATCH_MEMORY = "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"
EXTENDED = "node.koordinator.sh/extended-resource-spec"
ASKS = {"resources": {"requests": {"cpu": "1500m"}, "limits": {"cpu": "2", "memory": "1Gi"}}}


def mutated(
    manifest: Any, *objects: Any, gates: Any = frozenset(), percent: int = 0, **more: Any
) -> Any:
    """Return the pod as it is created; the one in the request is left alone."""
    before = deepcopy(manifest)
    world = lookup(BATCH, MID, *objects, percent=percent)
    result = mutate_pod(request(manifest, **more), world, DEFAULT_GATES | gates)
    assert manifest == before
    return result


def resources(manifest: Any) -> Any:
    """Return the resources of the first container."""
    return manifest["spec"]["containers"][0]["resources"]


BATCH_PROFILE = profile(qosClass="BE", priorityClassName="koord-batch")


def test_a_pod_without_a_profile_is_left_alone() -> None:
    """Requests of a pod without a profile are not translated."""
    assert mutated(pod(ASKS)) == pod(ASKS)


@pytest.mark.parametrize("node", ["", "n1"])
def test_pod_is_not_created_with_devices(node: str) -> None:
    """The scheduler writes them with the binding; a copy would be another pod's."""
    key = "scheduling.koordinator.sh/device-allocated"
    annotations = {key: '{"gpu": [{"minor": 0}]}', "mine": "x"}
    manifest = pod(ASKS, nodeName=node)
    manifest["metadata"]["annotations"] = annotations
    assert mutated(manifest)["metadata"]["annotations"] == {"mine": "x"}
    assert mutated(manifest, operation="UPDATE")["metadata"]["annotations"] == annotations


def test_a_batch_pod_gets_batch_resources() -> None:
    """CPU in thousandths; a limit without request is a request (6.2, step 5)."""
    result = mutated(pod(ASKS), BATCH_PROFILE)

    assert resources(result) == {
        "requests": {BATCH_CPU: "1500", BATCH_MEMORY: "1Gi"},
        "limits": {BATCH_CPU: "2000", BATCH_MEMORY: "1Gi"},
    }
    spec = result["spec"]
    assert (spec["priorityClassName"], spec["priority"]) == ("koord-batch", 5000)
    assert spec["preemptionPolicy"] == "PreemptLowerPriority"
    assert result["metadata"]["labels"] == {QOS: "BE"}
    assert json.loads(result["metadata"]["annotations"][EXTENDED]) == {
        "containers": {"c0": resources(result)}
    }


@pytest.mark.parametrize(
    ("whole", "left"),
    [
        ({"requests": {"cpu": "1"}}, None),
        ({"requests": {"cpu": "1000m", "memory": "8Gi"}}, {"requests": {"memory": "8Gi"}}),
        ({"requests": {"cpu": "2"}}, {"requests": {"cpu": "2"}}),
        (
            {"requests": {"cpu": "1"}, "limits": {"cpu": "4"}},
            {"requests": {"cpu": "1"}, "limits": {"cpu": "4"}},
        ),
        (
            {"requests": {"cpu": "1"}, "limits": {"memory": "8Gi"}},
            {"limits": {"memory": "8Gi"}},
        ),
    ],
)
def test_sums_of_containers_are_no_requests_of_a_batch_pod(
    whole: dict[str, Any], left: dict[str, Any] | None
) -> None:
    """API servers before Kubernetes 1.37 derive them before they call the webhook."""
    before = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
    given = {"metadata": {"name": "p"}, "spec": {**before, "resources": whole}}

    spec = translated(given, PriorityBand.BATCH)["spec"]
    assert spec.get("resources") == left
    assert spec["containers"][0]["resources"] == {"requests": {BATCH_CPU: "1000"}}
    assert translated(given, PriorityBand.PROD) == given


def test_the_annotation_has_sidecars_and_init_containers() -> None:
    """The node gives them their batch resources as it gives a main container its own."""
    sidecar = {"name": "proxy", "restartPolicy": "Always", **ASKS}
    manifest = pod(ASKS, initContainers=[{"name": "setup", **ASKS}, sidecar, {"name": "none"}])
    result = mutated(manifest, BATCH_PROFILE)

    own = resources(result)
    assert json.loads(result["metadata"]["annotations"][EXTENDED]) == {
        "containers": {"setup": own, "proxy": own, "c0": own}
    }


def test_gpus_of_sidecars_and_init_containers_are_spelt_out() -> None:
    """The scheduler counts their requests."""
    asks = {"resources": {"requests": {"koordinator.sh/gpu": "50"}}}
    manifest = pod(ASKS, initContainers=[{"name": "proxy", "restartPolicy": "Always", **asks}])
    result = mutated(manifest)

    assert result["spec"]["initContainers"][0]["resources"]["requests"] == {
        "koordinator.sh/gpu-core": "50",
        "koordinator.sh/gpu-memory-ratio": "50",
        "koordinator.sh/gpu.shared": "1",
    }


def test_a_mid_pod_gets_mid_resources() -> None:
    """Init containers get them as well; the overhead must equal the RuntimeClass's."""
    manifest = pod(ASKS, initContainers=[{"name": "i", **ASKS}], overhead={"cpu": "100m"})
    result = mutated(manifest, profile(priorityClassName="koord-mid"))

    mid = {"kubernetes.io/mid-cpu": "1500", "kubernetes.io/mid-memory": "1Gi"}
    assert resources(result)["requests"] == mid
    assert result["spec"]["initContainers"][0]["resources"]["requests"] == mid
    assert result["spec"]["overhead"] == {"cpu": "100m"}
    assert "annotations" not in result["metadata"]


@pytest.mark.parametrize("qos", ["LS", "LSR", "LSE", "SYSTEM"])
def test_other_pods_keep_cpu_and_memory(qos: str) -> None:
    """Prod pods, and free ones, which have no resources of their own."""
    assert resources(mutated(pod(ASKS), profile(qosClass=qos))) == ASKS["resources"]
    free = mutated(pod(ASKS, priority=3500), profile(qosClass="BE"))
    assert resources(free) == ASKS["resources"]


def test_all_that_a_profile_can_change() -> None:
    """In this order: what is written first can be mapped and suffixed."""
    result = mutated(
        pod(labels={"release": "v1", "x": "1"}, annotations={"note": "n"}),
        profile(
            labels={"team": "data"},
            annotations={"a": "b"},
            labelKeysMapping={"team": "owner", "missing": "empty"},
            annotationKeysMapping={"note": "copy"},
            labelSuffixes={"release": "-colo", "nowhere": "-x"},
            schedulerName="koord-scheduler",
            koordinatorPriority=120,
            patch={"spec": {"terminationGracePeriodSeconds": 15}},
        ),
    )

    assert result["metadata"]["labels"] == {
        "release": "v1-colo",
        "x": "1",
        "team": "data",
        "owner": "data",
        "empty": "",
        SUB: "120",
    }
    assert result["metadata"]["annotations"] == {"note": "n", "a": "b", "copy": "n"}
    assert result["spec"]["schedulerName"] == "koord-scheduler"
    assert result["spec"]["terminationGracePeriodSeconds"] == 15


def test_fields_that_we_do_not_know_survive() -> None:
    """The object is the user's, not ours."""
    manifest = pod(ASKS | {"env": [{"name": "A", "value": "1"}]}, dnsPolicy="Default")
    patch = {"spec": {"containers": [{"name": "c0", "env": [{"name": "B", "value": "2"}]}]}}
    result = mutated(manifest, profile(qosClass="BE", patch=patch))

    assert result["spec"]["dnsPolicy"] == "Default"
    assert [each["name"] for each in result["spec"]["containers"][0]["env"]] == ["A", "B"]


@pytest.mark.parametrize(
    ("spec", "applies"),
    [
        ({}, True),
        ({"selector": {"matchLabels": {"app": "etl"}}}, True),
        ({"selector": {"matchLabels": {"app": "web"}}}, False),
        ({"selector": {"matchExpressions": [{"key": "app", "operator": "Like"}]}}, True),
        ({"namespaceSelector": {"matchLabels": {"tier": "offline"}}}, True),
        ({"namespaceSelector": {"matchLabels": {"tier": "online"}}}, False),
        ({"namespaceSelector": {}, "selector": {}}, True),
    ],
)
def test_both_selectors_must_fit(spec: Any, applies: bool) -> None:
    """An unreadable selector matches every pod, as in the original."""
    there = namespace("default", tier="offline")
    result = mutated(pod(labels={"app": "etl"}), there, profile(labels={"hit": "1"}, **spec))

    assert ("hit" in result["metadata"]["labels"]) is applies


def test_later_names_overwrite_earlier_ones() -> None:
    """In the order of the alphabet."""
    profiles = [profile(name, labels={"by": name}) for name in ("b", "c", "a")]

    assert mutated(pod(), *profiles)["metadata"]["labels"] == {"by": "c"}


@pytest.mark.parametrize(
    ("probability", "lot", "applies"),
    [
        (0, 0, False),
        ("40%", 40, True),
        ("40%", 41, False),
        (99, 99, True),
        (100, 99, True),
        (1, 1, True),
    ],
)
def test_profile_applies_to_its_percentage_of_pods(
    probability: Any, lot: int, applies: bool
) -> None:
    """99 are as good as 100, and 1 is two in a hundred: so the original."""
    one = profile(labels={"hit": "1"}, probability=probability)
    result = mutated(pod(), one, percent=lot)

    assert ("labels" in result["metadata"]) is applies


def test_a_profile_left_out_by_lot_still_translates() -> None:
    """A profile that forbids the translation still does, as in the original."""
    batch = pod(ASKS, labels={QOS: "BE"}, priority=5500)
    unlucky = profile("a", probability=0)
    forbids = profile("b", probability=0, marks={"config.koordinator.sh/skip-update-resources": ""})

    assert BATCH_CPU in resources(mutated(batch, unlucky))["requests"]
    assert resources(mutated(batch, unlucky, forbids)) == ASKS["resources"]
    skips = frozenset({ManagerFeature.SKIP_RESOURCES})
    assert resources(mutated(batch, unlucky, gates=skips)) == ASKS["resources"]


@pytest.mark.parametrize(
    ("spec", "code", "message"),
    [
        ({"priorityClassName": "nobody"}, 500, "nobody"),
        ({"probability": "many"}, 500, "many"),
        ({"patch": {"spec": {"containers": [{"image": "x"}]}}}, 500, "name"),
    ],
)
def test_profile_that_cannot_be_applied_denies_the_pod(spec: Any, code: int, message: str) -> None:
    """The webhook never ignores a profile that selects the pod."""
    with pytest.raises(Denial, match=message) as caught:
        mutated(pod(), profile(**spec))

    assert caught.value.code == code


def test_a_pod_that_cannot_be_read_is_refused() -> None:
    """With the code of the user's mistake."""
    with pytest.raises(Denial, match="containers") as caught:
        mutated({"metadata": {"name": "p"}, "spec": {}})

    assert caught.value.code == 400


def test_an_update_changes_nothing() -> None:
    """The hook exists for updates; nothing is done there."""
    assert mutated(pod(ASKS), BATCH_PROFILE, operation="UPDATE") == pod(ASKS)


@pytest.mark.parametrize(
    ("requests", "spelt"),
    [
        ({"gpu": "300"}, {"gpu-core": "300", "gpu-memory-ratio": "300", "gpu.shared": "3"}),
        ({"gpu": "50"}, {"gpu-core": "50", "gpu-memory-ratio": "50", "gpu.shared": "1"}),
        ({"gpu-memory-ratio": "150"}, {"gpu-memory-ratio": "150", "gpu.shared": "1"}),
        ({"gpu-core": "200"}, {"gpu-core": "200", "gpu.shared": "2"}),
        ({"gpu.shared": "2", "gpu-core": "50"}, {"gpu.shared": "2", "gpu-core": "50"}),
    ],
)
def test_gpus_are_spelt_out(requests: dict[str, str], spelt: dict[str, str]) -> None:
    """Without any profile (6.2, step 8)."""
    amounts = {f"koordinator.sh/{name}": amount for name, amount in requests.items()}
    wanted = {f"koordinator.sh/{name}": amount for name, amount in spelt.items()}
    manifest = pod({"resources": {"requests": amounts, "limits": amounts}})

    result = resources(mutated(manifest))

    assert (result["requests"], result["limits"]) == (wanted, wanted)
    assert mutated(manifest, gates=frozenset({ManagerFeature.NO_DEVICE_SPEC})) == manifest


def test_a_pod_goes_to_the_nodes_of_its_quota_tree() -> None:
    """The profile's selector stands in every term, or in one of its own."""
    quota = {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {
            "name": "default",
            "namespace": "default",
            "labels": {"quota.scheduling.koordinator.sh/tree-id": "7"},
        },
        "spec": {"max": {"cpu": 1}, "min": {}},
    }
    tree = {
        "apiVersion": "quota.koordinator.sh/v1alpha1",
        "kind": "ElasticQuotaProfile",
        "metadata": {
            "name": "t",
            "namespace": "q",
            "labels": {"quota.scheduling.koordinator.sh/tree-id": "7"},
        },
        "spec": {"quotaName": "root", "nodeSelector": {"matchLabels": {"pool": "a"}}},
    }
    on = frozenset({ManagerFeature.MULTI_QUOTA_TREE})
    wanted = {"key": "pool", "operator": "In", "values": ["a"]}

    def terms(manifest: Any) -> Any:
        required = mutated(manifest, quota, tree, gates=on)["spec"]["affinity"]["nodeAffinity"]
        return required["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]

    own = {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [own, {}, own]}
        }
    }
    both = {"matchExpressions": [*own["matchExpressions"], wanted]}
    assert terms(pod()) == [{"matchExpressions": [wanted]}]
    assert terms(pod(affinity=affinity)) == [both, {}, both], "an empty term matches no node"
    assert mutated(pod(), quota, tree) == pod()
    tree["spec"] = {"quotaName": "root", "nodeSelector": {}}
    assert mutated(pod(), quota, tree, gates=on) == pod(), "all nodes need no term"


def test_resources_added_to_a_gpu_pod_are_offered_by_nodes() -> None:
    """With the gates that are on by default: no pod waits for what no node has."""
    device = decode_object(
        {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1",
            "kind": "Device",
            "metadata": {"name": "n"},
            "spec": {
                "devices": [
                    {
                        "type": "gpu",
                        "minor": 0,
                        "health": True,
                        "resources": {
                            "koordinator.sh/gpu-core": "100",
                            "koordinator.sh/gpu-memory": "16Gi",
                            "koordinator.sh/gpu-memory-ratio": "100",
                        },
                    }
                ]
            },
        }
    )
    assert isinstance(device, Device)
    requests = {"koordinator.sh/gpu": "50"}
    gates = parse_gates("")

    after = mutate_pod(request(pod({"resources": {"requests": requests}})), lookup(), gates)

    wanted = after["spec"]["containers"][0]["resources"]["requests"]
    offered = gpu_resources(device, shows_shared=ManagerFeature.SYNC_GPU_SHARED in gates)
    assert offered is not None
    assert "koordinator.sh/gpu.shared" in wanted
    for name, amount in wanted.items():
        assert Quantity.parse(amount) <= offered[name]


def test_whole_npus_stay_a_request_that_the_scheduler_accepts() -> None:
    """Requests of several cards are not translated to shares, which would be refused."""
    requests = {"huawei.com/npu-core": "80", "koordinator.sh/gpu-memory-ratio": "400"}

    after = mutate_pod(
        request(pod({"resources": {"requests": requests, "limits": requests}})),
        lookup(),
        DEFAULT_GATES,
    )

    kept = after["spec"]["containers"][0]["resources"]["requests"]
    result = device_requests(
        {name: Quantity.parse(amount).value() for name, amount in kept.items()}
    )
    assert result[DeviceType.GPU].count == 4
