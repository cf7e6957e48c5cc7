"""One simulation from a workload to its report: what the CLI, a script and a notebook call."""

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
from koordinator.hadoop.port import ResourceManager
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

if TYPE_CHECKING:  # a descheduler is not loaded where nobody asks for one
    from koordinator.descheduler.configuration import DeschedulerConfiguration

PROFILE = "data/demo-profile.yaml"


@dataclass(frozen=True, slots=True)
class PodPlacement:
    """What became of one pod object; times are virtual, None where it didn't come to that."""

    pod: str  # namespace/name
    kind: str
    node: str  # empty: never placed
    submitted_s: float
    bound_s: float | None
    ended_s: float | None
    stage: PodStage
    message: str  # of a pending pod: why, as in its condition


@dataclass(frozen=True, slots=True)
class MoveSettings:
    """A descheduler at work: at most so many moves per 1,000 arrivals, never more at any time.

    Without a policy nodes are evened out by load where it is simulated, and GPUs are defragmented
    where there are some.  ``source`` names the policy in errors.
    """

    per_1000: float
    policy: "DeschedulerConfiguration | None" = None
    source: str = ""


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """The report for people, the placements for analysis, and the cluster as it was at the end."""

    report: RunReport
    placements: tuple[PodPlacement, ...]  # in the order of submission
    cluster: Reader
    devices: DeviceBars  # who held which GPU, and when


class Simulation:
    """A run that is ready to begin; ``recorder`` can be watched while it goes on.

    Without a configuration the packaged one is used (``default_profile``); pods that name no
    scheduler are for ``default-scheduler``, or else for the first profile.  ``seed`` and
    ``until_s`` stand for those of the workload.  With ``colocates`` false its colocation is only
    measured: no manager, no profile, no node agent.  ``audit`` is told what the scheduler decides,
    and what its plugins take unless ``times_plugins`` is false.
    With ``moves`` a descheduler is at work, which proves its moves by the same configuration.

    Raises InputError for a configuration or a workload that names what isn't there.
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
        admission = managed_admission(self._lots("admission")) if is_managed else DEFAULT_ADMISSION
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
            reports=is_managed and workload.yarn is not None,  # its operator heeds who waits
            gates=gates,
        )
        self._configuration = configuration
        objects: Iterable[KubeObject] = plan.objects
        if colocation is not None:
            objects = (managed_objects if is_managed else unmanaged_objects)(objects)
        submissions = _for_profiles(plan.submissions, configuration)
        if moves is not None:
            from koordinator.simulator.limited_descheduler import (  # noqa: PLC0415 -- takes long to
                owned_by_streams,  # load
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
        self.world.tell(self.recorder)
        self.devices = DeviceBars()
        self.world.watch(self.devices.look)
        self._descheduler = None
        if moves is not None:
            from koordinator.simulator.limited_descheduler import (  # noqa: PLC0415 -- as above
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
                tell=self.recorder.event,
            )
        self._loop = None
        if colocation is not None:
            from koordinator.simulator.colocation.loop import (  # noqa: PLC0415 -- node agents and
                ColocationLoop,  # their strategies are not loaded for all other commands
            )

            self._loop = ColocationLoop(
                self.world,
                colocation,
                self._lots("hosts"),
                is_on=is_managed,
                tell=self.recorder.event,
                yarn=workload.yarn,
                applications=plan.applications,
                node_managers=plan.node_managers,
            )

    @property
    def yarn(self) -> ResourceManager | None:
        """The YARN of the workload as its clients see it; None if it has none."""
        return self._loop.yarn if self._loop is not None else None

    def run(
        self,
        on_sample: Callable[[], None] | None = None,
        *,
        record: Callable[[bytes], object] | None = None,
    ) -> SimulationResult:
        """Run to the end; ``on_sample`` is called after each sample that ``recorder`` has taken.

        ``record`` takes the lines of a recording, which ``koord replay`` reads.
        Ends early, with what there is, when ``on_sample`` raises RunInterrupted.
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

    def _lots(self, role: str) -> np.random.Generator:
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
    """Run a workload, given as such or as the name of its file.  See ``Simulation``."""
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
    """Give pods that name no scheduler to the first profile, if none is for them."""
    names = [profile.scheduler_name for profile in configuration.profiles]
    if DEFAULT_SCHEDULER_NAME in names:
        return list(submissions)
    specs: dict[int, PodSpec] = {}  # one for all pods that share one: they stay alike
    found = []
    for submission in submissions:
        pod, old = submission.pod, submission.pod.spec
        if old.scheduler_name in {"", DEFAULT_SCHEDULER_NAME}:
            if id(old) not in specs:
                specs[id(old)] = structs.replace(old, scheduler_name=names[0])
            pod = structs.replace(pod, spec=specs[id(old)])
            submission = replace(submission, pod=pod)  # noqa: PLW2901 -- the same one for another profile
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
