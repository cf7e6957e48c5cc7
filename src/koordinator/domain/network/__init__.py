"""Network topology between nodes, and placement of jobs within it.

No I/O, no clock.  A *domain* is the set of nodes below one switch of a *layer*; the root is the
cluster.

``tree``  ``NetworkTree``: domains and their nodes; ``GatherRules``: network requirements of a gang
``plan``  ``Planner``: domains with room for a job, and the nodes it takes
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
from koordinator.domain.network.tree import (
    OUTSIDE,
    DomainLayer,
    GatherRules,
    NetworkTree,
    layers_of,
    rules_of,
    status_of,
    warnings_about,
)

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
