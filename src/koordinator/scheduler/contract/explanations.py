"""Contract of scheduler plugins: explanations, texts for people.

``koord explain``, the dashboard and the pages of the scheduler call these methods for a pod that
found no node, never while a pod is decided.  They change nothing.  ``view`` is a view of one row
whose node ``filter`` rejects.
"""

from collections.abc import Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.foundation.arrays import BoolArray
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.snapshot import PodClass, Snapshot


@dataclass(frozen=True, slots=True)
class SizeRemedies:
    """Sizes of the pod or of the node with which a plugin might accept the node."""

    #: requests of the pod, the largest first; a resource without an amount keeps its request
    requests: tuple[Mapping[str, int], ...] = ()
    node: str = ""  # what an empty node like it would need; empty: no size is enough


@dataclass(frozen=True, slots=True)
class ObjectRemedy:
    """A change of objects of the cluster, and pods that end, after which a node may accept."""

    text: str
    objects: tuple[KubeObject, ...]  # new versions
    pods: tuple[str, ...] = ()  # keys of the pods that end


class PluginExplanations(Protocol):
    """Methods that explain the rejections of a plugin; each is optional."""

    # About a node that ``filter`` rejects.

    def detail(self, view: Snapshot, pod: PodClass) -> str:
        """Return in detail why ``filter`` rejects the one row of a view."""
        ...

    def duplicate_of(self, snapshot: Snapshot, pod: PodClass) -> tuple[str, BoolArray]:
        """Return a plugin, and ``(n,)`` where ``filter`` only repeats the reason of that plugin."""
        ...

    def node_remedy(self, view: Snapshot, pod: PodClass) -> str:
        """Return a change of the node after which ``filter`` accepts it; empty: none."""
        ...

    def pod_remedies(self, view: Snapshot, pod: PodClass, it: Pod) -> list[tuple[str, Pod]]:
        """Return changes of the pod after which ``filter`` accepts the node, with the new pod."""
        ...

    def object_remedies(self, view: Snapshot, pod: PodClass) -> Sequence[ObjectRemedy]:
        """Return changes of objects after which ``filter`` might accept the node, cheapest first.

        Each is tried on the state.
        """
        ...

    def size_remedies(self, view: Snapshot, pod: PodClass) -> "SizeRemedies":
        """Return the sizes of the pod, and of the node, with which ``filter`` might accept it."""
        ...

    def node_shortfall(self, view: Snapshot, pod: PodClass) -> Mapping[str, int] | None:
        """Return the amounts that the node lacks for a pod with restorable holds.

        The pod may not use all of them together.  None: the row has no such holds.
        """
        ...

    def hold_remedies(self, view: Snapshot, pod: PodClass, it: Pod) -> list[tuple[str, Pod]]:
        """Return changes of the pod after which it may use a hold on the node, with the new pod."""
        ...

    def is_blocked_cluster_wide(self, view: Snapshot, pod: PodClass) -> bool:
        """Return whether other pods would make ``filter`` reject a new node like it as well."""
        ...

    # About the pod: why it may not use holds, and why ``prefilter`` refuses it.

    def unusable_holds(self, snapshot: Snapshot, pod: PodClass) -> Mapping[str, str]:
        """Return why the pod may not use the holds that it owns, by name."""
        ...

    def refusal_detail(self, snapshot: Snapshot, pod: PodClass) -> str:
        """Return in detail why ``prefilter`` refuses the pod."""
        ...

    def remedy(self, snapshot: Snapshot, pod: PodClass) -> tuple[str, bool]:
        """Return a change after which ``prefilter`` accepts the pod, and whether it is enough.

        An empty text: none is known.
        """
        ...

    def limit_keys(self, snapshot: Snapshot, pod: PodClass) -> Sequence[Hashable]:
        """Return a value per limit of ``prefilter`` that counts the pod, the same for all its pods.

        Pods of one limit are judged as one, with the labels of a pod that the fewest limits count.
        Without this method, all pods share one limit.
        """
        ...

    def relaxed_limits(self, snapshot: Snapshot, pod: PodClass) -> AbstractContextManager[str]:
        """Raise the limits that refuse the pod within the context, to find what else it lacks.

        The context returns the text of that remedy, empty if there is none.
        """
        ...

    def admits_with_node(
        self, snapshot: Snapshot, pod: PodClass, amounts: Mapping[str, int]
    ) -> bool | None:
        """Return whether ``prefilter`` accepts the pod after nodes with these amounts are added.

        None: unknown.
        """
        ...
