"""The cluster network as it is reported: its domains, or why they can't be used."""

from koordinator.scheduler.features.topology.reports import TopologyFeature

__all__ = ["TopologyFeature"]
