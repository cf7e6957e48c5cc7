"""Limits on attachable volumes per CSI driver.

``volumes``          volumes that drivers count, derived from claims and inline disks
``attached_volumes`` volumes attached to each node, kept current
``plugin``           the filter
"""

from koordinator.scheduler.plugins.node_volume_limits.plugin import PLUGIN

__all__ = ["PLUGIN"]
