"""GPUDefragmentation: pods move so that a gang finds room, and only if it does in the end."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.examples import examples
from tests.unit.descheduler.migration.world import MigrationWorld
from tests.unit.descheduler.world import DeschedulerWorld
from tests.worlds import gpu_pod

from koordinator.api.core import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Taint,
)
from koordinator.api.meta import JsonObject, KubeObject, ObjectMeta, OwnerReference
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import PodMigrationJob
from koordinator.api.workload import ReplicaSet, WorkloadSpec
from koordinator.descheduler.configuration import decode_plugin_args
from koordinator.descheduler.plugins.gpu_defragmentation.plugin import GPUDefragmentationArgs
from koordinator.domain.placement_fork import replacement_of
from koordinator.foundation.errors import InputError
from koordinator.scheduler.fork import follow_cluster
from koordinator.simulator.policies import default_configuration
from koordinator.simulator.research.openb import TraceNode
from koordinator.simulator.sources.openb import node_objects

GANG = "gang.scheduling.koordinator.sh"
AT_ONCE: JsonObject = {"pendingFor": "0s"}


def nodes(*names: str, gpus: int = 4, cpu: int = 64) -> list[KubeObject]:
    """Return GPU nodes and what their agents say of the devices."""
    return [
        obj
        for name in names
        for obj in node_objects(TraceNode(name, cpu * 1000, 262_144, gpus, "A100"))
    ]


def running(name: str, on: str, *minors: int, percent: int = 100, **spec: Any) -> Pod:
    """Return a pod of a ReplicaSet with these GPUs, or with a share of one."""
    amount = percent * len(minors)
    made = gpu_pod(name, on, minors=minors, gpu_core=amount, gpu_memory_ratio=amount)
    owner = OwnerReference(
        api_version=ReplicaSet.API_VERSION,
        kind=ReplicaSet.KIND,
        name=f"rs-{name}",
        uid=f"rs-{name}",
        controller=True,
    )
    return replace(
        made,
        metadata=replace(made.metadata, owner_references=(owner,), uid=f"uid-{name}"),
        spec=replace(made.spec, scheduler_name="koord-scheduler", **spec),
    )


def replica_sets(pods: Sequence[KubeObject]) -> list[KubeObject]:
    """Return the workloads of pods."""
    return [
        ReplicaSet(
            metadata=ObjectMeta(name=owner.name, namespace="default", uid=owner.uid),
            spec=WorkloadSpec(replicas=8),
        )
        for pod in pods
        if isinstance(pod, Pod)
        for owner in pod.metadata.owner_references
    ]


def waiting(name: str, count: int, gpus: int = 4, **spec: Any) -> list[Pod]:
    """Return the members of a gang that need so many GPUs each."""
    entries = {f"{GANG}/name": name, f"{GANG}/min-available": str(count)}
    made = []
    for index in range(count):
        pod = gpu_pod(f"{name}-{index}", gpu_core=100 * gpus, gpu_memory_ratio=100 * gpus)
        meta = replace(pod.metadata, annotations=entries)
        spec = {"scheduler_name": "koord-scheduler", **spec}
        made.append(replace(pod, metadata=meta, spec=replace(pod.spec, **spec)))
    return made


def world(
    *objects: KubeObject,
    args: JsonObject | None = None,
    controller: JsonObject | None = None,
    **whole: Any,
) -> MigrationWorld:
    """Return a world in which moves are proven, as the chart has it."""
    one = MigrationWorld.__new__(MigrationWorld)
    profile = {
        "plugins": {"balance": {"enabled": [{"name": "GPUDefragmentation"}]}},
        "pluginConfig": [
            {"name": "GPUDefragmentation", "args": AT_ONCE if args is None else args},
            {
                "name": "MigrationController",
                "args": controller
                or {
                    "maxMigratingPerNode": 0,
                    "maxMigratingPerWorkload": 4,
                    "maxUnavailablePerWorkload": 4,
                },
            },
        ],
    }
    everything = [*objects, *replica_sets(objects)]
    DeschedulerWorld.__init__(
        one, *everything, profile=profile, prover=default_configuration(), **whole
    )
    return one


def moved(one: MigrationWorld) -> dict[str, str]:
    """Run a cycle; return the pods with jobs and their proven targets, in the order of the proof.

    Jobs are created, admitted and reserved in this order if their pods have equal eviction ranks.
    """
    one.descheduler.step()
    targets = {v.pod.metadata.name: v.target for v in one.verdicts if v.skipped is None}
    jobs = one.cluster.list(PodMigrationJob).items
    with_jobs = {job.spec.pod_ref.name for job in jobs if job.spec.pod_ref is not None}
    assert with_jobs <= targets.keys()
    return {name: target for name, target in targets.items() if name in with_jobs}


def stays(one: MigrationWorld) -> str:
    return " | ".join(str(verdict.skipped) for verdict in one.verdicts if verdict.skipped)


def test_one_move_makes_room_for_the_gang() -> None:
    """Two nodes of three are wanted whole; one pod that is in the way goes to the third."""
    one = world(
        *nodes("n1", "n2", "n3"),
        running("a", "n1", 0),
        running("b", "n2", 0),
        running("c", "n2", 1),
        *waiting("train", 2),
    )
    assert moved(one) == {"a": "n2"}, stays(one)  # not two pods of n2
    fits = world(
        *nodes("n1", "n2", "n3"),
        running("a", "n1", 0, 1),
        running("b", "n2", 0, 1),
        *waiting("train", 2),
    )
    assert moved(fits) in ({"a": "n2"}, {"b": "n1"}), stays(fits)


def test_reservation_of_a_moved_pod_excludes_the_room() -> None:
    """The reservation avoids the cleared node, whatever free GPU the scheduler would choose."""
    one = world(*nodes("n1", "n2"), running("a", "n1", 0), *waiting("train", 1))
    assert moved(one) == {}, stays(one)  # n2 is free: no pod has to move
    full = world(
        *nodes("n1", "n2", "n3", gpus=4),
        running("a", "n1", 0),
        running("b", "n2", 0, 1),
        running("c", "n3", 0, 1),
        *waiting("train", 1),
    )
    assert moved(full).keys() == {"a"}
    job = full.cluster.list(PodMigrationJob).items[0]
    assert job.spec.reservation_options is not None
    template: Any = job.spec.reservation_options.template
    terms = template["spec"]["template"]["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]["nodeSelectorTerms"]
    assert {"key": "metadata.name", "operator": "NotIn", "values": ["n1"]} in terms[0][
        "matchFields"
    ]


@pytest.mark.parametrize(
    "reason", ["priority", "gang", "selector", "bare", "cordon", "taint", "not whole", "young"]
)
def test_protected_pods_are_not_moved_for_a_gang(reason: str) -> None:
    """Of a more important pod, a member of a gang, one that runs nowhere else, and so on."""
    protected = running("a", "n1", 0)
    machines = nodes("n1", "n2")
    gang = waiting("train", 1)
    args = AT_ONCE
    match reason:
        case "priority":
            protected = running("a", "n1", 0, priority=100)
        case "gang":
            meta = protected.metadata
            entries = {**meta.annotations, f"{GANG}/name": "other", f"{GANG}/min-available": "1"}
            protected = replace(protected, metadata=replace(meta, annotations=entries))
        case "selector":
            protected = running("a", "n1", 0, node_selector={"pool": "nowhere"})
        case "bare":
            protected = replace(
                protected, metadata=replace(protected.metadata, owner_references=())
            )
        case "cordon":
            machines = [_cordoned(each) if each.key == "n2" else each for each in machines]
        case "taint":
            taint = Taint(key="own", effect="NoSchedule")
            machines = [_tainted(each, taint) if each.key == "n2" else each for each in machines]
        case "not whole":
            gang = waiting("train", 2)[:1]
        case _:
            args = {"pendingFor": "1h"}
    blocker = running("b", "n2", 0)
    blocker = replace(blocker, metadata=replace(blocker.metadata, owner_references=()))
    one = world(*machines, protected, blocker, *gang, args=args)
    assert moved(one) == {}
    if reason in ("cordon", "taint"):
        return
    free = world(*nodes("n1", "n2"), running("a", "n1", 0), blocker, *waiting("train", 1))
    assert moved(free) == {"a": "n2"}, stays(free)


def _cordoned(obj: KubeObject) -> KubeObject:
    if not isinstance(obj, Node):
        return obj
    return replace(obj, spec=replace(obj.spec, unschedulable=True))


def _tainted(obj: KubeObject, taint: Taint) -> KubeObject:
    if not isinstance(obj, Node):
        return obj
    return replace(obj, spec=replace(obj.spec, taints=(taint,)))


def test_no_moves_for_a_gang_pending_for_other_reasons() -> None:
    """The room alone would not help: members want a label that no node with room has."""
    one = world(
        *nodes("n1", "n2"),
        running("a", "n1", 0),
        running("b", "n2", 0),
        *waiting("train", 1, node_selector={"pool": "none"}),
    )
    assert moved(one) == {}


def test_no_moves_start_while_jobs_are_live() -> None:
    """While jobs are under way no other pod is named."""
    one = world(
        *nodes("n1", "n2", "n3"),
        running("a", "n1", 0),
        running("b", "n2", 0, 1),
        running("c", "n3", 0, 1),
        *waiting("train", 1),
        *waiting("other", 1, gpus=3),
        deschedulingInterval="10s",
    )
    first = moved(one)
    assert len(first) == 1
    one.clock.advance_to(one.clock.now_s() + 11)
    assert moved(one).keys() == first.keys()


def test_scheduler_places_the_gang_after_the_moves() -> None:
    """The scheduler itself puts the gang there when the pods have moved."""
    trial_world = world(
        *nodes("n1", "n2", "n3", "n4"),
        running("a", "n1", 0),
        running("b", "n2", 1),
        running("c", "n3", 0, 1),
        running("d", "n4", 0, 1, 2),
        *waiting("train", 2),
    )
    plan = moved(trial_world)
    assert set(plan) == {"a", "b"}, stays(trial_world)
    after = [
        running(
            name,
            plan.get(name, on),
            *((3,) if name in plan and plan[name] == "n4" else (2,) if name in plan else minors),
        )
        for name, on, minors in (
            ("a", "n1", (0,)),
            ("b", "n2", (1,)),
            ("c", "n3", (0, 1)),
            ("d", "n4", (0, 1, 2)),
        )
    ]
    if plan["a"] == plan["b"]:
        after[1] = running("b", plan["b"], 3)
    fresh = world(*nodes("n1", "n2", "n3", "n4"), *after)
    fork = follow_cluster(fresh.cluster, fresh.clock, default_configuration())
    fork.follow()
    with fork.world() as there:
        landings = there.land_together(waiting("train", 2))
    assert {landing.node for landing in landings} == {"n1", "n2"}


@pytest.mark.slow
@settings(max_examples=examples(25), deadline=None)
@given(st.integers(0, 10_000))
@example(1337)  # a whole GPU is allocated before a share, which would occupy a free GPU
def test_whenever_pods_move_the_gang_has_room_where_they_were(seed: int) -> None:
    """Make the proven moves of random pods in their order; the scheduler then places the gang."""
    rng = np.random.default_rng(seed)
    free = {f"n{index}": [0, 1, 2, 3] for index in range(int(rng.integers(3, 6)))}
    pods = []
    for number in range(int(rng.integers(2, 10))):
        own = free[f"n{rng.integers(len(free))}"]
        count = int(rng.choice([1, 1, 2]))
        if len(own) < count:
            continue
        minors = sorted(own.pop(int(rng.integers(len(own)))) for _ in range(count))
        percent = 50 if count == 1 and rng.random() < 0.3 else 100
        on = next(name for name, left in free.items() if left is own)
        priority = int(rng.choice([0, 0, 0, 10]))
        pods.append(running(f"p{number}", on, *minors, percent=percent, priority=priority))
    gang = waiting("train", int(rng.integers(1, 3)), gpus=int(rng.choice([2, 4, 4])))
    one = world(*nodes(*free), *pods, *gang)
    plan = moved(one)
    by_name = {pod.metadata.name: pod for pod in pods}
    assert all((by_name[name].spec.priority or 0) == 0 for name in plan)
    fork = follow_cluster(one.cluster, one.clock, default_configuration())
    fork.follow()
    with fork.world() as after:
        for name in plan:
            after.remove(f"default/{name}")
        for name, target in plan.items():
            there = replacement_of(by_name[name], f"{name}-next")
            there = replace(there, spec=replace(there.spec, affinity=_only(target)))
            assert after.land(there).node == target
        if plan:
            members = [replacement_of(pod, f"{pod.metadata.name}-next") for pod in gang]
            assert all(landing.node for landing in after.land_together(members))


def _only(node: str) -> Affinity:
    named = NodeSelectorRequirement(key="metadata.name", operator="In", values=(node,))
    terms = (NodeSelectorTerm(match_fields=(named,)),)
    required = NodeSelector(node_selector_terms=terms)
    return Affinity(
        node_affinity=NodeAffinity(required_during_scheduling_ignored_during_execution=required)
    )


def test_shares_are_consolidated_without_pending_gangs() -> None:
    """Two GPUs are half used, and no expected pod needs a half: one share moves to the other."""
    expected = [
        {"count": 10, "cpuMilli": 4000, "gpus": 1, "gpuMilli": milli} for milli in (810, 1000)
    ]
    moves = {"maxMoves": 1, "leastGainMilli": 100, "expected": expected}
    args = {"pendingFor": "0s", "withoutPending": moves}
    one = world(
        *nodes("n1", "n2", gpus=2),
        running("a", "n1", 0, percent=50),
        running("b", "n2", 0, percent=50),
        running("c", "n1", 1),
        running("d", "n2", 1),
        args=args,
    )
    assert moved(one) in ({"a": "n2"}, {"b": "n1"}), stays(one)
    none = world(
        *nodes("n1", "n2", gpus=2),
        running("a", "n1", 0, percent=50),
        running("b", "n2", 0, percent=50),
        args={"withoutPending": {"maxMoves": 0}},
    )
    assert moved(none) == {}


@pytest.mark.parametrize(
    ("args", "path"),
    [
        ({"pendingFor": "-1s"}, "pendingFor"),
        ({"maxMovesPerGang": 0}, "maxMovesPerGang"),
        ({"withoutPending": {"leastGainMilli": 0}}, "withoutPending.leastGainMilli"),
        ({"moves": 1}, "moves"),
    ],
)
def test_arguments_out_of_bounds_are_rejected(args: JsonObject, path: str) -> None:
    """With the field's path."""
    with pytest.raises(InputError, match=path.rpartition(".")[2]):
        decode_plugin_args(GPUDefragmentationArgs, args, "args", "test")
