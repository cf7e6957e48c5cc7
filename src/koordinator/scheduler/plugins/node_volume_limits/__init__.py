"""Limits on attachable volumes per CSI driver.

``attached_volumes``  volumes attached to each node, kept current; volumes that drivers count,
                      derived from claims and inline disks
``plugin``            the filter
"""

from koordinator.scheduler.plugins.node_volume_limits.plugin import PLUGIN

__all__ = ["PLUGIN"]
