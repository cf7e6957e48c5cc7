"""Data of an explanation: why a pod is pending and what would help."""

from msgspec import Struct


class CauseReport(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Cause that keeps the pod from running."""

    plugin: str
    reason: str
    nodes: int = 0  # number of affected nodes; 0 for causes independent of nodes
    alone: int = 0  # nodes with this cause only
    decisive: bool = True  # False: affected nodes have another cause that must go first
    sentence: str = ""  # the reason as a plain sentence
    detail: str = ""  # amounts on one of the nodes
    on: tuple[str, ...] = ()  # first affected nodes
    resolvable: bool = False  # fewer pods might help on some of them


class NearNode(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Node that lacks little for the pod."""

    node: str
    reasons: tuple[str, ...]
    lacks: dict[str, str] = {}  # resource -> quantity missing
    hopeless: bool = False  # rejected even when empty
    details: tuple[str, ...] = ()


class Remedy(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Change after which the pod can start.

    ``sufficient``: on a copy of the cluster, the pod can start with this change alone.
    ``tried``: False if it was not tried, e.g. for amounts that a controller computes.
    """

    kind: str
    text: str
    sufficient: bool = True
    tried: bool = True
    nodes: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()


class EmptyCluster(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Result of placing the pod in the cluster without other pods."""

    fits: bool
    node: str = ""  # example of a node
    why: str = ""  # reason if it does not fit


class QueueStatus(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Position of the pod in the queue."""

    state: str  # a QueueState
    position: int  # 1 is next
    ahead: tuple[str, ...] = ()  # first pods ahead
    since: str = ""  # RFC 3339
    attempts: int = 0
    retry_at: str = ""  # RFC 3339: retry without an event
    woken_by: tuple[str, ...] = ()


class Forecast(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Expected start of the pod without further arrivals."""

    at: str = ""  # RFC 3339; empty if unknown
    node: str = ""
    why: str = ""


class Explanation(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Complete explanation of a pending pod."""

    pod: str
    verdict: str  # placed, fits, waits; also ended and lost for objects in manifests
    summary: str
    node: str = ""
    causes: tuple[CauseReport, ...] = ()
    gang: str = ""
    nearest: tuple[NearNode, ...] = ()
    empty_cluster: EmptyCluster | None = None
    remedies: tuple[Remedy, ...] = ()
    queue: QueueStatus | None = None
    last_message: str = ""
    forecast: Forecast | None = None
