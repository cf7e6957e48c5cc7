"""Gangs: pods that start together or not at all."""

from koordinator.scheduler.plugins.coscheduling.plugin import PLUGIN, Coscheduling

__all__ = ["PLUGIN", "Coscheduling"]
