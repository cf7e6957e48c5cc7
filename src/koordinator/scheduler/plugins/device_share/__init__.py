"""Devices, whole or in parts: candidate nodes and the devices that a pod gets.

``requests``  device request of a pod in view of the cluster's virtual templates; labels and
              annotations written with the bind
``rows``      a request on many nodes at once
``plugin``    the extension points

The rules are in ``domain.devices``.
Source: koordinator pkg/scheduler/plugins/deviceshare.
"""

from koordinator.scheduler.plugins.device_share.plugin import PLUGIN, DeviceShare

__all__ = ["PLUGIN", "DeviceShare"]
