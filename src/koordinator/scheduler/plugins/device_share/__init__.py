"""Devices, whole or in parts: which nodes have enough, and which devices the pod gets.

``claims``  what a pod asks for, with the virtual templates of the cluster
``rows``    a claim on many nodes at once
``marks``   what device plugins of vendors are told
``plugin``  the plugin

The rules are in ``domain.devices``.
Source: koordinator pkg/scheduler/plugins/deviceshare.
"""

from koordinator.scheduler.plugins.device_share.plugin import PLUGIN, DeviceShare

__all__ = ["PLUGIN", "DeviceShare"]
