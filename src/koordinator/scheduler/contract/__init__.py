"""What a scheduler plugin is, and the words it speaks with.

A plugin is any object with the methods of some concern in ``plugin``; its ``PluginSpec`` says how
to build it from its arguments.  The smallest has three names: what its answer ``reads``, ``filter``
or ``score``, and its spec.

``plugin``   the concerns, in the order in which they are asked
``hints``    what exists for throughput alone
``results``  what plugins answer
``events``   what happened, and which pods that may help
``numa``     how plugins agree on NUMA nodes
``extender`` what services outside the scheduler are asked
``example``  in what world a plugin speaks, for the suite that tests it
``profile``  plugins as a profile has them, and the order in which they run
"""

from koordinator.scheduler.contract.events import (
    Action,
    ClusterEvent,
    EventHint,
    HintFunction,
    QueueingHint,
)
from koordinator.scheduler.contract.example import PluginExample
from koordinator.scheduler.contract.extender import EXTENDER, ExtenderVerdict, SchedulerExtender
from koordinator.scheduler.contract.hints import PluginHints, Spread
from koordinator.scheduler.contract.numa import NumaAligner, NumaHintProvider
from koordinator.scheduler.contract.plugin import METHODS, SchedulingPlugin
from koordinator.scheduler.contract.profile import (
    POINTS,
    ActivePlugin,
    Arithmetic,
    NoArgs,
    PluginSpec,
    Profile,
    plugins_with,
)
from koordinator.scheduler.contract.results import (
    MAX_SCORE,
    NOTHING,
    AllocationResult,
    Nomination,
    Permit,
    QueueGate,
    Reads,
    Refusal,
    Rejections,
    Shortlist,
    spread_of,
)
from koordinator.scheduler.post_filter import (
    Allows,
    Attempt,
    Member,
    PostFilterResult,
    ProposedVictims,
    Shortfall,
    WhatIf,
)

__all__ = [
    "EXTENDER",
    "MAX_SCORE",
    "METHODS",
    "NOTHING",
    "POINTS",
    "Action",
    "ActivePlugin",
    "AllocationResult",
    "Allows",
    "Arithmetic",
    "Attempt",
    "ClusterEvent",
    "EventHint",
    "ExtenderVerdict",
    "HintFunction",
    "Member",
    "NoArgs",
    "Nomination",
    "NumaAligner",
    "NumaHintProvider",
    "Permit",
    "PluginExample",
    "PluginHints",
    "PluginSpec",
    "PostFilterResult",
    "Profile",
    "ProposedVictims",
    "QueueGate",
    "QueueingHint",
    "Reads",
    "Refusal",
    "Rejections",
    "SchedulerExtender",
    "SchedulingPlugin",
    "Shortfall",
    "Shortlist",
    "Spread",
    "WhatIf",
    "plugins_with",
    "spread_of",
]
