"""Remedies of gangs, applied on random clusters as their texts say."""

import re
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.reservations import reservation
from tests.unit.domain.quota.quotas import PREFIX
from tests.unit.scheduler.test_gangs_in_quotas import BOTH
from tests.worlds import configuration, device, embedded, made

from koordinator.api.codec import decode_object, to_manifest
from koordinator.api.kubescheduler import KubeSchedulerConfiguration
from koordinator.api.labels import QUOTA_PREEMPTIBLE
from koordinator.api.pod import Pod
from koordinator.foundation.quantity import Quantity
from koordinator.scheduler.explanations import Explanation, Remedy
from koordinator.scheduler.features.explanations.explainer import explain

World = dict[str, dict[str, Any]]  # manifests by kind and name
GANG, QUOTA = "pod-group.scheduling.sigs.k8s.io", PREFIX + "name"
SIZES = st.fixed_dictionaries({"cpu": st.integers(1, 4), "memory": st.integers(1, 4)})
LIMITS = st.fixed_dictionaries(
    {
        "cpu": st.tuples(st.integers(0, 6), st.integers(0, 6)),
        "memory": st.tuples(st.integers(0, 6), st.integers(0, 6)),
    }
)

WITH_DEVICES = configuration(
    plugins={
        "multiPoint": {
            "enabled": [{"name": n} for n in ("Coscheduling", "Reservation", "DeviceShare")]
        },
        "queueSort": {"disabled": [{"name": "*"}], "enabled": [{"name": "Coscheduling"}]},
    }
)
DEVICES = "resource.k8s.io/v1"
HALF = {"koordinator.sh/gpu-core": "50", "koordinator.sh/gpu-memory-ratio": "50"}


@settings(max_examples=examples(40), deadline=None)
@given(
    nodes=st.lists(
        st.fixed_dictionaries({"cpu": st.integers(1, 6), "memory": st.integers(1, 6)}),
        min_size=1,
        max_size=3,
    ),
    running=st.lists(st.tuples(SIZES, st.integers(0, 2), st.sampled_from("abd")), max_size=3),
    quotas=st.tuples(LIMITS, LIMITS),
    lends=st.booleans(),
    members=st.lists(SIZES, min_size=1, max_size=3),
    missing=st.integers(0, 2),
    alike=st.booleans(),
    kept=st.lists(st.integers(0, 2), max_size=2),
)
def test_gang_starts_after_every_sufficient_remedy(
    *,
    nodes: list[dict[str, int]],
    running: list[tuple[dict[str, int], int, str]],
    quotas: tuple[dict[str, tuple[int, int]], dict[str, tuple[int, int]]],
    lends: bool,
    members: list[dict[str, int]],
    missing: int,
    alike: bool,
    kept: list[int],
) -> None:
    """Every member is explained alike, by resources that are short; some are not preemptible."""
    least = len(members) + missing
    world: World = {}
    for index, size in enumerate(nodes):
        put(world, node(f"n{index}", size))
    for name, limits in zip("ab", quotas, strict=True):
        put(world, quota(name, limits, lends=lends or name == "a"))
    room = deepcopy(nodes)
    for index, (size, where, owner) in enumerate(running):
        free = room[where % len(nodes)]
        if all(free[name] >= amount for name, amount in size.items()):
            for name, amount in size.items():
                free[name] -= amount
            put(world, pod(f"r{index}", size, owner, on=f"n{where % len(nodes)}"))
    for index, size in enumerate(members):
        own = members[0] if alike else size
        put(world, pod(f"g-{index}", own, "a", gang="g", is_kept=index in kept))
    put(world, group(least))

    explanations = explained(world, len(members))
    first = explanations[0]
    assert len({one.gang for one in explanations}) == 1
    if first.verdict != "waits":
        return
    assert first.causes
    names_short_resources(world, first)
    for remedy in first.remedies:
        if remedy.sufficient and remedy.tried and can_be_applied(remedy):
            after = applied(world, remedy)
            assert bound(after) >= int(after["PodGroup/g"]["spec"]["minMember"]), (remedy, world)


@settings(max_examples=examples(40), deadline=None)
@given(
    nodes=st.lists(
        st.tuples(st.integers(1, 6), st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=3
    ),
    reserved=st.lists(
        st.tuples(st.integers(1, 2), st.integers(0, 2), st.sampled_from(["gang", "x"])), max_size=2
    ),
    running=st.lists(st.integers(0, 2), max_size=2),
    members=st.lists(
        st.tuples(
            st.integers(1, 3),
            st.sampled_from([{}, HALF, {"nvidia.com/gpu": "2"}, {"koordinator.sh/gpu": "200"}]),
            st.integers(0, 3),
        ),
        min_size=1,
        max_size=3,
    ),
    missing=st.sampled_from([0, 0, 1]),
)
def test_gang_with_devices_starts_after_every_sufficient_remedy(
    *,
    nodes: list[tuple[int, int, int]],
    reserved: list[tuple[int, int, str]],
    running: list[int],
    members: list[tuple[int, dict[str, str], int]],
    missing: int,
) -> None:
    """Members use GPUs, claims and reservations."""
    world: World = {}
    put(world, to_manifest(made("DeviceClass", "dra", DEVICES, spec={})))
    for index, (cpus, gpus, claimable) in enumerate(nodes):
        put(world, with_gpus(node(f"n{index}", {"cpu": cpus, "memory": 32}), gpus))
        put(world, to_manifest(device(f"n{index}", gpus)))
        put(world, resource_slice(f"n{index}", claimable))
    for index, (cpus, where, app) in enumerate(reserved):
        on = f"n{where % len(nodes)}"
        put(world, to_manifest(reservation(f"r{index}", cpus, on=on, for_app=app)))
    for index, where in enumerate(running):
        put(world, pod(f"r{index}", {"cpu": 1}, "d", on=f"n{where % len(nodes)}"))
    for index, (cpus, devices, claimed) in enumerate(members):
        member = pod(f"g-{index}", {"cpu": cpus}, "d", gang="g")
        member["metadata"]["labels"]["app"] = "gang"
        member["spec"]["containers"][0]["resources"]["requests"].update(devices)
        if claimed:
            put(world, resource_claim(f"c{index}", claimed))
            member["spec"]["resourceClaims"] = [{"name": "d", "resourceClaimName": f"c{index}"}]
        put(world, member)
    put(world, group(len(members) + missing))

    explanations = explained(world, len(members), WITH_DEVICES)
    first = explanations[0]
    assert len({one.gang for one in explanations}) == 1
    assert first.causes or first.verdict != "waits"
    for remedy in first.remedies:
        if remedy.sufficient and remedy.tried and "more have ended" not in remedy.text:
            after = applied(world, remedy)
            least = after["PodGroup/g"]["spec"]["minMember"]
            assert bound(after, WITH_DEVICES) >= least, (remedy, world)


def explained(
    world: World, count: int, config: KubeSchedulerConfiguration = BOTH
) -> list[Explanation]:
    one = embedded(*map(decode_object, world.values()), config=config)
    one.run_to_fixed_point()
    return [explain(one.scheduler.handle, f"default/g-{index}") for index in range(count)]


def bound(world: World, config: KubeSchedulerConfiguration = BOTH) -> int:
    """Return how many members get a node."""
    one = embedded(*map(decode_object, world.values()), config=config)
    one.run_to_fixed_point()
    pods = one.cluster.list(Pod).items
    return sum(bool(p.spec.node_name) for p in pods if p.metadata.name.startswith("g-"))


def names_short_resources(world: World, one: Explanation) -> None:
    """Check that a pod lacks each named resource of a node even if the node were empty or full."""
    sizes = [
        p["spec"]["containers"][0]["resources"]["requests"]
        for name, p in world.items()
        if name.startswith("Pod/g-")
    ]
    largest = {n: max(amount(each[n]) for each in sizes) for n in ("cpu", "memory")}
    for cause in one.causes:
        for resource in re.findall(r"^Insufficient (cpu|memory)$", cause.reason):
            ((requests, free),) = re.findall(
                rf"(?:^|; ){resource}: requests (\S+), (\S+) of", cause.detail
            )
            assert amount(free) < amount(requests) <= largest[resource], cause
        exceeded = re.search(r"exceedDimensions: \[(.*)\]", cause.reason)
        if exceeded and "runtime: " in cause.reason:
            figures = {
                part: dict(each.split(":") for each in text.split(",") if ":" in each)
                for part, text in re.findall(
                    r"(runtime|used|pod's request): (\S*?)(?:, |$)", cause.reason
                )
            }
            over = {
                n
                for n, limit in figures["runtime"].items()
                if amount(figures["used"].get(n, "0"))
                + amount(figures["pod's request"].get(n, "0"))
                > amount(limit)
            }
            assert over == set(exceeded[1].split()), cause


def amount(text: str) -> float:
    return float(Quantity.parse(str(text)).milli())


def can_be_applied(remedy: Remedy) -> bool:
    """Return whether following the text does not mean to wait for unnamed pods."""
    return "wait until the others give back" not in remedy.text.replace(
        ", or wait until the others give back", ""
    )


def applied(world: World, remedy: Remedy) -> World:
    """Return the world after the steps of a remedy."""
    after = deepcopy(world)
    known = 0
    text = remedy.text.removeprefix("together: ")
    for pattern, apply in STEPS:
        for step in re.finditer(pattern, text):
            apply(after, step)
            known += 1
    assert known, remedy
    return after


def create_members(after: World, step: re.Match[str]) -> None:
    for index in range(int(step[1])):
        put(after, renamed(after["Pod/g-0"], f"g-more-{index}"))


def set_least(after: World, step: re.Match[str]) -> None:
    after["PodGroup/g"]["spec"]["minMember"] = int(step[1])


def raise_max(after: World, step: re.Match[str]) -> None:
    raise_by(after[f"ElasticQuota/{step[1]}"]["spec"]["max"], step[2])


def raise_min(after: World, step: re.Match[str]) -> None:
    raise_by(after[f"ElasticQuota/{step[1]}"]["spec"]["min"], step[2])


def add_room(after: World, step: re.Match[str]) -> None:
    """Add a node with more of these resources, and enough pods for nothing to be lacking there."""
    more = node("room", {})
    raise_by(more["status"]["allocatable"], step[1])
    put(after, more)


def lend(after: World, step: re.Match[str]) -> None:
    for name in step[1].split(" and "):
        labels = after[f"ElasticQuota/{name}"]["metadata"]["labels"]
        labels[PREFIX + "allow-lent-resource"] = "true"


def add_weight(after: World, step: re.Match[str]) -> None:
    annotations = after[f"ElasticQuota/{step[2]}"]["metadata"].setdefault("annotations", {})
    parts = dict(each.split(":") for each in step[1].split(","))
    annotations[PREFIX + "shared-weight"] = str(parts).replace("'", '"')


def add_nodes(after: World, step: re.Match[str]) -> None:
    """Add nodes with the devices of the named one."""
    like = after[f"Node/{step[2]}"]
    for index in range(int(step[1]) if step[1] else 1):
        name = f"more-{index}"
        more = renamed(like, name)
        if f"Device/{step[2]}" in after:
            larger = re.search(r"(\d+) GPUs \(it has", step.string)
            gpus = (
                int(larger[1])
                if larger
                else len(after[f"Device/{step[2]}"]["spec"].get("devices", []))
            )
            put(after, to_manifest(device(name, gpus)))
            with_gpus(more, gpus)
        if (offered := after.get(f"ResourceSlice/{step[2]}")) is not None:
            needed = sum(map(int, re.findall(r"(\d+) free devices? that request", step.string)))
            put(after, resource_slice(name, max(len(offered["spec"]["devices"]), needed)))
        for size, resource in re.findall(r"(\S+) of (\S+) \(it has", step.string):
            more["status"]["allocatable"][resource] = size
        put(after, more)


def end_pods(after: World, step: re.Match[str]) -> None:
    for name in step[1].split(", "):
        kind, _, own = name.rpartition("/")
        del after[f"{'Reservation' if kind == 'reservation' else 'Pod'}/{own}"]


def ask_less(after: World, step: re.Match[str]) -> None:
    requests = after[f"Pod/{step[1]}"]["spec"]["containers"][0]["resources"]["requests"]
    for size, name in re.findall(r"(\S+) of (\S+)", step[2]):
        requests[name] = size


def recount(after: World, step: re.Match[str]) -> None:
    (request,) = after[f"ResourceClaim/{step[1]}"]["spec"]["devices"]["requests"]
    request["exactly"]["count"] = int(step[2])


def replace_request(after: World, step: re.Match[str]) -> None:
    requests = after[f"Pod/{step[1]}"]["spec"]["containers"][0]["resources"]["requests"]
    requests[step[2]] = requests.pop(step[3])


STEPS = (
    (r"create (\d+) more members? of gang", create_members),
    (r"set minMember of PodGroup default/g to (\d+)", set_least),
    (r"raise the max of quota (\w+) by (\S+?)(?=[,;:]? |$)", raise_max),
    (r"raise the min of quota (\w+) by (\S+?)(?=[,;]? |$)", raise_min),
    (r"quota (\w+) may use less [^:]*: raise its min by (\S+?)(?=[,;]? |$)", raise_min),
    (r"in all: add nodes with (\S+?)(?=;? |$)", add_room),
    (r"allow-lent-resource of (.+?) to true", lend),
    (r"(?<!\d )add (?:a|(\d+)) nodes? like (\w+)", add_nodes),
    (r"takes it when (\S+(?:, \S+)*) ha(?:s|ve) ended", end_pods),
    (r"(?:for default/)?(g-\d+): request at most (.+): ", ask_less),
    (r"recreate claim default/(c\d+) with a count of (\d+)", recount),
    (r"(?:for default/)?(g-\d+): request (\S+) instead of (\S+): ", replace_request),
)


def raise_by(amounts: dict[str, str], text: str) -> None:
    for each in text.split(","):
        name, _, more = each.partition(":")
        milli = amount(amounts.get(name, "0")) + amount(more)
        amounts[name] = f"{int(milli)}m"


def put(world: World, manifest: Mapping[str, Any]) -> None:
    world[f"{manifest['kind']}/{manifest['metadata']['name']}"] = dict(manifest)


def renamed(manifest: Mapping[str, Any], name: str) -> dict[str, Any]:
    copy: dict[str, Any] = deepcopy(dict(manifest))
    copy["metadata"]["name"] = name
    return copy


def written(size: Mapping[str, int]) -> dict[str, str]:
    return {n: f"{a}Gi" if n == "memory" else str(a) for n, a in size.items()}


def node(name: str, size: Mapping[str, int]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"allocatable": {**written(size), "pods": "99"}},
    }


def quota(name: str, limits: Mapping[str, tuple[int, int]], *, lends: bool) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {PREFIX + "allow-lent-resource": "true" if lends else "false"},
        },
        "spec": {
            "min": written({n: least for n, (least, _) in limits.items()}),
            "max": written({n: least + more for n, (least, more) in limits.items()}),
        },
    }


def pod(
    name: str,
    size: Mapping[str, int],
    owner: str,
    *,
    on: str = "",
    gang: str = "",
    is_kept: bool = False,
) -> dict[str, Any]:
    labels = ({QUOTA: owner} if owner != "d" else {}) | ({GANG: gang} if gang else {})
    labels |= {QUOTA_PREEMPTIBLE: "false"} if is_kept else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {
            "schedulerName": "default-scheduler",
            **({"nodeName": on} if on else {}),
            "containers": [{"name": "c", "resources": {"requests": written(size)}}],
        },
        **({"status": {"phase": "Running"}} if on else {}),
    }


def with_gpus(manifest: dict[str, Any], gpus: int) -> dict[str, Any]:
    """Return the node with what koordlet reports of its GPUs."""
    if gpus:
        percent = str(100 * gpus)
        manifest["status"]["allocatable"] |= {
            "koordinator.sh/gpu": percent,
            "koordinator.sh/gpu-core": percent,
            "koordinator.sh/gpu-memory-ratio": percent,
            "koordinator.sh/gpu-memory": f"{80 * gpus}Gi",
            "nvidia.com/gpu": str(gpus),
        }
    return manifest


def resource_slice(on: str, count: int) -> dict[str, Any]:
    return {
        "apiVersion": DEVICES,
        "kind": "ResourceSlice",
        "metadata": {"name": on},
        "spec": {
            "driver": "gpu.example.com",
            "nodeName": on,
            "pool": {"name": on, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"d{index}"} for index in range(count)],
        },
    }


def resource_claim(name: str, count: int) -> dict[str, Any]:
    request = {"name": "r", "exactly": {"deviceClassName": "dra", "count": count}}
    return {
        "apiVersion": DEVICES,
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": [request]}},
    }


def group(least: int) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "default"},
        "spec": {"minMember": least},
    }
