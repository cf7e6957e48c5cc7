"""An in-memory cluster whose events come late: what was written shows after some looks at it."""

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from koordinator.api.meta import KubeObject
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.cluster.port import (
    NO_SELECTORS,
    NO_TRANSFORMS,
    Transform,
    Watch,
    WatchEvent,
)


class LateNews:
    """A watch that hands out a part of what it has; in order, and everything sooner or later."""

    def __init__(self, watch: Watch, draw: random.Random) -> None:
        self._watch, self._draw = watch, draw
        self._kept: list[WatchEvent] = []

    def poll(self) -> Sequence[WatchEvent]:
        self._kept += self._watch.poll()
        count = self._draw.randint(0, len(self._kept))
        due, self._kept = self._kept[:count], self._kept[count:]
        return due

    @property
    def has_more(self) -> bool:
        """Whether something is on its way."""
        return bool(self._kept)

    def refresh(self) -> None:
        self._watch.refresh()

    def close(self) -> None:
        self._watch.close()


class FarCluster(MemoryCluster):
    """A cluster whose events come late, to all watchers."""

    late: LateNews | None = None
    draw: random.Random | None = None

    def watch(  # type: ignore[override] # the port's
        self,
        kind_types: Sequence[type[KubeObject]],
        field_selectors: Mapping[type[KubeObject], str] = NO_SELECTORS,
        transforms: Mapping[type[KubeObject], Transform] = NO_TRANSFORMS,
    ) -> Watch:
        watch = super().watch(kind_types, field_selectors, transforms)
        if self.draw is None:
            return watch
        self.late = LateNews(watch, self.draw)
        return self.late

    @contextmanager
    def without_delay(self) -> Iterator[None]:
        """Deliver events at once to watches that are opened meanwhile."""
        draw, self.draw = self.draw, None
        try:
            yield
        finally:
            self.draw = draw
