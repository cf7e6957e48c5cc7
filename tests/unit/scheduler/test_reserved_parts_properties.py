"""Reserved devices and CPUs under churn: held for owners, allocated once."""

import json
from collections import Counter

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.equipped_nodes import STATUS, machine_pods, machines
from tests.examples import examples
from tests.fuzz.rules import device_parts
from tests.reservations import config, reservation
from tests.unit.scheduler.test_allocation_properties import (
    bound,
    check_cpus,
    check_devices,
    pod_allocation,
)
from tests.unit.scheduler.watches import delete_now
from tests.worlds import embedded, renamed

from koordinator.api.annotations.reservation import ALLOCATED as USED
from koordinator.api.device import Device
from koordinator.api.meta import KubeObject
from koordinator.api.node import NodeResourceTopology
from koordinator.api.pod import Pod
from koordinator.api.reservation import Reservation
from koordinator.foundation.cpu_list import parse_cpu_list
from koordinator.simulator import Embedded

quickly = settings(
    max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
PARTS = config("NodeNUMAResource", "DeviceShare")
APPS = ("web", "db", "other")


@st.composite
def labelled_pods(draw: st.DrawFn) -> Pod:
    """Return a pod of some app with devices or CPUs."""
    made = draw(machine_pods())
    labels = {**made.metadata.labels, "app": draw(st.sampled_from(APPS))}
    return replace(made, metadata=replace(made.metadata, labels=labels))


@st.composite
def reservations(draw: st.DrawFn, name: str, like: Pod) -> Reservation:
    """Return a reservation for the requests of such a pod, mostly owned by it."""
    mine = like.metadata.labels["app"]
    made = reservation(
        name,
        for_app=draw(st.sampled_from((mine, mine, *APPS[:2]))),
        policy=draw(st.sampled_from(("Aligned", "Restricted"))),
        once=draw(st.booleans()),
        labels=dict(like.metadata.labels),
        annotations=dict(like.metadata.annotations),
        ttl="0s",
    )
    template = replace(made.spec.template, spec=replace(like.spec, scheduler_name=""))
    return replace(made, spec=replace(made.spec, template=template))


@quickly
@given(cluster=machines("m0"), data=st.data())
def test_reserved_parts_are_allocated_once_and_to_owners(
    cluster: list[KubeObject], data: st.DataObject
) -> None:
    """At the end of all changes everything is free."""
    one = embedded(*cluster, config=PARTS, report=False)
    kinds = [data.draw(labelled_pods()) for _ in range(3)]
    for attempt in range(data.draw(st.integers(1, 4))):
        new: list[KubeObject] = [
            data.draw(reservations(f"r{attempt}-{index}", data.draw(st.sampled_from(kinds))))
            for index in range(data.draw(st.integers(0, 2)))
        ]
        new += [
            renamed(data.draw(st.sampled_from(kinds)), f"p{attempt}-{index}")
            for index in range(data.draw(st.integers(0, 4)))
        ]
        one.load(new)
        one.run_to_fixed_point()
        check(one)
        for kind in (Pod, Reservation):
            names = [obj.metadata.name for obj in one.cluster.list(kind).items]
            for name in data.draw(st.sets(st.sampled_from(names), max_size=2)) if names else ():
                delete_now(one, kind, name)
        one.run_to_fixed_point()
        check(one)
    for obj in (*one.cluster.list(Pod).items, *one.cluster.list(Reservation).items):
        delete_now(one, type(obj), obj.metadata.name)
    one.run_to_fixed_point()

    assert pod_allocation(one.state) == {}
    for columns in one.state.nodes.devices.columns.values():
        assert not columns.used.any()
        assert not columns.holders.any()
    assert not one.state.nodes.numa.arrays.used.any()


def check(one: Embedded) -> None:
    one.state.validate()
    pods = list(bound(one))
    devices = list(one.cluster.list(Device).items)
    device = devices[0] if devices else None
    check_devices(device, pods)
    check_cpus(one.cluster.get(NodeResourceTopology, "m0"), pods)
    available = [r for r in one.cluster.list(Reservation).items if r.status.phase == "Available"]
    check_devices_are_reserved(device, pods, available)
    check_cpus_are_reserved(pods, available)


def uses(pod: Pod) -> str:
    used = USED.read(pod.metadata)
    return used.uid if used else ""


def check_devices_are_reserved(
    device: Device | None, pods: list[Pod], available: list[Reservation]
) -> None:
    """Check that all pods fit together with the unused devices of reservations."""
    total: Counter[tuple[str, int, str]] = Counter()
    for pod in pods:
        total.update(device_parts(pod.metadata))
    for one in available:
        users: Counter[tuple[str, int, str]] = Counter()
        for pod in pods:
            if uses(pod) == one.metadata.uid:
                users.update(device_parts(pod.metadata))
        for key, amount in device_parts(one.metadata).items():
            total[key] += max(amount - users[key], 0)
    there = {(info.type, info.minor): info for info in device.spec.devices} if device else {}
    for (kind, minor, name), amount in total.items():
        assert amount <= there[kind, minor].resources[name].value()


def check_cpus_are_reserved(pods: list[Pod], available: list[Reservation]) -> None:
    """Check that only users have CPUs of a reservation."""

    def cpus(annotations: dict[str, str]) -> int:
        return parse_cpu_list(json.loads(annotations.get(STATUS, "{}")).get("cpuset", ""))

    for one in available:
        for pod in pods:
            if uses(pod) != one.metadata.uid:
                assert not cpus(pod.metadata.annotations) & cpus(one.metadata.annotations)
