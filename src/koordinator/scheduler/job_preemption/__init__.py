"""Preemption for a whole job by evicting whole jobs.

Pure arithmetic over arrays, except for a ``PreemptionDryRun``, which runs the real filters.

``victims``       the input: kinds of members, nodes, shortfall of their quota; eviction candidates,
                  what they free, and gangs evicted as a whole
``victim_choice`` the cheapest victims that make enough room, node by node
``planner``       all of it together, the reprieve of victims that are not needed, and the plan
"""

from koordinator.scheduler.job_preemption.planner import PreemptionDryRun, PreemptionPlan, make_plan
from koordinator.scheduler.job_preemption.victims import (
    PreemptionProblem,
    QuotaShortage,
    Shape,
    VictimJob,
    VictimTable,
    breaks_gang,
    broken_gangs,
    victims_of,
)

__all__ = [
    "PreemptionDryRun",
    "PreemptionPlan",
    "PreemptionProblem",
    "QuotaShortage",
    "Shape",
    "VictimJob",
    "VictimTable",
    "breaks_gang",
    "broken_gangs",
    "make_plan",
    "victims_of",
]
