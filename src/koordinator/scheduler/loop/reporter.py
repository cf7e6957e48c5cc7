"""Reports to the API server: conditions, events, and patches that are retried until they show.

The content is derived from the state, so a lost write only delays the report.

Source: kubernetes pkg/scheduler/schedule_one.go ``handleSchedulingFailure``,
``updatePodStatus``; client-go tools/events (an event repeated within six minutes becomes a
series).
"""

from collections.abc import Sequence
from typing import Literal

from msgspec.structs import replace

from koordinator.api.annotations.reservation import AFFINITY, RESERVE_POD
from koordinator.api.cluster_network_topology import ClusterNetworkTopology
from koordinator.api.codec import merge_patch
from koordinator.api.conditions import find_condition
from koordinator.api.core import MicroTime, ObjectReference
from koordinator.api.crd import StandardCondition, has_status_subresource
from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.event import Event, EventSeries, reference_to
from koordinator.api.meta import Condition, JsonObject, KubeObject, ObjectMeta
from koordinator.api.pod import DISRUPTION_TARGET, PREEMPTED, Pod
from koordinator.api.pod_groups import PodGroup
from koordinator.api.reservation import Reservation
from koordinator.cluster.port import Cluster, ObjectPatch, PodReport
from koordinator.domain.reserve_pod import is_reserve_pod, reservation_name
from koordinator.foundation.clock import UTC, Clock, to_datetime
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.diagnosis import shortened
from koordinator.scheduler.rules.reservations.lifecycle import reservation_message

SCHEDULED = "PodScheduled"  # whether a pod has a node
#: Pod or Reservation: it was bound to a node.
BOUND = ("Normal", "Scheduled", "Binding")
#: Pod or Reservation: no node fits, or the attempt failed; the note counts nodes by reason.
FAILED = ("Warning", "FailedScheduling", "Scheduling")
#: Pod: it is evicted to make room for a pod of higher priority.
DISPLACED = ("Normal", "Preempted", "Preempting")
#: Pod: no reservation that it requires has room.
FAILED_RESERVATION = ("Warning", "FailedScheduling-Reservation", "Scheduling")
#: Object of any kind, which completes the reason, as in InvalidPodGroup: a part of it is ignored.
INVALID = ("Warning", "Invalid", "Reading")
UNSCHEDULABLE = "Unschedulable"  # no node fits
GATED = "SchedulingGated"  # the pod waits for its gang or queue; more nodes would not help
COMPONENT = "koord-scheduler"  # reporter of events about objects that belong to no profile
VALID = "Valid"  # whether the whole object has an effect; also the reason if it has
DEFAULT_NAMESPACE = "default"  # of events about objects that have none
SERIES_S = 360.0  # an event repeated within this time belongs to the same series
SERIES_WRITE_S = 60.0  # how often a growing series is written at most
_NAME = 230  # characters of a pod's name in that of its event, which may have 253
_KEPT = 1 << 12  # failures remembered before the old ones are looked for
_MOST_IGNORED = 1 << 14  # objects with problems; beyond it all are reported again
_MOST_PROBLEMS = 64  # of one object that are remembered


ValidatedObject = PodGroup | ElasticQuota | ClusterNetworkTopology

AGAIN_S = 30.0  # after which a change that has not shown is written again


@dataclass(slots=True)
class _Reported:
    """The last report about a pending pod."""

    event: Event
    count: int
    last_s: float
    written_s: float


class Reporter:
    """Writes about pods, in the background.

    A failed write is ignored: the pod is tried and reported again anyway.
    """

    def __init__(self, cluster: Cluster, clock: Clock, *, enabled: bool) -> None:
        self._cluster = cluster
        self._clock = clock
        self._enabled = enabled
        self._written = 0
        self._reported: dict[str, _Reported] = {}  # by uid
        self._prune_at = _KEPT
        self._ignored: dict[str, set[str]] = {}  # problems by uid
        self._judged: dict[str, tuple[str, str]] = {}  # by uid: status and message of a condition

    def report_bound(self, pods: Sequence[tuple[Pod, str]]) -> None:
        """Report that pods were bound to nodes."""
        for pod, _ in pods if self._reported else ():
            self._reported.pop(pod.metadata.uid, None)
            self._reported.pop(pod.metadata.uid + FAILED_RESERVATION[1], None)
        if self._enabled and pods:
            self._cluster.report(
                [
                    self._event(
                        pod,
                        pod.spec.scheduler_name,
                        BOUND,
                        f"Successfully assigned {called(pod)} to {node}",
                    )
                    for pod, node in pods
                ]
            )

    def forget(self, deleted: KubeObject) -> None:
        """Forget the reports about an object that was deleted."""
        key = _identity(deleted)
        for records in (self._reported, self._ignored, self._judged):
            records.pop(key, None)
        if isinstance(deleted, Pod):
            self._reported.pop(deleted.metadata.uid + FAILED_RESERVATION[1], None)
        elif isinstance(deleted, Reservation):  # its pod has its uid
            self._reported.pop(deleted.metadata.uid, None)

    def report_unschedulable(self, pod: Pod, message: str, reason: str = UNSCHEDULABLE) -> None:
        """Report why a pod still waits, unless its condition already has this reason."""
        if not self._enabled:
            return
        if AFFINITY.key in pod.metadata.annotations:
            about_reservations = reservation_message(message)
            if about_reservations:
                self._report_failure(pod, shortened(about_reservations), FAILED_RESERVATION)
        message = shortened(message)
        self._report_failure(pod, message)
        if is_reserve_pod(pod.metadata):
            return  # its condition is the reservation's
        known = find_condition(pod.status.conditions, SCHEDULED)
        generation = pod.metadata.generation
        if known is not None and (
            known.status,
            known.reason,
            known.message,
            known.observed_generation,
        ) == ("False", reason, message, generation):
            return
        now = to_datetime(self._clock.now_s())
        since = known.last_transition_time if known and known.status == "False" else now
        condition = Condition(
            type=SCHEDULED,
            status="False",
            reason=reason,
            message=message,
            observed_generation=generation,
            last_transition_time=since,
        )
        self._report(pod, condition)

    def warn_once(self, about: KubeObject, problem: str) -> bool:
        """Report once which part of an object is ignored, and why; return whether it is new."""
        if len(self._ignored) >= _MOST_IGNORED:
            self._ignored.clear()
        problem = shortened(problem)
        known = self._ignored.setdefault(_identity(about), set())
        if problem in known:
            return False
        if len(known) >= _MOST_PROBLEMS:
            known.clear()
        known.add(problem)
        self.warn(about, problem)
        return True

    def warn(self, about: KubeObject, problem: str) -> None:
        """Report a problem of an object, which may have been deleted."""
        if self._enabled:
            kind, reason, action = INVALID
            event_kind = (kind, f"{reason}{about.KIND}", action)
            self._cluster.report([self._event(about, COMPONENT, event_kind, shortened(problem))])

    def write_validity(self, about: ValidatedObject, problem: str) -> None:
        """Write the condition about the validity of an object; none if it always was valid."""
        known = find_condition(about.status.conditions, VALID)
        status: Literal["True", "False"] = "False" if problem else "True"
        text = shortened(problem)
        if not self._enabled or (known is None and not problem):
            return
        key, verdict = _identity(about), (status, text)
        if self._judged.get(key) == verdict or (known and (known.status, known.message) == verdict):
            return
        self._judged[key] = verdict
        since = known.last_transition_time if known and known.status == status else None
        condition = StandardCondition(
            type=VALID,
            status=status,
            reason=f"{INVALID[1]}{about.KIND}" if problem else VALID,
            message=text,
            last_transition_time=since or to_datetime(self._clock.now_s()),
            observed_generation=about.metadata.generation,
        )
        others = (one for one in about.status.conditions if one is not known)
        judged = replace(about.status, conditions=(*others, condition))
        patch, meta = merge_patch(about, replace(about, status=judged)), about.metadata
        part = "status" if has_status_subresource(type(about)) else ""
        self._cluster.report(
            [ObjectPatch(type(about), meta.namespace, meta.name, patch, meta.uid, part)]
        )

    def write_nominated_node(self, pod: Pod, node: str) -> None:
        """Write ``status.nominatedNodeName``; empty clears it.

        Of a reservation only the scheduler knows.
        """
        if is_reserve_pod(pod.metadata):
            return
        meta = pod.metadata
        self._cluster.report([PodReport(meta.namespace, meta.name, meta.uid, nominated_node=node)])

    def write_disruption_target(
        self, victim: Pod, by: Pod, job: str, group: KubeObject | None = None
    ) -> None:
        """Report to a victim why it is evicted; ``job`` is the pod ``by`` or its gang.

        ``group`` is the PodGroup or CompositePodGroup of scheduling.k8s.io that preempts.  Written
        even where reports are disabled, because nothing else in the cluster shows why the pod was
        deleted.
        """
        why = f"{by.spec.scheduler_name}: preempting to accommodate "
        if group is not None:
            why += f"a higher priority {group.KIND.lower()}"
        elif job == f"pod {by.key}":
            why += "a higher priority pod"
        else:
            why += f"higher priority pods, preemptor: {job}, triggerPod: {by.key}"
        condition = Condition(
            type=DISRUPTION_TARGET,
            status="True",
            reason=PREEMPTED,
            message=why,
            observed_generation=victim.metadata.generation,
            last_transition_time=to_datetime(self._clock.now_s()),
        )
        self._report(victim, condition)

    def report_preemption(
        self,
        victim: Pod,
        by: Pod,
        job: str,
        node: str,
        group: KubeObject | None = None,
        *,
        suffix: str = "",
    ) -> None:
        """Report the preemptor to a victim; ``suffix`` ends the text."""
        if not self._enabled:
            return
        text = f"Preempted by pod {by.metadata.uid} on node {node}"
        if group is not None:
            text = f"Preempted by {group.KIND.lower()} {group.metadata.uid} on node cluster"
        elif job != f"pod {by.key}":
            text += f" for {job}"
        scheduler = by.spec.scheduler_name
        event = self._event(victim, scheduler, DISPLACED, text + suffix)
        self._cluster.report([replace(event, related=reference_to(group or by))])

    def _report(self, pod: Pod, condition: Condition) -> None:
        meta = pod.metadata
        self._cluster.report([PodReport(meta.namespace, meta.name, meta.uid, condition=condition)])

    def _report_failure(
        self, pod: Pod, message: str, event_kind: tuple[str, str, str] | None = None
    ) -> None:
        """Write an event about a failure, or count it in the series of the same ones."""
        now_s, uid = self._clock.now_s(), pod.metadata.uid
        if event_kind is not None:
            uid += event_kind[1]  # a series of its own
        record = self._reported.get(uid)
        if record is None or record.event.note != message or now_s > record.last_s + SERIES_S:
            scheduler = pod.spec.scheduler_name
            event = self._event(pod, scheduler, event_kind or FAILED, message)
            self._remember(uid, _Reported(event, 1, now_s, now_s))
            self._cluster.report([event])
            return
        record.count += 1
        record.last_s = now_s
        if record.event.series is None or now_s >= record.written_s + SERIES_WRITE_S:
            record.written_s = now_s
            series = EventSeries(
                count=record.count, last_observed_time=MicroTime.fromtimestamp(now_s, UTC)
            )
            record.event = replace(record.event, series=series)
            self._cluster.report([record.event])

    def _remember(self, uid: str, record: _Reported) -> None:
        if len(self._reported) >= self._prune_at:
            over_s = record.last_s - SERIES_S
            self._reported = {
                key: old for key, old in self._reported.items() if old.last_s >= over_s
            }
            self._prune_at = max(_KEPT, 2 * len(self._reported))
        self._reported[uid] = record

    def _event(
        self, about: KubeObject, scheduler: str, event_kind: tuple[str, str, str], note: str
    ) -> Event:
        """Return an event; ``event_kind`` is its type, reason and action."""
        kind, reason, action = event_kind
        now_s = self._clock.now_s()
        self._written += 1
        regarding = _reference(about)
        name = regarding.name[:_NAME].rstrip("-.")
        return Event(
            metadata=ObjectMeta(
                name=f"{name}.{int(now_s * 1e6):x}{self._written:04x}",
                namespace=regarding.namespace or DEFAULT_NAMESPACE,
            ),
            event_time=MicroTime.fromtimestamp(now_s, UTC),
            reporting_controller=scheduler,
            reporting_instance=scheduler,
            action=action,
            reason=reason,
            regarding=regarding,
            note=note,
            type=kind,
        )


def _identity(about: KubeObject) -> str:
    return about.metadata.uid or f"{about.KIND} {about.key}"


def reservation_name_of_pod(pod: Pod) -> str:
    """Return the name of the reservation of a reserve pod; empty for other pods."""
    return reservation_name(pod.metadata) if RESERVE_POD in pod.metadata.annotations else ""


def called(pod: Pod) -> str:
    """Return the name of a pod, or of the reservation of a reserve pod."""
    return reservation_name_of_pod(pod) or pod.key


def _reference(about: KubeObject) -> ObjectReference:
    """Return the reference to an object, or to the reservation of a reserve pod."""
    if not (isinstance(about, Pod) and reservation_name_of_pod(about)):
        return reference_to(about)
    return ObjectReference(
        api_version=Reservation.API_VERSION,
        kind=Reservation.KIND,
        name=called(about),
        uid=about.metadata.uid,
    )


@dataclass(slots=True)
class _SentPatch:
    patch: JsonObject
    at_s: float


class Patches:
    """Patches that the watch has not confirmed yet, by key of the object."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster, self._clock = cluster, clock
        self._sent: dict[str, _SentPatch] = {}  # in the order of the times

    def send(self, old: KubeObject, new: KubeObject, subresource: str = "") -> bool:
        """Send a patch; return False if an equal one is in flight already.

        ``subresource``: only that is written, such as the status.
        """
        patch, now_s = merge_patch(old, new), self._clock.now_s()
        sent = self._sent.get(old.key)
        if sent is not None and sent.patch == patch and now_s < sent.at_s + AGAIN_S:
            return False
        self._sent.pop(old.key, None)
        self._sent[old.key] = _SentPatch(patch, now_s)
        meta = old.metadata
        report = ObjectPatch(
            type(old), meta.namespace, meta.name, patch, uid=meta.uid, subresource=subresource
        )
        self._cluster.report([report])
        return True

    def confirm(self, key: str) -> None:
        """Forget the change of an object that shows it, or was deleted."""
        self._sent.pop(key, None)

    def overdue(self, now_s: float) -> list[str]:
        """Return the keys of objects whose change the watch has not shown for too long."""
        late_s = now_s - AGAIN_S
        late = []
        for key, sent in self._sent.items():
            if sent.at_s > late_s:
                break
            late.append(key)
        return late

    def next_wakeup_s(self) -> float | None:
        """Return when something may have been lost."""
        first = next(iter(self._sent.values()), None)
        return None if first is None else first.at_s + AGAIN_S
