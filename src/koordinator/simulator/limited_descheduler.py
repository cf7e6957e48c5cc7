"""Descheduler of a virtual cluster with a budget of moves.

The budget grows with the arrivals.  Moves in progress count before each cycle, so the budget is
never exceeded.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any, Final

from msgspec import structs

from koordinator.api.kubescheduler import NO_GATES, FeatureGates, KubeSchedulerConfiguration
from koordinator.api.meta import KubeObject, ObjectMeta, OwnerReference
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import PodMigrationJob
from koordinator.api.workload import ReplicaSet, WorkloadSpec
from koordinator.cluster.port import EventType
from koordinator.descheduler.app import Descheduler
from koordinator.descheduler.configuration import (
    DeschedulerConfiguration,
    decode_descheduler_configuration,
)
from koordinator.descheduler.evictor import MoveVerdict
from koordinator.descheduler.migration.jobs import is_live, pod_key
from koordinator.foundation.errors import InputError
from koordinator.scheduler.contract import PluginSpec
from koordinator.scheduler.fork import follow_cluster
from koordinator.simulator.pod_streams import APP
from koordinator.simulator.run_report import MoveTotals
from koordinator.simulator.stages import moves_allowed
from koordinator.simulator.world import Submission, World

_JOB = "batch/v1", "Job"
_LOAD: Final = {
    "anomalyCondition": {"consecutiveAbnormalities": 2, "consecutiveNormalities": 1},
    "lowThresholds": {"cpu": 40, "memory": 80},
    "highThresholds": {"cpu": 65, "memory": 90},
    "nodeMetricExpirationSeconds": 600,
}


def default_policy(*, by_load: bool, by_gpus: bool) -> DeschedulerConfiguration:
    """Return the default policy: a cycle every five minutes, proven moves, direct eviction.

    Raises InputError if no plugin applies.
    """
    names = [
        *(["LowNodeLoad"] if by_load else ()),
        *(["GPUDefragmentation"] if by_gpus else ()),
    ]
    if not names:
        raise InputError(
            "the workload has neither load (field colocation) nor GPUs, which leaves the "
            "default policy nothing to do; give one by --descheduler-config",
            source="--migrate",
        )
    evictor = {"disabled": [{"name": "*"}], "enabled": [{"name": "DefaultEvictor"}]}
    profile = {
        "name": "default",
        "plugins": {
            "balance": {"enabled": [{"name": name} for name in names]},
            "evict": evictor,
            "filter": evictor,
        },
        "pluginConfig": [
            {"name": "LowNodeLoad", "args": _LOAD},
            {"name": "GPUDefragmentation", "args": {"maxGangsPerCycle": 2}},
        ],
    }
    policy = {
        "apiVersion": "descheduler/v1alpha2",
        "kind": "DeschedulerConfiguration",
        "deschedulingInterval": "5m",
        "proveMoves": True,
        "profiles": [profile],
    }
    return decode_descheduler_configuration(policy, "the default policy")


def owned_by_streams(
    submissions: Iterable[Submission], objects: Iterable[KubeObject]
) -> tuple[list[Submission], list[KubeObject]]:
    """Give the pods of streams an owner, which the descheduler requires; return pods and owners.

    Pods without an end belong to a ReplicaSet with the stream's name and number of pods; others
    belong to a Job, whose number of replicas a descheduler does not use.
    """
    owned, replicas = [], Counter[tuple[str, str]]()
    for submission in submissions:
        meta = submission.pod.metadata
        if meta.owner_references:
            owned.append(submission)
            continue
        is_endless = not isfinite(submission.life.work_s)
        name = meta.labels.get(APP, meta.name)
        if is_endless:
            replicas[meta.namespace, name] += 1
        version, kind = (ReplicaSet.API_VERSION, ReplicaSet.KIND) if is_endless else _JOB
        owner = OwnerReference(
            api_version=version,
            kind=kind,
            name=name,
            uid=_uid(kind, meta.namespace, name),
            controller=True,
        )
        pod = structs.replace(
            submission.pod, metadata=structs.replace(meta, owner_references=(owner,))
        )
        owned.append(replace(submission, pod=pod))
    known = {obj.key for obj in objects if isinstance(obj, ReplicaSet)}
    owners: list[KubeObject] = [
        ReplicaSet(
            metadata=ObjectMeta(
                name=name, namespace=namespace, uid=_uid(ReplicaSet.KIND, namespace, name)
            ),
            spec=WorkloadSpec(replicas=count),
        )
        for (namespace, name), count in replicas.items()
        if f"{namespace}/{name}" not in known
    ]
    return owned, owners


def owned_by_jobs(objects: Iterable[KubeObject]) -> list[KubeObject]:
    """Return the objects of a simulation with a Job as the owner of pods without one.

    Simulated pods have no controller, and a descheduler ignores pods without an owner.
    """
    version, kind = _JOB
    owned: list[KubeObject] = []
    for obj in objects:
        meta = obj.metadata
        if isinstance(obj, Pod) and not meta.owner_references:
            name = meta.labels.get(APP, meta.name)
            uid = _uid(kind, meta.namespace, name)
            owner = OwnerReference(
                api_version=version, kind=kind, name=name, uid=uid, controller=True
            )
            meta = structs.replace(meta, owner_references=(owner,))
            owned.append(structs.replace(obj, metadata=meta))
        else:
            owned.append(obj)
    return owned


def _uid(kind: str, namespace: str, name: str) -> str:
    return f"stream-{kind}-{namespace}-{name}"


class LimitedDescheduler:
    """``world.EvictingController`` within a budget; create it after the world is loaded.

    ``prover`` is the scheduler configuration that proves moves; ``on_event`` receives each move.
    Raises InputError for an invalid policy, with the path in ``source``, and for a world with
    PodMigrationJobs, which would not count in the budget.
    """

    def __init__(
        self,
        world: World,
        policy: DeschedulerConfiguration,
        per_1000: float,
        *,
        prover: KubeSchedulerConfiguration,
        out_of_tree: Iterable[PluginSpec[Any]] = (),
        source: str = "",
        on_event: Callable[[float, str], None] = lambda _time_s, _text: None,
        gates: FeatureGates = NO_GATES,
    ) -> None:
        self._world, self._per_1000, self._on_event = world, per_1000, on_event
        if world.cluster.list(PodMigrationJob).items:
            raise InputError(
                "must not contain a PodMigrationJob: the descheduler creates migrations, "
                "within its budget",
                source="--migrate",
            )
        clock = world.embedded.clock
        self._moves = 0
        self._has_jobs = False  # whether a job is in progress
        self._reasons: dict[str, str] = {}  # reason of a move in progress, by pod uid
        self._descheduler = Descheduler(
            world.cluster,
            clock,
            policy,
            source=source,
            fork=follow_cluster(world.cluster, clock, prover, out_of_tree=out_of_tree, gates=gates),
            on_move=self._note,
            most_moves=self._remaining_moves,
        )
        self._descheduler.sync()
        self._watch = world.cluster.watch((Pod,))
        self._watch.poll()
        world.attach_descheduler(self)
        world.at(world.now_s, lambda: None)  # schedules the first cycle at the start

    def step(self) -> bool:
        """See ``world.EvictingController``."""
        wakeup_s = self._descheduler.next_wakeup_s()
        is_due = wakeup_s is not None and wakeup_s <= self._world.now_s
        if not (is_due or self._has_jobs):
            return False
        done = self._descheduler.step()
        moved = self._report_moves()
        self._has_jobs = any(map(is_live, self._jobs()))
        return bool(done) or moved

    def next_wakeup_s(self) -> float | None:
        """See ``world.EvictingController``."""
        return self._descheduler.next_wakeup_s()

    def totals(self) -> MoveTotals:
        """Return the moves so far, and the evictions in vain."""
        arrivals, now_s = self._world.arrivals, self._world.now_s
        in_vain = 0
        for run in self._world.history:
            if run.left is not None:
                until_s = next(
                    at_s for at_s in (run.bound_s, run.ended_s, now_s) if at_s is not None
                )
                in_vain += run.left.was_wasted(run.node, until_s - run.submitted_s)
        return MoveTotals(
            moves=self._moves,
            in_vain=in_vain,
            arrivals=arrivals,
            per_1000=1000.0 * self._moves / arrivals if arrivals else 0.0,
            at_most_per_1000=self._per_1000,
        )

    # -- the budget --------------------------------------------------------------------------

    def _remaining_moves(self) -> int:
        """Return the moves left in the budget."""
        going = {pod_key(job.spec.pod_ref) for job in self._jobs() if is_live(job)}
        allowed = moves_allowed(self._per_1000, self._world.arrivals)
        return max(allowed - self._moves - len(going & self._world.pods.keys()), 0)

    def _jobs(self) -> Sequence[PodMigrationJob]:
        return self._world.cluster.list(PodMigrationJob).items

    # -- completed moves ---------------------------------------------------------------------

    def _note(self, verdict: MoveVerdict) -> None:
        if verdict.skipped is None:
            self._reasons[verdict.pod.metadata.uid] = f"{verdict.plugin}: {verdict.reason}"

    def _report_moves(self) -> bool:
        """Report pods that the descheduler deleted to the world."""
        moved = False
        for event in self._watch.poll():
            pod = event.object
            if event.type is not EventType.DELETED or not isinstance(pod, Pod):
                continue
            run = self._world.pods.get(pod.key)
            if run is None or run.pod.metadata.uid != pod.metadata.uid:
                continue
            self._moves += 1
            moved = True
            why = self._reasons.pop(pod.metadata.uid, "")
            self._on_event(self._world.now_s, f"{pod.key} was moved off {run.node} by {why}")
            self._world.moved(pod.key)
        return moved
