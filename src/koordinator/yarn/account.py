"""Accounts of YARN on nodes: limit, usage and batch resources.

Every unit is promised to one side at most.  YARN's side is the *promise*, an entry of the
annotation ``thirdPartyAllocations``, which koord-manager subtracts from the batch resources of the
node; the *limit* is the ResourceManager's limit for the node.  Both change in the order that keeps
the invariant ``limit + shown <= origin`` after every step, also if a component crashes in between:

growing    first the promise; the limit after the node shows less and no pod uses the difference
shrinking  first the limit; the promise after the ResourceManager reports the lower limit

The decision depends only on the state in the API server and the ResourceManager, so a restart loses
nothing.  The promise of an unreachable ResourceManager or unregistered NodeManager stays, as its
containers may still run.

The formats are the original's: koord-manager writes ``originExtendedAllocatable``, the operator
writes the entry ``hadoop-yarn`` of ``thirdPartyAllocations``.

Source: koordinator apis/extension/node_colocation.go; yarn-copilot pkg/controller/noderesource.
"""

from typing import Final

from koordinator.api.annotations.node import (
    ORIGIN_EXTENDED_ALLOCATABLE,
    THIRD_PARTY_ALLOCATIONS,
    ThirdPartyAllocation,
    ThirdPartyAllocations,
)
from koordinator.api.meta import JsonObject
from koordinator.api.node import Node
from koordinator.api.qos import PriorityBand
from koordinator.foundation.clock import Duration
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.hadoop.amounts import (
    NOTHING,
    BatchAmounts,
    YarnResource,
    batch_amounts,
    original_units,
    whole_units,
)

#: Resources in the yarn-site.xml of the how-to page; the minimum with which NodeManagers register.
SMALLEST_NODE_MANAGER: Final = YarnResource(1, 1024)
NO_CONTAINERS: Final = YarnResource()
_ALL_PERCENT: Final = 100
#: Grace period without an end: containers above a lower limit are not preempted.
NEVER: Final = "never"
NO_PREEMPTION: Final = -1.0

ALLOCATION_NAME: Final = "hadoop-yarn"


def parse_grace_s(text: str) -> float:
    """Return the seconds of a grace period, ``NO_PREEMPTION`` for ``never``.  Raises InputError."""
    if text == NEVER:
        return NO_PREEMPTION
    seconds = Duration.parse(text).total_seconds()
    if seconds < 0:
        raise InputError(f"must be at least 0s, or {NEVER}, got {text!r}")
    return seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class YarnPolicy:
    """Policy for the unused batch resources.

    ``headroom_percent`` of ``origin`` stay with Kubernetes for new pods, unless containers use
    them.  ``registered`` are the resources with which a NodeManager registers; they are always
    promised, as the ResourceManager assigns them immediately.  ``is_original`` selects the
    behaviour of the original, which promises free resources to both sides.
    """

    headroom_percent: int = 10
    registered: YarnResource = SMALLEST_NODE_MANAGER
    is_original: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class YarnNodeReport:
    """Limit and usage of a node according to the ResourceManager."""

    limit: YarnResource
    used: YarnResource = NO_CONTAINERS


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAccount:
    """State of a node with a NodeManager.

    ``origin`` is the amount calculated by koord-manager, ``others`` the allocations of other third
    parties, ``shown`` the allocatable batch resources of the node, ``requested`` the requests of
    its pods.  ``waiting`` is the largest request of an unschedulable pod.  ``unconfirmed_limit`` is
    the largest limit that was sent and may still take effect.
    """

    origin: BatchAmounts
    shown: BatchAmounts
    promised: BatchAmounts = NOTHING
    others: BatchAmounts = NOTHING
    requested: BatchAmounts = NOTHING
    waiting: BatchAmounts = NOTHING
    yarn: YarnNodeReport | None = None
    unconfirmed_limit: YarnResource = NO_CONTAINERS


@dataclass(frozen=True, slots=True)
class Settlement:
    """Promise to write, and limit to send; None keeps the limit."""

    promise: BatchAmounts
    limit: YarnResource | None = None


def settle(account: NodeAccount, policy: YarnPolicy) -> Settlement:
    """Return the next step of a node's account."""
    if policy.is_original:
        return _settle_as_the_original(account)
    at_least = policy.registered.batch()
    yarn = account.yarn
    if yarn is None:
        return Settlement(account.promised.larger(at_least))
    goal = goal_of(account, yarn, policy)
    in_use = yarn.limit.larger(yarn.used).larger(account.unconfirmed_limit).batch()
    limit = goal.smaller(_confirmed(account)).larger(goal.smaller(yarn.used))
    return Settlement(
        goal.batch().larger(in_use).larger(at_least), limit if limit != yarn.limit else None
    )


def goal_of(account: NodeAccount, yarn: YarnNodeReport, policy: YarnPolicy) -> YarnResource:
    """Return the target limit of YARN.

    That is the origin without the requests of pods and the headroom; running containers may use
    the headroom.
    """
    ours = account.origin.minus(account.others).minus(account.requested)
    headroom = account.origin.percent(min(policy.headroom_percent, _ALL_PERCENT))
    if ours.minus(yarn.used.batch()).covers(account.waiting):
        headroom = headroom.larger(account.waiting)
    return whole_units(ours).smaller(yarn.used).larger(whole_units(ours.minus(headroom)))


def _confirmed(account: NodeAccount) -> YarnResource:
    """Return the amounts that are promised to YARN, not shown to pods and not used by any."""
    ours = account.origin.minus(account.others)
    theirs = account.shown.larger(account.requested)
    return whole_units(account.promised.smaller(ours.minus(theirs)))


def _settle_as_the_original(account: NodeAccount) -> Settlement:
    """Return ``origin`` as the limit and the usage as the promise."""
    if account.yarn is None:
        return Settlement(account.promised)
    limit = original_units(account.origin)
    return Settlement(account.yarn.used.batch(), limit if limit != account.yarn.limit else None)


@dataclass(frozen=True, slots=True)
class NodeShares:
    """Amounts in a node's annotations and status.

    ``has_entry`` is whether the operator's entry exists; ``problem`` is the error of reading
    ``origin``.
    """

    origin: BatchAmounts
    shown: BatchAmounts
    promised: BatchAmounts
    others: BatchAmounts
    has_entry: bool
    problem: str = ""


def read_shares(node: Node) -> NodeShares:
    """Return the shares of a node; an unreadable annotation of third parties counts as empty.

    Without the manager's annotation the node's allocatable is the origin, as in the original.
    """
    shown = batch_amounts(node.status.allocatable)
    problem = ""
    try:
        origin = ORIGIN_EXTENDED_ALLOCATABLE.read(node.metadata)
        amounts = shown if origin is None else batch_amounts(origin.resources)
    except InputError as error:
        amounts, problem = NOTHING, str(error)
    promised = others = NOTHING
    has_entry = False
    for each in _allocations(node):
        if each.name == ALLOCATION_NAME:
            has_entry = True
        if each.priority != PriorityBand.BATCH:
            continue
        if each.name == ALLOCATION_NAME:
            promised = promised.plus(batch_amounts(each.resources))
        else:
            others = others.plus(batch_amounts(each.resources))
    return NodeShares(amounts, shown, promised, others, has_entry, problem)


def promise_patch(node: Node, promise: BatchAmounts) -> JsonObject:
    """Return the merge patch that sets the operator's entry and keeps the others.

    The patch has the resource version, as other components write the same annotation: a concurrent
    change leads to a conflict.
    """
    ours = ThirdPartyAllocation(
        name=ALLOCATION_NAME, priority=PriorityBand.BATCH, resources=promise.resources()
    )
    before = _allocations(node)
    place = next((i for i, each in enumerate(before) if each.name == ALLOCATION_NAME), len(before))
    entries = [each for each in before if each.name != ALLOCATION_NAME]
    entries.insert(place, ours)
    entry = THIRD_PARTY_ALLOCATIONS.entry(ThirdPartyAllocations(allocations=tuple(entries)))
    return {
        "metadata": {
            "annotations": entry,
            "resourceVersion": node.metadata.resource_version,
            "uid": node.metadata.uid,
        }
    }


def _allocations(node: Node) -> tuple[ThirdPartyAllocation, ...]:
    try:
        annotation = THIRD_PARTY_ALLOCATIONS.read(node.metadata)
    except InputError:
        return ()
    return annotation.allocations if annotation is not None else ()
