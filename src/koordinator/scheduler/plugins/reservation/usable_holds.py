"""Which holds the pods of a class may use, kept up to date from the log of holds."""

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
from koordinator.scheduler.rules.reservations.owners import OwnerCandidate
from koordinator.scheduler.snapshot import Hold, PodClass, RestorableHolds, Snapshot
from koordinator.scheduler.snapshot.selection import matches_required


def read_asking(
    snapshot: Snapshot, pod: PodClass, *, is_strict: bool = False, may_ignore: bool = True
) -> ReservationRequester | Refusal:
    """Return the pod as reservations see it; a refusal: what it says can't be read.

    ``is_strict``: reservations are for the namespaces that they name.  ``may_ignore``: the label by
    which a pod ignores reservations counts.
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
    """What is known of one class of pods, for one plugin."""

    asking: ReservationRequester
    omits_node_labels: bool  # terms look at the labels of reservations only
    restorable: RestorableHolds = field(default_factory=RestorableHolds)
    nodes: frozenset[str] | None = None  # the nodes with restorable holds; None: to be found out
    _position: int = -1  # in the log of holds
    _node_version: Hashable = None

    def refresh(self, snapshot: Snapshot, pod: PodClass) -> RestorableHolds | None:
        """Take in what has changed; return the restorable holds, None if there are none."""
        table, version = snapshot.holds, snapshot.node_version
        if self._position == table.log.position and self._node_version == version:
            return self.restorable if len(self.restorable) else None
        slots = table.log.since(self._position) if self._position >= 0 else None
        if slots is None or self._node_version != version:
            self.restorable = RestorableHolds()
            for hold in self._candidates(snapshot):
                self._take_in(snapshot, pod, hold)
        else:
            for slot in dict.fromkeys(slots.tolist()):
                self.restorable.discard(slot)
                hold = table.slots[slot]
                if hold is not None:
                    self._take_in(snapshot, pod, hold)
        self.nodes = None
        self._position, self._node_version = table.log.position, version
        return self.restorable if len(self.restorable) else None

    def _take_in(self, snapshot: Snapshot, pod: PodClass, hold: Hold) -> None:
        if hold.is_usable and self.verdict(snapshot, pod, hold) in TAKEN:
            self.restorable.add(hold)

    def verdict(self, snapshot: Snapshot, pod: PodClass, hold: Hold) -> MatchResult:
        """Return whether such pods may use a hold; where they may not run they own nothing."""
        verdict = self.asking.of(hold.offer, self._labels_at(snapshot, hold.row))
        if verdict is MatchResult.NOT_OWNER or matches_required(snapshot.cluster, pod)[hold.row]:
            return verdict
        return MatchResult.NOT_OWNER

    def _candidates(self, snapshot: Snapshot) -> Iterable[Hold]:
        if self.asking.selector.ignores:
            return snapshot.holds
        return snapshot.holds.candidates(self.asking.owner_candidate)

    def _labels_at(self, snapshot: Snapshot, row: int) -> Mapping[str, str]:
        affinity = self.asking.selector.affinity
        if affinity is None or affinity.name or self.omits_node_labels:
            return {}
        return snapshot.node_labels(row)

    def verdicts(self, snapshot: Snapshot, pod: PodClass) -> Counter[tuple[int, MatchResult, str]]:
        """Count verdicts about usable holds by row; of taints, also by the taint."""
        found: Counter[tuple[int, MatchResult, str]] = Counter()
        for hold in self._candidates(snapshot):
            if not hold.is_usable:
                continue
            verdict, taint = self.verdict(snapshot, pod, hold), ""
            if verdict is MatchResult.TAINTED:
                kept_away = self.asking.untolerated(hold.offer)
                taint = f"{{{kept_away.key}: {kept_away.value}}}" if kept_away else ""
            found[hold.row, verdict, taint] += 1
        return found
