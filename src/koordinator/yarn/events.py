"""Events about nodes whose YARN account cannot be settled."""

from hashlib import sha256

from koordinator.api.core import MicroTime
from koordinator.api.event import Event, fitting_note, reference_to
from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Node
from koordinator.foundation.clock import UTC

COMPONENT = "koord-yarn-operator"
BAD_REFERENCE = "YarnNodeManagerUnclear"  # Node: its pods name no or several NodeManagers
REFUSED = "YarnLimitRefused"  # Node: the ResourceManager refused the limit of its NodeManager
UNREADABLE = "YarnAccountUnreadable"  # Node: its batch resources or annotation are invalid


def node_warning(node: Node, reason: str, note: str, now_s: float) -> Event:
    """Return a Warning about a node; a later one with the same reason and text replaces it."""
    digest = sha256(f"{reason} {note}".encode()).hexdigest()[:16]
    return Event(
        metadata=ObjectMeta(name=f"{node.metadata.name}.{digest}", namespace="default"),
        event_time=MicroTime.fromtimestamp(now_s, UTC),
        type="Warning",
        reason=reason,
        action="Settling",
        note=fitting_note(note),
        regarding=reference_to(node),
        reporting_controller=COMPONENT,
        reporting_instance=COMPONENT,
    )
