"""The one port through which components see Kubernetes.

Every call is synchronous and returns when the API server has answered.  A component is a pure core
in a thin shell: the shell polls watches, asks its core, and sends what the core answers.  An
adapter that needs threads for the network hides them here.  Nothing in a component may know which
adapter it has; ``tests/contract/cluster`` is what every adapter must pass.

Objects are frozen: what a call returns may be kept, shared and compared, and never changes.  JSON
fields that our types don't have survive every write.  An instance belongs to one thread.

Failures are ``ClusterError``s: NotFoundError, AlreadyExistsError, ConflictError, InvalidError,
TooManyRequestsError, GoneError.  Any verb may raise the base class when the server can't be
reached; then it is not known whether a write happened.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

import msgspec

from koordinator.api.meta import JsonObject, KubeObject, LabelSelector
from koordinator.foundation.errors import ClusterError

KindT = TypeVar("KindT", bound=KubeObject)


@dataclass(frozen=True, slots=True)
class Listing(Generic[KindT]):
    """All objects asked for, as they were together at one moment.

    ``items`` are in the order of namespace, then name.  A watch from ``resource_version`` misses
    nothing and repeats nothing.
    """

    items: Sequence[KindT]
    resource_version: str


class EventType(StrEnum):
    """What happened; the words of the Kubernetes watch protocol."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


class WatchEvent(msgspec.Struct, frozen=True, gc=False):  # a struct: one is made per write
    """One change.

    ``object`` is the object after the change; of a deletion it is the last state, with the
    resourceVersion of the deletion.  Of a bookmark it is a bare ``KubeObject`` of no kind, which
    says with its resourceVersion that everything up to there has been delivered.

    ``previous`` is the object before a modification if the adapter knows it, else None.
    """

    type: EventType
    object: KubeObject
    previous: KubeObject | None = None


@dataclass(frozen=True, slots=True)
class Binding:
    """Puts one pod on a node.

    ``annotations`` and ``labels`` are merged into those of the pod in the same write.  ``uid``
    guards against a pod of the same name that was created since; empty means any.
    """

    namespace: str
    name: str
    node: str
    uid: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)


class Watch(Protocol):
    """A stream of changes of some kinds.

    Changes of one object come in the order in which they happened, each once; so do changes of
    different objects of one kind.  Between kinds there is no promised order.
    """

    @property
    def resource_version(self) -> str | None:
        """Where a new watch can go on: ``poll`` has returned everything up to here.

        None until the existing objects have been returned to a watch that was to start with them.
        """

    def poll(self) -> list[WatchEvent]:
        """Return what has arrived since the last call; never waits, may return nothing.

        Raises GoneError if this watch fell so far behind that changes are lost, now and in every
        later call: list again and open a new watch.
        """

    def wait(self, timeout_s: float) -> bool:
        """Wait until ``poll`` has something to return or raise, at most ``timeout_s`` seconds.

        Returns whether it has.  The in-memory adapter returns at once: while its one thread
        waits, nothing can change.
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
        """Return all objects of a kind that pass every given restriction; None restricts nothing.

        ``field_selector`` is a list such as ``spec.nodeName=n1,status.phase!=Failed``.  Every kind
        has ``metadata.name`` and ``metadata.namespace``; the others are those of the Kubernetes API
        (pods: spec.nodeName, spec.schedulerName, status.phase, …).

        Raises InvalidError for a malformed selector and for a field that the kind doesn't offer.
        """


class Cluster(Reader, Protocol):
    """Everything that a component can ask of Kubernetes."""

    def create(self, obj: KindT) -> KindT:
        """Store a new object and return it as admission left it, with uid and resourceVersion.

        ``metadata.generateName`` makes a name if there is none.  Uid, times and generation are the
        server's; a given status is dropped (nodes excepted), as Kubernetes does.

        Raises AlreadyExistsError, InvalidError, and NotFoundError for a missing namespace.
        """

    def update(self, obj: KindT) -> KindT:
        """Replace the object and return what is stored; its status stays as it was.

        Of the metadata only labels, annotations, owner references and finalizers can change.  A
        change of nothing is no write.  Taking the last finalizer from an object that is being
        deleted removes it.

        Raises NotFoundError; ConflictError if ``metadata.resourceVersion`` or ``metadata.uid`` is
        set and not that of the stored object; InvalidError.
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
        """Apply a JSON merge patch (RFC 7396) and return what is stored.

        ``subresource`` is empty or ``status``.  Without it a status in the patch is ignored, with
        it everything else is.  A ``metadata.resourceVersion`` or ``metadata.uid`` in the patch is a
        precondition.  The patch may have fields that our types don't have.

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

        Raises NotFoundError; ConflictError if ``uid`` is given and not that of the object.
        """

    def bind(self, bindings: Sequence[Binding]) -> Sequence[ClusterError | None]:
        """Bind pods to nodes; one result per binding, in order, None for success.

        Bindings are independent of one another: one may fail and the next succeed.  The network
        adapter has many in flight.  In one write a success sets spec.nodeName and the condition
        PodScheduled, merges annotations and labels, and clears the nominated node.

        Results: NotFoundError; ConflictError if the pod has a node already (be it the same one), is
        being deleted, has scheduling gates or another uid.  Whether the node exists is not asked.
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

    def watch(self, kind_types: Sequence[type[KubeObject]], since: str | None = None) -> Watch:
        """Return the changes after the resourceVersion ``since``.

        None starts with an ADDED event for every existing object, kind after kind as they stand in
        ``kind_types``, and a BOOKMARK after the last of them.

        Raises GoneError, here or in the first ``poll``, if ``since`` is older than the history.
        """
