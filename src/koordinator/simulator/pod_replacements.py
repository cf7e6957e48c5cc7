"""What workloads and nodes make of evictions: new pods, which run as soon as they have a node.

Stands in for the controllers of Kubernetes and for the kubelets.  A pod of a StatefulSet gets its
name again, any other a new one.
"""

from hashlib import sha256

from msgspec.structs import replace

from koordinator.api.pod import Pod, PodStatus
from koordinator.api.workload import DaemonSet, StatefulSet
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.cluster.port import EventType
from koordinator.descheduler.migration.workloads import controller_of
from koordinator.domain.placement_trial import replacement_of
from koordinator.simulator.stages import RUNNING_CONDITIONS

_KEPT_NAMES = (StatefulSet.KIND,)
_SUFFIX = 5  # characters


class PodReplacements:
    """Replaces what goes from now on, and has run what has got a node."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self._cluster = cluster
        self._watch = cluster.watch((Pod,))
        self._watch.poll()  # what runs already, or waits, is not ours

    def step(self) -> None:
        """Follow what has happened since the last time."""
        for event in self._watch.poll():
            pod = event.object
            if not isinstance(pod, Pod):
                continue
            if event.type is EventType.DELETED:
                self._replace(pod)
            elif pod.spec.node_name and pod.status.phase == "Pending":
                status = PodStatus(phase="Running", conditions=RUNNING_CONDITIONS)
                self._cluster.overwrite(replace(pod, status=status))

    def _replace(self, gone: Pod) -> None:
        owner, meta = controller_of(gone), gone.metadata
        is_over = gone.status.phase in {"Succeeded", "Failed"}
        if owner is None or owner.kind == DaemonSet.KIND or is_over:
            return
        name = meta.name
        if owner.kind not in _KEPT_NAMES:
            digest = sha256(f"{meta.name} {meta.uid}".encode()).hexdigest()
            name = f"{owner.name}-{digest[:_SUFFIX]}"
        self._cluster.create(replacement_of(gone, name))
