"""How many volumes of each CSI driver a node can attach.

``volumes``          from claims and inline disks to the volumes that drivers count
``attached_volumes`` what is attached to each node, kept up to date
``plugin``           the filter
"""

from koordinator.scheduler.plugins.node_volume_limits.plugin import PLUGIN

__all__ = ["PLUGIN"]
