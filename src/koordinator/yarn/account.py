"""The account of a node: which batch resources are Kubernetes' and which are YARN's.

Every unit is promised to one side at most.  YARN's side is the *promise*, an entry of the
annotation ``thirdPartyAllocations``, which koord-manager takes off what the node shows to pods; the
*limit* is what the ResourceManager may hand out on the node.  Both change in the order that keeps
``limit + shown <= origin`` true after every single step, whoever dies in between:

growing    the promise first; the limit when the node shows that much less and no pod holds it
shrinking  the limit first; the promise when the ResourceManager says that it has the lower limit

The decision is a function of what the API server and the ResourceManager say, and of nothing
else: a restart forgets nothing.  What nobody knows (a ResourceManager that is gone, a NodeManager
that has not registered) keeps its promise: containers may be running all the same.
"""

from dataclasses import dataclass
from typing import Final

from koordinator.foundation.duration import Duration
from koordinator.foundation.errors import InputError
from koordinator.hadoop.amounts import (
    NOTHING,
    BatchAmounts,
    YarnResource,
    original_units,
    whole_units,
)

#: What the how-to page has in yarn-site.xml; no NodeManager may register with less.
SMALLEST_NODE_MANAGER: Final = YarnResource(1, 1024)
NO_CONTAINERS: Final = YarnResource()
_ALL_PERCENT: Final = 100
#: How long containers beyond a lower limit go on: to their end.
NEVER: Final = "never"
NO_PREEMPTION: Final = -1.0


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
    """How what nobody holds is shared.

    ``headroom_percent`` of ``origin`` stay with Kubernetes, so that a pod finds room at once,
    unless containers use them.  ``registered`` is what a NodeManager has when it registers:
    it is always promised where one runs, since the ResourceManager hands it out before anybody can
    say no.
    ``is_original``: what the original does, which promises what is free to both sides.
    """

    headroom_percent: int = 10
    registered: YarnResource = SMALLEST_NODE_MANAGER
    is_original: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class YarnHolding:
    """What the ResourceManager says of a node."""

    limit: YarnResource
    used: YarnResource = NO_CONTAINERS


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAccount:
    """Everything that is known of one node on which a NodeManager runs.

    ``origin`` is what koord-manager calculated, ``others`` what further third parties hold,
    ``shown`` the batch resources that pods are scheduled by, ``requested`` what pods on the node
    ask for.  ``waiting`` is the largest request for which some pod found no room.
    ``in_doubt`` are limits that were sent and may still take effect.
    """

    origin: BatchAmounts
    shown: BatchAmounts
    promised: BatchAmounts = NOTHING
    others: BatchAmounts = NOTHING
    requested: BatchAmounts = NOTHING
    waiting: BatchAmounts = NOTHING
    yarn: YarnHolding | None = None
    in_doubt: YarnResource = NO_CONTAINERS


@dataclass(frozen=True, slots=True)
class Settlement:
    """What is to be promised, and the limit to be sent; None leaves the limit as it is."""

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
    held = yarn.limit.larger(yarn.used).larger(account.in_doubt).batch()
    limit = goal.smaller(_confirmed(account)).larger(goal.smaller(yarn.used))
    return Settlement(
        goal.batch().larger(held).larger(at_least), limit if limit != yarn.limit else None
    )


def goal_of(account: NodeAccount, yarn: YarnHolding, policy: YarnPolicy) -> YarnResource:
    """Return what YARN is to have in the end, if nothing else changes.

    All but what pods hold and the headroom; containers that run may use up the headroom.
    """
    ours = account.origin.minus(account.others).minus(account.requested)
    headroom = account.origin.percent(min(policy.headroom_percent, _ALL_PERCENT))
    if ours.minus(yarn.used.batch()).covers(account.waiting):
        headroom = headroom.larger(account.waiting)
    return whole_units(ours).smaller(yarn.used).larger(whole_units(ours.minus(headroom)))


def _confirmed(account: NodeAccount) -> YarnResource:
    """Return what Kubernetes has let go: promised to YARN, not shown to pods, held by none."""
    ours = account.origin.minus(account.others)
    theirs = account.shown.larger(account.requested)
    return whole_units(account.promised.smaller(ours.minus(theirs)))


def _settle_as_the_original(account: NodeAccount) -> Settlement:
    """Return all of ``origin`` as the limit, and what is used as the promise."""
    if account.yarn is None:
        return Settlement(account.promised)
    limit = original_units(account.origin)
    return Settlement(account.yarn.used.batch(), limit if limit != account.yarn.limit else None)
