"""Reasons of reservations for a pod that fits nowhere.

Source: koordinator pkg/scheduler/plugins/reservation/plugin.go, ``makePostFilterReasons``.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from koordinator.scheduler.rules.reservations.match import PREFIX, MatchResult

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
            which = ", ".join(taints)
            parts.append(f"{count} {text} ({which})" if which else f"{count} {text}")
    has = f"it is the owner of {total} reservation{'' if total == 1 else 's'}"
    return f"{has}: {', '.join(parts)}" if parts else has


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
    found: Counter[str] = Counter()
    for row, count in matched.items():
        reasons = reasons_at(row)
        of_node = [reason for reason in reasons if not reason.startswith(PREFIX)]
        left = count - (len(reasons) - len(of_node))
        for reason in of_node if left > 0 else ():
            found[reason] += left
    return found
