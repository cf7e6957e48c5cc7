"""Explanations of missing claims, classes and templates: once, with the object to create."""

from collections.abc import Sequence
from typing import Any

import pytest
from tests.worlds import made, node, pod

from koordinator.api.kube_version import V1_35
from koordinator.api.kubescheduler import FeatureGates
from koordinator.api.meta import KubeObject
from koordinator.scheduler.contract import ObjectRemedy
from koordinator.scheduler.explanations import Explanation
from koordinator.scheduler.explanations.question import Question
from koordinator.simulator.explanations import explain_pods

DEVICES = "resource.k8s.io/v1"
STORAGE = {"requests": {"storage": "1Gi"}}


def device_class(name: str, **spec: Any) -> KubeObject:
    return made("DeviceClass", name, DEVICES, spec=spec)


def device_claim(name: str, wanted: str, namespace: str = "default") -> KubeObject:
    request = {"name": "r", "exactly": {"deviceClassName": wanted}}
    spec = {"devices": {"requests": [request]}}
    return made("ResourceClaim", name, DEVICES, metadata={"namespace": namespace}, spec=spec)


def template(name: str, namespace: str = "default") -> KubeObject:
    request = {"name": "r", "exactly": {"deviceClassName": "gpu"}}
    spec = {"spec": {"devices": {"requests": [request]}}}
    meta = {"namespace": namespace}
    return made("ResourceClaimTemplate", name, DEVICES, metadata=meta, spec=spec)


def user(**claim: str) -> KubeObject:
    return pod("p", resourceClaims=[{"name": "g"} | claim])


def volume_user(storage_class: str) -> Sequence[KubeObject]:
    spec = {"storageClassName": storage_class, "accessModes": ["ReadWriteOnce"]}
    claim = made(
        "PersistentVolumeClaim",
        "d",
        metadata={"namespace": "default"},
        spec=spec | {"resources": STORAGE},
    )
    mounted = [{"name": "d", "persistentVolumeClaim": {"claimName": "d"}}]
    return (claim, pod("p", volumes=mounted))


def storage_class(name: str) -> KubeObject:
    return made("StorageClass", name, "storage.k8s.io/v1", provisioner="x")


def explained(*objects: KubeObject) -> Explanation:
    (explanation,) = explain_pods([node("n"), *objects], ["default/p"])
    return explanation


@pytest.mark.parametrize(
    ("objects", "cause", "remedy"),
    [
        (
            [user(resourceClaimName="nope")],
            "there is no resource claim nope",
            "create the ResourceClaim default/nope",
        ),
        (
            [user(resourceClaimName="one-gpu"), device_claim("one-gpus", "gpu")],
            "there is no resource claim one-gpu",
            "create the ResourceClaim default/one-gpu (did you mean one-gpus?)",
        ),
        (
            [user(resourceClaimName="c"), device_claim("c", "gpu", "other")],
            "there is no resource claim c",
            "create the ResourceClaim default/c (there is one of this name in namespace other)",
        ),
        (
            [user(resourceClaimTemplateName="t")],
            "there is no ResourceClaimTemplate t in namespace default",
            "create the ResourceClaimTemplate default/t",
        ),
        (
            [user(resourceClaimTemplateName="t"), template("t", "team-a")],
            "there is no ResourceClaimTemplate t in namespace default",
            (
                "create the ResourceClaimTemplate default/t (there is one of this name in "
                "namespace team-a)"
            ),
        ),
        (
            [user(resourceClaimName="c"), device_claim("c", "gpu")],
            "request r: device class gpu does not exist",
            "create the DeviceClass gpu",
        ),
        (
            [
                user(resourceClaimTemplateName="t"),
                template("t"),
                device_class("gpus"),
            ],
            "request r: device class gpu does not exist",
            "create the DeviceClass gpu (did you mean gpus?)",
        ),
        (
            [*volume_user("fast")],
            "the StorageClass fast does not exist",
            (
                "create the StorageClass fast, which claim default/d names, or a "
                "PersistentVolume of that class with 1Gi or more, StorageClass fast, ReadWriteOnce"
            ),
        ),
        (
            [*volume_user("fasst"), storage_class("fast")],
            "the StorageClass fasst does not exist",
            (
                "create the StorageClass fasst, which claim default/d names (did you mean fast?), "
                "or a PersistentVolume of that class with 1Gi or more, StorageClass fasst, "
                "ReadWriteOnce"
            ),
        ),
    ],
)
def test_missing_object_is_named_once(objects: list[KubeObject], cause: str, remedy: str) -> None:
    """Plugins that gate the pod and those that refuse it are merged."""
    explanation = explained(*objects)

    assert [one.sentence for one in explanation.causes] == [cause]
    assert [(one.text, one.sufficient) for one in explanation.remedies] == [(remedy, True)]


def test_gate_of_extended_resources_is_the_remedy() -> None:
    """Where nodes have some of the resource, amounts are the cause as usual."""
    served = device_class("gpu", extendedResourceName="example.com/gpu")
    asks = pod("p", requests={"example.com/gpu": 1}, limits={"example.com/gpu": 1})

    gates = FeatureGates.parse("", V1_35)  # later it is on
    (explanation,) = explain_pods([node("n"), served, asks], ["default/p"], gates=gates)
    remedies = explanation.remedies
    assert [one.kind for one in remedies] == ["enable-gate"]
    assert "feature gate DRAExtendedResource" in remedies[0].text
    assert not remedies[0].tried

    assert "enable-gate" not in {one.kind for one in explained(asks).remedies}


def test_no_new_node_is_offered_to_a_pod_whose_claim_is_allocated_elsewhere() -> None:
    """The claim's devices are on a full node; another node like it does not reach them."""
    on_n = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
    device = {"request": "r", "driver": "gpu.example.com", "pool": "n", "device": "d0"}
    claim = made(
        "ResourceClaim",
        "c",
        DEVICES,
        metadata={"namespace": "default"},
        spec={"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}},
        status={
            "allocation": {
                "devices": {"results": [device]},
                "nodeSelector": {"nodeSelectorTerms": [on_n]},
            }
        },
    )
    wanted = pod("p", 2, resourceClaims=[{"name": "g", "resourceClaimName": "c"}])
    busy = pod("busy", 7, on="n")

    with_claim = explained(device_class("gpu"), claim, wanted, busy)
    without = explained(pod("p", 2), busy)

    assert [one.kind for one in without.remedies].count("add-node") == 1
    assert [one.kind for one in with_claim.remedies].count("add-node") == 0
    assert any("default/busy" in one.text for one in with_claim.remedies)


def device_slice(count: int) -> KubeObject:
    devices = [{"name": f"g{index}"} for index in range(count)]
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    spec = {"nodeName": "n", "driver": "gpu.example.com", "pool": pool, "devices": devices}
    return made("ResourceSlice", "s", DEVICES, spec=spec)


def allocated(index: int, **consumer: str) -> KubeObject:
    """Return a claim that has a device, for a pod or another consumer, or for none."""
    result = {"request": "r", "driver": "gpu.example.com", "pool": "n", "device": f"g{index}"}
    fields = [{"key": "metadata.name", "operator": "In", "values": ["n"]}]
    allocation = {
        "devices": {"results": [result]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": fields}]},
    }
    request = {"name": "r", "exactly": {"deviceClassName": "gpu"}}
    return made(
        "ResourceClaim",
        f"c{index:02}",
        DEVICES,
        metadata={"namespace": "default"},
        spec={"devices": {"requests": [request]}},
        status={"allocation": allocation, "reservedFor": [consumer] if consumer else []},
    )


def test_claim_of_a_pod_group_is_not_offered_for_deletion() -> None:
    """A claim of a group is in use although it names no pod."""
    group = {
        "apiGroup": "scheduling.k8s.io",
        "resource": "podgroups",
        "name": "train",
        "uid": "u",
    }
    world = (device_class("gpu"), device_slice(1), device_claim("wanted", "gpu"))
    user_of_wanted = user(resourceClaimName="wanted")

    unused = explained(*world, allocated(0), user_of_wanted)
    used = explained(*world, allocated(0, **group), user_of_wanted)

    assert "delete claim default/c00, which no pod uses: n takes it then" in [
        one.text for one in unused.remedies
    ]
    assert not [one.text for one in used.remedies if "c00" in one.text]


def test_few_combinations_of_many_claims_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of 32 claims must go; a pool that all nodes reach has thousands."""
    tried: list[ObjectRemedy] = []
    takes_after = Question.takes_after

    def counted(question: Question, row: int, remedy: ObjectRemedy) -> bool:
        tried.append(remedy)
        return takes_after(question, row, remedy)

    monkeypatch.setattr(Question, "takes_after", counted)
    request = {"name": "r", "exactly": {"deviceClassName": "gpu", "count": 32}}
    spec = {"devices": {"requests": [request]}}
    wanted = made("ResourceClaim", "wanted", DEVICES, metadata={"namespace": "default"}, spec=spec)
    explanation = explained(
        device_class("gpu"),
        device_slice(32),
        *map(allocated, range(32)),
        wanted,
        user(resourceClaimName="wanted"),
    )

    assert len(tried) < 20
    assert (
        "delete claims default/c00, default/c01, default/c02 and 29 more, which no pod uses: "
        "n takes it then"
    ) in [one.text for one in explanation.remedies]


def test_claim_of_two_volumes_is_named_once() -> None:
    claim, _ = volume_user("local")
    waits = made(
        "StorageClass",
        "local",
        "storage.k8s.io/v1",
        provisioner="kubernetes.io/no-provisioner",
        volumeBindingMode="WaitForFirstConsumer",
    )
    mounted = [{"name": name, "persistentVolumeClaim": {"claimName": "d"}} for name in ("a", "b")]
    explanation = explained(claim, waits, pod("p", volumes=mounted))

    (text,) = [one.text for one in explanation.remedies if "PersistentVolume" in one.text]
    assert text.count("claim default/d") == 1


def devices_by_model(*models: str) -> KubeObject:
    """Return a slice with a device of each model; one without attributes for an empty name."""
    devices = [
        {"name": f"g{index}"} | ({"attributes": {"model": {"string": name}}} if name else {})
        for index, name in enumerate(models)
    ]
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    spec = {"nodeName": "n", "driver": "gpu.example.com", "pool": pool, "devices": devices}
    return made("ResourceSlice", "s", DEVICES, spec=spec)


def constrained_claim(*constraints: dict[str, Any], **counts: int) -> KubeObject:
    """Return a claim with a request of a count for each name."""
    requests = [
        {"name": name, "exactly": {"deviceClassName": "gpu", "count": count}}
        for name, count in counts.items()
    ]
    spec = {"devices": {"requests": requests, "constraints": list(constraints)}}
    return made("ResourceClaim", "c", DEVICES, metadata={"namespace": "default"}, spec=spec)


MODEL = {"matchAttribute": "gpu.example.com/model"}


@pytest.mark.parametrize(
    ("claim", "text"),
    [
        (
            constrained_claim(MODEL, r=2),
            (
                "claim default/c, constraint matchAttribute gpu.example.com/model: no 2 free "
                "devices have the same value (n/g0: a100; n/g1: h100; without it: n/g2)"
            ),
        ),
        (
            constrained_claim(MODEL | {"requests": ["a", "b"]}, a=1, b=1, other=1),
            (
                "claim default/c, constraint matchAttribute gpu.example.com/model of requests a, "
                "b: no 2 free devices have the same value (n/g0: a100; n/g1: h100; without it: "
                "n/g2)"
            ),
        ),
        (
            constrained_claim({"matchAttribute": "gpu.example.com/rack"}, r=1),
            (
                "claim default/c, constraint matchAttribute gpu.example.com/rack: no free device "
                "has it (without it: n/g0, n/g1, n/g2)"
            ),
        ),
    ],
)
def test_constraint_that_no_devices_satisfy_is_named(claim: KubeObject, text: str) -> None:
    """With the values of the free devices, and the claim without it as a remedy."""
    explanation = explained(
        device_class("gpu"),
        devices_by_model("a100", "h100", ""),
        claim,
        user(resourceClaimName="c"),
    )

    (cause,) = explanation.causes
    assert cause.detail == text
    label = text.partition(": ")[0].removeprefix("claim default/c, ")
    remedy = f"recreate claim default/c without its {label}: n takes it then"
    assert remedy in [one.text for one in explanation.remedies]


def test_constraints_are_no_cause_where_devices_are_missing() -> None:
    """Without them no node would take the pod either."""
    explanation = explained(
        device_class("gpu"),
        devices_by_model("a100", "a100"),
        constrained_claim(MODEL, r=3),
        user(resourceClaimName="c"),
    )

    (cause,) = explanation.causes
    assert "constraint" not in cause.detail
    assert not [one.text for one in explanation.remedies if "constraint" in one.text]


def test_constraints_that_only_together_leave_no_devices_are_all_named() -> None:
    """Each constraint alone can be satisfied."""
    both = [MODEL, {"matchAttribute": "gpu.example.com/rack"}]
    devices = [
        {"name": "g0", "attributes": {"model": {"string": "a"}, "rack": {"int": 1}}},
        {"name": "g1", "attributes": {"model": {"string": "a"}, "rack": {"int": 2}}},
        {"name": "g2", "attributes": {"model": {"string": "b"}, "rack": {"int": 1}}},
    ]
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    spec = {"nodeName": "n", "driver": "gpu.example.com", "pool": pool, "devices": devices}
    explanation = explained(
        device_class("gpu"),
        made("ResourceSlice", "s", DEVICES, spec=spec),
        constrained_claim(*both, r=2),
        user(resourceClaimName="c"),
    )

    (cause,) = explanation.causes
    for name in ("model", "rack"):
        assert f"constraint matchAttribute gpu.example.com/{name}" in cause.detail


def test_distinct_values_that_devices_lack_are_named() -> None:
    """With the gate of the constraint; the devices of one value are listed together."""
    claim = constrained_claim({"distinctAttribute": "gpu.example.com/model"}, r=2)
    world = (
        node("n"),
        device_class("gpu"),
        devices_by_model("a100", "a100"),
        claim,
        user(resourceClaimName="c"),
    )
    gates = FeatureGates.parse("DRAConsumableCapacity=true", V1_35)

    (explanation,) = explain_pods(world, ["default/p"], gates=gates)

    (cause,) = explanation.causes
    assert cause.detail == (
        "claim default/c, constraint distinctAttribute gpu.example.com/model: no 2 free devices "
        "have different values (n/g0, n/g1: a100)"
    )
