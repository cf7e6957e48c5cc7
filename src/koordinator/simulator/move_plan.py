"""Descheduler plan as data: moves with reasons, skipped moves, nodes before and after.

Names in JSON are camelCase; shares are 0..1 of a node's allocatable amount.
"""

from collections.abc import Mapping

from msgspec import Struct

from koordinator.api.pod_migration_job import PodMigrationJob


class BudgetLeft(Struct, frozen=True, rename="camel"):
    """PodDisruptionBudget that covers a pod; ``left`` is its number of allowed disruptions."""

    name: str
    left: int


class MoveCost(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Cost of a pod's restart: priority, eviction cost and disruption budgets."""

    priority: int
    band: str  # koord-prod, koord-batch, …; empty for other priorities
    qos: str = ""  # Koordinator's QoS class
    eviction_cost: int = 0
    budgets: tuple[BudgetLeft, ...] = ()


class PlannedMove(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Move of a pod; ``order`` counts from 1 and respects ``after``."""

    order: int
    pod: str
    uid: str
    source: str
    plugin: str
    profile: str
    reason: str
    cost: MoveCost
    target: str = ""  # empty for a move that is not proven
    gain: float = 0.0  # in the unit of the plugin
    gain_text: str = ""
    after: tuple[str, ...] = ()
    gang: str = ""


class StayingPod(Struct, frozen=True, rename="camel"):
    """Pod that a plugin selected and that is not moved."""

    pod: str
    node: str
    plugin: str
    reason: str  # the plugin's reason for the move
    why: str
    detail: str


class NodeForecast(Struct, frozen=True, rename="camel"):
    """Node before and after all moves: number of pods, requested and used shares."""

    node: str
    pods: tuple[int, int]
    requested: Mapping[str, tuple[float, float]]
    used: Mapping[str, tuple[float, float]]  # empty without a usage report


class MovePlan(Struct, frozen=True, rename="camel"):
    """Descheduler plan; ``jobs`` are the PodMigrationJobs that execute it."""

    moves: tuple[PlannedMove, ...]
    stays: tuple[StayingPod, ...]
    nodes: tuple[NodeForecast, ...]  # sources and targets of the moves
    cycles: int  # number of cycles until a pod was selected
    is_proven: bool
    problems: tuple[str, ...] = ()
    jobs: tuple[PodMigrationJob, ...] = ()
