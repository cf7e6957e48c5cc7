"""Reservations under churn: held, charged once, and released.

Placements are read from the objects of the cluster, not from the scheduler's state.
"""

from collections import Counter
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.reservations import affinity, config, reservation
from tests.unit.scheduler.watches import delete_now
from tests.worlds import embedded, node, pod, world

from koordinator.api.annotations.reservation import ALLOCATED
from koordinator.api.meta import KubeObject
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.reservation import Reservation
from koordinator.domain.pod_requests import pod_requests
from koordinator.simulator import Embedded

quickly = settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
)

APPS = ("web", "db")
RESOURCES = ("cpu", "memory")
GIB = 1 << 30

sizes = st.tuples(st.integers(0, 4), st.integers(0, 4))


@st.composite
def clusters(draw: st.DrawFn) -> list[KubeObject]:
    return [
        node(f"n{index}", cpu=draw(st.integers(2, 8)), memory=f"{draw(st.integers(2, 8))}Gi")
        for index in range(draw(st.integers(1, 3)))
    ]


@st.composite
def reservations(draw: st.DrawFn, name: str) -> Reservation:
    cpu, memory = draw(sizes)
    return reservation(
        name,
        cpu or None,
        f"{memory}Gi" if memory else None,
        for_app=draw(st.sampled_from(APPS)),
        once=draw(st.booleans()),
        policy=draw(st.sampled_from(("Aligned", "Restricted", ""))),
        ttl=draw(st.sampled_from(("0s", "1h"))),
    )


@st.composite
def pods(draw: st.DrawFn, name: str) -> Pod:
    cpu, memory = draw(sizes)
    return pod(
        name,
        cpu or None,
        f"{memory}Gi" if memory else None,
        labels={"app": draw(st.sampled_from((*APPS, "other")))},
        annotations=affinity() if draw(st.integers(0, 3)) == 0 else None,
    )


@quickly
@given(cluster=clusters(), data=st.data())
@pytest.mark.integration
def test_reservations_are_charged_and_released(
    cluster: list[KubeObject], data: st.DataObject
) -> None:
    """Pods and reservations are created, deleted and expire in any order."""
    one = embedded(*cluster, config=config(), report=False)
    for attempt in range(data.draw(st.integers(1, 5))):
        new: list[KubeObject] = [
            data.draw(reservations(f"r{attempt}-{index}"))
            for index in range(data.draw(st.integers(0, 2)))
        ]
        new += [data.draw(pods(f"p{attempt}-{i}")) for i in range(data.draw(st.integers(0, 4)))]
        one.load(data.draw(st.permutations(new)))
        settle(one)
        check(one)
        for kind in (Pod, Reservation):
            names = [obj.metadata.name for obj in one.cluster.list(kind).items]
            for name in data.draw(st.sets(st.sampled_from(names), max_size=3)) if names else ():
                delete_now(one, kind, name)
        one.clock.advance_to(one.clock.now_s() + data.draw(st.sampled_from((0, 100, 2000))))
        settle(one)
        check(one)
    for obj in (*one.cluster.list(Pod).items, *one.cluster.list(Reservation).items):
        delete_now(one, type(obj), obj.metadata.name)
    settle(one)

    assert not one.state.nodes.requested.any()
    assert not one.state.nodes.nonzero.any()


def settle(one: Embedded) -> None:
    one.run_to_fixed_point()  # long before pods without an event would be retried


def check(one: Embedded) -> None:
    one.scheduler.validate()
    nodes = {n.metadata.name: n for n in one.cluster.list(Node).items}
    available = [r for r in one.cluster.list(Reservation).items if r.status.phase == "Available"]
    everyone = list(one.cluster.list(Pod).items)
    running = [p for p in everyone if p.spec.node_name]
    users = {r.metadata.uid: [p for p in running if uses(p) == r.metadata.uid] for r in available}
    check_users(available, users)
    for name, machine in nodes.items():
        check_node(machine, [p for p in running if p.spec.node_name == name], available, users)
    check_owners_find_their_reservations(everyone, available, users)
    check_restart(one)


def uses(user: Pod) -> str:
    used = ALLOCATED.read(user.metadata)
    return used.uid if used else ""


def requested(on_node: Iterable[Pod]) -> Counter[str]:
    total: Counter[str] = Counter()
    for one in on_node:
        total.update(pod_requests(one.spec))
    return total


def kept(stored: Reservation) -> dict[str, int]:
    return pod_requests(stored.spec.template.spec)


def owns(user: Pod, available: Reservation) -> bool:
    (owner,) = available.spec.owners
    assert owner.label_selector is not None
    return user.metadata.labels.get("app") == owner.label_selector.match_labels["app"]


def check_users(available: list[Reservation], users: dict[str, list[Pod]]) -> None:
    """Check that only owners use it, once if so, and within it if it is restricted."""
    for offer in available:
        mine = users[offer.metadata.uid]
        assert all(owns(p, offer) and p.spec.node_name == offer.status.node_name for p in mine)
        assert not (offer.spec.allocate_once and mine)  # it would have succeeded
        if offer.spec.allocate_policy == "Restricted":
            taken = requested(mine)
            assert all(taken[name] <= amount for name, amount in kept(offer).items())
        names = sorted(owner.name for owner in offer.status.current_owners)
        assert names == sorted(p.metadata.name for p in mine)


def check_node(
    machine: Node, running: list[Pod], available: list[Reservation], users: dict[str, list[Pod]]
) -> None:
    """Check that all pods fit together with the unused parts of reservations."""
    total = requested(running)
    for one in available:
        if one.status.node_name == machine.metadata.name:
            taken = requested(users[one.metadata.uid])
            for name, amount in kept(one).items():
                total[name] += max(amount - taken[name], 0)
    cpu, memory = (machine.status.allocatable[name] for name in RESOURCES)
    assert total["cpu"] <= cpu.milli()
    assert total["memory"] <= memory.value()


def check_owners_find_their_reservations(
    everyone: list[Pod], available: list[Reservation], users: dict[str, list[Pod]]
) -> None:
    """Check that no pod waits whose own reservation has enough left."""
    for waiting in everyone:
        wanted = requested([waiting])
        for offer in available if not waiting.spec.node_name else ():
            if not owns(waiting, offer):
                continue
            taken, mine = requested(users[offer.metadata.uid]), kept(offer)
            has_all = all(wanted[n] <= mine.get(n, 0) - taken[n] for n in wanted if wanted[n])
            touches = any(wanted[n] for n in mine)
            assert not (has_all and touches)


def check_restart(one: Embedded) -> None:
    """Compare with the state of a new scheduler."""
    objects: list[KubeObject] = [*one.cluster.list(Node).items]
    objects += one.cluster.list(Reservation).items
    running = [p for p in one.cluster.list(Pod).items if p.spec.node_name]
    again = world(*objects, *running)
    for name, row in one.state.nodes.rows.items():
        other = again.nodes.rows[name]
        width = min(len(one.state.axis), len(again.axis))
        assert np.array_equal(
            one.state.nodes.requested[:width, row], again.nodes.requested[:width, other]
        )
