"""Room for a whole job by evicting whole jobs: who goes, so that all members get a place.

Pure arithmetic over arrays, except for a ``Trial``, which asks the real filters.

``problem``       what is asked: kinds of members, nodes, what their quota lacks
``victims``       who may go, what they free, and who goes with whom
``victim_choice`` the cheapest victims that make enough room, node by node
``reprieve``      putting back whoever need not go
``planner``       all of it together, and the plan
"""

from koordinator.scheduler.job_preemption.planner import PreemptionPlan, Trial, make_plan
from koordinator.scheduler.job_preemption.problem import PreemptionProblem, QuotaShortage, Shape
from koordinator.scheduler.job_preemption.victims import (
    VictimJob,
    VictimTable,
    breaks_gang,
    victims_of,
)

__all__ = [
    "PreemptionPlan",
    "PreemptionProblem",
    "QuotaShortage",
    "Shape",
    "Trial",
    "VictimJob",
    "VictimTable",
    "breaks_gang",
    "make_plan",
    "victims_of",
]
