"""Port through which components use Kubernetes.

A component is a pure core in a thin shell: the shell polls watches, calls its core, and sends the
resulting instructions.  Calls are synchronous and return when the API server has answered, except
two: ``bind`` returns with requests in flight, and ``report`` writes in the background.  An adapter
hides its network threads.  Components must not depend on an adapter; every adapter must pass
``tests/contract/cluster``.

Objects are frozen: what a call returns may be kept, shared and compared, and never changes.  JSON
fields that our types don't have survive every write.  An instance belongs to one thread.

Failures are ``ClusterError``s: NotFoundError, AlreadyExistsError, ConflictError, InvalidError,
TooManyRequestsError.  Any verb may raise the base class when the server can't be reached; then it
is not known whether a write happened.  Watches don't fail: they reconnect.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Generic, Protocol, TypeVar

import msgspec

from koordinator.api.event import Event
from koordinator.api.meta import Condition, JsonObject, KubeObject, LabelSelector
from koordinator.foundation.errors import ClusterError
from koordinator.foundation.lazy_dataclass import dataclass

KindT = TypeVar("KindT", bound=KubeObject)

NO_SELECTORS: Mapping[type[KubeObject], str] = MappingProxyType({})
Transform = Callable[[KubeObject], KubeObject]
NO_TRANSFORMS: Mapping[type[KubeObject], Transform] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Listing(Generic[KindT]):
    """Consistent list of objects at one version.

    ``items`` are sorted by namespace, then name.
    """

    items: Sequence[KindT]
    resource_version: str


class EventType(StrEnum):
    """Type of an event, in the words of the Kubernetes watch protocol."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


class WatchEvent(msgspec.Struct, frozen=True, gc=False):  # a struct: one is made per write
    """One change.

    ``object`` is the object after the change; of a deletion it is the last state that is known.  Of
    a bookmark it is a bare ``KubeObject`` of no kind.

    ``previous`` is the object as this watch delivered it last; None if it is added.
    """

    type: EventType
    object: KubeObject
    previous: KubeObject | None = None


class Binding(msgspec.Struct, frozen=True, gc=False):  # a struct: one is made per pod
    """Binding of one pod to a node.

    ``annotations`` and ``labels`` are merged into the pod's in the same write.  ``uid``
    guards against a pod of the same name that was created since; empty means any.
    """

    namespace: str
    name: str
    node: str
    uid: str = ""
    annotations: Mapping[str, str] = {}
    labels: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class PodReport:
    """Report about a pod, for readers of its status.

    ``condition`` takes the place of that of its type; its transition time is the server's affair.
    ``nominated_node`` empty takes the nomination back, None leaves it.  ``uid`` guards against a
    pod of the same name that was created since; empty means any.
    """

    namespace: str
    name: str
    uid: str = ""
    condition: Condition | None = None
    nominated_node: str | None = None


@dataclass(frozen=True, slots=True)
class ObjectPatch:
    """JSON merge patch that is written in the background, such as of a derived status.

    Patches of one object that have not been sent yet are merged into one.  ``uid`` guards against
    an object of the same name that was created since; empty means any.
    """

    kind_type: type[KubeObject]
    namespace: str
    name: str
    merge_patch: JsonObject
    uid: str = ""
    subresource: str = ""  # or status, as of ``Cluster.patch``


Report = PodReport | ObjectPatch | Event


def guarded(patch: ObjectPatch) -> JsonObject:
    """Return what to send: the patch with its uid as a precondition."""
    if not patch.uid:
        return patch.merge_patch
    meta = patch.merge_patch.get("metadata") or {}
    return {**patch.merge_patch, "metadata": {**meta, "uid": patch.uid}}


class PendingBinds(Protocol):
    """Binds in flight."""

    def finished(self) -> Sequence[tuple[int, ClusterError | None]]:
        """Return the results since the last call, by index in the batch; None for success."""

    def results(self) -> Sequence[ClusterError | None]:
        """Wait for all and return one result per binding, in order, None for success."""


class Watch(Protocol):
    """Objects of some kinds, and their changes.

    First comes an ADDED event for every existing object, kind after kind as they were named, and a
    BOOKMARK after the last of them.  From then on changes of one object come in the order in which
    they happened, and so do changes of different objects of one kind; between kinds there is no
    promised order.

    A broken stream is resumed.  If changes were lost, the difference between the delivered and the
    existing objects is delivered instead, as ADDED, MODIFIED and DELETED events; several changes of
    one object may become one.  With a field selector, an object that begins or ceases to match is
    ADDED or DELETED.  An object that can't be decoded is left out.
    """

    def poll(self) -> Sequence[WatchEvent]:
        """Return the events since the last call, possibly none; never waits."""

    def refresh(self) -> None:
        """Make up for whatever a slow stream still owes.

        Everything that happened before the call is delivered, as after a broken stream, and then
        one more BOOKMARK.  For callers that must not act on old events, such as a new leader.
        """

    def close(self) -> None:
        """End the stream; ``poll`` then returns nothing.  Closing twice is allowed."""


class Reader(Protocol):
    """The verbs that change nothing."""

    def get(self, kind_type: type[KindT], name: str, namespace: str = "") -> KindT:
        """Return one object; ``namespace`` is ignored for kinds that have none.

        Raises NotFoundError.
        """

    def list(
        self,
        kind_type: type[KindT],
        *,
        namespace: str | None = None,
        label_selector: LabelSelector | None = None,
        field_selector: str = "",
    ) -> Listing[KindT]:
        """Return the objects of a kind that match all given selectors; None selects every object.

        ``field_selector`` is a list such as ``spec.nodeName=n1,status.phase!=Failed``.  Every kind
        has ``metadata.name`` and ``metadata.namespace``; further fields match the Kubernetes API
        (pods: spec.nodeName, spec.schedulerName, status.phase, …).

        Raises InvalidError for a malformed selector and for a field that the kind doesn't offer.
        """


class Cluster(Reader, Protocol):
    """Operations of Kubernetes that components use."""

    def create(self, obj: KindT) -> KindT:
        """Store a new object and return it as admission left it, with uid and resourceVersion.

        ``metadata.generateName`` makes a name if there is none.  Uid, times and generation are the
        server's; a given status is dropped (nodes excepted), as Kubernetes does.

        Raises AlreadyExistsError, InvalidError, and NotFoundError for a missing namespace.
        """

    def update(self, obj: KindT) -> KindT:
        """Replace the object and return the stored one; its status is not changed.

        The status of a kind without that subresource is like any other part of it, here and below.

        Of the metadata only labels, annotations, owner references and finalizers can change.  A
        change of nothing is no write.  Taking the last finalizer from an object that is being
        deleted removes it.

        Raises NotFoundError; ConflictError if ``metadata.resourceVersion`` or ``metadata.uid`` is
        set and differs from the stored object; InvalidError.
        """

    def update_status(self, obj: KindT) -> KindT:
        """Replace only the status; the rest of ``obj`` but name and preconditions is not read.

        Raises as ``update``.
        """

    def patch(
        self,
        kind_type: type[KindT],
        name: str,
        namespace: str,
        merge_patch: JsonObject,
        subresource: str = "",
    ) -> KindT:
        """Apply a JSON merge patch (RFC 7396) and return the stored object.

        ``subresource`` is empty or ``status``.  Without it a status in the patch is ignored, with
        it everything else is, except labels and annotations of a node, so that a node agent can
        change both in one write; a kind whose status is no subresource (PodGroup, ElasticQuota)
        takes it like any other field.  A ``metadata.resourceVersion`` or ``metadata.uid`` in the
        patch is a precondition.  The patch may have fields that our types don't have.

        Raises as ``update``.
        """

    def delete(
        self,
        kind_type: type[KubeObject],
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        grace_period_s: int | None = None,
    ) -> None:
        """Delete, or begin to: an object with finalizers, or a pod that may end with grace, stays.

        Such an object has a deletionTimestamp from then on.  ``grace_period_s`` None means the
        pod's own period; only pods have one.

        Raises NotFoundError; ConflictError if ``uid`` is given and differs from the object's.
        """

    def bind(self, bindings: Sequence[Binding]) -> PendingBinds:
        """Start to bind pods to nodes.

        Bindings are independent of one another: one may fail and the next succeed.  In one write a
        success sets spec.nodeName and the condition PodScheduled, merges annotations and labels,
        and clears the nominated node.

        Results: NotFoundError; ConflictError if the pod has a node already (even this one), is
        being deleted, has scheduling gates or another uid.  The node need not exist.
        """

    def report(self, reports: Sequence[Report]) -> None:
        """Write reports in the background.  Never fails, never waits.

        Reports about one pod are written in order, and a newer one may be merged with those that
        have not been sent yet.  Reports that are not sent when the pod's binding begins are
        dropped; a deletion of the pod waits for them.  An event replaces the event of its name.
        Patches of one object are merged as well; bindings do not drop them.  Rejected
        reports are dropped, as are the oldest when the queue is full: a caller that needs a patch
        must check the object and report again.
        """

    def evict(
        self, namespace: str, name: str, *, uid: str = "", grace_period_s: int | None = None
    ) -> None:
        """Delete a pod if its disruption budget allows, and count it there.

        Pods that are pending, finished or being deleted need no budget.  The pod gets the condition
        DisruptionTarget before it goes.

        Raises NotFoundError, ConflictError (uid); TooManyRequestsError if the budget is used up;
        ClusterError if more than one budget covers the pod.
        """

    def watch(
        self,
        kind_types: Sequence[type[KubeObject]],
        field_selectors: Mapping[type[KubeObject], str] = NO_SELECTORS,
        transforms: Mapping[type[KubeObject], Transform] = NO_TRANSFORMS,
    ) -> Watch:
        """Watch some kinds; of a kind with a field selector (as in ``list``), the matching objects.

        A watch keeps the objects that it has delivered.  The transform of a kind replaces each
        object before delivery, for example to omit fields that are never read; kind, name, uid and
        version must stay the same, and it must not raise.

        Raises InvalidError as ``list``, here or in the first ``poll``.
        """

    def wait(self, timeout_s: float) -> bool:
        """Wait until a watch of this cluster has events or a binding has ended.

        At most ``timeout_s`` seconds; returns whether there is something.  The in-memory adapter
        returns at once: while its one thread waits, nothing can change.
        """
