"""A recording as a source: its pods come when they came, and run as long as they ran.

Unlike ``koord replay``, nothing is compared with the recorded decisions.  Pods that were bound
before the recording stay on their nodes.  A pod that never started in the recording runs until the
end of the run.
"""

from collections.abc import Callable
from math import inf
from pathlib import Path

from msgspec.structs import replace

from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.kubescheduler import KubeSchedulerConfiguration, decode_configuration
from koordinator.api.meta import KubeObject
from koordinator.api.node import Node
from koordinator.api.pod import Pod, PodStatus, is_terminal
from koordinator.api.pod_groups import PodGroup
from koordinator.api.reservation import Reservation
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.simulator.embedded import STOCK
from koordinator.simulator.generation import PlannedChange, SimulationPlan
from koordinator.simulator.recorder import opened_recording
from koordinator.simulator.recording import Recording
from koordinator.simulator.sources.manifests import node_groups
from koordinator.simulator.sources.source import Source
from koordinator.simulator.stages import PodLife
from koordinator.simulator.world import Submission

#: Kinds whose status the scheduler writes: later changes are its own.
_OWN = (Reservation, PodGroup, ElasticQuota)
_DELETED = "DELETED"


@dataclass(slots=True)
class _RecordedPod:
    pod: Pod  # as it came
    at_s: float
    bound_s: float | None = None
    ended_s: float | None = None

    def submission(self) -> Submission:
        """Return the pod with its recorded run time."""
        work_s = inf
        if self.bound_s is not None and self.ended_s is not None:
            work_s = self.ended_s - self.bound_s
        owners = self.pod.metadata.owner_references
        kind = owners[0].kind if owners else "pod"
        return Submission(self.at_s, self.pod, kind=kind, life=PodLife(work_s=work_s))


class _Reader:
    """Reader of the batches of a recording."""

    def __init__(self, started_s: float) -> None:
        self._started_s = started_s
        self.first: dict[tuple[type[KubeObject], str], KubeObject] = {}
        self.changes: list[PlannedChange] = []
        self.pods: list[_RecordedPod] = []
        self._live: dict[str, _RecordedPod] = {}
        self.ends_s = 0.0

    def read(self, recorded: Recording) -> None:
        """Read all batches; the first one has the objects of the beginning."""
        for number, batch in enumerate(recorded.batches):
            at_s = self.ends_s = max(batch.at_s - self._started_s, 0.0)
            for kind, obj in batch.objects():
                if isinstance(obj, Pod):
                    self._pod(kind, obj, at_s)
                elif number == 0:
                    self._initial(kind, obj)
                elif kind == _DELETED:
                    self.changes.append(PlannedChange(at_s, obj, is_deleted=True))
                elif kind == "ADDED" or not isinstance(obj, _OWN):
                    self.changes.append(PlannedChange(at_s, obj))

    def _initial(self, kind: str, obj: KubeObject) -> None:
        key = type(obj), obj.key
        if kind == _DELETED:
            self.first.pop(key, None)
        else:
            self.first[key] = obj

    def _pod(self, kind: str, pod: Pod, at_s: float) -> None:
        known = self._live.get(pod.key)
        if known is None:
            if kind == _DELETED or is_terminal(pod):
                return
            known = self._live[pod.key] = _RecordedPod(_fresh(pod), at_s)
            self.pods.append(known)
        if pod.spec.node_name and known.bound_s is None:
            known.bound_s = at_s
        if known.ended_s is None and (is_terminal(pod) or kind == _DELETED):
            known.ended_s = at_s
        if kind == _DELETED:
            del self._live[pod.key]


def recording_source(path: Path, on_notice: Callable[[str], object] | None = None) -> Source:
    """Return the source of a recording.  Raises InputError for a file that can't be read."""
    notices: list[str] = []
    with opened_recording(path, on_notice or notices.append) as recorded:
        header = recorded.header
        reader = _Reader(header.started_s)
        reader.read(recorded)
    recorded_configuration = (
        STOCK
        if header.configuration is None
        else decode_configuration(header.configuration, str(path))
    )
    objects = tuple(reader.first.values())
    nodes = node_groups(obj for obj in objects if isinstance(obj, Node))
    submissions = _distinct(reader.pods)

    def generate(_seed: int, until_s: float) -> SimulationPlan:
        return SimulationPlan(
            objects,
            nodes,
            tuple(each for each in submissions if each.at_s <= until_s),
            (),
            changes=tuple(change for change in reader.changes if change.at_s <= until_s),
        )

    def configuration() -> KubeSchedulerConfiguration:
        return recorded_configuration

    return Source(
        title=path.name,
        kind="recording",
        generate=generate,
        horizon_s=reader.ends_s,
        sample_every_s=max(reader.ends_s / 300, 1.0),
        configuration=configuration,
        configuration_name="the recording's",
        notices=tuple(notices),
    )


def _fresh(pod: Pod) -> Pod:
    meta = replace(pod.metadata, uid="", resource_version="")
    return replace(pod, metadata=meta, status=PodStatus())


def _distinct(pods: list[_RecordedPod]) -> list[Submission]:
    """Return the submissions; later pods of a name get a number, as an earlier may still run."""
    times: dict[str, int] = {}
    submissions = []
    for recorded in pods:
        meta = recorded.pod.metadata
        number = times[recorded.pod.key] = times.get(recorded.pod.key, 0) + 1
        if number > 1:
            renamed = replace(meta, name=f"{meta.name}-{number}")
            recorded.pod = replace(recorded.pod, metadata=renamed)
        submissions.append(recorded.submission())
    return submissions
