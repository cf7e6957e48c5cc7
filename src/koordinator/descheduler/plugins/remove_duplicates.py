"""RemoveDuplicates: spreads the pods of one owner over the nodes that could run them.

Source: kubernetes-sigs/descheduler pkg/framework/plugins/removeduplicates.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.descheduler.candidates import CandidateFilter
from koordinator.descheduler.configuration import (
    DeschedulerPluginArgs,
    NamespaceLists,
    check_namespaces,
)
from koordinator.descheduler.contract import DeschedulerPluginSpec, Handle
from koordinator.domain.node_selection import FORBIDDING, admits_pod, untolerated
from koordinator.foundation.lazy_dataclass import dataclass

Owner = tuple[str, str, str, tuple[str, ...]]  # namespace, kind, name, images
_FEWEST_NODES = 2  # feasible nodes needed to distribute pods


class RemoveDuplicatesArgs(DeschedulerPluginArgs, frozen=True, kw_only=True):
    """Namespaces and excluded owner kinds."""

    namespaces: NamespaceLists | None = None
    exclude_owner_kinds: tuple[str, ...] = ()

    def validate(self) -> None:
        check_namespaces(self.namespaces, "namespaces")


@dataclass(frozen=True, slots=True)
class RemoveDuplicates:
    """Plugin that evicts the pods of an owner on a node above the mean, rounded up."""

    args: RemoveDuplicatesArgs
    handle: Handle
    candidates: CandidateFilter

    def balance(self, nodes: Sequence[Node]) -> None:
        counts: Counter[Owner] = Counter()
        duplicates: dict[Owner, dict[str, list[Pod]]] = {}
        for node in nodes:
            for owner, pods in self._duplicates_on(node.metadata.name, counts).items():
                duplicates.setdefault(owner, {})[node.metadata.name] = pods
        for owner, by_node in duplicates.items():
            feasible = _feasible_nodes(by_node, nodes)
            if len(feasible) < _FEWEST_NODES:
                continue
            most = -(-counts[owner] // len(feasible))
            for pods in by_node.values():
                for pod in pods[most - 1 :]:
                    self.handle.evictor.evict(pod)

    def _duplicates_on(self, node: str, counts: Counter[Owner]) -> Mapping[Owner, list[Pod]]:
        """Return the pods of a node by owner except the first of each kind; count all of them."""
        seen: set[tuple[str, ...]] = set()
        duplicates: defaultdict[Owner, list[Pod]] = defaultdict(list)
        for pod in self.handle.view.active_pods_on(node):
            references = pod.metadata.owner_references
            kinds = {reference.kind for reference in references}
            excluded = not kinds.isdisjoint(self.args.exclude_owner_kinds)
            if not references or excluded or not self.candidates.is_candidate(pod):
                continue
            namespace = pod.metadata.namespace
            images = tuple(sorted(container.image for container in pod.spec.containers))
            owners = [(namespace, each.kind, each.name, images) for each in references]
            counts.update(owners)
            kind = tuple(
                sorted("/".join((*owner[:3], image)) for owner in owners for image in images)
            )
            if kind in seen:
                for owner in owners:
                    duplicates[owner].append(pod)
            seen.add(kind)
        return duplicates


def build_remove_duplicates(args: RemoveDuplicatesArgs, handle: Handle) -> RemoveDuplicates:
    """Build the plugin."""
    candidates = CandidateFilter(handle.evictor.filter, args.namespaces)
    return RemoveDuplicates(args, handle, candidates)


def _feasible_nodes(by_node: Mapping[str, Sequence[Pod]], nodes: Sequence[Node]) -> set[str]:
    """Return the nodes that admit a pod, of pods admitted by more than one node."""
    kinds: dict[bytes, Pod] = {}
    for pods in by_node.values():
        for pod in pods:
            spec = pod.spec
            affinity = spec.node_affinity
            read = (sorted(spec.node_selector.items()), affinity, spec.tolerations)
            kinds.setdefault(msgspec.msgpack.encode(read), pod)
    feasible: set[str] = set()
    for pod in kinds.values():
        targets = {
            node.metadata.name
            for node in nodes
            if admits_pod(node, pod.spec)
            and not untolerated(node.spec.taints, pod.spec.tolerations, FORBIDDING)
        }
        if len(targets) > 1:
            feasible |= targets
    return feasible


REMOVE_DUPLICATES = DeschedulerPluginSpec(
    "RemoveDuplicates", RemoveDuplicatesArgs, build_remove_duplicates
)
