"""Gangs: pods that start together or not at all, near to each other where they want to be.

``feature``            what the loop asks and tells
``attempts``           the attempt of a gang group: places for all, or for none
``placement``          places for its members, in the state alone
``topology``           … on nodes that are near to each other, with ``topology_job``
``preemption``         room that others have to make, with ``topology_preemption``
``waiting_gangs``      gangs that wait for room, and when there may be enough
``reports``            PodGroups, and what members are told
``pages``, ``metrics`` what is shown
"""

from koordinator.scheduler.features.gangs.feature import GangFeature
from koordinator.scheduler.features.gangs.reports import NoPlaces

__all__ = ["GangFeature", "NoPlaces"]
