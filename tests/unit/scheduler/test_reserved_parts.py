"""Devices, CPUs and NUMA amounts inside reservations."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from tests.equipped_nodes import ALLOCATED, NUMA_SPEC, SPEC, STATUS, bound_pod, machine
from tests.reservations import affinity, config, reservation
from tests.unit.scheduler.conftest import NewEmbedded
from tests.unit.scheduler.test_reservations import Played
from tests.worlds import pod

from koordinator.api.kubescheduler import FeatureGates
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.api.reservation import Reservation

WEB = {"app": "web"}
GPU = "nvidia.com/gpu"
PARTS = config("NodeNUMAResource", "DeviceShare")


@pytest.fixture
def play(embedded: NewEmbedded) -> Any:
    def start(*objects: KubeObject) -> Played:
        return Played(embedded(*objects, config=PARTS))

    return start


def gpus(number: int, name: str = "p", **more: Any) -> Pod:
    return pod(name, 1, requests={GPU: number}, **more)


def minors(annotations: Mapping[str, str]) -> list[int]:
    """Return the GPUs in an annotation."""
    allocation = json.loads(annotations.get(ALLOCATED, "{}"))
    return sorted(entry["minor"] for entry in allocation.get("gpu", ()))


def of_pod(played: Played, name: str) -> list[int]:
    return minors(played.one.cluster.get(Pod, name, "default").metadata.annotations)


def cpus_of(played: Played, name: str) -> str:
    meta = played.one.cluster.get(Pod, name, "default").metadata
    return str(json.loads(meta.annotations[STATUS])["cpuset"]) if STATUS in meta.annotations else ""


# -- devices -----------------------------------------------------------------------------------


def test_reservation_holds_devices(play: Any) -> None:
    """The reservation has a pod's device annotation, and other pods get the rest."""
    played = play(
        *machine("m", gpus=4),
        reservation("r", 1, requests={GPU: 2}),
        gpus(2, "other"),
        gpus(1, "none"),
    )

    assert minors(played.get("r").metadata.annotations) == [0, 1]
    assert of_pod(played, "other") == [2, 3]
    assert played.nodes()["none"] == ""


def test_owners_get_reserved_devices(play: Any) -> None:
    """Owners get reserved devices one by one, even if others are free."""
    played = play(*machine("m", gpus=4), gpus(1, "first"))
    played.add(reservation("r", 1, requests={GPU: 2}))
    played.add(gpus(1, "a", labels=WEB)).add(gpus(1, "b", labels=WEB))

    assert minors(played.get("r").metadata.annotations) == [2, 3]
    assert (of_pod(played, "a"), of_pod(played, "b")) == ([2], [3])
    assert played.uses("b") == "r"
    assert played.add(gpus(1, "c")).nodes()["c"] == "m"
    assert of_pod(played, "c") == [1]


def test_an_aligned_owner_takes_free_devices_on_top(play: Any) -> None:
    """A restricted owner does not."""
    objects = (*machine("m", gpus=4), reservation("r", 1, requests={GPU: 2}))
    played = play(*objects).add(gpus(3, "p", labels=WEB))
    assert (of_pod(played, "p"), played.uses("p")) == ([0, 1, 2], "r")

    kept = reservation("r", 1, requests={GPU: 2}, policy="Restricted")
    refused = play(*machine("m", gpus=4), kept)
    refused.add(gpus(3, "p", labels=WEB, annotations=affinity(name="r")))
    assert refused.nodes()["p"] == ""


@pytest.mark.parametrize(("kept", "count", "expected"), [(2, 3, [0, 2, 3]), (1, 2, [2, 3])])
def test_additional_devices_come_after_reserved_ones(
    play: Any, kept: int, count: int, expected: list[int]
) -> None:
    """The devices are near the reserved ones, which would otherwise stay unused."""
    played = play(*machine("m", gpus=4), gpus(2, "before"))
    played.add(reservation("r", 1, requests={GPU: kept})).delete(Pod, "before")
    played.add(gpus(count, "p", labels=WEB), gpus(4 - count, "other"))

    assert (of_pod(played, "p"), played.uses("p")) == (expected, "r")
    assert sorted(of_pod(played, "p") + of_pod(played, "other")) == [0, 1, 2, 3]


IN_ONE = {"koordinator.sh/gpu": 200}
SPELT = {"koordinator.sh/gpu-core": 200, "koordinator.sh/gpu-memory-ratio": 200}


@pytest.mark.parametrize("policy", ["Aligned", "Restricted"])
@pytest.mark.parametrize(
    ("kept", "wanted"),
    [(IN_ONE, SPELT), (IN_ONE, SPELT | {"koordinator.sh/gpu.shared": 2}), (SPELT, IN_ONE)],
)
def test_gpus_spelt_in_two_ways_are_the_same_to_a_reservation_and_its_owner(
    play: Any, policy: str, kept: dict[str, int], wanted: dict[str, int]
) -> None:
    """The pod webhook expands requests, and a reservation is stored as written."""
    played = play(
        *machine("m", gpus=2),
        reservation("r", 1, requests=kept, policy=policy, allocate_once=False),
    )
    half = {name: amount // 2 for name, amount in wanted.items()}
    played.add(pod("a", requests=half, labels=WEB))

    assert (played.nodes()["a"], played.uses("a")) == ("m", "r")
    taken = played.get("r").status.allocated
    assert {name: str(taken[name]) for name in kept} == dict.fromkeys(kept, "100")

    played.add(pod("b", requests=half, labels=WEB), pod("c", requests=half, labels=WEB))
    assert [played.uses(name) for name in ("b", "c")] == ["r", ""]
    assert (played.nodes()["b"], played.nodes()["c"]) == ("m", "")
    assert of_pod(played, "a") + of_pod(played, "b") == [0, 1]


def test_a_restricted_reservation_gives_its_own_devices_or_none(play: Any) -> None:
    """A pod with several shared devices must find them among the reserved ones."""
    share = {"koordinator.sh/gpu-core": 60, "koordinator.sh/gpu-memory-ratio": 60}
    kept = reservation("r", 1, requests=share, policy="Restricted")
    needs = affinity(name="r")
    played = play(*machine("m", gpus=2), kept)
    played.add(pod("a", 1, requests=share, labels=WEB, annotations=needs))
    played.add(pod("b", 1, requests=share, labels=WEB, annotations=needs))

    assert of_pod(played, "a") == minors(played.get("r").metadata.annotations)
    assert played.nodes()["b"] == ""


def test_devices_are_released_with_users_and_reservation(play: Any) -> None:
    """Devices return from a user to the owners, and from the reservation to all pods."""
    played = play(*machine("m", gpus=2), reservation("r", 1, requests={GPU: 2}))
    played.add(gpus(2, "a", labels=WEB), gpus(1, "other")).delete(Pod, "a")
    assert played.nodes()["other"] == ""

    played.delete(Reservation, "r")
    assert of_pod(played, "other") == [0]


CORE, MEMORY, RATIO = (f"koordinator.sh/gpu-{what}" for what in ("core", "memory", "memory-ratio"))


def resizing(embedded: NewEmbedded, *objects: KubeObject) -> Played:
    return Played(embedded(*objects, config=PARTS, gates=FeatureGates.parse("ResizePod=true")))


def amounts(played: Played, name: str) -> dict[str, str]:
    return {key: str(amount) for key, amount in played.get(name).status.allocatable.items()}


def test_devices_are_among_the_amounts_of_a_reservation(embedded: NewEmbedded, play: Any) -> None:
    """With the gate ResizePod they are added to the requested amounts."""
    wanted = {"scheduling.koordinator.sh/reservation-resize-allocatable": '{"resources":{"x/y":1}}'}
    kept = reservation("r", 1, requests={GPU: 2}, annotations=wanted)
    played = resizing(embedded, *machine("m", gpus=4), kept)

    requests = {"cpu": "1", GPU: "2", "x/y": "1"}
    assert amounts(played, "r") == {**requests, CORE: "200", MEMORY: "80Gi", RATIO: "200"}
    assert amounts(play(*machine("m", gpus=4), kept), "r") == requests


def test_owners_use_up_the_cores_of_a_resized_reservation(embedded: NewEmbedded) -> None:
    """The status has the owners' amounts; other pods get only the devices beside them."""
    played = resizing(embedded, *machine("m", gpus=4), reservation("r", 1, requests={GPU: 2}))
    half = {CORE: 100, RATIO: 100}
    played.add(pod("a", 1, requests=half, labels=WEB))
    played.add(pod("b", 1, requests={CORE: 300, RATIO: 300}), gpus(2, "c"))

    assert (of_pod(played, "a"), of_pod(played, "c")) == ([0], [2, 3])
    assert played.nodes()["b"] == ""
    used = played.get("r").status.allocated
    assert {name: str(amount) for name, amount in used.items()} == {
        "cpu": "1",
        CORE: "100",
        RATIO: "100",
    }


def test_malformed_resize_annotation_is_reported(embedded: NewEmbedded) -> None:
    """The reservation waits until the annotation is fixed."""
    wrong = {"scheduling.koordinator.sh/reservation-resize-allocatable": "much"}
    kept = reservation("r", 1, requests={GPU: 2}, annotations=wrong)
    played = resizing(embedded, *machine("m", gpus=4), kept)

    assert "reservation-resize-allocatable" in played.message("r")
    (condition,) = played.get("r").status.conditions
    assert condition.message == played.message("r")


# -- CPUs and NUMA nodes -----------------------------------------------------------------------


def cpus(number: int, name: str = "p", **more: Any) -> Pod:
    return bound_pod(name, number, **more)


def kept_cpus(number: int, **more: Any) -> Reservation:
    """Return a reservation of whole CPUs, made as ``cpus`` makes pods."""
    like = cpus(number)
    labels = dict(like.metadata.labels)
    template = {"priority": like.spec.priority}
    return reservation("r", number, labels=labels, template=template, **more)


def test_owners_get_the_cpus_of_their_reservation(play: Any) -> None:
    """Others get other CPUs."""
    played = play(*machine("m", zones=1, cores=4), kept_cpus(4))
    kept = json.loads(played.get("r").metadata.annotations[STATUS])["cpuset"]
    assert kept == "0-1,4-5"

    played.add(cpus(2, "other")).add(cpus(2, "a", labels=WEB)).add(cpus(2, "b", labels=WEB))
    assert cpus_of(played, "other") == "2,6"
    assert sorted([cpus_of(played, "a"), cpus_of(played, "b")]) == ["0,4", "1,5"]


def test_a_restricted_reservation_gives_no_other_cpus(play: Any) -> None:
    """An aligned one gives other CPUs after its own."""
    aligned = play(*machine("m", zones=1, cores=4), kept_cpus(2))
    aligned.add(cpus(4, "p", labels=WEB))
    assert cpus_of(aligned, "p") == "0-1,4-5"

    strict = play(*machine("m", zones=1, cores=4), kept_cpus(2, policy="Restricted"))
    strict.add(cpus(4, "p", labels=WEB, annotations=affinity(name="r")))
    assert strict.nodes()["p"] == ""


def test_additional_cpus_come_after_reserved_ones(play: Any) -> None:
    """Held ones would otherwise stay unused; others get the rest."""
    played = play(*machine("m", zones=1, cores=4), cpus(4, "before"))
    played.add(kept_cpus(2)).delete(Pod, "before").add(cpus(4, "p", labels=WEB), cpus(4, "other"))

    assert json.loads(played.get("r").metadata.annotations[STATUS])["cpuset"] == "2,6"
    assert (cpus_of(played, "p"), cpus_of(played, "other")) == ("0,2,4,6", "1,3,5,7")


def test_numa_amounts_are_reserved_for_owners(play: Any) -> None:
    """A pod of one NUMA node gets the one with its reservation."""
    single = {NUMA_SPEC: '{"numaTopologyPolicy":"SingleNUMANode"}'}
    played = play(
        *machine("m", zones=2, cores=2),
        reservation("r", 3, "1Gi", annotations=single),
        pod("o1", 3, "1Gi", annotations=single),
    )
    played.add(pod("o2", 2, "1Gi", annotations=single))
    assert played.nodes()["o2"] == ""

    played.add(pod("p", 2, "1Gi", labels=WEB, annotations=single))
    zone = json.loads(played.get("r").metadata.annotations[STATUS])["numaNodeResources"][0]["node"]
    meta = played.one.cluster.get(Pod, "p", "default").metadata
    assert json.loads(meta.annotations[STATUS])["numaNodeResources"][0]["node"] == zone
    assert SPEC not in meta.annotations


@pytest.mark.parametrize("policy", ["SingleNUMANode", "Restricted", "BestEffort"])
def test_owners_get_the_reserved_numa_node_among_equal_ones(play: Any, policy: str) -> None:
    """An owner uses no amounts of a second NUMA node."""
    kept = {"numaNodeResources": [{"node": 1, "resources": {"cpu": "6", "memory": "1Gi"}}]}
    wish = {NUMA_SPEC: json.dumps({"numaTopologyPolicy": policy})}
    reserved = reservation("r", 6, "1Gi", on="m", annotations={**wish, STATUS: json.dumps(kept)})
    played = play(
        *machine("m", zones=2, cores=4), reserved, pod("p", 4, "1Gi", labels=WEB, annotations=wish)
    )

    meta = played.one.cluster.get(Pod, "p", "default").metadata
    assert json.loads(meta.annotations[STATUS])["numaNodeResources"][0]["node"] == 1
    assert played.uses("p") == "r"
