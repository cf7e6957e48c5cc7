"""What is told of one pod: the answer to "why does it wait, and what would help?"."""

from msgspec import Struct


class CauseReport(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Something against the pod."""

    plugin: str
    reason: str
    nodes: int = 0  # that it keeps the pod from; 0 where it holds whatever the node
    alone: int = 0  # nodes that nothing else is against
    decisive: bool = True  # False: where it holds, something else would have to go as well
    sentence: str = ""  # the reason in plain words
    detail: str = ""  # with amounts, of one of the nodes
    on: tuple[str, ...] = ()  # the first of those nodes
    resolvable: bool = False  # on some of them fewer pods might help


class NearNode(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A node on which little is missing."""

    node: str
    reasons: tuple[str, ...]
    lacks: dict[str, str] = {}  # resource -> quantity beyond what is free
    hopeless: bool = False  # also without any other pod on it
    details: tuple[str, ...] = ()


class Remedy(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Something that would let the pod start.

    ``sufficient``: it was tried on a copy of the cluster, and nothing else is against the pod then.
    ``tried``: False where it was not tried, such as other amounts that a controller computes.
    """

    kind: str
    text: str
    sufficient: bool = True
    tried: bool = True
    nodes: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()


class EmptyCluster(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Whether the pod could run if no other pod were there."""

    fits: bool
    node: str = ""  # such as this one
    why: str = ""  # not


class QueueStatus(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Where the pod is in the queue."""

    state: str  # a QueueState
    position: int  # 1: nobody is tried before it
    ahead: tuple[str, ...] = ()  # the first few of those
    since: str = ""  # RFC 3339
    attempts: int = 0
    retry_at: str = ""  # RFC 3339: when it is tried again without anything happening
    woken_by: tuple[str, ...] = ()


class Forecast(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """When the pod would start if nothing else came."""

    at: str = ""  # RFC 3339; empty: it can't be foreseen
    node: str = ""
    why: str = ""


class Explanation(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Everything that is known of a pod's waiting."""

    pod: str
    verdict: str  # placed, fits, waits; of objects in manifests also ended, lost
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
