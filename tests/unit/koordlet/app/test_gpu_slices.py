"""GPUs offered to claims: slices, and preparation of claims for the kubelet."""

import json
from collections.abc import Sequence
from dataclasses import replace as clone
from typing import Any

import pytest
from msgspec.structs import replace
from tests.nodes import GIB, LAYOUT
from tests.unit.koordlet.app.world import World
from tests.worlds import made

from koordinator.api.annotations.devices import ALLOCATED
from koordinator.api.codec import decode
from koordinator.api.device import Device
from koordinator.api.dynamic_resources import PoolDevice, ResourceClaim, ResourceSlice
from koordinator.api.meta import ObjectMeta
from koordinator.api.pod import Container, Pod, PodSpec
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.foundation.errors import ClusterError, HostError, NotFoundError
from koordinator.foundation.protobuf import decode_message, encode_message
from koordinator.host.gpus import Gpu, GpuProblem, NoGpus
from koordinator.koordlet.adjustments import ContainerAdjustment
from koordinator.koordlet.app.options import gates_of
from koordinator.koordlet.device_claims import (
    ClaimAnswers,
    ClaimReference,
    ClaimReferences,
    GpuClaims,
    PreparedClaim,
    PreparedClaims,
)
from koordinator.koordlet.hooks.devices import HamiCoreSettings, gpu_adjustment
from koordinator.koordlet.view.pods import ContainerCreation, ContainerView, pod_view

DRIVER = "gpu.koordinator.sh"


class Driver(NoGpus):
    """As many GPUs as there shall be, some of them broken."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.broken: set[int] = set()

    def devices(self) -> Sequence[Gpu]:
        problem = GpuProblem("79", "fell off the bus")
        return [
            Gpu(
                minor=minor,
                uuid=f"GPU-{minor}",
                model="NVIDIA T4",
                memory_bytes=16 * GIB,
                bus_id=f"0000:{minor:02x}:00.0",
                pcie_id="pci0000:3a",
                numa_node=0,
                problem=problem if minor in self.broken else None,
            )
            for minor in range(self.count)
        ]


def offering(count: int = 2, **gates: bool) -> tuple[World, Driver]:
    """Return a node with GPUs whose agent offers them."""
    on = gates_of({"Accelerators": True, "GPUResourceSlices": True} | gates)
    world, driver = World(gates=on), Driver(count)
    world.agent = world.start(gpus=driver)
    deliver_after(world)
    return world, driver


def deliver_after(world: World, seconds: int = 5) -> None:
    """Advance the clock and deliver the outbox."""
    world.seconds(seconds)
    world.outbox.deliver(world.cluster)


def slices(world: World) -> list[ResourceSlice]:
    """Return what the cluster has."""
    return sorted(world.cluster.list(ResourceSlice).items, key=lambda each: each.metadata.name)


def offered(world: World) -> list[PoolDevice]:
    """Return the devices of the only slice."""
    (only,) = slices(world)
    assert (only.spec.driver, only.spec.node_name, only.spec.pool.name) == (DRIVER, "n1", "n1")
    return list(only.spec.devices)


def test_gpus_are_offered_with_attributes_for_selectors() -> None:
    """Off by default; a slice goes with its node."""
    world, _ = offering(1)

    (gpu,) = offered(world)
    attributes = {name: a.string_value or a.int_value for name, a in gpu.attributes.items()}
    assert gpu.name == "gpu-0"
    assert attributes == {
        "uuid": "GPU-0", "vendor": "nvidia", "model": "T4", "minor": 0, "numaNode": 0,
        "busID": "0000:00:00.0", "resource.kubernetes.io/pcieRoot": "pci0000:3a",
        "resource.kubernetes.io/numaNode": 0,
    }  # fmt: skip
    assert {name: str(c.value) for name, c in gpu.capacity.items()} == {
        "core": "100",
        "memory": "16Gi",
    }
    assert gpu.allow_multiple_allocations is None
    assert slices(world)[0].metadata.owner_references[0].kind == "Node"
    plain, _ = offering(GPUResourceSlices=False)
    assert slices(plain) == []


def test_gpus_can_be_offered_for_several_claims_each() -> None:
    """A claim without an amount gets the whole GPU."""
    world, _ = offering(1, DRAConsumableCapacity=True)

    (gpu,) = offered(world)
    assert gpu.allow_multiple_allocations is True
    for name, least in (("core", "1"), ("memory", "1Mi")):
        policy = gpu.capacity[name].request_policy
        assert policy is not None
        assert policy.default == gpu.capacity[name].value
        assert policy.valid_range is not None
        assert str(policy.valid_range.min) == least


def test_a_broken_gpu_is_offered_no_more_until_it_is_repaired() -> None:
    """Each change is a generation; nothing is written while nothing changes."""
    world, driver = offering()
    first = slices(world)[0]
    driver.broken = {0}
    deliver_after(world)
    second = slices(world)[0]
    assert [device.name for device in second.spec.devices] == ["gpu-1"]
    driver.broken = set()
    deliver_after(world)
    assert len(offered(world)) == 2
    third = slices(world)[0]
    assert [one.spec.pool.generation for one in (first, second, third)] == [1, 2, 3]
    deliver_after(world, 120)
    assert slices(world) == [third]


def test_restarted_agent_keeps_correct_slices_and_removes_others() -> None:
    """Slices of other drivers and of other nodes are none of its business."""
    world, driver = offering(130)
    before = slices(world)
    assert [len(each.spec.devices) for each in before] == [128, 2]
    assert {each.spec.pool.resource_slice_count for each in before} == {2}
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    others = [("n1", "a.example.com"), ("n2", DRIVER)]
    for on, by in others:
        spec = {"driver": by, "nodeName": on, "pool": pool, "devices": []}
        world.cluster.create(made("ResourceSlice", f"{on}-{by}", "resource.k8s.io/v1", spec=spec))
    world.agent = world.start(gpus=driver)
    deliver_after(world)
    assert [each for each in slices(world) if each in before] == before

    driver.count = 3
    world.agent = world.start(gpus=driver)
    deliver_after(world)
    mine = [e for e in slices(world) if (e.spec.node_name, e.spec.driver) == ("n1", DRIVER)]
    assert [(len(e.spec.devices), e.spec.pool.generation) for e in mine] == [(3, 2)]
    assert len(slices(world)) == 3


def test_slices_that_the_kubelet_has_removed_are_written_again() -> None:
    """At once when it has found the driver, within a minute otherwise."""
    world, _ = offering()
    (name,) = [each.metadata.name for each in slices(world)]
    world.cluster.delete(ResourceSlice, name)
    world.agent.slices.forget()
    deliver_after(world)
    assert len(slices(world)) == 1
    world.cluster.delete(ResourceSlice, name)
    deliver_after(world, 70)
    assert len(slices(world)) == 1


# -- claims ---------------------------------------------------------------------------------------


def allocated(world: World, *devices: str, pool: str = "n1", driver: str = DRIVER) -> ResourceClaim:
    """Return a claim that has devices."""
    results = [{"request": "r", "driver": driver, "pool": pool, "device": d} for d in devices]
    status = {"allocation": {"devices": {"results": results}}} if devices else {}
    wanted = made("ResourceClaim", "c", "resource.k8s.io/v1", status=status)
    assert isinstance(wanted, ResourceClaim)
    created = world.cluster.create(wanted)
    return world.cluster.update_status(replace(created, status=wanted.status))


def prepared(claims: GpuClaims, claim: ResourceClaim, uid: str = "") -> PreparedClaim:
    """Return what the kubelet is answered."""
    meta = claim.metadata
    claim_reference = ClaimReference(namespace=meta.namespace, name=meta.name, uid=uid or meta.uid)
    request = encode_message(ClaimReferences(claims=(claim_reference,)))
    (answer,) = decode_message(ClaimAnswers, claims.methods["NodePrepareResources"](request)).claims
    assert answer.uid == claim_reference.uid
    return answer.prepared


def claims_of(world: World, driver: Driver) -> GpuClaims:
    """Return the handler of the kubelet's calls, with the devices that an agent has published."""
    kept = PreparedClaims(world.tree.host, "/checkpoints/claims")
    claims = GpuClaims(world.cluster, "n1", lambda: None, kept)
    world.agent = world.start(gpus=driver, gpu_claims=claims)
    deliver_after(world)
    return claims


def test_prepared_claim_has_the_cdi_ids_of_its_gpus() -> None:
    """As often as it asks; what other drivers give is theirs to prepare."""
    world, driver = offering()
    claims, claim = claims_of(world, driver), allocated(world, "gpu-0", "gpu-1")

    for _ in range(2):
        got = prepared(claims, claim)
        assert got.error == ""
        assert [(d.requests, d.pool, d.device, d.cdi_ids) for d in got.devices] == [
            (("r",), "n1", "gpu-0", ("nvidia.com/gpu=GPU-0",)),
            (("r",), "n1", "gpu-1", ("nvidia.com/gpu=GPU-1",)),
        ]
    driver.broken = {0}
    deliver_after(world)
    assert prepared(claims, claim).error == "", "a container that starts again keeps its GPU"


@pytest.mark.parametrize(
    ("pool", "device"),
    [("n1", "gpu-7"), ("n2", "gpu-0"), ("n1", "gpu-00"), ("n1", "gpu-0/x"), ("n1", "gpu-9999999")],
)
def test_device_of_another_node_is_rejected(pool: str, device: str) -> None:
    """By its name."""
    world, driver = offering()
    claims, claim = claims_of(world, driver), allocated(world, device, pool=pool)

    assert prepared(claims, claim).error == f"node n1 has no GPU {pool}/{device}"


def test_wrong_or_missing_claim_is_rejected() -> None:
    """Replaced, without an allocation, deleted, or unreadable."""
    world, driver = offering()
    claims, claim = claims_of(world, driver), allocated(world)

    assert prepared(claims, claim).error == "claim default/c has no allocation"
    replaced = prepared(claims, claim, "other")
    assert replaced.error == "claim default/c was replaced by another one of the same name"
    world.cluster.delete(ResourceClaim, "c", "default")
    assert "not found" in prepared(claims, claim).error


# -- shares ---------------------------------------------------------------------------------------

LIMITED = {"koordinator.sh/gpu-isolation-provider": "HAMi-core"}
WATCHED = HamiCoreSettings(keeps_regions=True)


def share(request: str, minor: int, core: int, memory: str) -> dict[str, Any]:
    """Return a part of a GPU in the form of a claim's status."""
    amounts = {"core": str(core), "memory": memory}
    return {
        "request": request,
        "driver": DRIVER,
        "pool": "n1",
        "device": f"gpu-{minor}",
        "shareID": "7b1e5f9a-8a0e-4d8e-9d5b-2f6f6a1c0e11",
        "consumedCapacity": amounts,
    }


def sharing(*results: dict[str, Any]) -> tuple[World, GpuClaims, ResourceClaim]:
    """Return a node of 16 GiB GPUs, and a claim that has shares of them."""
    world, driver = offering(DRAConsumableCapacity=True)
    claims = claims_of(world, driver)
    claim = allocated(world, "gpu-0")
    status = {"allocation": {"devices": {"results": list(results)}}}
    wanted = made("ResourceClaim", "c", "resource.k8s.io/v1", status=status)
    assert isinstance(wanted, ResourceClaim)
    return world, claims, world.cluster.update_status(replace(claim, status=wanted.status))


def claiming(
    *used: dict[str, str],
    labels: dict[str, str] = LIMITED,
    annotation: str = "",
    requests: dict[str, str] | None = None,
) -> ContainerCreation:
    """Return a container that uses entries of its pod's claims; the entry gpu is the claim c."""
    pod = decode(
        {
            "metadata": {
                "name": "p",
                "namespace": "default",
                "uid": "0a-1b",
                "labels": labels,
                "annotations": {ALLOCATED.key: annotation} if annotation else {},
            },
            "spec": {
                "resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}],
                "containers": [
                    {
                        "name": "main",
                        "resources": {"claims": list(used), "requests": requests or {}},
                    }
                ],
            },
        },
        Pod,
    )
    container = ContainerView("main", "containerd://1", "folder", pod.spec.containers[0])
    return ContainerCreation(pod_view(pod, LAYOUT), container, {"CUDA_DEVICE_SM_LIMIT_0": "100"})


def limits(claims: GpuClaims, creation: ContainerCreation) -> ContainerAdjustment:
    """Return what the container gets for its claims."""
    return gpu_adjustment(clone(creation, claimed_gpus=claims.gpus_of(creation)), WATCHED)


@pytest.mark.parametrize(
    ("core", "memory", "ratio"),
    [(25, "4Gi", 25), (100, "8Gi", 50), (1, "1Mi", 1)],
)
def test_claimed_share_is_limited_like_a_requested_one(core: int, memory: str, ratio: int) -> None:
    """Variables and mounts are equal; the runtime knows the GPU from the claim."""
    _, claims, claim = sharing(share("r", 1, core, memory))
    assert prepared(claims, claim).error == ""
    amounts = {"gpu-core": str(core), "gpu-memory": memory, "gpu-memory-ratio": str(ratio)}
    resources = {f"koordinator.sh/{name}": amount for name, amount in amounts.items()}
    annotation = json.dumps({"gpu": [{"minor": 1, "resources": resources}]})
    requests = {name: amount for name, amount in resources.items() if "ratio" not in name}
    requested = claiming(annotation=annotation, requests=requests)

    wanted = gpu_adjustment(requested, WATCHED)
    result = limits(claims, claiming({"name": "gpu"}))
    assert {**result.env, "NVIDIA_VISIBLE_DEVICES": "1"} == wanted.env
    assert result.mounts == wanted.mounts
    assert result.mounts


def test_limits_come_from_the_container_s_own_claims() -> None:
    """From the request that it names, if any; of several GPUs the smallest share counts."""
    _, claims, _ = sharing(share("big", 0, 50, "8Gi"), share("small/s1", 1, 25, "4Gi"))

    def memory(*used: dict[str, str]) -> str | None:
        return limits(claims, claiming(*used)).env.get("CUDA_DEVICE_MEMORY_LIMIT")

    assert memory({"name": "gpu"}) == str(4 * GIB)
    assert memory({"name": "gpu", "request": "big"}) == str(8 * GIB)
    assert memory({"name": "gpu", "request": "small"}) == str(4 * GIB)
    assert memory({"name": "other"}) is None
    assert memory() is None


def test_no_annotation_lifts_the_limits_of_a_claim() -> None:
    """Every client that may patch the pod can write the annotation."""
    _, claims, _ = sharing(share("r", 0, 25, "4Gi"))
    lie = json.dumps(
        {"gpu": [{"minor": 0, "resources": {"koordinator.sh/gpu-memory-ratio": "100"}}]}
    )

    result = limits(claims, claiming({"name": "gpu"}, annotation=lie))
    assert result.env["CUDA_DEVICE_MEMORY_LIMIT"] == str(4 * GIB)


def test_whole_gpus_of_a_claim_are_not_limited() -> None:
    """A pod that does not request HAMi-core has no limits, too."""
    world, driver = offering()
    claims, _ = claims_of(world, driver), allocated(world, "gpu-0")
    assert limits(claims, claiming({"name": "gpu"})).is_empty

    _, claims, _ = sharing(share("r", 0, 25, "4Gi"))
    assert limits(claims, claiming({"name": "gpu"}, labels={})).is_empty


def test_a_share_is_known_before_the_pod_is_and_while_no_server_answers() -> None:
    """The runtime asks within milliseconds; and containers start again at any time."""
    world, claims, claim = sharing(share("r", 0, 25, "4Gi"))
    known = claiming({"name": "gpu"})
    pod = world.cluster.create(
        replace(known.pod.pod, metadata=ObjectMeta(name="p", namespace="default"))
    )
    meta = replace(known.pod.pod.metadata, uid=pod.metadata.uid)
    bare = Pod(metadata=meta, spec=PodSpec(containers=()))
    unknown = clone(
        known,
        pod=clone(known.pod, pod=bare),
        container=clone(known.container, spec=Container(name="main")),
    )

    wanted = {"CUDA_DEVICE_MEMORY_LIMIT": str(4 * GIB), "CUDA_DEVICE_SM_LIMIT": "25"}
    assert wanted.items() <= limits(claims, unknown).env.items()
    assert prepared(claims, claim).error == ""
    world.cluster.delete(ResourceClaim, "c", "default")
    assert wanted.items() <= limits(claims, known).env.items()
    unprepare(claims, claim)
    with pytest.raises(NotFoundError):
        limits(claims, known)
    other = clone(
        unknown, pod=clone(unknown.pod, pod=replace(bare, metadata=replace(meta, uid="x")))
    )
    with pytest.raises(HostError, match="another one"):
        limits(claims, other)


class Away(MemoryCluster):
    """Unreachable API server."""

    def get(self, kind: Any, name: str, namespace: str = "") -> Any:
        raise ClusterError(f"{kind.KIND} {namespace}/{name}: connection refused")


def test_prepared_claims_outlive_an_agent_that_is_killed_while_no_server_answers() -> None:
    """Containers have their limits, and the kubelet its devices, until it unprepares the claim."""
    world, claims, claim = sharing(share("r", 0, 25, "4Gi"))
    wanted = limits(claims, claiming({"name": "gpu"}))
    before = prepared(claims, claim)
    world.cluster = Away(world.clock)

    fresh = restarted(world)
    assert limits(fresh, claiming({"name": "gpu"})) == wanted
    assert prepared(fresh, claim) == before
    assert "connection refused" in prepared(fresh, claim, "another").error
    unprepare(fresh, claim)
    for agent in (fresh, restarted(world)):
        with pytest.raises(ClusterError, match="refused"):
            limits(agent, claiming({"name": "gpu"}))


def test_prepared_claims_end_with_their_pods_although_the_kubelet_has_forgotten_both() -> None:
    """A kubelet whose folder was deleted unprepares nothing; a claim waits for its first pod."""
    world, claims, claim = sharing(share("r", 0, 25, "4Gi"))
    prepared(claims, claim)
    world.agent = world.start(gpu_claims=claims)
    world.seconds(1)
    assert is_kept(world), "the pod has not been seen yet"

    using = claiming({"name": "gpu"}).pod.pod
    world.add(replace(using, spec=replace(using.spec, node_name="n1")))
    fresh = restarted(world)
    world.agent = world.start(gpu_claims=fresh)
    world.seconds(1)
    assert is_kept(world)

    world.cluster.force_delete(world.cluster.get(Pod, "p", "default"))
    world.seconds(1)
    assert not is_kept(world)


def test_restored_claims_without_a_pod_are_forgotten() -> None:
    """The pod went while the agent was away."""
    world, claims, claim = sharing(share("r", 0, 25, "4Gi"))
    prepared(claims, claim)
    assert is_kept(world)

    world.agent = world.start(gpu_claims=restarted(world))
    world.seconds(1)
    assert not is_kept(world)


def is_kept(world: World) -> bool:
    """Return whether the file has the claim."""
    return '"name":"c"' in world.tree.host.read("/checkpoints/claims")


def test_a_line_separator_of_a_claim_costs_no_prepared_claim() -> None:
    """JSON has U+2028 and U+0085 as they are; a tenant may write them into annotations."""
    world, claims, claim = sharing(share("r", 0, 25, "4Gi"))
    odd = replace(claim.metadata, annotations={"text": "a\u2028b\u0085c"})
    before = prepared(claims, world.cluster.update(replace(claim, metadata=odd)))
    world.cluster = Away(world.clock)

    assert prepared(restarted(world), claim) == before


def test_a_broken_checkpoint_of_claims_counts_as_none() -> None:
    """The API server has them; a file that can't be written keeps no claim from its pod."""
    world, claims, claim = sharing(share("r", 0, 25, "4Gi"))
    world.tree.host.put("/checkpoints/claims", "{}\n{")
    world.tree.host.read_only.add("/checkpoints/claims")
    fresh = restarted(world)
    assert fresh.gpus_of(claiming({"name": "gpu"})) == claims.gpus_of(claiming({"name": "gpu"}))
    assert prepared(fresh, claim) == prepared(claims, claim)


def restarted(world: World) -> GpuClaims:
    """Return the handler of the next process, which has found the GPU."""
    kept = PreparedClaims(world.tree.host, "/checkpoints/claims")
    claims = GpuClaims(world.cluster, "n1", lambda: None, kept)
    resources = {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory": "16Gi"}
    gpu = {"type": "gpu", "minor": 0, "id": "GPU-0", "resources": resources}
    device = made("Device", "n1", "scheduling.koordinator.sh/v1alpha1", spec={"devices": [gpu]})
    assert isinstance(device, Device)
    claims.publish(device)
    return claims


def unprepare(claims: GpuClaims, claim: ResourceClaim) -> None:
    """Unprepare a claim, as the kubelet does after the end of its pods."""
    meta = claim.metadata
    reference = ClaimReference(namespace=meta.namespace, name=meta.name, uid=meta.uid)
    request = encode_message(ClaimReferences(claims=(reference,)))
    claims.methods["NodeUnprepareResources"](request)


def test_a_driver_that_fails_is_no_reason_to_offer_less() -> None:
    """The GPUs stay in the slice, since only reading them has failed."""
    world, driver = offering()

    def fail() -> Sequence[Gpu]:
        raise HostError("NVML: driver not loaded")

    driver.devices = fail  # type: ignore[method-assign]
    deliver_after(world, 120)
    assert len(offered(world)) == 2
