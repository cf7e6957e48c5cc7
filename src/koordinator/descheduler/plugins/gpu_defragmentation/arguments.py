"""What the plugin is told: for whom room is made, who may move, and how much at a time."""

from typing import Annotated

from msgspec import Meta

from koordinator.api.kubescheduler.structs import ConfigStruct
from koordinator.api.meta import LabelSelector
from koordinator.descheduler.configuration import (
    DeschedulerPluginArgs,
    NamedPodSelector,
    NamespaceLists,
    check_namespaces,
    check_pod_selectors,
    check_selector,
    field_error,
)
from koordinator.domain.gpus.expectation import ExpectedPods
from koordinator.foundation.duration import Duration

_MOST_MOVES = 1000
_MOST_MILLI = 64_000


class MovesWithoutPending(ConfigStruct, frozen=True, kw_only=True):
    """Moves that lower the GPU that is expected to be of no use, when nobody waits for room."""

    max_moves: Annotated[int, Meta(ge=0, le=_MOST_MOVES)] = 2  # in a cycle; 0: none
    least_gain_milli: Annotated[int, Meta(ge=1, le=_MOST_MILLI)] = 200  # of a move
    expected: tuple[ExpectedPods, ...] = ()  # the mix of pods; none: that of the pods there are


class GPUDefragmentationArgs(DeschedulerPluginArgs, frozen=True, kw_only=True):
    """For whom room is made, who may move for it, and how much in one cycle."""

    paused: bool = False
    dry_run: bool = False
    node_selector: LabelSelector | None = None
    evictable_namespaces: NamespaceLists | None = None
    pod_selectors: tuple[NamedPodSelector, ...] = ()  # of pods that may move; none: all
    pending_for: Duration = Duration(minutes=1)  # how long who waits has waited at least
    max_moves_per_gang: Annotated[int, Meta(ge=1, le=_MOST_MOVES)] = 64  # or pod in no gang
    #: looked at in a cycle; room is made for the first for which it can be
    max_gangs_per_cycle: Annotated[int, Meta(ge=1, le=_MOST_MOVES)] = 8
    without_pending: MovesWithoutPending = MovesWithoutPending()

    def validate(self) -> None:
        if self.pending_for < Duration():
            raise field_error("pendingFor", str(self.pending_for), "must be 0s or more")
        check_selector(self.node_selector, "nodeSelector")
        check_pod_selectors(self.pod_selectors, "podSelectors")
        check_namespaces(self.evictable_namespaces, "evictableNamespaces")
