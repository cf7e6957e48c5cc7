"""Simulation of a source with a report."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import structs

from koordinator.api.annotations.devices import ALLOCATED
from koordinator.api.annotations.gang import gang_name
from koordinator.api.codec import with_all_fields
from koordinator.api.device import DeviceType
from koordinator.api.kubescheduler import (
    DEFAULT_SCHEDULER_NAME,
    NO_GATES,
    FeatureGates,
    KubeSchedulerConfiguration,
)
from koordinator.api.meta import KubeObject, ObjectMeta
from koordinator.api.pod import Pod, PodSpec
from koordinator.api.resource_names import GPU_MEMORY_RATIO
from koordinator.domain.gpus.mix import WHOLE_GPU, ExpectedPods
from koordinator.domain.gpus.options import Fragmentation
from koordinator.foundation.clock import Clock, SystemClock
from koordinator.foundation.decoders import convert
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.contract import PluginSpec
from koordinator.scheduler.features.audit import Audit
from koordinator.scheduler.snapshot import Snapshot
from koordinator.scheduler.snapshot.gpu_view import expected_mix, gpu_nodes, node_kinds
from koordinator.simulator.colocation.objects import (
    managed_admission,
    managed_objects,
    unmanaged_objects,
)
from koordinator.simulator.device_bars import DeviceBars
from koordinator.simulator.embedded import DEFAULT_ADMISSION
from koordinator.simulator.gauge import WorldGauge
from koordinator.simulator.job_metrics import (
    JobMetrics,
    NodeRates,
    PodDemands,
    PoolCapacity,
    job_metrics,
)
from koordinator.simulator.plugin_files import guarded, naming_plugins
from koordinator.simulator.policies import with_plugins, with_policy
from koordinator.simulator.results import (
    ArrivalCurve,
    PodPlacement,
    SimulationResult,
    arrival_curve,
)
from koordinator.simulator.run_report import RunRecorder, RunReport
from koordinator.simulator.sources.source import Source, workload_source
from koordinator.simulator.workload import Workload
from koordinator.simulator.world import SimulatedPod, Submission, World

if TYPE_CHECKING:  # imported only for runs that use them
    from koordinator.descheduler.configuration import DeschedulerConfiguration
    from koordinator.hadoop.port import ResourceManager


class RunInterrupted(Exception):  # noqa: N818 -- not an error: the run returns its result so far
    """Raised by a callback of a run to end it early, with the result so far."""


@dataclass(frozen=True, slots=True)
class MoveSettings:
    """Descheduler of a run, with a maximum of moves per 1,000 arrivals at any time.

    The default policy balances load if it is simulated, and defragments GPUs if there are any.
    ``source`` names the policy in errors.
    """

    per_1000: float
    policy: "DeschedulerConfiguration | None" = None
    source: str = ""


class Simulation:
    """A run before its start; ``recorder`` has its samples while it runs.

    The default configuration is the source's: ``default_profile`` for a workload.  Pods without a
    schedulerName belong to ``default-scheduler``, or to the first profile if none has that name.
    ``policy`` replaces the scores of the configuration: one of ``POLICIES``, or the name of an
    out-of-tree plugin.  Out-of-tree plugins that the configuration does not name run in every
    profile; ``installed`` ones run only if it names them.  ``seed`` and ``until_s`` override the
    source's values.  With ``colocates`` false, colocation is measured only, without manager,
    profile and node agents.  ``audit`` receives the scheduler's decisions, with plugin times unless
    ``times_plugins`` is false.  ``moves`` adds a descheduler, which proves its moves with the same
    configuration.

    Raises InputError for an unknown name in the configuration or workload, PluginError for an
    exception of an out-of-tree plugin.
    """

    def __init__(
        self,
        workload: Workload | Source,
        configuration: KubeSchedulerConfiguration | None = None,
        *,
        policy: str = "",
        seed: int | None = None,
        until_s: float | None = None,
        stopwatch: Clock | None = None,
        out_of_tree: Iterable[PluginSpec[Any]] = (),
        installed: Iterable[PluginSpec[Any]] = (),
        source: str = "",
        colocates: bool = True,
        audit: Audit | None = None,
        times_plugins: bool = True,
        moves: MoveSettings | None = None,
        gates: FeatureGates = NO_GATES,
    ) -> None:
        origin = workload_source(workload) if isinstance(workload, Workload) else workload
        self.source, self.policy = origin, policy
        self.seed = origin.seed if seed is None else seed
        horizon_s = origin.horizon_s if until_s is None else until_s
        self._stopwatch = stopwatch or SystemClock()
        plan = origin.generate(self.seed, horizon_s)
        self.plan = plan
        self.ends_s = horizon_s if plan.ends_s is None else plan.ends_s
        self._sample_every_s = plan.sample_every_s or origin.sample_every_s
        self._demands = PodDemands()
        described = origin.workload
        colocation = described.colocation if described is not None else None
        yarn = described.yarn if described is not None else None
        is_managed = colocation is not None and colocates
        admission = managed_admission(self._rng("admission")) if is_managed else DEFAULT_ADMISSION
        own = guarded(out_of_tree)
        configuration = with_plugins(configuration or origin.configuration(), own, policy)
        names = {spec.name for spec in own}
        own += guarded(spec for spec in installed if spec.name not in names)
        if policy:
            configuration = with_policy(
                configuration, policy, self.expected_pods, own, seed=self.seed
            )
        self.world = World(
            configuration,
            stopwatch=self._stopwatch,
            grace_period_s=origin.grace_period_s,
            out_of_tree=own,
            source=source,
            admission=admission,
            audit=audit,
            times_plugins=times_plugins,
            reports=is_managed and yarn is not None,  # its operator reads conditions
            gates=gates,
            on_fault=naming_plugins(own),
        )
        self._configuration = configuration
        objects: Iterable[KubeObject] = plan.objects
        if colocation is not None:
            objects = (managed_objects if is_managed else unmanaged_objects)(objects)
        submissions = _for_profiles(plan.submissions, configuration)
        if moves is not None:
            from koordinator.simulator.limited_descheduler import (  # noqa: PLC0415 -- slow import
                owned_by_streams,
            )

            submissions, owners = owned_by_streams(submissions, plan.objects)
            objects = [*objects, *owners]
        self.world.load(objects)
        if plan.ranks:
            self.world.rank_nodes(plan.ranks)
        self.world.submit(submissions)
        for outage in plan.outages:
            self.world.fail_node(outage.at_s, outage.node, outage.repaired_after_s)
        for change in plan.changes:
            self.world.change(change.at_s, change.object, is_deleted=change.is_deleted)
        self._gauge = WorldGauge(self.world, plan.nodes, (s.pod for s in plan.submissions))
        self.recorder = RunRecorder(
            title=origin.title,
            seed=self.seed,
            groups=self._gauge.groups,
            parameters={
                "horizon": f"{self.ends_s / 3600:g} h",
                "sampled every": f"{self._sample_every_s:g} s",
                "dead node noticed after": f"{origin.grace_period_s:g} s",
                "its pods given up after": f"{origin.toleration_s:g} s more",
                "scheduler": source or origin.configuration_name,
                **({"policy": policy} if policy else {}),
            },
        )
        self.world.set_observer(self.recorder)
        self.devices = DeviceBars()
        self.world.on_decisions(self.devices.update)
        self._descheduler = None
        if moves is not None:
            from koordinator.simulator.limited_descheduler import (  # noqa: PLC0415 -- slow import
                LimitedDescheduler,
                default_policy,
            )

            self._descheduler = LimitedDescheduler(
                self.world,
                moves.policy
                or default_policy(
                    by_load=is_managed, by_gpus=any(group.gpus for group in self._gauge.groups)
                ),
                moves.per_1000,
                prover=configuration,
                out_of_tree=own,
                source=moves.source,
                gates=gates,
                on_event=self.recorder.event,
            )
        self._loop = None
        if colocation is not None:
            from koordinator.simulator.colocation.loop import (  # noqa: PLC0415 -- slow import
                ColocationLoop,
            )

            self._loop = ColocationLoop(
                self.world,
                colocation,
                self._rng("hosts"),
                is_on=is_managed,
                on_event=self.recorder.event,
                yarn=yarn,
                applications=plan.applications,
                node_managers=plan.node_managers,
            )

    @property
    def is_conserving(self) -> bool:
        """Whether a pod that is refused has no room on any node, then and later."""
        return bool(self.source.only_requests and self.source.endless and self._descheduler is None)

    def expected_pods(self) -> list[dict[str, Any]]:
        """Return the mix of the source's pods, as policies that know it expect it."""
        if self.source.expected is not None:
            return self.source.expected(self.plan)
        return self._demands.expected(each.pod for each in self.plan.submissions)

    @property
    def yarn(self) -> "ResourceManager | None":
        """The workload's YARN ResourceManager as its clients see it; None without YARN."""
        return self._loop.yarn if self._loop is not None else None

    def run(
        self,
        on_sample: Callable[[], None] | None = None,
        *,
        record: Callable[[bytes], object] | None = None,
    ) -> SimulationResult:
        """Run to the end; call ``on_sample`` after each sample of ``recorder``.

        ``record`` takes the lines of a recording for ``koord replay``.
        RunInterrupted, raised by ``on_sample``, ends the run early with its result so far.
        """
        began_s = self._stopwatch.now_s()
        unusable: list[tuple[int, float]] = []  # samples: number of arrivals, and milli

        def take_sample(_world: World) -> None:
            self.recorder.sample(self._gauge.sample())
            if (measure := self._measure) is not None:
                unusable.append((len(self.world.history), self._unusable_milli(measure)))
            if self._loop is not None:
                self._loop.sample()
            if on_sample is not None:
                on_sample()

        if record is not None:
            self.world.record(record, with_all_fields(self._configuration))
        try:
            self.world.run(self.ends_s, sample_every_s=self._sample_every_s, on_sample=take_sample)
        except RunInterrupted:
            self.recorder.event(self.world.now_s, "ended early")
        self.world.scheduler.finish()
        colocation = self._loop.report() if self._loop is not None else None
        moves = self._descheduler.totals() if self._descheduler is not None else None
        placements = tuple(map(self._placement, self.world.history))
        report = self.recorder.finish(self._stopwatch.now_s() - began_s, colocation, moves)
        report = structs.replace(report, jobs=self._jobs(placements, report))
        return SimulationResult(
            report,
            placements,
            self.world.cluster,
            self.devices,
            source=self.source.name or self.source.title,
            policy=self.policy,
            order=self.plan.order,
            curve=self._curve(placements, unusable),
        )

    def _jobs(self, placements: Sequence[PodPlacement], report: RunReport) -> JobMetrics:
        """Return the metrics of jobs; the samples give the fragmentation."""
        pools = {
            group.name: PoolCapacity(
                nodes=self.plan.nodes[group.name],
                cpu_milli=group.cpu_cores * 1000,
                gpu_milli=float(group.gpus * WHOLE_GPU),
                rates=self.plan.rates.get(group.name, NodeRates()),
            )
            for group in self.recorder.groups
        }
        return job_metrics(
            [placement.run() for placement in placements],
            pools,
            self.world.now_s,
            report.mean_over_time(report.samples.gpu_fragmentation),
        )

    def _curve(
        self, placements: Sequence[PodPlacement], unusable: Sequence[tuple[int, float]]
    ) -> ArrivalCurve | None:
        """Return the allocation over arrivals; None without GPUs."""
        if (measure := self._measure) is None:
            return None
        end = (len(self.world.history), self._unusable_milli(measure))
        return arrival_curve(placements, self._capacity_milli, [*unusable, end])

    @property
    def _capacity_milli(self) -> int:
        return WHOLE_GPU * sum(group.gpus for group in self.recorder.groups)

    @cached_property
    def _measure(self) -> Fragmentation | None:
        """FGD's measure for pods that arrive and stay; None for other sources."""
        if not (self.source.endless and self._capacity_milli):
            return None
        snapshot = Snapshot(self.world.embedded.state)
        expected = convert(self.expected_pods(), tuple[ExpectedPods, ...])
        return Fragmentation(expected_mix(snapshot, expected).typical(), node_kinds(snapshot)[0])

    def _unusable_milli(self, measure: Fragmentation) -> float:
        """Return the free GPU milli that a typical pod could not use now."""
        nodes = gpu_nodes(Snapshot(self.world.embedded.state))
        return float(measure.unusable(nodes).sum())

    def _placement(self, run: SimulatedPod) -> PodPlacement:
        group, first = run.submission.group, run.submission.pod.key
        cpu_milli, gpu_milli = self._demands.totals(run.submission.pod)
        return PodPlacement(
            pod=run.key,
            kind=run.submission.kind,
            node=run.node,
            submitted_s=run.submitted_s,
            bound_s=run.bound_s,
            ended_s=run.ended_s,
            stage=run.stage,
            message=run.why,
            reason=run.reason,
            job=group.key if group is not None else _gang_key(run.submission.pod) or first,
            first_pod=first,
            is_restart=run.times > 0,
            cpu_milli=cpu_milli,
            gpu_milli=gpu_milli,
            gpus=_gpus(run.annotations),
        )

    def _rng(self, role: str) -> np.random.Generator:
        return np.random.default_rng([self.seed, *role.encode()])


def _for_profiles(
    submissions: Iterable[Submission], configuration: KubeSchedulerConfiguration
) -> list[Submission]:
    """Assign pods without a schedulerName to the first profile if there is no default profile."""
    names = [profile.scheduler_name for profile in configuration.profiles]
    if DEFAULT_SCHEDULER_NAME in names:
        return list(submissions)
    specs: dict[int, PodSpec] = {}  # keeps the sharing of specs, which makes pods comparable fast
    kept = []
    for submission in submissions:
        pod, old = submission.pod, submission.pod.spec
        if old.scheduler_name in {"", DEFAULT_SCHEDULER_NAME}:
            if id(old) not in specs:
                specs[id(old)] = structs.replace(old, scheduler_name=names[0])
            pod = structs.replace(pod, spec=specs[id(old)])
            submission = replace(submission, pod=pod)  # noqa: PLW2901 -- the same pod with another scheduler
        kept.append(submission)
    return kept


def _gang_key(pod: Pod) -> str:
    """Return the namespace and name of a pod's gang; empty without one."""
    name = gang_name(pod.metadata)
    return f"{pod.metadata.namespace}/{name}" if name else ""


def _gpus(annotations: Mapping[str, str]) -> tuple[tuple[int, int], ...]:
    """Return the GPUs that a pod was assigned."""
    if ALLOCATED.key not in annotations:
        return ()
    allocated = ALLOCATED.read(ObjectMeta(annotations=dict(annotations))) or {}
    return tuple(
        (each.minor, each.resources[GPU_MEMORY_RATIO].value() * WHOLE_GPU // 100)
        for each in allocated.get(DeviceType.GPU, ())
        if GPU_MEMORY_RATIO in each.resources
    )
