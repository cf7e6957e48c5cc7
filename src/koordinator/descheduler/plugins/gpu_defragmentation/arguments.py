"""Arguments of GPUDefragmentation."""

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
from koordinator.domain.gpus.mix import ExpectedPods
from koordinator.foundation.duration import Duration

_MOST_MOVES = 1000
_MOST_MILLI = 64_000


class MovesWithoutPending(ConfigStruct, frozen=True, kw_only=True):
    """Moves without pending gangs, which lower the GPU capacity that is expected to be stranded."""

    max_moves: Annotated[int, Meta(ge=0, le=_MOST_MOVES)] = 2  # per cycle; 0: none
    least_gain_milli: Annotated[int, Meta(ge=1, le=_MOST_MILLI)] = 200  # of a move
    expected: tuple[ExpectedPods, ...] = ()  # mix of pods; default: of the running pods


class GPUDefragmentationArgs(DeschedulerPluginArgs, frozen=True, kw_only=True):
    """Pending gangs to make room for, pods to move, and limits per cycle."""

    paused: bool = False
    dry_run: bool = False
    node_selector: LabelSelector | None = None
    evictable_namespaces: NamespaceLists | None = None
    pod_selectors: tuple[NamedPodSelector, ...] = ()  # pods to move; default: all
    pending_for: Duration = Duration(minutes=1)  # minimum pending time of a gang
    max_moves_per_gang: Annotated[int, Meta(ge=1, le=_MOST_MOVES)] = 64  # or single pod
    #: Gangs tried per cycle; room is made for the first one possible.
    max_gangs_per_cycle: Annotated[int, Meta(ge=1, le=_MOST_MOVES)] = 8
    without_pending: MovesWithoutPending = MovesWithoutPending()

    def validate(self) -> None:
        if self.pending_for < Duration():
            raise field_error("pendingFor", str(self.pending_for), "must be 0s or more")
        check_selector(self.node_selector, "nodeSelector")
        check_pod_selectors(self.pod_selectors, "podSelectors")
        check_namespaces(self.evictable_namespaces, "evictableNamespaces")
