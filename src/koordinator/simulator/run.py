"""Simulation of a workload with a report; entry point for the CLI, scripts and notebooks."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import structs

from koordinator.api.codec import spelt_out
from koordinator.api.kubescheduler import (
    DEFAULT_SCHEDULER_NAME,
    NO_GATES,
    FeatureGates,
    KubeSchedulerConfiguration,
    decode_configuration,
)
from koordinator.api.meta import KubeObject
from koordinator.api.pod import PodSpec
from koordinator.cluster.port import Reader
from koordinator.foundation.clock import Clock, SystemClock
from koordinator.foundation.yaml_documents import yaml_document
from koordinator.scheduler.contract import PluginSpec
from koordinator.scheduler.features.audit import Audit
from koordinator.simulator.colocation.objects import (
    managed_admission,
    managed_objects,
    unmanaged_objects,
)
from koordinator.simulator.device_bars import DeviceBars
from koordinator.simulator.embedded import DEFAULT_ADMISSION
from koordinator.simulator.gauge import WorldGauge
from koordinator.simulator.generation import generate
from koordinator.simulator.interruption import RunInterrupted
from koordinator.simulator.run_report import RunRecorder, RunReport
from koordinator.simulator.stages import PodStage
from koordinator.simulator.workload import Workload
from koordinator.simulator.workload_file import read_workload
from koordinator.simulator.world import SimulatedPod, Submission, World

if TYPE_CHECKING:  # imported only for runs that use them
    from koordinator.descheduler.configuration import DeschedulerConfiguration
    from koordinator.hadoop.port import ResourceManager

PROFILE = "data/demo-profile.yaml"


@dataclass(frozen=True, slots=True)
class PodPlacement:
    """Outcome of one pod object; times are virtual, None if the event did not occur."""

    pod: str  # namespace/name
    kind: str
    node: str  # empty if never placed
    submitted_s: float
    bound_s: float | None
    ended_s: float | None
    stage: PodStage
    message: str  # condition message of a pending pod


@dataclass(frozen=True, slots=True)
class MoveSettings:
    """Descheduler of a run, with a maximum of moves per 1,000 arrivals at any time.

    The default policy balances load if it is simulated, and defragments GPUs if there are any.
    ``source`` names the policy in errors.
    """

    per_1000: float
    policy: "DeschedulerConfiguration | None" = None
    source: str = ""


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """Report, placements for analysis, and the final state of the cluster."""

    report: RunReport
    placements: tuple[PodPlacement, ...]  # in the order of submission
    cluster: Reader
    devices: DeviceBars  # allocation of GPUs over time


class Simulation:
    """A run before its start; ``recorder`` has its samples while it runs.

    The default configuration is ``default_profile``.  Pods without a schedulerName belong to
    ``default-scheduler``, or to the first profile if none has that name.  ``seed`` and ``until_s``
    override the workload's values.  With ``colocates`` false, colocation is measured only, without
    manager, profile and node agents.  ``audit`` receives the scheduler's decisions, with plugin
    times unless ``times_plugins`` is false.  ``moves`` adds a descheduler, which proves its moves
    with the same configuration.

    Raises InputError for an unknown name in the configuration or workload.
    """

    def __init__(
        self,
        workload: Workload,
        configuration: KubeSchedulerConfiguration | None = None,
        *,
        seed: int | None = None,
        until_s: float | None = None,
        stopwatch: Clock | None = None,
        out_of_tree: Iterable[PluginSpec[Any]] = (),
        source: str = "",
        colocates: bool = True,
        audit: Audit | None = None,
        times_plugins: bool = True,
        moves: MoveSettings | None = None,
        gates: FeatureGates = NO_GATES,
    ) -> None:
        self.seed = workload.seed if seed is None else seed
        self.ends_s = workload.horizon.total_seconds() if until_s is None else until_s
        self._sample_every_s = workload.sample_every.total_seconds()
        self._stopwatch = stopwatch or SystemClock()
        plan = generate(workload, self.seed, self.ends_s)
        colocation = workload.colocation
        is_managed = colocation is not None and colocates
        admission = managed_admission(self._rng("admission")) if is_managed else DEFAULT_ADMISSION
        configuration = configuration or default_profile()
        self.world = World(
            configuration,
            stopwatch=self._stopwatch,
            grace_period_s=workload.grace_period.total_seconds(),
            out_of_tree=out_of_tree,
            source=source,
            admission=admission,
            audit=audit,
            times_plugins=times_plugins,
            reports=is_managed and workload.yarn is not None,  # its operator reads conditions
            gates=gates,
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
        self.world.submit(submissions)
        for outage in plan.outages:
            self.world.fail_node(outage.at_s, outage.node, outage.repaired_after_s)
        self._gauge = WorldGauge(self.world, plan.nodes, (s.pod for s in plan.submissions))
        self.recorder = RunRecorder(
            title=workload.title,
            seed=self.seed,
            groups=self._gauge.groups,
            parameters={
                "horizon": f"{self.ends_s / 3600:g} h",
                "sampled every": f"{self._sample_every_s:g} s",
                "dead node noticed after": f"{workload.grace_period.total_seconds():g} s",
                "its pods given up after": f"{workload.toleration.total_seconds():g} s more",
                "scheduler": source or PROFILE,
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
                out_of_tree=out_of_tree,
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
                yarn=workload.yarn,
                applications=plan.applications,
                node_managers=plan.node_managers,
            )

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

        def take_sample(_world: World) -> None:
            self.recorder.sample(self._gauge.sample())
            if self._loop is not None:
                self._loop.sample()
            if on_sample is not None:
                on_sample()

        if record is not None:
            self.world.record(record, spelt_out(self._configuration))
        try:
            self.world.run(self.ends_s, sample_every_s=self._sample_every_s, on_sample=take_sample)
        except RunInterrupted:
            self.recorder.event(self.world.now_s, "ended early")
        self.world.scheduler.finish()
        colocation = self._loop.report() if self._loop is not None else None
        moves = self._descheduler.totals() if self._descheduler is not None else None
        report = self.recorder.finish(self._stopwatch.now_s() - began_s, colocation, moves)
        placements = tuple(_placement(run) for run in self.world.history)
        return SimulationResult(report, placements, self.world.cluster, self.devices)

    def _rng(self, role: str) -> np.random.Generator:
        return np.random.default_rng([self.seed, *role.encode()])


def simulate(
    workload: Workload | Path | str,
    configuration: KubeSchedulerConfiguration | None = None,
    *,
    seed: int | None = None,
    until_s: float | None = None,
    out_of_tree: Iterable[PluginSpec[Any]] = (),
    on_sample: Callable[[], None] | None = None,
) -> SimulationResult:
    """Run a workload, or the workload in a file.  See ``Simulation``."""
    if not isinstance(workload, Workload):
        workload = read_workload(workload)
    simulation = Simulation(
        workload, configuration, seed=seed, until_s=until_s, out_of_tree=out_of_tree
    )
    return simulation.run(on_sample)


def default_profile() -> KubeSchedulerConfiguration:
    """Return the configuration of ``koord demo``: ``data/demo-profile.yaml`` of this package."""
    text = files("koordinator.simulator").joinpath(PROFILE).read_bytes()
    return decode_configuration(yaml_document(text, PROFILE), PROFILE)


def _for_profiles(
    submissions: Iterable[Submission], configuration: KubeSchedulerConfiguration
) -> list[Submission]:
    """Assign pods without a schedulerName to the first profile if there is no default profile."""
    names = [profile.scheduler_name for profile in configuration.profiles]
    if DEFAULT_SCHEDULER_NAME in names:
        return list(submissions)
    specs: dict[int, PodSpec] = {}  # keeps the sharing of specs, which makes pods comparable fast
    found = []
    for submission in submissions:
        pod, old = submission.pod, submission.pod.spec
        if old.scheduler_name in {"", DEFAULT_SCHEDULER_NAME}:
            if id(old) not in specs:
                specs[id(old)] = structs.replace(old, scheduler_name=names[0])
            pod = structs.replace(pod, spec=specs[id(old)])
            submission = replace(submission, pod=pod)  # noqa: PLW2901 -- the same pod with another scheduler
        found.append(submission)
    return found


def _placement(run: SimulatedPod) -> PodPlacement:
    return PodPlacement(
        pod=run.key,
        kind=run.submission.kind,
        node=run.node,
        submitted_s=run.submitted_s,
        bound_s=run.bound_s,
        ended_s=run.ended_s,
        stage=run.stage,
        message=run.why,
    )
