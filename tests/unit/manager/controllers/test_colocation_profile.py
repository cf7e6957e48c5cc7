"""Colocation profiles and pods that were there before them."""

from typing import Any

import pytest
from tests.unit.manager.node_resources.nodes import NOW

from koordinator.api.codec import decode_object
from koordinator.api.colocation import ClusterColocationProfile
from koordinator.api.pod import Pod
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.foundation.clock import VirtualClock
from koordinator.manager.app import PROFILE_CONTROLLER, Manager, ManagerOptions
from koordinator.manager.mirror import Controller
from koordinator.manager.writes import ColocationProfileOptions

MANAGED = {"config.koordinator.sh/controller-managed": "true"}
ETL = {"matchLabels": {"app": "etl"}}


class World:
    """A cluster with a namespace, and a manager with its gate on."""

    def __init__(self, *, gates: frozenset[str] | None = None, **profiles: Any) -> None:
        self.clock = VirtualClock(NOW.timestamp())
        self.cluster = MemoryCluster(self.clock)
        self.manager = Manager(
            self.cluster,
            self.clock,
            ManagerOptions(
                gates=frozenset((PROFILE_CONTROLLER,)) if gates is None else gates,
                profiles=ColocationProfileOptions(**profiles),
            ),
        )
        self.load("v1", "Namespace", {"name": "jobs", "labels": {"tier": "offline"}})

    def load(self, version: str, kind: str, meta: Any, **rest: Any) -> None:
        tree = {"apiVersion": version, "kind": kind, "metadata": meta, **rest}
        self.cluster.load([decode_object(tree)])

    def profile(self, name: str = "etl", labels: Any = MANAGED, **spec: Any) -> None:
        meta = {"name": name, "labels": labels}
        spec = {"selector": ETL, "labels": {"team": "data"}} | spec
        self.load("config.koordinator.sh/v1alpha1", "ClusterColocationProfile", meta, spec=spec)

    def pod(self, name: str = "p", node: str = "", app: str = "etl", **labels: str) -> None:
        meta = {"name": name, "namespace": "jobs", "labels": {"app": app, **labels}}
        spec = {"nodeName": node, "priority": 9500, "containers": [{"name": "c"}]}
        self.load("v1", "Pod", meta, spec=spec)

    def run(self, seconds: float = 0.0) -> None:
        self.clock.advance_to(self.clock.now_s() + seconds)
        while self.manager.step():
            pass

    def team(self, name: str = "p") -> str | None:
        return self.cluster.get(Pod, name, "jobs").metadata.labels.get("team")


def test_pending_pod_gets_the_settings_of_its_profile() -> None:
    """Priority class, scheduler and resources are left to the webhook."""
    world = World()
    world.pod(release="a")
    world.profile(
        annotations={"note": "x"},
        qosClass="LS",
        koordinatorPriority=7,
        labelSuffixes={"release": "-colo"},
        priorityClassName="koord-batch",
        schedulerName="other",
        patch={"metadata": {"labels": {"patched": "yes"}}},
    )
    world.run()

    pod = world.cluster.get(Pod, "p", "jobs")
    assert pod.metadata.labels == {
        "app": "etl",
        "team": "data",
        "release": "a-colo",
        "koordinator.sh/qosClass": "LS",
        "koordinator.sh/priority": "7",
        "patched": "yes",
    }
    assert pod.metadata.annotations == {"note": "x"}
    assert (pod.spec.priority, pod.spec.scheduler_name) == (9500, "default-scheduler")

    version = pod.metadata.resource_version
    world.run(900.0)
    assert world.cluster.get(Pod, "p", "jobs").metadata.resource_version == version


@pytest.mark.parametrize(
    ("profile", "pod", "changes"),
    [
        ({}, {}, True),
        ({}, {"app": "web"}, False),
        ({}, {"node": "n"}, False),
        ({"labels_of_profile": {}}, {}, False),
        ({"selector": None}, {}, False),
        ({"namespaceSelector": {"matchLabels": {"tier": "offline"}}}, {}, True),
        ({"namespaceSelector": {"matchLabels": {"tier": "online"}}}, {}, False),
        ({"probability": 0}, {}, False),
        ({"probability": "100%"}, {}, True),
        ({"selector": {"matchExpressions": [{"key": "a", "operator": "?"}]}}, {}, False),
    ],
)
def test_which_pods_are_changed(profile: Any, pod: Any, *, changes: bool) -> None:
    """A labelled profile updates pods without a node that match both selectors."""
    world = World()
    if pod.get("node"):
        world.load("v1", "Node", {"name": "n"})
    world.pod(**pod)
    labels = profile.pop("labels_of_profile", MANAGED)
    world.profile(labels=labels, **profile)
    world.run()

    assert world.team() == ("data" if changes else None)


def test_a_flag_takes_every_profile() -> None:
    """No profile is reconciled without the gate."""
    for options, expected in (
        ({"reconcile_by_default": True}, "data"),
        ({"gates": frozenset()}, None),
    ):
        world = World(**options)
        world.pod()
        world.profile(labels={} if expected else MANAGED)
        world.run()
        assert world.team() == expected
    everything = ManagerOptions(controllers=frozenset(Controller))
    assert Controller.COLOCATION_PROFILE not in everything.working


def test_a_new_pod_is_seen_at_the_next_round() -> None:
    """Pods do not trigger the reconciliation of profiles."""
    world = World(interval_s=30.0)
    world.profile()
    world.run()
    world.pod()
    world.run(29.0)
    assert world.team() is None
    world.run(1.0)
    assert world.team() == "data"


def test_no_more_pods_are_changed_at_once_than_the_flags_say() -> None:
    """The others come in the next rounds; who had its turn is left alone for a while."""
    world = World(qps=0.1, burst=2, interval_s=30.0)
    for number in range(8):
        world.pod(f"p{number}")
    world.profile()
    counts: list[int] = []
    for _ in range(4):
        world.run(0.0 if not counts else 30.0)
        counts.append(sum(world.team(f"p{number}") == "data" for number in range(8)))

    assert counts == [2, 4, 6, 8]


def test_a_profile_that_changes_comes_to_all_its_pods_again() -> None:
    """A pod that bends back what it was given waits until it is forced."""
    world = World(force_update_s=300.0)
    world.pod()
    world.profile()
    world.run()
    world.cluster.patch(Pod, "p", "jobs", {"metadata": {"labels": {"team": None}}})
    world.run(60.0)
    assert world.team() is None
    world.run(240.0)
    assert world.team() == "data"

    world.cluster.patch(
        ClusterColocationProfile, "etl", "", {"spec": {"labels": {"team": "other"}}}
    )
    world.run()
    assert world.team() == "other"


def test_half_of_the_pods_are_always_the_same_half() -> None:
    """Repeated reconciliations select the same pods."""
    world = World(force_update_s=1.0, interval_s=30.0, burst=10_000)
    names = [f"p{number}" for number in range(60)]
    for name in names:
        world.pod(name)
    world.profile(probability="50%")
    world.run()
    first = [name for name in names if world.team(name)]
    for _ in range(5):
        world.run(30.0)

    assert 10 < len(first) < 50
    assert [name for name in names if world.team(name)] == first
