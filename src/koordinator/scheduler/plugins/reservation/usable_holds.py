"""Holds that the pods of a class may use, kept current from the log of holds."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from koordinator.api.meta import ObjectMeta
from koordinator.foundation.errors import InputError
from koordinator.scheduler.contract import Refusal
from koordinator.scheduler.rules.reservations.match import (
    TAKEN,
    MatchResult,
    ReservationRequester,
    read_reservation_selector,
)
from koordinator.scheduler.rules.reservations.offer import OwnerCandidate
from koordinator.scheduler.snapshot import Hold, PodClass, RestorableHolds, Snapshot
from koordinator.scheduler.snapshot.selection import matches_required


def read_requester(
    snapshot: Snapshot, pod: PodClass, *, is_strict: bool = False, may_ignore: bool = True
) -> ReservationRequester | Refusal:
    """Return the requester view of a pod, or a refusal for malformed annotations.

    ``is_strict`` limits reservations to the namespaces that they list.  ``may_ignore`` respects the
    label by which a pod ignores reservations.
    """
    meta = ObjectMeta(labels=dict(pod.labels), annotations=dict(pod.annotations))
    try:
        selector = read_reservation_selector(meta)
    except InputError as error:
        return Refusal(str(error))
    if not may_ignore:
        selector = replace(selector, ignores=False)
    names = snapshot.resources
    owner_candidate = OwnerCandidate(
        pod.namespace, pod.labels, pod.owner_references, pod.name, pod.uid
    )
    requests = {names[column]: amount for column, amount in pod.demand}
    return ReservationRequester(
        owner_candidate, selector, requests, is_strict, pod.spec.tolerations
    )


@dataclass(slots=True, eq=False)
class UsableHolds:
    """Usable holds of one class of pods, for one plugin."""

    requester: ReservationRequester
    omits_node_labels: bool  # affinity terms match labels of reservations only
    restorable: RestorableHolds = field(default_factory=RestorableHolds)
    nodes: frozenset[str] | None = None  # nodes with usable holds; None: not yet collected
    _position: int = -1  # in the log of holds
    _node_version: Hashable = None

    def refresh(self, snapshot: Snapshot, pod: PodClass) -> RestorableHolds | None:
        """Apply the changes; return the usable holds, None without any."""
        table, version = snapshot.holds, snapshot.node_version
        if self._position == table.log.position and self._node_version == version:
            return self.restorable if len(self.restorable) else None
        slots = table.log.since(self._position) if self._position >= 0 else None
        if slots is None or self._node_version != version:
            self.restorable = RestorableHolds()
            for hold in self._candidates(snapshot):
                self._add_usable(snapshot, pod, hold)
        else:
            for slot in dict.fromkeys(slots.tolist()):
                self.restorable.discard(slot)
                hold = table.slots[slot]
                if hold is not None:
                    self._add_usable(snapshot, pod, hold)
        self.nodes = None
        self._position, self._node_version = table.log.position, version
        return self.restorable if len(self.restorable) else None

    def _add_usable(self, snapshot: Snapshot, pod: PodClass, hold: Hold) -> None:
        if hold.is_usable and self.verdict(snapshot, pod, hold) in TAKEN:
            self.restorable.add(hold)

    def verdict(self, snapshot: Snapshot, pod: PodClass, hold: Hold) -> MatchResult:
        """Return whether such pods may use a hold; on nodes they do not select they own none."""
        verdict = self.requester.of(hold.offer, self._labels_at(snapshot, hold.row))
        if verdict is MatchResult.NOT_OWNER or matches_required(snapshot.cluster, pod)[hold.row]:
            return verdict
        return MatchResult.NOT_OWNER

    def _candidates(self, snapshot: Snapshot) -> Iterable[Hold]:
        if self.requester.selector.ignores:
            return snapshot.holds
        return snapshot.holds.candidates(self.requester.owner_candidate)

    def _labels_at(self, snapshot: Snapshot, row: int) -> Mapping[str, str]:
        affinity = self.requester.selector.affinity
        if affinity is None or affinity.name or self.omits_node_labels:
            return {}
        return snapshot.node_labels(row)

    def verdicts(self, snapshot: Snapshot, pod: PodClass) -> Counter[tuple[int, MatchResult, str]]:
        """Count verdicts of usable holds by row; taint verdicts also by taint."""
        found: Counter[tuple[int, MatchResult, str]] = Counter()
        for hold in self._candidates(snapshot):
            if not hold.is_usable:
                continue
            verdict, taint = self.verdict(snapshot, pod, hold), ""
            if verdict is MatchResult.TAINTED:
                taint_in_the_way = self.requester.untolerated(hold.offer)
                taint = (
                    f"{{{taint_in_the_way.key}: {taint_in_the_way.value}}}"
                    if taint_in_the_way
                    else ""
                )
            found[hold.row, verdict, taint] += 1
        return found
