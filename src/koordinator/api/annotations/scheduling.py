"""Annotations that steer the scheduler itself.

Source: koordinator apis/extension/multi_scheduler.go; cmd/koord-scheduler/app/sync_barrier.go.
"""

from typing import Final

from koordinator.api.annotations.codec import AnnotationCodec
from koordinator.api.crd import UntypedObject
from koordinator.api.meta import ApiStruct

ORIGINAL_SCHEDULER_NAME: Final = "internal.scheduling.koordinator.sh/original-scheduler-name"
SYNC_BARRIER_PREFIX: Final = "scheduling.koordinator.sh/sync-barrier-"  # the lease's name follows


class SchedulingHint(ApiStruct, frozen=True, kw_only=True):
    """The only nodes to look at, and those to try first."""

    node_names: tuple[str, ...] = ()
    preferred_node_names: tuple[str, ...] = ()
    extensions: UntypedObject = {}


SCHEDULING_HINT = AnnotationCodec(
    "internal.scheduling.koordinator.sh/scheduling-hint",
    SchedulingHint,
    former_key="scheduling.koordinator.sh/scheduling-hint",
)
