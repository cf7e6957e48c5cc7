"""Clusters that exist only here: the real scheduler on the in-memory cluster and a virtual clock.

``embedded``  a cluster from manifests, scheduled to a fixed point: what ``koord schedule`` runs
"""

from koordinator.simulator.embedded import Embedded, ScheduleResult, schedule

__all__ = ["Embedded", "ScheduleResult", "schedule"]
