"""A simulation while it runs, slowed down so that people can follow it, and as it ended."""

from collections.abc import Sequence

from koordinator.api.kubescheduler import KubeSchedulerConfiguration
from koordinator.dashboard.sources.contract import (
    Pace,
    Pause,
    SourceControl,
    SourceKind,
    SourcePhase,
    SourceStatus,
    TimelineMark,
)
from koordinator.foundation.clock import Clock
from koordinator.foundation.errors import InputError
from koordinator.scheduler.features.audit.pages import AuditTrail
from koordinator.scheduler.loop.handle import SchedulerHandle
from koordinator.simulator import Simulation, SimulationResult
from koordinator.simulator.device_bars import DeviceBars
from koordinator.simulator.interruption import RunInterrupted
from koordinator.simulator.page import ResultPage
from koordinator.simulator.report import run_page

_SLICE_S = 0.05


class SimulationSource:
    """Runs a simulation; ``result`` is what came of it, once it has ended."""

    kind = SourceKind.SIMULATION

    def __init__(
        self,
        simulation: Simulation,
        configuration: KubeSchedulerConfiguration,
        clock: Clock,
        *,
        speed: float = 0.0,
        trail: AuditTrail | None = None,
    ) -> None:
        """``speed`` is virtual seconds in one of readers; 0 is as fast as it can be computed.

        ``trail`` is told what the simulation's scheduler decides.
        """
        self.trail = trail
        self.configuration = configuration
        self.result: SimulationResult | None = None
        self._simulation, self._clock = simulation, clock
        self._pace = Pace(speed)
        self._was_stopped = False

    @property
    def title(self) -> str:
        """That of the workload."""
        return self._simulation.recorder.title

    @property
    def handle(self) -> SchedulerHandle:
        """The scheduler of the simulated cluster."""
        return self._simulation.world.scheduler.handle

    @property
    def status(self) -> SourceStatus:
        """Times are virtual."""
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
        """Every GPU at every moment."""
        return self._simulation.devices

    def marks(self) -> Sequence[TimelineMark]:
        """Return what the report will tell: nodes that failed, pods that made room."""
        return [
            TimelineMark(one.time_s, one.text, one.is_node_failure)
            for one in self._simulation.recorder.events
        ]

    def report(self) -> ResultPage | None:
        """Return what ``koord simulate --report`` writes, once the run has ended."""
        if self.result is None:
            return None
        return run_page(self.result.report, None, self.result.devices.lanes())

    def control(self, wanted: SourceControl) -> None:
        """Pause, go on, or change the speed.  Raises InputError: time does not go back here."""
        if wanted.seek_s is not None:
            raise InputError("a simulation goes on only; record it to move in its time")
        self._pace.control(wanted)

    def follow(self, pause: Pause) -> None:
        """Run to the end, or until it is time to end."""
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
