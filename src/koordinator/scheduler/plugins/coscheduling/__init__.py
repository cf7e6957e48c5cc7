"""Gangs: pods that start together or not at all."""

from koordinator.scheduler.plugins.coscheduling.gang_scheduling import (
    GANG_SCHEDULING_PLUGIN,
    GangScheduling,
)
from koordinator.scheduler.plugins.coscheduling.plugin import PLUGIN, Coscheduling

__all__ = ["GANG_SCHEDULING_PLUGIN", "PLUGIN", "Coscheduling", "GangScheduling"]
