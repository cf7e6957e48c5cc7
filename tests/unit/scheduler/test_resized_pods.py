"""In-place resized pods: their requests on the node, and the pods that a change requeues."""

from typing import Any

import pytest
from tests.reservations import config, reservation
from tests.unit.scheduler.conftest import NewEmbedded, World
from tests.unit.scheduler.test_reserved_victims import user
from tests.worlds import START_S, add, node, pod

from koordinator.api.codec import decode, to_manifest
from koordinator.api.kube_version import KubeVersion
from koordinator.api.kubescheduler import FeatureGates
from koordinator.api.meta import JsonObject
from koordinator.api.pod import Pod
from koordinator.api.reservation import Reservation
from koordinator.domain.resized_pods import ResizeRules
from koordinator.scheduler.features.explanations.explainer import explain
from koordinator.scheduler.snapshot import ClusterState
from koordinator.scheduler.snapshot.axis import CPU
from koordinator.simulator import Embedded

DEFAULTS = [100, 200 << 20]


def resized(original: Pod, granted: int, in_force: int | None = None, reason: str = "") -> Pod:
    """Return the pod with the CPUs that its node grants its first container."""
    manifest = to_manifest(original)
    status: JsonObject = manifest["status"]
    status["containerStatuses"] = [
        {
            "name": "c0",
            "allocatedResources": {"cpu": str(granted)},
            "resources": {"requests": {"cpu": str(in_force or granted)}},
        }
    ]
    if reason:
        status["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": reason}]
    return decode(manifest, Pod)


def requested(state: ClusterState) -> int:
    return int(state.nodes.requested[CPU, 0]) // 1000


def placed(cluster: Embedded, name: str = "new") -> str:
    cluster.run_to_fixed_point()
    return cluster.cluster.get(Pod, name, "default").spec.node_name


@pytest.mark.parametrize(
    ("spec", "granted", "reason", "fits"),
    [(1, 3, "", False), (1, 1, "", True), (3, 1, "Deferred", False), (100, 1, "Infeasible", True)],
)
def test_pending_pod_uses_what_resized_pods_release(
    embedded: NewEmbedded, spec: int, granted: int, reason: str, fits: bool
) -> None:
    """A node of 4 CPUs, a pod of 2: decisions of kube-scheduler 1.35.4, 1.36.3 and 1.37.2."""
    running = resized(pod("running", cpu=spec, on="n"), granted, reason=reason)
    cluster = embedded(node("n", cpu=4), running, pod("new", cpu=2))

    assert placed(cluster) == ("n" if fits else "")


def test_completed_resize_requeues_pods(embedded: NewEmbedded) -> None:
    """The spec alone does not: the kubelet still holds the old amount."""
    running = resized(pod("running", cpu=3, on="n"), 3)
    cluster = embedded(node("n", cpu=4), running, pod("new", cpu=2))
    assert not placed(cluster)

    cluster.cluster.overwrite(resized(pod("running", cpu=1, on="n"), 3))
    assert not placed(cluster)

    cluster.cluster.overwrite(resized(pod("running", cpu=1, on="n"), 1))
    cluster.clock.advance_to(START_S + 20)
    assert placed(cluster) == "n"


def test_infeasible_resize_requeues_pods(embedded: NewEmbedded) -> None:
    """The requested amount is free again."""
    deferred = resized(pod("running", cpu=100, on="n"), 1, reason="Deferred")
    cluster = embedded(node("n", cpu=4), deferred, pod("new", cpu=2))
    assert not placed(cluster)

    cluster.cluster.overwrite(resized(pod("running", cpu=100, on="n"), 1, reason="Infeasible"))
    cluster.clock.advance_to(START_S + 20)
    assert placed(cluster) == "n"


def test_rows_follow_every_change_of_a_status(world: World) -> None:
    """The statuses are growth, shrinkage, refusal, and a return to the spec."""
    state, resizing = world(node("n"), pod("p", cpu=2, on="n")), pod("p", cpu=2, on="n")
    seen = [requested(state)]
    for granted, reason in ((6, ""), (6, "Deferred"), (1, "Infeasible"), (1, ""), (2, "")):
        add(state, resized(resizing, granted, reason=reason))
        seen.append(requested(state))
    assert seen == [2, 6, 6, 1, 2, 2]


def test_the_rules_are_those_of_the_release(world: World) -> None:
    """Before 1.37 each container counts with the maximum of its amounts."""
    state = world(node("n"))
    state.classes.resize = ResizeRules(sums_per_pod=False)
    manifest = to_manifest(pod("p", cpu=1, on="n", images=("a", "b")))
    manifest["spec"]["containers"][1]["resources"] = {"requests": {"cpu": "3"}}
    manifest["status"]["containerStatuses"] = [
        {"name": name, "resources": {"requests": {"cpu": cpu}}}
        for name, cpu in (("c0", "3"), ("c1", "1"))
    ]
    add(state, decode(manifest, Pod))
    assert requested(state) == 6


def test_victim_frees_its_actual_amount(embedded: NewEmbedded) -> None:
    """A pod shrunk to 1 CPU that still holds 3 suffices as victim for a pod of 4."""
    shrinking = resized(pod("old", cpu=1, on="n", priority=1), 3)
    cluster = embedded(node("n", cpu=4), shrinking, pod("new", cpu=4, priority=9))
    cluster.run_to_fixed_point()

    assert "old" not in {each.metadata.name for each in cluster.cluster.list(Pod).items}


def test_the_amounts_of_a_class_are_shared(world: World) -> None:
    """Pods with equal amounts share a class, and those whose status repeats the spec are plain."""
    state = world(node("n"))
    plain = pod("a", cpu=2, on="n")
    assert state.classes.of(resized(plain, 2)) is state.classes.of(plain)
    assert state.classes.of(resized(plain, 5)) is state.classes.of(resized(plain, 5))
    assert state.classes.of(resized(plain, 5)) is not state.classes.of(plain)


@pytest.mark.parametrize(
    ("own", "counted"),
    [
        (None, [1000 + 4 * DEFAULTS[0], 5 * DEFAULTS[1]]),
        ({"cpu": "1"}, [1000, 5 * DEFAULTS[1]]),
        ({"cpu": "1", "memory": "1Gi"}, [1000, 1 << 30]),
    ],
)
def test_requests_of_a_whole_pod_replace_the_assumed_ones(
    world: World, own: Any, counted: list[int]
) -> None:
    """Defaults of containers count only for resources without any request."""
    spec: Any = {"resources": {"requests": own}} if own else {}
    state = world(node("n"), pod("p", cpu=1, on="n", images="abcde", **spec))
    assert state.nodes.nonzero[:, 0].tolist() == counted


def test_memory_of_one_container_is_enough_beside_requests_of_the_pod(world: World) -> None:
    """Scores of the node assume no default memory for the other containers."""
    spec: Any = {"resources": {"requests": {"cpu": "1"}}}
    state = world(node("n"), pod("p", memory="200Mi", on="n", images="abcde", **spec))
    assert state.nodes.nonzero[:, 0].tolist() == [1000, 200 << 20]


@pytest.mark.parametrize(("version", "expected"), [("1.35", 6), ("1.36", 6), ("1.37", 4)])
def test_the_compatibility_level_selects_the_rules(
    embedded: NewEmbedded, version: str, expected: int
) -> None:
    """Of two containers one grows while the other shrinks."""
    gates = FeatureGates.parse("", KubeVersion.parse(version))
    cluster = embedded(node("n"), gates=gates)
    manifest = to_manifest(pod("p", cpu=1, on="n", images=("a", "b")))
    manifest["spec"]["containers"][1]["resources"] = {"requests": {"cpu": "3"}}
    manifest["status"]["containerStatuses"] = [
        {
            "name": name,
            "allocatedResources": {"cpu": cpu},
            "resources": {"requests": {"cpu": cpu}},
        }
        for name, cpu in (("c0", "3"), ("c1", "1"))
    ]
    cluster.load([decode(manifest, Pod)])
    cluster.run_to_fixed_point()

    assert requested(cluster.state) == expected


def test_few_of_many_resized_pods_are_named(embedded: NewEmbedded) -> None:
    """The cause and the remedy list three pods and the number of others."""
    running = [resized(pod(f"r{n}", cpu=1, on="n"), 2) for n in range(5)]
    cluster = embedded(node("n", cpu=10), *running, pod("new", cpu=4))
    cluster.run_to_fixed_point()

    explanation = explain(cluster.scheduler.handle, "default/new")

    (cause,) = (one for one in explanation.causes if one.nodes)
    assert cause.detail.count("holds 2 of cpu") == 3
    assert cause.detail.endswith(" and 2 more")
    (wait,) = (one for one in explanation.remedies if one.kind == "wait")
    assert wait.text.count("the resize of default/r") == 3
    assert wait.text.endswith(" is carried out and 2 more")
    assert len(wait.pods) == 5


def test_users_of_a_reservation_count_with_what_they_hold(embedded: NewEmbedded) -> None:
    """An infeasible resize takes nothing; a smaller one until the kubelet has carried it out."""
    one = embedded(node("n"), reservation("warm", 4, on="n"), user("u", 3), config=config())
    seen = []
    for spec, granted, reason in ((100, 3, "Infeasible"), (1, 3, ""), (1, 1, "")):
        one.cluster.overwrite(resized(user("u", spec), granted, reason=reason))
        one.run_to_fixed_point()
        seen.append(str(one.cluster.get(Reservation, "warm").status.allocated["cpu"]))

    assert seen == ["3", "3", "1"]
