"""Scheduler extenders: HTTP services that filter and score nodes, select victims and bind pods.

``service``  one configured extender, called through a transport, with its requests and responses as
             JSON; construction of extenders from a configuration

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
