"""Reservations, from the object to the pods that use it and to its end."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from tests.reservations import affinity, config, exactly, reservation, uid
from tests.unit.scheduler.conftest import NewEmbedded
from tests.unit.scheduler.test_gangs import group, member
from tests.worlds import START_S, made, near, node, pod

from koordinator.api.annotations.reservation import ALLOCATED
from koordinator.api.event import Event
from koordinator.api.kubescheduler import FeatureGates, KubeSchedulerConfiguration
from koordinator.api.meta import KubeObject
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.reservation import Reservation
from koordinator.scheduler.loop import Bound, Unschedulable
from koordinator.simulator import Embedded, schedule

WEB = {"app": "web"}


class Played:
    """Cluster after the scheduler has settled."""

    def __init__(self, one: Embedded) -> None:
        self.one = one
        self.outcomes = one.run_to_fixed_point()

    def add(self, *objects: KubeObject) -> "Played":
        """Create objects and run until nothing changes."""
        self.one.load(objects)
        self.outcomes += self.one.run_to_fixed_point()
        return self

    def pass_time(self, seconds: float) -> "Played":
        """Advance the clock through all due times of the scheduler."""
        clock = self.one.clock
        end_s = clock.now_s() + seconds
        while (wakeup_s := self.one.scheduler.next_wakeup_s()) is not None and wakeup_s < end_s:
            clock.advance_to(wakeup_s + 1)
            self.outcomes += self.one.run_to_fixed_point()
        clock.advance_to(end_s)
        self.outcomes += self.one.run_to_fixed_point()
        return self

    def delete(self, kind: type[KubeObject], name: str) -> "Played":
        """Delete an object immediately."""
        namespace = "default" if kind.NAMESPACED else ""
        grace: dict[str, Any] = {"grace_period_s": 0} if kind is Pod else {}
        self.one.cluster.delete(kind, name, namespace, **grace)
        self.outcomes += self.one.run_to_fixed_point()
        return self

    def nodes(self) -> dict[str, str]:
        """Return the nodes of pods and reservations."""
        pods = {p.metadata.name: p.spec.node_name for p in self.one.cluster.list(Pod).items}
        reserved = {
            r.metadata.name: r.status.node_name for r in self.one.cluster.list(Reservation).items
        }
        return pods | reserved

    def uses(self, name: str) -> str:
        """Return the reservation that a pod uses."""
        allocated = ALLOCATED.read(self.one.cluster.get(Pod, name, "default").metadata)
        return allocated.name if allocated else ""

    def annotate(self, name: str, annotations: Mapping[str, str | None]) -> "Played":
        """Change annotations of a pod; None removes one."""
        patch = {"metadata": {"annotations": dict(annotations)}}
        self.one.cluster.patch(Pod, name, "default", patch)
        self.outcomes += self.one.run_to_fixed_point()
        return self

    def warning(self, name: str) -> str:
        """Return the note of a warning about an object."""
        events = self.one.cluster.list(Event).items
        return " ".join(e.note for e in events if e.regarding.name == name and e.type == "Warning")

    def get(self, name: str) -> Reservation:
        return self.one.cluster.get(Reservation, name)

    def message(self, name: str) -> str:
        """Return the last reason of a pending pod or reservation."""
        rejections = [
            outcome
            for outcome in self.outcomes
            if isinstance(outcome, Unschedulable)
            and name in (outcome.pod.partition("/")[2], outcome.reservation)
        ]
        return rejections[-1].message if rejections else ""


@pytest.fixture
def play(embedded: NewEmbedded) -> Any:
    def start(*objects: KubeObject, on: KubeSchedulerConfiguration | None = None) -> Played:
        return Played(embedded(*objects, config=on or config()))

    return start


def conditions(stored: Reservation) -> list[tuple[str, str, str]]:
    return [(c.type, c.status, c.reason) for c in stored.status.conditions]


# -- reservations are scheduled ---------------------------------------------------------------


def test_a_reservation_gets_a_node_like_a_pod_of_its_template(play: Any) -> None:
    """Filters and scores equal a pod's; status and event have the node."""
    played = play(node("full", cpu=2), node("n", cpu=8), reservation("warm", 6, "4Gi"))
    stored = played.get("warm")

    assert (stored.status.phase, stored.status.node_name) == ("Available", "n")
    assert conditions(stored) == [
        ("Scheduled", "True", "Scheduled"),
        ("Ready", "True", "Available"),
    ]
    assert {name: str(q) for name, q in stored.status.allocatable.items()} == {
        "cpu": "6",
        "memory": "4Gi",
    }
    (event,) = [e for e in played.one.cluster.list(Event).items if e.regarding.name == "warm"]
    assert (event.reason, event.action, event.note) == (
        "Scheduled",
        "Binding",
        "Successfully assigned warm to n",
    )
    assert event.regarding.kind == "Reservation"
    assert [o.reservation for o in played.outcomes if isinstance(o, Bound)] == ["warm"]


def test_reservation_that_fits_nowhere_waits(play: Any) -> None:
    """The condition has the message of a pod; freed capacity is used."""
    played = play(node("n", cpu=4), reservation("big", 6))

    assert conditions(played.get("big")) == [("Scheduled", "False", "Unschedulable")]
    assert "0/1 nodes are available: 1 Insufficient cpu" in played.message("big")

    assert played.add(node("m", cpu=8)).nodes()["big"] == "m"


def test_the_node_named_by_a_template_is_the_only_one(play: Any) -> None:
    """If it has too little free, the reservation waits."""
    played = play(node("a"), node("b"), reservation("r", 1, template={"nodeName": "b"}))
    assert played.nodes()["r"] == "b"

    result = play(node("a"), node("b", cpu=1), reservation("r", 4, template={"nodeName": "b"}))
    assert "1 node(s) didn't match the nodeName specified by reservation" in result.message("r")


def test_reservations_without_policy_share_no_node_with_others(play: Any) -> None:
    """Aligned and Restricted ones may mix."""
    played = play(
        node("n", cpu=8),
        reservation("aligned", 1, on="n"),
        reservation("restricted", 1, policy="Restricted"),
        reservation("legacy", 1, policy=""),
    )

    assert played.nodes()["restricted"] == "n"
    assert "node(s) reservation allocate policy conflict" in played.message("legacy")


# -- users -------------------------------------------------------------------------------------


def test_reserved_amounts_are_for_owners_only(play: Any) -> None:
    """An owner fits where others do not."""
    played = play(
        node("n", cpu=8),
        reservation("warm", 6, on="n"),
        pod("owner", 4, labels=WEB),
        pod("other", 4),
    )

    assert played.nodes()["owner"] == "n"
    assert played.uses("owner") == "warm"
    assert played.nodes()["other"] == ""
    assert "1 Insufficient cpu" in played.message("other")


def test_an_aligned_owner_may_take_more_than_is_reserved(play: Any) -> None:
    """Reservation and free capacity count together; nothing is charged twice."""
    played = play(node("n", cpu=8), reservation("warm", 4, on="n"), pod("owner", 7, labels=WEB))
    assert played.uses("owner") == "warm"

    assert played.add(pod("one", 1)).nodes()["one"] == "n"
    assert played.add(pod("none", 1)).nodes()["none"] == ""


def test_a_restricted_reservation_gives_no_more_than_it_has(play: Any) -> None:
    """Without affinity the pod uses free capacity of the node instead, if it suffices."""
    objects = (node("n", cpu=8), reservation("r", 4, on="n", policy="Restricted"))

    assert play(*objects, pod("fits", 4, labels=WEB)).uses("fits") == "r"
    beside = play(*objects, reservation("r2", 1, on="n"), pod("p", 3, labels={"app": "x"}))
    assert beside.nodes()["p"] == "n"
    too_big = play(*objects, pod("p", 5, labels=WEB))
    assert too_big.nodes()["p"] == ""
    assert "1 Insufficient cpu by node" in too_big.message("p")
    wanting = pod("p", 5, labels=WEB, annotations=affinity(name="r"))
    assert "Reservation(s) Insufficient cpu, requested: 5000, used: 0, capacity: 4000" in play(
        *objects, wanting
    ).message("p")


def test_restricted_options_limit_the_named_resources_only(play: Any) -> None:
    """Other resources may come from the node."""
    options = {"scheduling.koordinator.sh/reservation-restricted-options": '{"resources":["cpu"]}'}
    reserved = reservation("r", 2, "1Gi", on="n", policy="Restricted", annotations=options)

    assert play(node("n"), reserved, pod("p", 2, "4Gi", labels=WEB)).uses("p") == "r"


def test_a_pod_uses_a_restricted_reservation_for_what_that_restricts(play: Any) -> None:
    """Other amounts alone do not suffice, unless the pod requires a reservation."""
    options = {"scheduling.koordinator.sh/reservation-restricted-options": '{"resources":["cpu"]}'}
    reserved = reservation("r", 2, "4Gi", on="n", policy="Restricted", annotations=options)
    full = play(node("n", memory="4Gi"), reserved, pod("p", None, "2Gi", labels=WEB))
    assert "1 Insufficient memory by node" in full.message("p")

    assert play(node("n"), reserved, pod("p", None, "2Gi", labels=WEB)).uses("p") == ""
    needs = pod("p", None, "2Gi", labels=WEB, annotations=affinity())
    assert play(node("n", memory="4Gi"), reserved, needs).uses("p") == "r"


def test_amounts_withheld_inside_a_reservation_are_not_for_owners(play: Any) -> None:
    """The annotation has the same meaning as on nodes."""
    inner = {"node.koordinator.sh/reservation": '{"resources":{"cpu":"1"}}'}
    reserved = reservation("r", 4, on="n", policy="Restricted", annotations=inner)
    needs = affinity(name="r")

    assert (
        play(node("n", cpu=8), reserved, pod("p", 3, labels=WEB, annotations=needs)).uses("p")
        == "r"
    )
    refused = play(node("n", cpu=8), reserved, pod("p", 4, labels=WEB, annotations=needs))
    assert "requested: 4000, used: 0, capacity: 3000" in refused.message("p")


@pytest.mark.parametrize("policy", ["", "Aligned", "Restricted"])
def test_pods_resource_limits_the_users(play: Any, policy: str) -> None:
    """``pods`` among its resources is the number of users, whatever its policy."""
    reserved = reservation("r", 4, on="n", policy=policy, requests={"pods": 1})
    needs = affinity(name="r")
    pods = [pod(name, 1, labels=WEB, annotations=needs) for name in ("a", "b")]
    played = play(node("n", cpu=8), reserved, *pods)

    assert played.uses("a") == "r"
    assert "Reservation(s) Too many pods, requested: 1, used: 1, capacity: 1" in played.message("b")


@pytest.mark.parametrize("policy", ["", "Aligned", "Restricted"])
def test_pods_beyond_the_number_of_a_reservation_run_beside_it(play: Any, policy: str) -> None:
    """Pods that require a reservation wait; equal pods of a run are counted one by one."""
    reserved = reservation("r", 6, on="n", policy=policy, requests={"pods": 2})
    pods = [pod(name, 1, labels=WEB) for name in ("a", "b", "c", "d", "e")]
    played = play(node("n", cpu=8), reserved, *pods)

    assert sorted(played.uses(each) for each in "abcde") == ["", "", "", "r", "r"]
    assert [played.nodes()[each] for each in "abcde"].count("n") == 4  # 2 CPUs beside the other 6


def test_several_pods_share_a_reservation_until_it_is_full(play: Any) -> None:
    """The status has the users and the allocated amounts."""
    played = play(
        node("n", cpu=8),
        reservation("r", 4, on="n", policy="Restricted"),
        *(pod(name, 2, labels=WEB, annotations=affinity()) for name in "abc"),
    )
    status = played.get("r").status

    assert [played.uses(name) for name in "ab"] == ["r", "r"]
    assert played.nodes()["c"] == ""
    assert sorted(owner.name for owner in status.current_owners) == ["a", "b"]
    assert str(status.allocated["cpu"]) == "4"

    assert played.delete(Pod, "a").uses("c") == "r"


def test_allocate_once_reservation_succeeds_after_one_use(play: Any) -> None:
    """The remainder of the reservation is free for all pods."""
    played = play(node("n", cpu=8), reservation("r", 6, on="n", once=True), pod("a", 2, labels=WEB))
    status = played.get("r").status

    assert status.phase == "Succeeded"
    assert ("Ready", "False", "Succeeded") in conditions(played.get("r"))
    assert played.add(pod("b", 6)).nodes()["b"] == "n"


def test_allocate_once_reservation_has_one_user(play: Any) -> None:
    """The rule holds even if two pods arrive before the status shows the first."""
    pods = [pod(name, 1, labels=WEB, annotations=affinity()) for name in ("a", "b")]
    played = play(node("n", cpu=8), reservation("r", 6, on="n", once=True), *pods)

    assert sorted([played.uses("a"), played.uses("b")]) == ["", "r"]


def test_pods_use_a_reservation_of_the_same_step(play: Any) -> None:
    """The reservation is usable as soon as its status is written."""
    played = play(node("a"), node("b"), reservation("r", 6), pod("p", 4, labels=WEB))

    assert played.uses("p") == "r"


@pytest.mark.parametrize(
    ("owners", "is_owner"),
    [
        ([{"object": {"name": "p", "namespace": "default"}}], True),
        ([{"object": {"name": "q", "namespace": "default"}}], False),
        ([{"object": {"name": "p", "kind": "Job"}}], True),
        (
            [
                {
                    "controller": {
                        "apiVersion": "apps/v1",
                        "kind": "ReplicaSet",
                        "name": "web",
                        "uid": "",
                        "controller": True,
                    }
                }
            ],
            False,
        ),
        ([{"labelSelector": {"matchLabels": {"app": "x"}}}, {"object": {"name": "p"}}], True),
        ([{"labelSelector": {"matchLabels": {"app": "x"}}, "object": {"name": "p"}}], False),
    ],
)
def test_owners_are_pods_controllers_or_labels(
    play: Any, owners: Sequence[Any], is_owner: bool
) -> None:
    """Entries are ORed, fields of an entry are ANDed, and the kind of an object is ignored."""
    played = play(node("n", cpu=8), reservation("r", 4, on="n", owners=owners), pod("p", 1))

    assert bool(played.uses("p")) is is_owner


def test_a_pod_named_by_a_later_reservation_still_finds_it(play: Any) -> None:
    """The pod was pending before the reservation named it."""
    played = play(node("n", cpu=4), pod("run", 4, on="n"), pod("p", 2), pod("q", 2))
    reserved = reservation("r", 2, owners=[{"object": {"name": "q"}}])
    played.delete(Pod, "run")
    assert set(played.nodes().values()) == {"n"}

    again = play(node("small", cpu=1), pod("p", 2), pod("q", 2)).add(reserved)
    assert again.add(node("n", cpu=2)).nodes()["r"] == "n"
    assert (again.nodes()["p"], again.uses("q")) == ("", "r")


def test_pending_owners_are_retried_when_a_reservation_appears(play: Any) -> None:
    """No event of a node occurs: the node was full, and still is."""
    played = play(node("n", cpu=4), reservation("r", 4, on="n", for_app="db"), pod("p", 2))
    played.add(pod("owner", 2, labels=WEB))
    assert played.nodes()["owner"] == ""

    reserved = played.get("r")
    selector = {"labelSelector": {"matchLabels": {"app": "web"}}}
    patch = {"spec": {"owners": [selector]}}
    played.one.cluster.patch(Reservation, reserved.metadata.name, "", patch)
    bound = [o.pod for o in played.one.scheduler.step() if isinstance(o, Bound)]

    assert bound == ["default/owner"]
    assert played.uses("owner") == "r"


def test_changed_reservation_applies_to_new_pods(play: Any) -> None:
    """The present users of the reservation stay."""
    played = play(node("n", cpu=4), reservation("r", 4, on="n"), pod("a", 1, labels=WEB))
    played.one.cluster.patch(Reservation, "r", "", {"spec": {"unschedulable": True}})
    played.add(pod("b", 1, labels=WEB))
    assert (played.uses("a"), played.nodes()["b"]) == ("r", "")

    played.one.cluster.patch(Reservation, "r", "", {"spec": {"unschedulable": False}})
    played.add(pod("c", 1, labels=WEB))
    assert {played.uses("b"), played.uses("c")} == {"r"}


# -- affinity of pods --------------------------------------------------------------------------


def test_pod_with_affinity_uses_only_a_reservation(play: Any) -> None:
    """The affinity is a selector, a name, or any."""
    objects = (
        node("a", cpu=8),
        node("b", cpu=8),
        reservation("r1", 2, on="a", labels={"pool": "x"}),
        reservation("r2", 2, on="b", labels={"pool": "y"}),
    )
    for wanted, expected in (
        (affinity(reservationSelector={"pool": "y"}), "r2"),
        (affinity(name="r1"), "r1"),
        (
            affinity(
                requiredDuringSchedulingIgnoredDuringExecution={
                    "reservationSelectorTerms": [
                        {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["y"]}]}
                    ]
                }
            ),
            "r2",
        ),
    ):
        assert play(*objects, pod("p", 1, labels=WEB, annotations=wanted)).uses("p") == expected

    nothing = pod("p", 1, labels=WEB, annotations=affinity(reservationSelector={"pool": "z"}))
    refused = play(*objects, nothing)
    assert refused.nodes()["p"] == ""
    assert refused.message("p") == (
        "0/2 nodes are available: node(s) no reservations match reservation affinity. "
        "2 Reservation(s) didn't match affinity rules, 2 Reservation(s) matched owner total, "
        "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    )


def test_reservation_taints_need_tolerations(play: Any) -> None:
    """Tolerations are in the reservation affinity or, without one, in the pod's spec."""
    taint = {"key": "pool", "value": "warm", "effect": "NoSchedule"}
    objects = (node("n", cpu=8), reservation("r", 2, on="n", taints=[taint]))
    tolerating = affinity(tolerations=[{"key": "pool", "operator": "Exists"}])

    beside = play(*objects, pod("p", 1, labels=WEB))
    assert (beside.nodes()["p"], beside.uses("p")) == ("n", "")
    full = play(*objects, pod("p", 7, labels=WEB))
    assert full.nodes()["p"] == ""
    assert "1 Reservation(s) had untolerated taint {pool: warm}" in full.message("p")
    assert play(*objects, pod("p", 1, labels=WEB, annotations=tolerating)).uses("p") == "r"
    own = [{"key": "pool", "operator": "Exists"}]
    assert play(*objects, pod("p", 1, labels=WEB, tolerations=own)).uses("p") == "r"
    refused = play(*objects, pod("p", 1, labels=WEB, annotations=affinity(), tolerations=own))
    assert "1 Reservation(s) had untolerated taint {pool: warm}" in refused.message("p")


def test_an_unschedulable_reservation_takes_no_new_pods(play: Any) -> None:
    """Exceptions are pods that tolerate it or name it."""
    objects = (node("n", cpu=2), reservation("r", 2, on="n", unschedulable=True))

    refused = play(*objects, pod("p", 1, labels=WEB))
    assert refused.nodes()["p"] == ""
    assert "1 Reservation(s) is unschedulable" in refused.message("p")
    named = pod("p", 1, labels=WEB, annotations=affinity(name="r"))
    assert play(*objects, named).uses("p") == "r"


def test_an_exact_match_compares_the_named_amounts(play: Any) -> None:
    """Other resources are not compared."""
    objects = (node("n", cpu=8), reservation("r", 2, "1Gi", on="n"))

    assert play(*objects, pod("p", 2, labels=WEB, annotations=exactly("cpu"))).uses("p") == "r"
    assert play(*objects, pod("p", 1, labels=WEB, annotations=exactly("cpu"))).uses("p") == ""


def test_a_pod_that_ignores_reservations_takes_what_they_hold(play: Any) -> None:
    """The held amounts count as free, and no reservation is used."""
    label = {"scheduling.koordinator.sh/reservation-ignored": "true"}
    played = play(node("n", cpu=4), reservation("r", 4, on="n"), pod("p", 4, labels=label))

    assert (played.nodes()["p"], played.uses("p")) == ("n", "")


def test_a_pod_that_ignores_reservations_may_still_need_their_nodes(play: Any) -> None:
    """With an affinity it runs only where some reservation is."""
    label = {"scheduling.koordinator.sh/reservation-ignored": "true"}
    ignoring = pod("p", 1, labels=label, annotations=affinity())

    played = play(node("free"), node("n"), reservation("r", 4, on="n"), ignoring)
    assert (played.nodes()["p"], played.uses("p")) == ("n", "")

    result = play(node("free"), ignoring)
    assert "no reservations match reservation affinity" in result.message("p")


def test_malformed_annotation_keeps_the_pod_pending(play: Any) -> None:
    """The message names it."""
    bad = {"scheduling.koordinator.sh/reservation-affinity": "{"}
    played = play(node("n", cpu=4), pod("p", 1, annotations=bad))

    assert "reservation-affinity" in played.message("p")


# -- choice ------------------------------------------------------------------------------------


def test_tightest_reservation_wins(play: Any) -> None:
    """Of two that fit, the one that would be fuller is used."""
    played = play(
        node("a", cpu=16),
        node("b", cpu=16),
        reservation("wide", 8, "16Gi", on="a"),
        reservation("snug", 4, "8Gi", on="b"),
        pod("p", 3, "6Gi", labels=WEB),
    )

    assert played.uses("p") == "snug"


def test_smallest_order_label_wins(play: Any) -> None:
    """The label decides on one node, and among nodes."""
    order = "scheduling.koordinator.sh/reservation-order"
    played = play(
        node("a", cpu=16),
        node("b", cpu=16),
        reservation("snug", 4, on="a"),
        reservation("second", 8, on="b", labels={order: "20"}),
        reservation("first", 8, on="b", labels={order: "10"}),
        pod("p", 3, labels=WEB),
    )

    assert played.uses("p") == "first"


# -- view of owners ----------------------------------------------------------------------------


def test_reservation_does_not_conflict_with_its_owner(play: Any) -> None:
    """Ports and anti-affinity that template and pod share count once."""
    apart = {"podAntiAffinity": near("web", key="kubernetes.io/hostname")}
    reserved = reservation(
        "r",
        2,
        on="n",
        labels=WEB,
        template={
            "affinity": apart,
            "containers": [
                {
                    "name": "c",
                    "ports": [{"containerPort": 80, "hostPort": 80}],
                    "resources": {"requests": {"cpu": "2"}},
                }
            ],
        },
    )
    played = play(
        node("n", cpu=2),
        reserved,
        pod("p", 2, labels=WEB, affinity=apart, ports=[80]),
        pod("x", ports=[80]),
    )

    assert played.uses("p") == "r"
    assert played.nodes()["x"] == ""


def test_full_node_accepts_owners_of_its_reservation(play: Any) -> None:
    """The reservation counts in the number of pods."""
    played = play(
        node("n", cpu=4, pods=1),
        reservation("r", 2, on="n"),
        pod("other", 1),
        pod("owner", 1, labels=WEB),
    )

    assert (played.nodes()["other"], played.uses("owner")) == ("", "r")


def test_restart_restores_users_of_reservations(play: Any) -> None:
    """Users are in annotations and status, in any order of arrival."""
    used = {ALLOCATED.key: f'{{"name":"r","uid":"{uid("r")}"}}'}
    running = pod("a", 3, on="n", labels=WEB, annotations=used)
    played = play(node("n", cpu=4), reservation("r", 4, on="n"), running, pod("b", 1, labels=WEB))

    assert played.uses("b") == "r"
    assert str(played.get("r").status.allocated["cpu"]) == "4"
    assert played.add(pod("c", 1, labels=WEB)).nodes()["c"] == ""


# -- the end -------------------------------------------------------------------------------------


def test_a_reservation_expires_and_is_removed(play: Any) -> None:
    """After its ttl it holds nothing; after a day it is deleted."""
    played = play(node("n", cpu=4), reservation("r", 4, on="n", ttl="1h"), pod("p", 4))
    assert played.nodes()["p"] == ""

    played.pass_time(3600)
    assert played.get("r").status.phase == "Failed"
    assert ("Ready", "False", "Expired") in conditions(played.get("r"))
    assert played.nodes()["p"] == "n"

    played.pass_time(25 * 3600)
    assert not played.one.cluster.list(Reservation).items


def test_zero_ttl_never_expires(play: Any) -> None:
    """An explicit expiry time has no effect beside a zero ttl."""
    reserved = reservation("r", 4, on="n", ttl="0s", expires="2023-11-15T00:00:00Z")
    played = play(node("n", cpu=4), reserved).pass_time(100 * 3600)

    assert played.get("r").status.phase == "Available"


def test_a_reservation_ends_with_its_node(play: Any) -> None:
    """The next collection deletes it."""
    played = play(node("n", cpu=4), node("m", cpu=1), reservation("r", 4, on="n"))
    assert played.delete(Node, "n").get("r").status.phase == "Failed"

    played.pass_time(120)
    assert not played.one.cluster.list(Reservation).items


def test_reservation_without_its_node_is_scheduled_again(play: Any) -> None:
    """A scheduler whose bind failed clears the node; until then nothing is held."""
    played = play(node("n", cpu=4), reservation("r", 4, on="n"))
    lost = {"status": {"phase": "Pending", "nodeName": None, "allocatable": None}}
    played.one.cluster.patch(Reservation, "r", "", lost, "status")
    played.add(node("m", cpu=1))
    assert played.nodes()["r"] == "n"

    waits = play(node("n", cpu=4), reservation("r", 4, on="n"), pod("p", 2))
    fields = {"spec": {"template": {"spec": {"nodeSelector": {"disk": "ssd"}}}}}
    waits.one.cluster.patch(Reservation, "r", "", fields)
    waits.one.cluster.patch(Reservation, "r", "", lost, "status")
    waits.add(node("m", cpu=1))
    assert (waits.nodes()["r"], waits.nodes()["p"]) == ("", "n")


def test_deleting_a_reservation_leaves_its_users_where_they_are(play: Any) -> None:
    """The pods then count by themselves."""
    played = play(node("n", cpu=8), reservation("r", 6, on="n"), pod("a", 4, labels=WEB))
    played.delete(Reservation, "r").add(pod("b", 4), pod("c", 1))

    assert (played.nodes()["b"], played.nodes()["c"]) == ("n", "")


def test_reservations_are_not_preempted(play: Any) -> None:
    """Reservations of any priority stay; pods beside them may be victims."""
    low = reservation("r", 3, on="n", template={"priority": -5})
    played = play(node("n", cpu=4), low, pod("p", 2, priority=1000))

    assert played.get("r").status.phase == "Available"
    assert "No preemption victims found" in played.message("p")


def test_a_scheduler_without_the_plugin_leaves_reservations_alone(embedded: NewEmbedded) -> None:
    """Reservations stay pending, and hold nothing."""
    played = Played(embedded(node("n", cpu=4), reservation("r", 4), pod("p", 4)))

    assert played.nodes() == {"r": "", "p": "n"}


# -- preemption --------------------------------------------------------------------------------


def config_with_preemption() -> KubeSchedulerConfiguration:
    """Return a profile in which this plugin preempts, in place of the usual one."""
    return config(post_filter=("Reservation",), enablePreemption=True)


def test_reservation_preempts_only_if_enabled(play: Any) -> None:
    """Other plugins do not preempt for it."""
    played = play(node("n", cpu=4), pod("low", 4, on="n", priority=-1), reservation("r", 4))

    assert played.nodes() == {"low": "n", "r": ""}


def test_enabled_reservation_preempts(play: Any) -> None:
    """Victims have lower priority and are preemptible."""
    protected = {"scheduling.koordinator.sh/disable-preemptible": "true"}
    objects = (node("n", cpu=4), pod("low", 4, on="n", priority=-1), reservation("r", 4))
    played = play(*objects, on=config_with_preemption())
    assert played.nodes() == {"r": "n"}

    spared = pod("low", 4, on="n", priority=-1, labels=protected)
    kept = play(node("n", cpu=4), spared, reservation("r", 4), on=config_with_preemption())
    assert kept.nodes() == {"low": "n", "r": ""}


def test_an_owner_preempts_inside_its_reservation(play: Any) -> None:
    """Users of lower priority are evicted; no other pod gets their amounts."""
    used = {ALLOCATED.key: f'{{"name":"r","uid":"{uid("r")}"}}'}
    low = pod("low", 3, on="n", labels=WEB, annotations=used, priority=-1)
    reserved = reservation("r", 4, on="n", policy="Restricted")
    needs = affinity(name="r")
    played = play(
        node("n", cpu=8),
        reserved,
        low,
        pod("other", 5, priority=5),
        pod("high", 4, labels=WEB, annotations=needs, priority=5),
        on=config_with_preemption(),
    )

    assert played.uses("high") == "r"
    assert (played.nodes().get("low"), played.nodes()["other"]) == (None, "")


# -- with gangs and quotas -----------------------------------------------------------------------


def test_gang_starts_on_its_reservations(play: Any) -> None:
    """All members start, or none while only one fits."""
    reserved = [reservation(f"r{i}", 3, on="n", policy="Restricted", once=True) for i in range(2)]
    needs = affinity()
    gang = [member(f"m{i}", "g", 3, labels=WEB, annotations=needs) for i in range(2)]
    on = config("Coscheduling", at=("preEnqueue", "permit", "reserve", "postBind"))
    one = play(node("n", cpu=6), reserved[0], group("g", 2), *gang, on=on)
    assert {one.nodes()["m0"], one.nodes()["m1"]} == {""}

    both = play(node("n", cpu=6), *reserved, group("g", 2), *gang, on=on)
    assert {both.uses("m0"), both.uses("m1")} == {"r0", "r1"}


def test_reservations_of_a_gang_are_all_reported(play: Any) -> None:
    """Reservations that would have had a node are reported, too."""
    label = {"pod-group.scheduling.sigs.k8s.io": "g"}
    reserved = [reservation(f"r{i}", 2, labels=label) for i in range(2)]
    on = config("Coscheduling", at=("preEnqueue", "permit", "reserve", "postBind"))
    played = play(node("n", cpu=3), group("g", 2), *reserved, on=on)

    for name in ("r0", "r1"):
        (condition,) = played.get(name).status.conditions
        assert (condition.type, condition.reason) == ("Scheduled", "Unschedulable")
        assert condition.message == played.message(name)
        assert "Insufficient cpu" in condition.message


def test_reservation_of_an_incomplete_gang_is_reported() -> None:
    """The message equals that of a pod of a gang."""
    label = {"pod-group.scheduling.sigs.k8s.io": "g"}
    on = config("Coscheduling", at=("preEnqueue", "permit", "reserve", "postBind"))
    result = schedule([node("n"), group("g", 2), reservation("r", 2, labels=label)], on)

    (outcome,) = result.reservations
    assert isinstance(outcome, Unschedulable)
    assert (outcome.reservation, outcome.plugin) == ("r", "Coscheduling")
    assert "needs 2 members" in outcome.message


def test_reservations_do_not_count_in_quotas(play: Any) -> None:
    """Users of the reservations count, and the quota may reject them."""
    label = {"quota.scheduling.koordinator.sh/name": "q"}
    quota = made(
        "ElasticQuota",
        "q",
        "scheduling.sigs.k8s.io/v1alpha1",
        metadata={"namespace": "default"},
        spec={"max": {"cpu": "4"}, "min": {"cpu": "4"}},
    )
    on = config("ElasticQuota", at=("preFilter", "reserve"))
    played = play(node("n", cpu=8), quota, reservation("r", 4, labels=label), on=on)
    assert played.nodes()["r"] == "n"
    played.add(pod("p", 4, labels={**WEB, **label}), pod("more", 1, labels={**WEB, **label}))
    assert (played.uses("p"), played.nodes()["more"]) == ("r", "")
    assert "Insufficient quotas" in played.message("more")


# -- messages ----------------------------------------------------------------------------------


def test_reasons_of_reservations_have_their_own_event(play: Any) -> None:
    """In an event of its own."""
    needs = affinity(reservationSelector={"pool": "z"})
    played = play(
        node("n"), reservation("r", 1, on="n"), pod("p", 1, labels=WEB, annotations=needs)
    )
    notes = {e.reason: e.note for e in played.one.cluster.list(Event).items}

    assert notes["FailedScheduling-Reservation"] == (
        "0/1 reservations are available: 1 Reservation(s) didn't match affinity rules."
    )
    assert "FailedScheduling" in notes


@pytest.mark.parametrize("on", [True, False])
def test_users_of_a_deleted_reservation_are_cleaned_with_the_gate(on: bool) -> None:
    """Without the gate the annotation stays."""
    gates = FeatureGates.parse(f"CleanExpiredReservationAllocated={str(on).lower()}")
    one = Embedded(config(), now_s=START_S, gates=gates)
    one.load([node("n"), reservation("r", 2, on="n"), pod("p", 1, labels=WEB)])
    played = Played(one)
    assert played.uses("p") == "r"

    assert played.delete(Reservation, "r").uses("p") == ("" if on else "r")


def test_recreated_node_holds_nothing_for_expired_reservations(
    embedded: NewEmbedded,
) -> None:
    """The reservations expired with the node: all of the new one is free."""
    one = embedded(node("n", cpu=4), reservation("r", 4), config=config())
    one.run_to_fixed_point()

    one.cluster.delete(Node, "n")
    one.run_to_fixed_point()
    one.load([node("n", cpu=4), pod("p", 4)])
    one.run_to_fixed_point()

    assert one.cluster.get(Reservation, "r").status.phase == "Failed"
    assert one.cluster.get(Pod, "p", "default").spec.node_name == "n"
