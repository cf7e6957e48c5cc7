"""Gangs: pods that start together or not at all, near to each other if requested.

``feature``            hooks of the loop
``attempts``           attempt to schedule a gang group: nodes for all members or for none
``dry_runs``           attempts of gangs that need one domain, to explain them
``placement``          placement of members in the cluster state only
``topology``           placement near to each other in the network, with ``topology_job``
``preemption``         preemption for gangs, with ``topology_preemption``
``waiting_gangs``      requeueing of gangs once there may be enough capacity
``reports``            PodGroup statuses, messages for members, and pages
``metrics``            metrics of gangs
"""

from koordinator.scheduler.features.gangs.feature import GangFeature
from koordinator.scheduler.features.gangs.reports import NoPlaces

__all__ = ["GangFeature", "NoPlaces"]
