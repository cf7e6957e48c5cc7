"""Source for manifests, scheduled on load and again after every change of the files."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

from koordinator.api.kubescheduler import KubeSchedulerConfiguration
from koordinator.api.meta import KubeObject
from koordinator.dashboard.sources.contract import (
    Pause,
    SourceKind,
    SourcePhase,
    SourceStatus,
    TimelineMark,
)
from koordinator.foundation.errors import InputError
from koordinator.scheduler.contract import PluginSpec
from koordinator.scheduler.extenders import Connect
from koordinator.scheduler.features.audit import Audit
from koordinator.scheduler.loop.handle import SchedulerHandle
from koordinator.simulator.embedded import Embedded, without_binding

POLL_INTERVAL_S = 1.0
SCORES_SHARE = 0.5  # of the scheduling time, to record the scores of the best nodes


class ManifestSource:
    """Source of objects in files, scheduled to a fixed point.

    ``read`` returns the objects and raises InputError; ``version`` returns a value that changes
    with the files.  Unreadable files leave the previous state in place.
    """

    kind = SourceKind.MANIFESTS

    def __init__(
        self,
        title: str,
        read: Callable[[], Sequence[KubeObject]],
        version: Callable[[], Hashable],
        configuration: KubeSchedulerConfiguration,
        now_s: Callable[[], float],
        *,
        out_of_tree: Iterable[PluginSpec[Any]] = (),
        config_name: str = "",
        connect: Connect | None = None,
    ) -> None:
        self.title = title
        self.configuration = configuration
        self._read, self._version, self._now_s = read, version, now_s
        self._out_of_tree, self._config_name = tuple(out_of_tree), config_name
        self._connect = connect
        self._world: Embedded | None = None
        self.trail = Audit()  # decisions about the last objects that were read
        self._loaded_version: Hashable = None
        self._problem = ""

    @property
    def handle(self) -> SchedulerHandle | None:
        """The scheduler of the last objects that were read."""
        return self._world.scheduler.handle if self._world is not None else None

    @property
    def status(self) -> SourceStatus:
        """Status with the phase LOST while the files cannot be read."""
        world = self._world
        phase = SourcePhase.LOADING if world is None else SourcePhase.LIVE
        return SourceStatus(
            phase=SourcePhase.LOST if self._problem else phase,
            now_s=world.clock.now_s() if world is not None else self._now_s(),
            problem=self._problem,
        )

    @property
    def devices(self) -> None:
        """None: the feed samples the devices."""

    def marks(self) -> Sequence[TimelineMark]:
        """Return no marks: manifests have no history."""
        return ()

    def load(self) -> None:
        """Read and schedule the objects.  Raises InputError."""
        trail = Audit(scores_share=SCORES_SHARE)
        world = Embedded(
            without_binding(self.configuration),
            now_s=self._now_s(),
            out_of_tree=self._out_of_tree,
            source=self._config_name,
            audit=trail,
            connect=self._connect,
        )
        world.load(self._read())
        world.run_to_fixed_point()
        self._world, self.trail = world, trail

    def follow(self, pause: Pause) -> None:
        """Load the files again after every change."""
        while True:
            version = self._version()
            if version != self._loaded_version:
                self._loaded_version = version
                try:
                    self.load()
                    self._problem = ""
                except InputError as error:
                    self._problem = str(error)
            if not pause(POLL_INTERVAL_S):
                return
