"""Status of the cluster network topology."""

from koordinator.scheduler.features.topology.reports import TopologyFeature

__all__ = ["TopologyFeature"]
