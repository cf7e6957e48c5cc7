"""Preemption for a pod on one node, and for a whole job by evicting whole jobs.

Pure arithmetic, except for a ``PreemptionDryRun``, which runs the real filters.

``single_node``   eligibility, order and cost of the victims on one node
``victims``       the input for a job: kinds of members, nodes, shortfall of their quota; eviction
                  candidates, the amounts that they free, and gangs evicted as a whole
``victim_choice`` the cheapest victims that make enough room, node by node
``planner``       all of it together, the reprieve of victims that are not needed, and the plan
"""

from koordinator.scheduler.preemption.planner import PreemptionDryRun, PreemptionPlan, make_plan
from koordinator.scheduler.preemption.victims import (
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
