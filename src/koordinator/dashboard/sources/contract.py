"""What a dashboard needs to know of what it looks at."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable

import msgspec

from koordinator.api.kubescheduler import KubeSchedulerConfiguration
from koordinator.foundation.errors import InputError
from koordinator.scheduler.features.audit.pages import AuditTrail
from koordinator.scheduler.loop.handle import SchedulerHandle
from koordinator.simulator.device_bars import DeviceBars
from koordinator.simulator.page import ResultPage

#: Lets whoever reads work for at least so many seconds; False: it is time to end.
Pause = Callable[[float], bool]


class SourceKind(StrEnum):
    """Where objects come from."""

    MANIFESTS = "manifests"
    SIMULATION = "simulation"
    RECORDING = "recording"
    CLUSTER = "cluster"


class SourcePhase(StrEnum):
    """How far a source is."""

    LOADING = "loading"  # nothing is to be seen yet
    LIVE = "live"
    PAUSED = "paused"
    ENDED = "ended"  # nothing changes any more
    LOST = "lost"  # what is shown is old: see the problem


class SourceStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How a source is; times are those of the cluster, in seconds.

    Where time can be chosen it lies between ``from_s`` and ``to_s``, and passes ``speed`` times as
    fast as that of readers; 0 is as fast as it can be computed.
    """

    phase: SourcePhase
    now_s: float
    problem: str = ""
    from_s: float | None = None
    to_s: float | None = None
    speed: float | None = None
    can_seek: bool = False
    has_report: bool = False  # of a run that is over
    is_virtual: bool = False  # times count from the beginning of a run, not from 1970


class SourceControl(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a reader wants of time; a field that is absent stays as it is."""

    is_paused: bool | None = None
    speed: float | None = None
    seek_s: float | None = None


FASTEST = 1e6  # seconds there in one of readers


@dataclass(slots=True)
class Pace:
    """How fast the time of a source passes, as readers have chosen; ``speed`` 0: as it can."""

    speed: float
    is_paused: bool = False

    def control(self, wanted: SourceControl) -> None:
        """Pause, go on, or change the speed.  Raises InputError for one that can't be had."""
        if wanted.speed is not None:
            if not 0 <= wanted.speed <= FASTEST:
                raise InputError(f"found {wanted.speed:g}; accepted is 0..{FASTEST:g}")
            self.speed = wanted.speed
        if wanted.is_paused is not None:
            self.is_paused = wanted.is_paused


class TimelineMark(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Something that has happened at one moment, in words."""

    at_s: float
    text: str
    is_failure: bool = False  # something was lost: a node, or the place of a pod


class ClusterSource(Protocol):
    """A cluster that can be followed.  Everything is called by the thread of ``follow`` only."""

    @property
    def title(self) -> str:
        """What is looked at, in a few words."""

    @property
    def kind(self) -> SourceKind: ...

    @property
    def handle(self) -> SchedulerHandle | None:
        """The scheduler that has taken the cluster in; None while there is none."""

    @property
    def status(self) -> SourceStatus: ...

    @property
    def configuration(self) -> KubeSchedulerConfiguration:
        """By what pods are placed there, or would be."""

    @property
    def devices(self) -> DeviceBars | None:
        """Who held which GPU, and when; None where nobody but the reader looks at that."""

    @property
    def trail(self) -> AuditTrail | None:
        """What its scheduler has decided so far; None where somebody else decides."""

    def marks(self) -> Sequence[TimelineMark]:
        """Return what has happened so far that people will want to see, oldest first."""

    def follow(self, pause: Pause) -> None:
        """Take in what happens until ``pause`` returns False."""


@runtime_checkable
class ReportedSource(Protocol):
    """A source that comes to an end of which there is a report."""

    def report(self) -> ResultPage | None:
        """Return the report's page; None as long as there is none."""


@runtime_checkable
class ControllableSource(Protocol):
    """A source whose time readers may choose."""

    def control(self, wanted: SourceControl) -> None:
        """Do as wanted, soon.  Raises InputError for what can't be done."""
