"""Protocols and types that every source of cluster state implements."""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Protocol, runtime_checkable

import msgspec

from koordinator.api.kubescheduler import KubeSchedulerConfiguration
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.features.audit import Audit
from koordinator.scheduler.loop.handle import SchedulerHandle
from koordinator.simulator.device_bars import DeviceBars
from koordinator.simulator.page import ResultPage

#: Runs queries of readers for at least the given seconds; returns False to end the source.
Pause = Callable[[float], bool]

MAX_SPEED = 1e6  # virtual seconds per second


class SourceKind(StrEnum):
    """Origin of the objects."""

    MANIFESTS = "manifests"
    SIMULATION = "simulation"
    RECORDING = "recording"
    CLUSTER = "cluster"


class SourcePhase(StrEnum):
    """Phase of a source."""

    LOADING = "loading"  # no state yet
    LIVE = "live"
    PAUSED = "paused"
    ENDED = "ended"  # the state does not change any more
    LOST = "lost"  # the state is outdated; ``problem`` has the reason


class SourceStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Status of a source; times are the cluster's times in seconds.

    A source with a controllable time has bounds ``from_s`` and ``to_s``, and a ``speed`` relative
    to real time; 0 means as fast as possible.
    """

    phase: SourcePhase
    now_s: float
    problem: str = ""
    from_s: float | None = None
    to_s: float | None = None
    speed: float | None = None
    can_seek: bool = False
    has_report: bool = False  # the run has ended
    is_virtual: bool = False  # times are relative to the start of a run, not to the epoch


class SourceControl(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Time control by a reader; an absent field leaves the setting unchanged."""

    is_paused: bool | None = None
    speed: float | None = None
    seek_s: float | None = None


@dataclass(slots=True)
class TimeControl:
    """Speed of a source's time; ``speed`` 0 means as fast as possible."""

    speed: float
    is_paused: bool = False

    def apply(self, wanted: SourceControl) -> None:
        """Pause, resume or change the speed.  Raises InputError for a speed out of range."""
        if wanted.speed is not None:
            if not 0 <= wanted.speed <= MAX_SPEED:
                raise InputError(f"speed: must be in 0..{MAX_SPEED:g}, got {wanted.speed:g}")
            self.speed = wanted.speed
        if wanted.is_paused is not None:
            self.is_paused = wanted.is_paused


class TimelineMark(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Text of an event at one moment."""

    at_s: float
    text: str
    is_failure: bool = False  # a node failed, or a pod lost its node


class ClusterSource(Protocol):
    """A source that can be followed.  Only the thread that runs ``follow`` calls its members."""

    @property
    def title(self) -> str:
        """Short name of the source for the page."""

    @property
    def kind(self) -> SourceKind: ...

    @property
    def handle(self) -> SchedulerHandle | None:
        """The scheduler with the state of the cluster; None before it is ready."""

    @property
    def status(self) -> SourceStatus: ...

    @property
    def configuration(self) -> KubeSchedulerConfiguration:
        """The scheduler configuration by which pods are placed."""

    @property
    def devices(self) -> DeviceBars | None:
        """Allocation of GPUs over time, if the source records it; otherwise the feed samples it."""

    @property
    def trail(self) -> Audit | None:
        """Decisions of the source's scheduler; None where it makes none."""

    def marks(self) -> Sequence[TimelineMark]:
        """Return the events recorded so far, oldest first."""

    def follow(self, pause: Pause) -> None:
        """Update the state until ``pause`` returns False."""


@runtime_checkable
class ReportedSource(Protocol):
    """A source with a report at its end."""

    def report(self) -> ResultPage | None:
        """Return the report's page; None before the end."""


@runtime_checkable
class ControllableSource(Protocol):
    """A source whose time readers can control."""

    def control(self, wanted: SourceControl) -> None:
        """Apply a control at the next step.  Raises InputError for an invalid one."""
