"""Changes of pending pods: a change of a field that a plugin reads requeues the pod."""

from collections.abc import Sequence
from typing import Any

import pytest
from tests.equipped_nodes import machine
from tests.reservations import affinity, reservation
from tests.unit.domain.quota.quotas import PREFIX, quota
from tests.unit.scheduler.test_gangs import group, members, placed
from tests.worlds import HOSTNAME, START_S, device, node, pod

from koordinator.api.meta import JsonObject, KubeObject
from koordinator.api.pod import Pod
from koordinator.api.reservation import Reservation
from koordinator.simulator import Embedded, default_configuration

KOORD = "koord-scheduler"
GANG = "gang.scheduling.koordinator.sh/"
POD_GROUP = "pod-group.scheduling.sigs.k8s.io"
QUOTA = PREFIX + "name"
CPUS = {"koordinator.sh/qosClass": "LSR"}
CPU_SPEC = "scheduling.koordinator.sh/resource-spec"
CPU_SET = "scheduling.koordinator.sh/resource-status"
DEVICE_HINT = "scheduling.koordinator.sh/device-allocate-hint"
ONE_GPU = {"koordinator.sh/gpu-core": 100, "koordinator.sh/gpu-memory-ratio": 100}
TWO_GPUS: dict[str, Any] = {"koordinator.sh/gpu-core": 200, "koordinator.sh/gpu-memory-ratio": 200}
WEB = {"app": "web"}
TERM = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": WEB}}
AVOIDS = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]}}
TWO_MEMBERS = {GANG + "name": "g", GANG + "min-available": "2"}
CONFIG = default_configuration()


def labels(given: dict[str, str | None]) -> JsonObject:
    return {"metadata": {"labels": given}}


def annotations(given: dict[str, str | None]) -> JsonObject:
    return {"metadata": {"annotations": given}}


def waiting(cpu: int = 4, **more: Any) -> Pod:
    return pod("p", cpu, "1Gi", schedulerName=KOORD, **more)


def in_quota() -> list[KubeObject]:
    full = quota("full", most={"cpu": 1, "memory": "64Gi"}, least={"cpu": 0})
    wide = quota("wide", most={"cpu": 8, "memory": "64Gi"}, least={"cpu": 8})
    return [node("n", 8), full, wide, waiting(labels={QUOTA: "full"})]


def in_reservation() -> list[KubeObject]:
    wrong = affinity(reservationSelector={"pool": "b"})
    room = reservation("r", 4, "4Gi", on="n", policy="Restricted", labels={"pool": "a"})
    return [node("n", 8), room, waiting(2, labels=WEB, annotations=wrong)]


def with_cpus() -> list[KubeObject]:
    half = {CPU_SET: '{"cpuset": "0-3"}'}  # of each core
    beside = pod("b", 4, on="n", labels=CPUS, annotations=half)
    whole = {CPU_SPEC: '{"requiredCPUBindPolicy": "FullPCPUs"}'}
    return [
        *machine("n", zones=1),
        beside,
        waiting(2, priority=9500, labels=CPUS, annotations=whole),
    ]


def with_devices() -> list[KubeObject]:
    other = {DEVICE_HINT: '{"gpu": {"selector": {"matchLabels": {"a": "b"}}}}'}
    asks = waiting(1, requests=ONE_GPU, annotations=other)
    return [node("n", 8, **TWO_GPUS), device("n", gpus=2), asks]


def in_gang() -> list[KubeObject]:
    alone = waiting(1, labels={POD_GROUP: "g"})
    return [node("n"), group("g", 3), group("h", 3), alone, *members("h", 2, schedulerName=KOORD)]


CASES: dict[str, tuple[Sequence[KubeObject], JsonObject]] = {
    "another quota": (in_quota(), labels({QUOTA: "wide"})),
    "no quota any more": (in_quota(), labels({QUOTA: None})),
    "the reservation that it asks for": (
        in_reservation(),
        annotations({**affinity(reservationSelector={"pool": "a"})}),
    ),
    "what makes it own reserved room": (
        [node("n", 4), reservation("r", 4, "4Gi", on="n"), waiting(labels={"app": "db"})],
        labels({**WEB}),
    ),
    "the bind policy of its CPUs": (
        with_cpus(),
        annotations({CPU_SPEC: '{"preferredCPUBindPolicy": "SpreadByPCPUs"}'}),
    ),
    "the devices that it selects": (with_devices(), annotations({DEVICE_HINT: None})),
    "a toleration": (
        [node("n", taints=["a=b:NoSchedule"]), waiting()],
        {"spec": {"tolerations": [{"key": "a", "operator": "Exists"}]}},
    ),
    "its last scheduling gate": (
        [node("n"), waiting(schedulingGates=[{"name": "g"}])],
        {"spec": {"schedulingGates": None}},
    ),
    "a label that others avoid": (
        [node("n"), pod("other", 1, on="n", affinity=AVOIDS), waiting(labels=WEB)],
        labels({"app": "db"}),
    ),
    "the least number of its gang": (
        [node("n"), waiting(annotations=TWO_MEMBERS)],
        annotations({GANG + "min-available": "1"}),
    ),
    "no gang any more": (
        [node("n"), waiting(annotations=TWO_MEMBERS)],
        annotations({GANG + "name": None}),
    ),
    "another gang": (in_gang(), labels({POD_GROUP: "h"})),
}


def world(*objects: KubeObject) -> Embedded:
    one = Embedded(CONFIG, now_s=START_S)
    one.load(objects)
    one.scheduler.step()
    return one


@pytest.mark.parametrize("name", list(CASES))
def test_pod_that_fits_after_a_change_is_placed(name: str) -> None:
    """The rejecting plugin need not be the one that reads the changed field."""
    objects, change = CASES[name]
    one = world(*objects)
    assert "p" not in placed(one)

    one.cluster.patch(Pod, "p", "default", change)
    one.scheduler.step()

    assert placed(one)["p"] == "n"
    one.scheduler.validate()


def test_change_that_no_plugin_reads_causes_no_attempt() -> None:
    """An example is an annotation of another program."""
    one = world(node("n", 1), waiting())
    queued = one.scheduler.queue.get("default/p")
    assert queued is not None
    attempts = queued.attempts

    one.cluster.patch(Pod, "p", "default", annotations({"example.com/seen": "true"}))
    one.scheduler.step()

    assert queued.attempts == attempts


@pytest.mark.parametrize("first", ["g-0", "g-1"])
def test_conflicting_members_use_the_lowest_minimum(first: str) -> None:
    """The order of creation does not matter."""
    minimums = {"g-0": "3", "g-1": "2"}
    order = sorted(minimums, key=lambda name: name != first)
    pods = [
        pod(
            name,
            1,
            schedulerName=KOORD,
            annotations={GANG + "name": "g", GANG + "min-available": minimums[name]},
        )
        for name in order
    ]

    assert set(placed(world(node("n"), *pods))) == {"g-0", "g-1"}


def test_members_use_their_annotations_after_their_pod_group_is_deleted() -> None:
    """No other event is needed."""
    terms = {GANG + "name": "g", GANG + "min-available": "1"}
    one = world(node("n"), group("g", 3), waiting(1, annotations=terms))
    assert placed(one) == {}

    one.cluster.delete(type(group("g", 3)), "g", "default")
    one.scheduler.step()

    assert placed(one) == {"p": "n"}


def test_first_node_requeues_pods() -> None:
    """A pod rejected without any nodes waits for a node, not for a timeout."""
    one = world(pod("p", 1), *members("g", 2), group("g", 2))
    assert placed(one) == {}

    one.cluster.create(node("n"))
    one.scheduler.step()

    assert len(placed(one)) == 3


@pytest.mark.parametrize("first", [0, 1])
def test_a_reservation_that_waits_is_placed_when_a_node_comes(first: int) -> None:
    """The first node may be among others or the only one."""
    template = {"schedulerName": KOORD}
    small = [node(f"small{number}", 1) for number in range(first)]
    one = world(*small, reservation("r", 4, "4Gi", template=template))
    assert one.cluster.get(Reservation, "r").status.node_name == ""

    one.cluster.create(node("n"))
    one.scheduler.step()

    assert one.cluster.get(Reservation, "r").status.node_name == "n"
