"""Annotations of gangs: pods that are scheduled together or not at all.

Nothing here is ever refused upstream: what can't be read counts as missing, so the readers of plain
text answer None, and callers do the same for an InputError of a codec.
Source: koordinator apis/extension/coscheduling.go, network_topology.go.
"""

from enum import StrEnum
from typing import Final

from koordinator.api.annotations.codec import AnnotationCodec
from koordinator.api.labels import (
    LIGHTWEIGHT_MIN_AVAILABLE,
    LIGHTWEIGHT_POD_GROUP,
    POD_GROUP,
    parse_int32,
)
from koordinator.api.meta import ApiStruct, ObjectMeta
from koordinator.foundation.clock import Duration
from koordinator.foundation.errors import InputError

NAME: Final = "gang.scheduling.koordinator.sh/name"  # name of the pod's gang
#: members that must be placed together
MIN_AVAILABLE: Final = "gang.scheduling.koordinator.sh/min-available"
#: members that the gang will have; by default the minimum
TOTAL_NUMBER: Final = "gang.scheduling.koordinator.sh/total-number"
MODE: Final = "gang.scheduling.koordinator.sh/mode"  # a GangMode; by default Strict
#: a GangMatchPolicy; by default defaultMatchPolicy of Coscheduling
MATCH_POLICY: Final = "gang.scheduling.koordinator.sh/match-policy"
#: second key of the match policy, which counts where the first is absent; a GangMatchPolicy
MATCH_POLICY_ALIAS: Final = "pod-group.scheduling.sigs.k8s.io/match-policy"
#: time that members wait for each other; by default defaultTimeout of Coscheduling
WAITING_TIME: Final = "gang.scheduling.koordinator.sh/waiting-time"
TIMEOUT: Final = "gang.scheduling.koordinator.sh/timeout"  # reserved: no component reads it
#: rank of the pod in its gang
NETWORK_TOPOLOGY_INDEX: Final = "gang.scheduling.koordinator.sh/network-topology-index"
#: selector of ClusterNetworkTopology objects
NETWORK_TOPOLOGY_SELECTOR: Final = "scheduling.koordinator.sh/network-topology-selector"
#: of a bound pod: its gang group
BIND_GANG_GROUP_ID: Final = "internal.scheduling.koordinator.sh/bind-gang-group-id"
#: of a bound pod: members bound together
BIND_GANG_MEMBER_COUNT: Final = "internal.scheduling.koordinator.sh/bind-gang-member-count"
#: deprecated: use internal.scheduling.koordinator.sh/bind-gang-group-id; gang group of
#: a bound pod
FORMER_BIND_GANG_GROUP_ID: Final = "scheduling.koordinator.sh/bind-gang-group-id"
#: deprecated: use internal.scheduling.koordinator.sh/bind-gang-member-count; members bound
#: together
FORMER_BIND_GANG_MEMBER_COUNT: Final = "scheduling.koordinator.sh/bind-gang-member-count"
#: of a PodGroup: its place in the queue of its quota
QUEUE_POSITION: Final = "gang.scheduling.koordinator.sh/queue-position"
#: of a PodGroup: why it waits in the queue of its quota
QUEUE_REASON: Final = "gang.scheduling.koordinator.sh/queue-reason"

#: ids of gangs, as namespace/name, that are placed together
GROUPS = AnnotationCodec("gang.scheduling.koordinator.sh/groups", tuple[str, ...])


class GangMode(StrEnum):
    """Effect of an unschedulable member: the others give up their places (Strict) or keep them."""

    STRICT = "Strict"
    NON_STRICT = "NonStrict"


class GangMatchPolicy(StrEnum):
    """Members that count: waiting, waiting and running, or none once there were enough."""

    ONLY_WAITING = "only-waiting"
    WAITING_AND_RUNNING = "waiting-and-running"
    ONCE_SATISFIED = "once-satisfied"


class GatherStrategy(StrEnum):
    """Placement of a gang in one domain, required or preferred; unknown: PreferGather."""

    MUST_GATHER = "MustGather"
    PREFER_GATHER = "PreferGather"


class GatherRule(ApiStruct, frozen=True, kw_only=True):
    """Rule for one layer; a multiple above 1 is the granularity of pods per domain."""

    layer: str = ""  # layer of the cluster's topology
    strategy: str = ""  # a GatherStrategy
    #: number that the count of pods in a domain must be a multiple of; 0 and 1: any
    pod_count_multiple: int = 0


class NetworkTopologySpec(ApiStruct, frozen=True, kw_only=True):
    """Rules for the distance between the members of a gang."""

    gather_strategy: tuple[GatherRule, ...] = ()  # rules by layer of the topology


NETWORK_TOPOLOGY_SPEC = AnnotationCodec(
    "gang.scheduling.koordinator.sh/network-topology-spec", NetworkTopologySpec
)  # closeness of the members in the network


def gang_name(meta: ObjectMeta) -> str:
    """Return the name of the pod's gang; empty if it has none."""
    labels = meta.labels
    return (
        labels.get(POD_GROUP) or labels.get(LIGHTWEIGHT_POD_GROUP) or meta.annotations.get(NAME, "")
    )


def min_available(meta: ObjectMeta) -> int | None:
    """Return how many members a gang without object needs; the label goes before the annotation."""
    return parse_int32(
        meta.labels.get(LIGHTWEIGHT_MIN_AVAILABLE) or meta.annotations.get(MIN_AVAILABLE, "")
    )


def total_number(meta: ObjectMeta) -> int | None:
    """Return how many members the gang will have."""
    return parse_int32(meta.annotations.get(TOTAL_NUMBER, ""))


def mode(meta: ObjectMeta) -> GangMode:
    """Return the mode; what isn't NonStrict is Strict."""
    is_loose = meta.annotations.get(MODE) == GangMode.NON_STRICT
    return GangMode.NON_STRICT if is_loose else GangMode.STRICT


def match_policy(meta: ObjectMeta) -> GangMatchPolicy | None:
    """Return the policy; None leaves it to the scheduler's configuration."""
    annotations = meta.annotations
    text = annotations.get(MATCH_POLICY) or annotations.get(MATCH_POLICY_ALIAS)
    return next((policy for policy in GangMatchPolicy if policy == text), None)


def waiting_time(meta: ObjectMeta) -> Duration | None:
    """Return how long members wait for each other; None leaves it to the configuration."""
    try:
        duration = Duration.parse(meta.annotations.get(WAITING_TIME, ""))
    except InputError:
        return None
    return duration if duration > Duration() else None


def network_topology_index(meta: ObjectMeta) -> int | None:
    """Return the rank of the pod in its gang."""
    index = parse_int32(meta.annotations.get(NETWORK_TOPOLOGY_INDEX, ""))
    return index if index is not None and index >= 0 else None


def bind_gang_entries(group_id: str, member_count: int) -> dict[str, str]:
    """Return the gang annotations of a bound pod, under the former keys too."""
    count = str(member_count)
    return {
        BIND_GANG_GROUP_ID: group_id,
        BIND_GANG_MEMBER_COUNT: count,
        FORMER_BIND_GANG_GROUP_ID: group_id,
        FORMER_BIND_GANG_MEMBER_COUNT: count,
    }
