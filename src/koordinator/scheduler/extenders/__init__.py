"""Scheduler extenders: HTTP services that filter and score nodes, select victims and bind pods.

``messages``  requests and responses as JSON; opens no connections
``service``   one configured extender, called through a transport; construction of extenders from a
              configuration

``koordinator.process.extender_transport`` is the HTTP transport.
"""

from koordinator.scheduler.extenders.service import (
    Connect,
    ExtenderService,
    ExtenderTransport,
    build_extenders,
)

__all__ = [
    "Connect",
    "ExtenderService",
    "ExtenderTransport",
    "build_extenders",
]
