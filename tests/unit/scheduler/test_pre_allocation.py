"""Reservations that take over running pods."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from tests.equipped_nodes import ALLOCATED, STATUS, bound_pod, machine
from tests.reservations import affinity, config, exactly, reservation
from tests.unit.scheduler.conftest import NewEmbedded
from tests.unit.scheduler.test_reservations import Played
from tests.worlds import START_S, Amount, node, pod

from koordinator.api.kubescheduler import KubeSchedulerConfiguration
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.api.reservation import Reservation
from koordinator.scheduler.loop import Bound
from koordinator.simulator import schedule

WEB = {"app": "web"}
REQUIRED = {"scheduling.koordinator.sh/pre-allocation-required": "true"}
CANDIDATE = {"pod.koordinator.sh/is-pre-allocatable": "true"}


@pytest.fixture
def play(embedded: NewEmbedded) -> Any:
    def start(*objects: KubeObject, on: KubeSchedulerConfiguration | None = None) -> Played:
        return Played(embedded(*objects, config=on or config()))

    return start


def over(name: str, cpu: Amount, **more: Any) -> Reservation:
    """Return a reservation that may take over pods."""
    more = {"policy": "Restricted", "preAllocation": True, **more}
    return reservation(name, cpu, **more)


def several(mode: str = "Default") -> dict[str, object]:
    return {"preAllocationPolicy": {"mode": mode, "enableMultiple": True}}


def test_a_running_pod_becomes_the_user_of_a_new_reservation(play: Any) -> None:
    """The pod's usage counts once, and returns to the reservation when the pod ends."""
    played = play(node("n", cpu=4), pod("a", 3, on="n", labels=WEB), over("r", 4), pod("x", 1))

    assert played.nodes()["r"] == "n"
    assert played.uses("a") == "r"
    assert [owner.name for owner in played.get("r").status.current_owners] == ["a"]
    assert played.nodes()["x"] == ""
    assert played.delete(Pod, "a").nodes()["x"] == ""
    assert played.add(pod("b", 4, labels=WEB)).uses("b") == "r"


def test_pending_pod_is_retried_after_a_takeover(play: Any) -> None:
    """Until then pod and reservation both count."""
    played = play(node("n", cpu=4), pod("a", 3, on="n", labels=WEB), over("r", 3), pod("x", 1))

    assert (played.uses("a"), played.nodes()["x"]) == ("r", "n")


def test_no_pod_is_taken_over_twice(play: Any) -> None:
    """Two reservations exist before the pod names one."""
    pods = [pod(name, 2, on="n", labels=WEB) for name in ("a", "b")]
    reserved = [over(f"r{i}", 2, labels=REQUIRED) for i in range(3)]
    played = play(node("n", cpu=9), *pods, *reserved)

    assert sorted([played.uses("a"), played.uses("b")]) == ["r0", "r1"]
    assert [played.nodes()[f"r{i}"] for i in range(3)] == ["n", "n", ""]


def test_pods_of_other_owners_are_not_taken_over(play: Any) -> None:
    """The reservation waits as without pre-allocation."""
    played = play(node("n", cpu=4), pod("a", 3, on="n"), over("r", 4))

    assert (played.nodes()["r"], played.uses("a")) == ("", "")


def test_pods_that_ignore_reservations_are_taken_over_by_owners_only(play: Any) -> None:
    """A reservation takes over a pod that ignores reservations only if the pod is an owner."""
    ignores = {"scheduling.koordinator.sh/reservation-ignored": "true"}
    others = play(node("n", cpu=4), pod("a", 3, on="n", labels=ignores), over("r", 4))
    assert (others.nodes()["r"], others.uses("a")) == ("", "")

    own = play(node("n", cpu=4), pod("a", 3, on="n", labels={**WEB, **ignores}), over("r", 4))
    assert own.uses("a") == "r"


TOLERATES_ALL = {"operator": "Exists"}


@pytest.mark.parametrize(
    ("wish", "fields"),
    [
        (affinity(name="other"), {}),
        ({}, {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}),
        (affinity(), {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}),
        (affinity(reservationSelector={"pool": "x"}), {}),
        (exactly("memory"), {}),
    ],
)
@pytest.mark.parametrize("mode", ["Default", "Cluster"])
def test_pods_that_want_another_reservation_are_not_taken_over(
    play: Any, wish: dict[str, str], fields: dict[str, Any], mode: str
) -> None:
    """The rule applies to all kinds of candidates."""
    labels, first = {**WEB, **CANDIDATE}, {"pod.koordinator.sh/pre-allocatable-priority": "9"}
    pods = [
        pod("a", 2, "1Gi", on="n", labels=labels, annotations={**wish, **first}),
        pod("b", 1, on="n", labels=labels, annotations=affinity(tolerations=[TOLERATES_ALL])),
    ]
    reserved = over("r", 2, **several(mode), **fields)
    on = config(preAllocationConfig={"enableClusterMode": True})
    played = play(node("n", cpu=4), *pods, reserved, on=on)

    assert (played.uses("a"), played.uses("b")) == ("", "r")


def test_one_pod_is_taken_over_unless_there_may_be_several(play: Any) -> None:
    """A single one is the pod that fills the reservation most; several are as many as needed."""
    pods = [pod(name, 2, on="n", labels=WEB) for name in ("a", "b")]
    one = play(node("n", cpu=4), *pods, over("r", 4))
    assert one.nodes()["r"] == ""
    assert "1 Insufficient cpu by node" in one.message("r")

    both = play(node("n", cpu=4), *pods, over("r", 4, **several()))
    assert (both.uses("a"), both.uses("b")) == ("r", "r")


def test_only_a_restricted_reservation_takes_over_pods(play: Any) -> None:
    """Other reservations could give more than they have."""
    played = play(node("n", cpu=4), pod("a", 3, on="n", labels=WEB), over("r", 4, policy="Aligned"))

    assert "pre allocation is unsupported with current attributes" in played.message("r")


def test_reservation_may_require_pre_allocation(play: Any) -> None:
    """A free node does not suffice then."""
    reserved = over("r", 2, labels=REQUIRED)
    played = play(node("full", cpu=2), node("free", cpu=4), reserved)
    assert "node(s) no pod match reservation with pre allocation required" in played.message("r")

    assert played.add(pod("a", 2, on="full", labels=WEB)).nodes()["r"] == "full"


def test_required_pre_allocation_considers_nodes_with_candidates_only(play: Any) -> None:
    """Other nodes are excluded, whatever their capacity."""
    reserved = over("r", 4, labels=REQUIRED)
    none = play(node("a", cpu=2), node("b", cpu=2), reserved)
    assert none.message("r").startswith(
        "0/2 nodes are available: node(s) no pod match reservation with pre allocation required."
    )

    one = play(node("a", cpu=2), node("b", cpu=2), pod("u", 2, on="a", labels=WEB), reserved)
    assert "1 node(s) didn't satisfy plugin(s) [Reservation]" in one.message("r")


def test_the_annotations_of_a_reservation_count_for_the_pods_that_it_takes_over(play: Any) -> None:
    """Unrestricted amounts may be larger, and withheld ones are unavailable to the pods."""
    user = pod("a", 2, "4Gi", on="n", labels=WEB)
    options = {"scheduling.koordinator.sh/reservation-restricted-options": '{"resources":["cpu"]}'}
    reserved = over("r", 2, memory="1Gi", annotations=options)
    assert play(node("n"), user, reserved).uses("a") == "r"

    inner = {"node.koordinator.sh/reservation": '{"resources":{"cpu":"1"}}'}
    assert play(node("n"), user, over("r", 2, annotations=inner)).uses("a") == ""
    unreadable = {"node.koordinator.sh/reservation": "{"}
    message = play(node("n"), user, over("r", 2, annotations=unreadable)).message("r")
    assert "node.koordinator.sh/reservation" in message


@pytest.mark.parametrize(("fields", "expected"), [({}, [25, 12]), ({"multiple": True}, [50, 33])])
def test_scores_of_pre_allocation_are_not_normalized(
    fields: dict[str, bool], expected: list[int]
) -> None:
    """The scores are the utilisation by one pod, or prefer few pods."""
    result = schedule(
        [
            *(node(name, cpu=16) for name in ("a", "b")),
            pod("x", 7 if fields else 8, on="a"),
            pod("u", 2, on="a", labels=WEB),
            pod("y", 8, on="b"),
            *(pod(name, 1, on="b", labels=WEB) for name in ("v", "w")[: 1 + len(fields)]),
            over("r", 8, **(several() if fields else {})),
        ],
        config(),
        now_s=START_S,
        explain=True,
    )

    (outcome,) = result.reservations
    assert isinstance(outcome, Bound)
    assert outcome.scorecard is not None
    scores = outcome.scorecard.scores["Reservation"] // 5000
    assert scores.tolist() == expected


def test_free_capacity_may_precede_pods(play: Any) -> None:
    """The configuration sets this preference."""
    objects = (node("n", cpu=8), pod("a", 2, on="n", labels=WEB), over("r", 2))
    prefers = config(preAllocationConfig={"preferNoPreAllocatedPods": True})

    assert play(*objects).uses("a") == "r"
    assert play(*objects, on=prefers).uses("a") == ""


def test_missing_free_capacity_is_reported_by_the_plugin(play: Any) -> None:
    """Nodes without candidates report it, too, so other plugins need not compare amounts."""
    full = (node("n", cpu=2), pod("other", 1, on="n"), over("r", 2))
    prefers = config(
        preAllocationConfig={"preferNoPreAllocatedPods": True}, off=("NodeResourcesFit",)
    )

    assert "1 Insufficient cpu by node." in play(*full, on=prefers).message("r")
    assert play(node("n", cpu=3), *full[1:], on=prefers).nodes()["r"] == "n"


def test_cluster_mode_takes_over_any_labelled_pod(play: Any) -> None:
    """If configured, the order is the priority in an annotation."""
    first = {"pod.koordinator.sh/pre-allocatable-priority": "9"}
    objects = (
        node("n", cpu=4),
        pod("a", 2, on="n", labels=CANDIDATE),
        pod("b", 2, on="n", labels=CANDIDATE, annotations=first),
        over("r", 2, **several("Cluster")),
    )
    refused = play(*objects)
    assert "requires cluster mode pre-allocation which is disabled" in refused.message("r")

    allowed = config(preAllocationConfig={"enableClusterMode": True})
    played = play(*objects, on=allowed)
    assert (played.uses("a"), played.uses("b")) == ("", "r")


# -- devices and CPUs --------------------------------------------------------------------------

GPU = "nvidia.com/gpu"
PARTS = config("NodeNUMAResource", "DeviceShare")


def gpus_of(annotations: Mapping[str, str]) -> list[int]:
    return sorted(entry["minor"] for entry in json.loads(annotations[ALLOCATED])["gpu"])


def on_gpus(name: str, *minors: int, **more: Any) -> Pod:
    """Return a running pod with these GPUs."""
    entries = [{"minor": minor, "resources": WHOLE} for minor in minors]
    allocation = {ALLOCATED: json.dumps({"gpu": entries})}
    return pod(name, 1, requests={GPU: len(minors)}, on="m", annotations=allocation, **more)


WHOLE = {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory-ratio": "100"}


@pytest.mark.parametrize(("count", "expected"), [(1, [2]), (2, [2, 3])])
def test_a_reservation_gets_the_devices_of_the_pod_that_it_takes_over(
    play: Any, count: int, expected: list[int]
) -> None:
    """A larger reservation gets further devices; the rest of the node is free."""
    played = play(
        *machine("m", gpus=4),
        on_gpus("a", 2, labels=WEB),
        over("r", 1, requests={GPU: count}),
        pod("other", 1, requests={GPU: 4 - count}),
        on=PARTS,
    )

    assert played.uses("a") == "r"
    assert gpus_of(played.get("r").metadata.annotations) == expected
    assert played.nodes()["other"] == "m"


def test_a_reservation_gets_the_devices_of_all_pods_that_it_takes_over(play: Any) -> None:
    """The pods that the reservation takes over are inside it."""
    played = play(
        *machine("m", gpus=4),
        on_gpus("a", 1, labels=WEB),
        on_gpus("b", 3, labels=WEB),
        on_gpus("c", 0, 2),
        over("r", 2, requests={GPU: 2}, **several()),
        on=PARTS,
    )

    assert {played.uses("a"), played.uses("b")} == {"r"}
    assert gpus_of(played.get("r").metadata.annotations) == [1, 3]


def test_pods_with_unsuitable_devices_are_not_taken_over(play: Any) -> None:
    """Half a GPU cannot be part of a whole one while another pod has the other half."""
    half = {"koordinator.sh/gpu-core": "50", "koordinator.sh/gpu-memory-ratio": "50"}
    pods = [
        pod(
            name,
            1,
            requests=half,
            on="m",
            labels=labels,
            annotations={ALLOCATED: json.dumps({"gpu": [{"minor": minor, "resources": half}]})},
        )
        for name, minor, labels in (("a", 0, WEB), ("b", 1, WEB), ("x", 0, {}), ("y", 1, {}))
    ]
    requests = dict.fromkeys(half, "100")
    required = over("r", 2, requests=requests, labels=REQUIRED, **several())
    refused = play(*machine("m", gpus=2), *pods, required, on=PARTS)
    assert "1 Reservation(s) Insufficient GPU Devices" in refused.message("r")

    played = play(
        *machine("m", gpus=3), *pods, over("r", 2, requests=requests, **several()), on=PARTS
    )
    assert gpus_of(played.get("r").metadata.annotations) == [2]
    assert {played.uses("a"), played.uses("b")} == {""}


@pytest.mark.parametrize(("count", "expected"), [(2, "1,5"), (4, "0-1,4-5")])
def test_a_reservation_gets_the_cpus_of_the_pod_that_it_takes_over(
    play: Any, count: int, expected: str
) -> None:
    """A larger reservation gets further CPUs."""
    user = bound_pod("a", 2, on="m", labels=WEB, annotations={STATUS: {"cpuset": "1,5"}})
    labels, template = dict(user.metadata.labels), {"priority": user.spec.priority}
    reserved = over("r", count, memory="1Gi", labels=labels, template=template)
    played = play(*machine("m", zones=1, cores=4), user, reserved, on=PARTS)

    assert played.uses("a") == "r"
    assert json.loads(played.get("r").metadata.annotations[STATUS])["cpuset"] == expected
