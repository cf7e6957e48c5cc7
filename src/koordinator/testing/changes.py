"""Changes of a cluster, to check that plugins are asked about those that help a waiting pod."""

from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from koordinator.api.core import ResourceRequirements
from koordinator.api.labels import HOSTNAME
from koordinator.api.meta import KubeObject
from koordinator.api.node import Node
from koordinator.api.pod import Container, Pod
from koordinator.api.volume import PersistentVolume, PersistentVolumeClaim
from koordinator.foundation.quantity import Quantity
from koordinator.scheduler.contract import ClusterEvent
from koordinator.scheduler.ingest import Ingest
from koordinator.scheduler.snapshot import ClusterState

#: An object before and after a change; None: it is not there.
Change = tuple[KubeObject | None, KubeObject | None]

MOST = 2  # objects of a kind that are changed
#: Kinds whose objects exist as long as a pod uses them.
_PROTECTED = (PersistentVolume, PersistentVolumeClaim)


def changes_of(objects: Sequence[KubeObject]) -> Iterator[Change]:
    """Yield changes of some of these objects, each followed by its reverse."""
    counts: Counter[str] = Counter()
    for before in objects:
        counts[before.KIND] += 1
        if counts[before.KIND] > MOST or (isinstance(before, Pod) and not before.spec.node_name):
            continue
        for after in _versions(before, objects):
            yield before, after
            yield after, before


def apply(ingest: Ingest, state: ClusterState, change: Change) -> ClusterEvent | None:
    """Apply a change to a state; return the event about it, None if plugins see no difference."""
    before, after = change
    if isinstance(after, Pod):
        placed = state.placed(after.key)
        return ingest.put_placed(after, placed, before if isinstance(before, Pod) else None)
    if after is not None:
        return ingest.put(after, before)
    if isinstance(before, Pod):
        return ingest.drop_placed(before)
    return None if before is None else ingest.drop(before)


def _versions(before: KubeObject, objects: Sequence[KubeObject]) -> Iterator[KubeObject | None]:
    """Yield possible later versions of an object, and None."""
    if not isinstance(before, _PROTECTED):
        yield None
    if isinstance(before, Pod):
        yield _without_requests(before)
        yield replace(before, metadata=replace(before.metadata, labels={}))
    elif isinstance(before, Node):
        others = [one.metadata for one in objects if isinstance(one, Node) and one is not before]
        amounts = before.status.allocatable
        larger = {name: Quantity(4 * one.nanos, one.notation) for name, one in amounts.items()}
        yield replace(before, status=replace(before.status, allocatable=larger))
        yield replace(before, spec=replace(before.spec, taints=(), unschedulable=False))
        for other in others[:1]:
            meta, name = before.metadata, {HOSTNAME: before.metadata.name}
            yield replace(before, metadata=replace(meta, labels={**other.labels, **name}))
            yield replace(before, metadata=replace(meta, annotations=other.annotations))


def _without_requests(pod: Pod) -> Pod:
    def empty(container: Container) -> Container:
        return replace(container, resources=ResourceRequirements())

    spec = pod.spec
    containers, first = map(empty, spec.containers), map(empty, spec.init_containers)
    return replace(
        pod,
        spec=replace(spec, containers=tuple(containers), init_containers=tuple(first)),
    )
