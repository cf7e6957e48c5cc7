"""A plan of moves, for people and programs: what goes where and why, what stays, before and after.

In JSON the names are camelCase; shares are between 0 and 1 of what a node has.
"""

from collections.abc import Mapping

from msgspec import Struct

from koordinator.api.pod_migration_job import PodMigrationJob


class BudgetLeft(Struct, frozen=True, rename="camel"):
    """A PodDisruptionBudget that covers a pod, and how many of its pods may go now."""

    name: str
    left: int


class MoveCost(Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a restart costs: whose it is, and what else may still go."""

    priority: int
    band: str  # koord-prod, koord-batch, …; empty: of none
    qos: str = ""  # of Koordinator
    eviction_cost: int = 0
    budgets: tuple[BudgetLeft, ...] = ()


class PlannedMove(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One move; ``order`` counts from 1, and what has to end before stands before."""

    order: int
    pod: str
    uid: str
    source: str
    plugin: str
    profile: str
    reason: str
    cost: MoveCost
    target: str = ""  # empty: the move is not proven
    gain: float = 0.0  # in the unit of the plugin
    gain_text: str = ""
    after: tuple[str, ...] = ()
    gang: str = ""


class StayingPod(Struct, frozen=True, rename="camel"):
    """A pod that a plugin wants to go, and that stays."""

    pod: str
    node: str
    plugin: str
    reason: str  # the plugin's, for which it should go
    why: str
    detail: str


class NodeOutlook(Struct, frozen=True, rename="camel"):
    """A node before and after all moves: pods, and shares of what is requested and used of it."""

    node: str
    pods: tuple[int, int]
    requested: Mapping[str, tuple[float, float]]
    used: Mapping[str, tuple[float, float]]  # empty where nothing fresh is reported


class MovePlan(Struct, frozen=True, rename="camel"):
    """All of it; ``jobs`` are those that carry it out."""

    moves: tuple[PlannedMove, ...]
    stays: tuple[StayingPod, ...]
    nodes: tuple[NodeOutlook, ...]  # that a move leaves or goes to
    cycles: int  # how many were run until something was wanted
    is_proven: bool
    problems: tuple[str, ...] = ()
    jobs: tuple[PodMigrationJob, ...] = ()
