"""Annotations of scheduling hints, eviction and migration.

Source: koordinator apis/extension/descheduling.go; pkg/descheduler/controllers/migration;
koordinator apis/extension/multi_scheduler.go; cmd/koord-scheduler/app/sync_barrier.go.
"""

import datetime as dt
import re
from enum import StrEnum
from typing import Final

from koordinator.api.annotations.codec import AnnotationCodec
from koordinator.api.crd import UntypedObject
from koordinator.api.labels import parse_int32
from koordinator.api.meta import ApiStruct, ObjectMeta
from koordinator.api.pod_migration_job import DeleteOptions

#: order of eviction by the descheduler; lower first
EVICTION_COST: Final = "scheduling.koordinator.sh/eviction-cost"
NEVER_EVICT: Final = 2**31 - 1  # as an eviction cost
#: with any value: the filters of the descheduler do not protect the pod
EVICT: Final = "descheduler.alpha.kubernetes.io/evict"
#: the pod should not be evicted; see noEvictionPolicy
PREFERS_NO_EVICTION: Final = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
#: order in which a controller deletes pods; lower first
POD_DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"

# Of PodMigrationJobs.
EVICT_REASON: Final = "koordinator.sh/evict-reason"  # reason of the eviction
#: plugin that requested the eviction
EVICT_TRIGGER: Final = "koordinator.sh/evict-trigger"
#: profile of the descheduler that created the migration job and runs it
JOB_CREATED_BY: Final = "koordinator.sh/job-created-by"
#: of a migration job: true once it may begin
PASSED_ARBITRATION: Final = "descheduler.koordinator.sh/passed-arbitration"

_COST = re.compile(r"0|-[0-9]+|[1-9][0-9]*")

#: On a job whose first reservation was used by another pod: the name of that reservation.
USED_RESERVATION: Final = "descheduler.koordinator.sh/used-reservation"

#: reserved for the scheduler that the pod named before: no component reads it
ORIGINAL_SCHEDULER_NAME: Final = "internal.scheduling.koordinator.sh/original-scheduler-name"
#: start of the keys, with the name of a lease behind it, that the scheduler of the original writes
#: to a pod of its own: no component here reads them
SYNC_BARRIER_PREFIX: Final = "scheduling.koordinator.sh/sync-barrier-"


class EvictionPolicy(StrEnum):
    """Way to remove a pod: the eviction API, deletion, or a request to an external controller."""

    EVICTION = "Eviction"
    DELETE = "Delete"
    SOFT_EVICTION = "SoftEviction"


class SoftEviction(ApiStruct, frozen=True, kw_only=True):
    """Request to an external controller to evict the pod."""

    timestamp: dt.datetime | None = None  # time of the request
    delete_options: DeleteOptions | None = None  # options for the deletion of the pod
    initiator: str = ""  # component that requests the eviction
    reason: str = ""  # reason of the eviction


#: request to an external controller to evict the pod
SOFT_EVICTION = AnnotationCodec("scheduling.koordinator.sh/soft-eviction", SoftEviction)


def eviction_cost(meta: ObjectMeta) -> int:
    """Return what it costs to evict the pod; 0 for a number with a plus or leading zeros."""
    return _cost(meta, EVICTION_COST)


def pod_deletion_cost(meta: ObjectMeta) -> int:
    """Return the deletion cost of the pod for its controller; 0 if it is not a number."""
    return _cost(meta, POD_DELETION_COST)


def _cost(meta: ObjectMeta, key: str) -> int:
    text = meta.annotations.get(key, "")
    return (parse_int32(text) or 0) if _COST.fullmatch(text) else 0


class EvictionAttempt(ApiStruct, frozen=True, kw_only=True):
    """Record on a job, written right before the eviction, whose response may be lost.

    ``workload_uid`` is the uid of the pod's controller, by which evictions are limited, and
    ``workload_replicas`` is its number of replicas.
    """

    pod_uid: str  # UID of the pod
    workload_uid: str = ""  # UID of the pod's controller
    workload_replicas: int = 0  # number of replicas of the controller


#: of a migration job: the eviction that it has requested
EVICTION_ATTEMPT = AnnotationCodec("descheduler.koordinator.sh/eviction-attempt", EvictionAttempt)


class ProvenMove(ApiStruct, frozen=True, kw_only=True):
    """Written on a job whose move was tried before it was made.

    ``lineage`` is what the pod and its replacements have in common; ``after`` are pods,
    ``namespace/name``, whose jobs have to end before; jobs of one ``gang`` begin together, all
    ``gang_size`` of them, or not at all.
    """

    source: str  # node that the pod leaves
    target: str  # node that the pod moves to
    gain: str = ""  # what the cluster gains by the move
    lineage: str = ""  # what the pod and its replacements have in common
    after: tuple[str, ...] = ()  # pods whose jobs must end before, as namespace/name
    gang: str = ""  # gang whose members move together
    gang_size: int = 0  # number of members that move together


#: of a migration job: the move that was tried before
PROVEN_MOVE = AnnotationCodec("descheduler.koordinator.sh/proven-move", ProvenMove)


class SchedulingHint(ApiStruct, frozen=True, kw_only=True):
    """The only nodes to look at, and those to try first."""

    node_names: tuple[str, ...] = ()  # the only nodes to consider; empty means all
    preferred_node_names: tuple[str, ...] = ()  # nodes to try before all others
    extensions: UntypedObject = {}  # settings of extensions; kept as they are


SCHEDULING_HINT = AnnotationCodec(
    "internal.scheduling.koordinator.sh/scheduling-hint",
    SchedulingHint,
    former_key="scheduling.koordinator.sh/scheduling-hint",
)  # nodes to try
