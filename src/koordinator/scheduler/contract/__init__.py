"""The contract between the scheduler and its plugins.

``plugin``    page one: what every plugin author needs
``advanced``  page two: hints for speed, and the methods that few plugins have
``explanations``  texts for people about pods without a node
``events``    cluster events, and the hints that requeue rejected pods
``peers``     how the plugins of a profile find each other; services outside the scheduler that
              filter, score, preempt and bind
``profile``   the plugins of a profile, in running order
"""

from koordinator.scheduler.contract.advanced import (
    METHODS,
    NOTHING,
    REFUSED,
    UNKNOWN,
    UNRATED,
    AllocationResult,
    NodeStates,
    Nomination,
    Permit,
    PluginHints,
    QueueGate,
    SchedulingPlugin,
    Spread,
)
from koordinator.scheduler.contract.events import (
    Action,
    ClusterEvent,
    EventHint,
    HintFunction,
    QueueingHint,
)
from koordinator.scheduler.contract.explanations import (
    ObjectRemedy,
    PluginExplanations,
    SizeRemedies,
)
from koordinator.scheduler.contract.peers import (
    EXTENDER,
    DeviceCounter,
    ExtenderVerdict,
    NumaAligner,
    NumaHintProvider,
    SchedulerExtender,
    find_device_counter,
    served_usage,
)
from koordinator.scheduler.contract.plugin import (
    MAX_SCORE,
    BasicPlugin,
    NoArgs,
    PluginExample,
    PluginSpec,
    Reads,
    Refusal,
    Rejections,
    Shortlist,
    spread_of,
)
from koordinator.scheduler.contract.profile import (
    POINTS,
    ActivePlugin,
    Arithmetic,
    Profile,
    plugins_with,
    points_of,
)
from koordinator.scheduler.post_filter import (
    Allows,
    Attempt,
    ClassedPod,
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
    "REFUSED",
    "UNKNOWN",
    "UNRATED",
    "Action",
    "ActivePlugin",
    "AllocationResult",
    "Allows",
    "Arithmetic",
    "Attempt",
    "BasicPlugin",
    "ClassedPod",
    "ClusterEvent",
    "DeviceCounter",
    "EventHint",
    "ExtenderVerdict",
    "HintFunction",
    "NoArgs",
    "NodeStates",
    "Nomination",
    "NumaAligner",
    "NumaHintProvider",
    "ObjectRemedy",
    "Permit",
    "PluginExample",
    "PluginExplanations",
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
    "SizeRemedies",
    "Spread",
    "WhatIf",
    "find_device_counter",
    "plugins_with",
    "points_of",
    "served_usage",
    "spread_of",
]
