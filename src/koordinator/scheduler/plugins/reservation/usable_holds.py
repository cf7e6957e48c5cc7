"""Reservations that a pod may use: summary, choice and placement.

Source: koordinator pkg/scheduler/plugins/reservation/plugin.go, ``Filter``; koordinator
pkg/scheduler/plugins/reservation/plugin.go, ``makePostFilterReasons``.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Final

import numpy as np

from koordinator.api.annotations.reservation import RESERVATION_NODE, RESERVE_POD
from koordinator.api.meta import ObjectMeta
from koordinator.domain.node_selection import taint_text
from koordinator.domain.reserve_pod import is_for_others
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.text import pluralized
from koordinator.scheduler.contract import Refusal, Rejections
from koordinator.scheduler.diagnosis import reasons_of
from koordinator.scheduler.rules.reservations.match import (
    PREFIX,
    TAKEN,
    MatchResult,
    ReservationRequester,
    read_reservation_selector,
)
from koordinator.scheduler.rules.reservations.offer import AllocatePolicy, OwnerCandidate
from koordinator.scheduler.snapshot import Hold, PodClass, RestorableHolds, Snapshot
from koordinator.scheduler.snapshot.selection import matches_required

OTHER_NODE: Final = "node(s) didn't match the nodeName specified by reservation"
POLICY_CONFLICT: Final = "node(s) reservation allocate policy conflict"
REASONS: Final = (OTHER_NODE, POLICY_CONFLICT)

_ORIGINAL_TEXTS: Final = (
    (MatchResult.NAME_MATCHED, "exactly matches the requested reservation name"),
    (MatchResult.OTHER_NAME, "didn't match the requested reservation name"),
    (MatchResult.OTHER_AFFINITY, "didn't match affinity rules"),
    (MatchResult.UNSCHEDULABLE, "is unschedulable"),
    (MatchResult.NOT_EXACT, "is not exact matched"),
)
_REFUSING: Final = (
    MatchResult.OTHER_NAME,
    MatchResult.OTHER_AFFINITY,
    MatchResult.UNSCHEDULABLE,
    MatchResult.NOT_EXACT,
    MatchResult.TAINTED,
)
_NO_OWNER: Final = (MatchResult.NOT_OWNER, MatchResult.IGNORED)

_IN_WORDS: Final = (
    (MatchResult.OTHER_NAME, "of another name"),
    (MatchResult.OTHER_AFFINITY, "not selected by its reservation affinity"),
    (MatchResult.UNSCHEDULABLE, "unschedulable"),
    (MatchResult.NOT_EXACT, "without exactly the requested amounts"),
    (MatchResult.TAINTED, "with a taint that it does not tolerate"),
)

#: Reasons for which a pod may not use a reservation that it owns; the reservation is the subject.
_UNUSABLE: Final = {
    MatchResult.OTHER_NAME: "its reservation affinity names another one",
    MatchResult.OTHER_AFFINITY: "its reservation affinity does not select it",
    MatchResult.UNSCHEDULABLE: "it is unschedulable",
    MatchResult.NOT_EXACT: "the pod must match its amounts exactly",
}


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

    def owned(self, snapshot: Snapshot) -> list[Hold]:
        """Return the available reservations that the pod may own."""
        return [hold for hold in self._candidates(snapshot) if hold.is_usable]

    def verdicts(self, snapshot: Snapshot, pod: PodClass) -> Counter[tuple[int, MatchResult, str]]:
        """Count verdicts of usable holds by row; taint verdicts also by taint."""
        counts: Counter[tuple[int, MatchResult, str]] = Counter()
        for hold in self.owned(snapshot):
            verdict, taint = self.verdict(snapshot, pod, hold), ""
            if verdict is MatchResult.TAINTED:
                taint_in_the_way = self.requester.untolerated(hold.offer)
                taint = (
                    f"{{{taint_in_the_way.key}: {taint_in_the_way.value}}}"
                    if taint_in_the_way
                    else ""
                )
            counts[hold.row, verdict, taint] += 1
        return counts


def placing(snapshot: Snapshot, pod: PodClass, policy: AllocatePolicy) -> Rejections:
    """Reject nodes other than the named one, and nodes with an incompatible allocate policy."""
    n = len(snapshot)
    on_other_node, conflict = np.zeros(n, bool), np.zeros(n, bool)
    named = pod.annotations.get(RESERVATION_NODE)
    if named and RESERVE_POD in pod.annotations:
        on_other_node = np.array([name != named for name in snapshot.node_names], bool)
    is_plain = policy is AllocatePolicy.DEFAULT
    on_row = snapshot.holds.on_row
    for place, row in enumerate(snapshot.row_numbers.tolist()) if on_row else ():
        holds = on_row.get(row)
        if holds:
            conflict[place] = any(
                (hold.offer.policy is AllocatePolicy.DEFAULT) is not is_plain
                for hold in holds.values()
                if hold.is_usable
            )
    return Rejections.by_column((on_other_node, conflict), REASONS, on_other_node | conflict)


def reserves(pod: PodClass) -> bool:
    """Return whether such a pod reserves its requests for other pods."""
    return RESERVE_POD in pod.annotations or is_for_others(pod.labels)


def together(first: Rejections, then: Rejections) -> Rejections:
    """Return the combined rejections; the first takes precedence on a node."""
    shift = len(first.reasons)
    codes = np.where(first.codes > 0, first.codes, then.codes << shift)

    def explain(place: int) -> Sequence[str]:
        return reasons_of(first if first.codes[place] else then, place)

    unresolvable = np.where(first.codes > 0, first.unresolvable, then.unresolvable)
    return Rejections(codes, (*first.reasons, *then.reasons), unresolvable, explain)


def in_words(verdicts: Counter[tuple[int, MatchResult, str]]) -> str:
    """Return why the reservations that a pod owns do not match."""
    owned = {key: n for key, n in verdicts.items() if key[1] not in _NO_OWNER}
    total = sum(owned.values())
    if not total:
        return "it is the owner of no reservation"
    parts = []
    for wanted, text in _IN_WORDS:
        count = sum(n for (_, verdict, _), n in owned.items() if verdict is wanted)
        taints = sorted({taint for _, verdict, taint in owned if verdict is wanted and taint})
        if count:
            taint_list = ", ".join(taints)
            parts.append(f"{count} {text} ({taint_list})" if taint_list else f"{count} {text}")
    has = f"it is the owner of {pluralized(total, 'reservation')}"
    return f"{has}: {', '.join(parts)}" if parts else has


def unusable(usable: UsableHolds, snapshot: Snapshot, pod: PodClass) -> dict[str, str]:
    """Return why a pod may not use the reservations that it owns, by name."""
    reasons = {}
    for hold in usable.owned(snapshot):
        verdict = usable.verdict(snapshot, pod, hold)
        if verdict is MatchResult.TAINTED:
            taint = usable.requester.untolerated(hold.offer)
            reasons[hold.offer.name] = (
                f"it has the taint {taint_text(taint)}" if taint is not None else "it is tainted"
            )
        elif verdict in _UNUSABLE:
            reasons[hold.offer.name] = _UNUSABLE[verdict]
    return reasons


def summary(
    verdicts: Counter[tuple[int, MatchResult, str]],
    reasons_at: Callable[[int], Sequence[str]],
    *,
    required: bool,
) -> list[str]:
    """Return the lines of the original; none if the pod owns and needs no reservation.

    ``reasons_at`` returns the reasons for which a row was rejected.
    """
    totals: Counter[MatchResult] = Counter()
    taints: Counter[str] = Counter()
    owned: Counter[int] = Counter()  # by row
    matched: Counter[int] = Counter()
    for (row, verdict, taint), count in verdicts.items():
        if verdict in _NO_OWNER:
            continue
        totals[verdict] += count
        owned[row] += count
        if verdict is MatchResult.TAINTED:
            taints[taint] += count
        if verdict not in _REFUSING:
            matched[row] += count
    total = sum(owned.values())
    if not total and not required:
        return []
    lines = [f"{totals[v]} {PREFIX}{text}" for v, text in _ORIGINAL_TEXTS if totals[v]]
    lines += [f"{n} {PREFIX}had untolerated taint {taint}" for taint, n in sorted(taints.items())]
    by_node = _by_node(matched, reasons_at)
    lines += [f"{n} {PREFIX}for node reason that {text}" for text, n in sorted(by_node.items())]
    return [*lines, f"{total} {PREFIX}matched owner total"]


def _by_node(matched: Counter[int], reasons_at: Callable[[int], Sequence[str]]) -> Counter[str]:
    """Count the node reasons that exclude the pod from matched reservations."""
    counts: Counter[str] = Counter()
    for row, count in matched.items():
        reasons = reasons_at(row)
        of_node = [reason for reason in reasons if not reason.startswith(PREFIX)]
        left = count - (len(reasons) - len(of_node))
        for reason in of_node if left > 0 else ():
            counts[reason] += left
    return counts
