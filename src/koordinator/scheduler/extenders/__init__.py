"""Scheduler extenders: HTTP services that have a say about nodes, scores, victims and binds.

``messages``  what is sent and what is answered, as JSON; nothing here opens a connection
``service``   one extender of a configuration, asked through a transport
``build``     a configuration becomes extenders

``koordinator.process.extender_transport`` is the transport that speaks HTTP.
"""

from koordinator.scheduler.extenders.build import (
    Connect,
    build_extenders,
)
from koordinator.scheduler.extenders.service import ExtenderService, ExtenderTransport

__all__ = [
    "Connect",
    "ExtenderService",
    "ExtenderTransport",
    "build_extenders",
]
