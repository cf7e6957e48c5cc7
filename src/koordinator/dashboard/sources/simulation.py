"""Source for a simulation that runs at a speed readers can follow, and for its final state."""

from collections.abc import Sequence

from koordinator.api.kubescheduler import KubeSchedulerConfiguration
from koordinator.dashboard.sources.contract import (
    Pause,
    SourceControl,
    SourceKind,
    SourcePhase,
    SourceStatus,
    TimeControl,
    TimelineMark,
)
from koordinator.foundation.clock import Clock
from koordinator.foundation.errors import InputError
from koordinator.scheduler.features.audit import Audit
from koordinator.scheduler.loop.handle import SchedulerHandle
from koordinator.simulator import Simulation
from koordinator.simulator.device_bars import DeviceBars
from koordinator.simulator.page import ResultPage
from koordinator.simulator.report import run_page
from koordinator.simulator.results import SimulationResult
from koordinator.simulator.run import RunInterrupted

_SLICE_S = 0.05


class SimulationSource:
    """Running simulation; ``result`` is set when it has ended."""

    kind = SourceKind.SIMULATION

    def __init__(
        self,
        simulation: Simulation,
        configuration: KubeSchedulerConfiguration,
        clock: Clock,
        *,
        speed: float = 0.0,
        trail: Audit | None = None,
    ) -> None:
        """``speed`` is virtual seconds per second; 0 means as fast as possible.

        ``trail`` receives the decisions of the simulation's scheduler.
        """
        self.trail = trail
        self.configuration = configuration
        self.result: SimulationResult | None = None
        self._simulation, self._clock = simulation, clock
        self._pace = TimeControl(speed)
        self._was_stopped = False

    @property
    def title(self) -> str:
        """Title of the workload."""
        return self._simulation.recorder.title

    @property
    def handle(self) -> SchedulerHandle:
        """The scheduler of the simulated cluster."""
        return self._simulation.world.scheduler.handle

    @property
    def status(self) -> SourceStatus:
        """Status with virtual times."""
        phase = SourcePhase.PAUSED if self._pace.is_paused else SourcePhase.LIVE
        return SourceStatus(
            phase=SourcePhase.ENDED if self.result is not None else phase,
            now_s=self._simulation.world.now_s,
            from_s=0.0,
            to_s=self._simulation.ends_s,
            speed=self._pace.speed,
            is_virtual=True,
            has_report=self.result is not None,
        )

    @property
    def devices(self) -> DeviceBars:
        """Allocation of every GPU over the run."""
        return self._simulation.devices

    def marks(self) -> Sequence[TimelineMark]:
        """Return the events of the report: node failures and evictions."""
        return [
            TimelineMark(one.time_s, one.text, one.is_node_failure)
            for one in self._simulation.recorder.events
        ]

    def report(self) -> ResultPage | None:
        """Return the page of ``koord simulate --report``; None before the run has ended."""
        if self.result is None:
            return None
        return run_page(self.result.report, None, self.result.devices.lanes())

    def control(self, wanted: SourceControl) -> None:
        """Pause, resume or change the speed.  Raises InputError for a seek."""
        if wanted.seek_s is not None:
            raise InputError("seekS: a simulation cannot seek; record it and open the recording")
        self._pace.apply(wanted)

    def follow(self, pause: Pause) -> None:
        """Run to the end, or until ``pause`` returns False."""
        drawn_s = self._simulation.world.now_s

        def wait() -> None:
            nonlocal drawn_s
            now_s = self._simulation.world.now_s
            passed_s, drawn_s = now_s - drawn_s, now_s
            began_s = self._clock.now_s()
            while True:
                if not pause(_SLICE_S if self._pace.is_paused or self._pace.speed else 0.0):
                    self._was_stopped = True
                    raise RunInterrupted
                waited_s = self._clock.now_s() - began_s
                if not self._pace.is_paused and (
                    not self._pace.speed or waited_s * self._pace.speed >= passed_s
                ):
                    return

        self.result = self._simulation.run(wait)
