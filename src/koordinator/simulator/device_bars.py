"""Bounded record of the allocation of GPUs to pods over time.

Reports of runs and the dashboard use it.  An update costs time only for the nodes that changed.
"""

import re
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from math import inf
from typing import Final

import msgspec
import numpy as np

from koordinator.api.conditions import find_condition
from koordinator.api.device import DeviceType
from koordinator.api.labels import QUOTA_NAME
from koordinator.api.pod import DISRUPTION_TARGET, Pod
from koordinator.domain.devices.allocation import RATIO
from koordinator.domain.gangs import gang_id, group_reference
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.snapshot import ClusterState, PlacedPod
from koordinator.simulator.stages import original_name

POD_TEMPLATE_HASH = "pod-template-hash"
MAX_BARS = 20_000  # of ended allocations; beyond it the oldest are dropped
MAX_LANES = 256  # in one answer
_WHOLE_S = 1.0  # resolution of the times in pods
LOST = "lost its node"

#: Numbers and hexadecimal hashes at the end of the name of a job.
_NUMBERS: Final = re.compile(r"([-.][0-9a-f]*[0-9][0-9a-f]*)+$")


class BarJob(msgspec.Struct, frozen=True, rename="camel"):
    """Group of pods with one colour: a gang, an owner, or a single pod."""

    name: str  # namespace/name
    namespace: str
    quota: str
    priority: int
    #: ``namespace/name`` of what makes such jobs: without the hash or the number of one job
    workload: str = ""


class DeviceBar(msgspec.Struct, frozen=True, array_like=True):
    """Allocation of a device to a pod; ``lane`` and ``job`` are indices into the lists."""

    lane: int
    job: int
    pod: str
    start_s: float
    end_s: float | None  # None for a current allocation
    percent: int  # of the device
    why: str  # reason of an eviction; empty if the pod ended or the reason is unknown


class BarLanes(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Page of lanes from ``first``, of ``count`` in total; bars before ``since_s`` were dropped."""

    first: int
    count: int
    since_s: float | None
    lanes: tuple[tuple[str, int], ...]  # node and minor
    jobs: tuple[BarJob, ...]
    bars: tuple[DeviceBar, ...]


@dataclass(slots=True)
class _OpenBar:
    """Current or ended allocation; ``placed`` is the last observed state of the pod."""

    node: str
    minor: int
    percent: int
    start_s: float
    placed: PlacedPod
    end_s: float | None = None
    why: str = ""


class DeviceBars:
    """Record of allocations; owned by the thread that owns the scheduler."""

    def __init__(self, most: int = MAX_BARS) -> None:
        self._ended: deque[_OpenBar] = deque()
        self._most = most
        self._open: dict[int, dict[tuple[str, int], _OpenBar]] = {}  # by row, then by pod and minor
        self._dropped_until_s: float | None = None
        self._state: ClusterState | None = None
        self._position = 0
        self._updated_s = -inf

    def update(self, state: ClusterState, now_s: float) -> None:
        """Record the changes; start over with another state or an earlier time."""
        rows = state.usage_log.since(self._position) if state is self._state else None
        if state is not self._state or now_s < self._updated_s:
            self._ended.clear()
            self._open.clear()
            self._dropped_until_s, self._state, self._updated_s, rows = None, state, -inf, None
        every = range(len(state.nodes)) if rows is None else np.unique(rows).tolist()
        for row in every:
            self._update_row(state, row, now_s)
        self._position, self._updated_s = state.usage_log.position, now_s
        while len(self._ended) > self._most:
            self._dropped_until_s = self._ended.popleft().end_s

    def lanes(
        self,
        first: int = 0,
        most: int = MAX_LANES,
        text: str = "",
        sees: Callable[[str], bool] = lambda _: True,
    ) -> BarLanes:
        """Return a page of lanes from ``first``, with their bars.

        ``text`` selects devices whose node, or one of whose pods or jobs, contains it in its name.
        Bars of namespaces outside ``sees`` have no names.
        """
        allocations = [
            *self._ended,
            *(each for row in self._open.values() for each in row.values()),
        ]
        lanes = [lane for lane in self._lanes() if not text or text in lane[0]]
        if text:
            named = {
                (each.node, each.minor)
                for each in allocations
                if sees(each.placed.pod.metadata.namespace)
                and (text in each.placed.key or text in _job_of(each.placed.pod).name)
            }
            lanes = [lane for lane in self._lanes() if lane in named or text in lane[0]]
        shown = lanes[first : first + min(most, MAX_LANES)]
        place = {lane: number for number, lane in enumerate(shown)}
        jobs: dict[BarJob, int] = {}
        bars = [
            _bar(each, place[each.node, each.minor], jobs, sees)
            for each in allocations
            if (each.node, each.minor) in place
        ]
        return BarLanes(
            first=first,
            count=len(lanes),
            since_s=self._dropped_until_s,
            lanes=tuple(shown),
            jobs=tuple(jobs),
            bars=tuple(sorted(bars, key=lambda bar: (bar.lane, bar.start_s, bar.pod))),
        )

    def _update_row(self, state: ClusterState, row: int, now_s: float) -> None:
        known = self._open.get(row, {})
        allocations: dict[tuple[str, int], _OpenBar] = {}
        for placed in state.pods.on_row[row].values():
            for taken in placed.pod_allocation.devices.get(DeviceType.GPU, ()):
                key = placed.key, taken.minor
                old = known.get(key)
                if old is not None and old.placed.pod.metadata.uid == placed.pod.metadata.uid:
                    old.placed = placed
                    allocations[key] = old
                    continue
                percent = int(taken.amounts[RATIO])
                since_s = placed.since_s
                start_s = now_s if now_s - since_s < _WHOLE_S else max(since_s, self._updated_s)
                name = state.nodes.names[row]
                allocations[key] = _OpenBar(name, taken.minor, percent, start_s, placed)
        for key, old in known.items():
            if allocations.get(key) is not old:
                old.end_s = now_s
                old.why = why_disrupted(old.placed.pod) or (LOST if key[0] in state.unbound else "")
                self._ended.append(old)
        if allocations:
            self._open[row] = allocations
        else:
            self._open.pop(row, None)

    def _lanes(self) -> Iterator[tuple[str, int]]:
        """Yield all GPUs of the nodes, then removed GPUs that have bars."""
        state = self._state
        if state is None:
            return
        removed = {(each.node, each.minor) for each in self._ended}
        for row, report in sorted(state.nodes.devices.reports.items()):
            name = state.nodes.names[row]
            if state.nodes.objects[row] is None:
                continue
            for group in report.model.groups:
                if group.kind is DeviceType.GPU:
                    for device in group.devices:
                        removed.discard((name, device.minor))
                        yield name, device.minor
        yield from sorted(removed)


def _bar(
    one: _OpenBar, lane: int, jobs: dict[BarJob, int], sees: Callable[[str], bool]
) -> DeviceBar:
    pod = one.placed.pod
    bar = partial(DeviceBar, start_s=one.start_s, end_s=one.end_s, percent=one.percent)
    if not sees(pod.metadata.namespace):
        hidden = BarJob("", "", "", 0, "")
        return bar(lane=lane, job=jobs.setdefault(hidden, len(jobs)), pod="", why="")
    number = jobs.setdefault(_job_of(pod), len(jobs))
    return bar(lane=lane, job=number, pod=one.placed.key, why=one.why)


def _job_of(pod: Pod) -> BarJob:
    meta = pod.metadata
    owner = meta.controller
    name = gang_id(meta, group_reference(pod.spec))
    if not name:
        name = f"{meta.namespace}/{original_name(meta.name) if owner is None else owner.name}"
    template = f"-{meta.labels.get(POD_TEMPLATE_HASH, '')}"
    is_replica_set = len(template) > 1 and name.endswith(template)
    workload = name.removesuffix(template) if is_replica_set else _NUMBERS.sub("", name)
    quota = meta.labels.get(QUOTA_NAME, "")
    return BarJob(name, meta.namespace, quota, pod.spec.priority or 0, workload)


def why_disrupted(pod: Pod) -> str:
    """Return reason and message of its condition DisruptionTarget; empty without one that holds."""
    condition = find_condition(pod.status.conditions, DISRUPTION_TARGET)
    if condition is None or condition.status != "True":
        return ""
    return ": ".join(filter(None, (condition.reason, condition.message)))
