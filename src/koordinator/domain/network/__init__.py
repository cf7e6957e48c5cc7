"""The network between nodes, and where in it a job is near to itself.

No I/O, no clock.  A *domain* is all nodes under one switch of a *layer*; the root is the cluster.

``tree``      ``NetworkTree``: which domains there are and which nodes are in them
``rules``     ``GatherRules``: what a gang asks of the network
``plan``      ``Planner``: which domains have room for a job, and which nodes there it takes
``rank``      the order of the members: neighbours in it become neighbours in the network
``shortage``  what a job without room is told
``status``    what ClusterNetworkTopology says about the domains
"""

from koordinator.domain.network.plan import (
    DomainPlan,
    OfferSlots,
    Planner,
    Share,
    plan,
    rank_key,
    shortage,
)
from koordinator.domain.network.rules import GatherRules, rules_of, warnings_about
from koordinator.domain.network.tree import OUTSIDE, DomainLayer, NetworkTree, layers_of, status_of

__all__ = [
    "OUTSIDE",
    "DomainLayer",
    "DomainPlan",
    "GatherRules",
    "NetworkTree",
    "OfferSlots",
    "Planner",
    "Share",
    "layers_of",
    "plan",
    "rank_key",
    "rules_of",
    "shortage",
    "status_of",
    "warnings_about",
]
