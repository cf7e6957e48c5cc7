"""What is said of reservations to a pod that fits nowhere.

Source: koordinator pkg/scheduler/plugins/reservation/plugin.go, ``makePostFilterReasons``.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from koordinator.domain.reservations.fitting import PREFIX
from koordinator.domain.reservations.matching import Verdict

_SAID: Final = (
    (Verdict.NAME_MATCHED, "exactly matches the requested reservation name"),
    (Verdict.OTHER_NAME, "didn't match the requested reservation name"),
    (Verdict.OTHER_AFFINITY, "didn't match affinity rules"),
    (Verdict.UNSCHEDULABLE, "is unschedulable"),
    (Verdict.NOT_EXACT, "is not exact matched"),
)
_REFUSING: Final = (
    Verdict.OTHER_NAME,
    Verdict.OTHER_AFFINITY,
    Verdict.UNSCHEDULABLE,
    Verdict.NOT_EXACT,
    Verdict.TAINTED,
)
_NO_OWNER: Final = (Verdict.NOT_OWNER, Verdict.IGNORED)


def summary(
    verdicts: Counter[tuple[int, Verdict, str]],
    reasons_at: Callable[[int], Sequence[str]],
    *,
    required: bool,
) -> list[str]:
    """Return the lines; none if the pod owns no reservation and needs none.

    ``reasons_at`` are those for which a row was rejected.
    """
    totals: Counter[Verdict] = Counter()
    taints: Counter[str] = Counter()
    owned: Counter[int] = Counter()  # by row
    matched: Counter[int] = Counter()
    for (row, verdict, taint), count in verdicts.items():
        if verdict in _NO_OWNER:
            continue
        totals[verdict] += count
        owned[row] += count
        if verdict is Verdict.TAINTED:
            taints[taint] += count
        if verdict not in _REFUSING:
            matched[row] += count
    total = sum(owned.values())
    if not total and not required:
        return []
    lines = [f"{totals[v]} {PREFIX}{text}" for v, text in _SAID if totals[v]]
    lines += [f"{n} {PREFIX}had untolerated taint {taint}" for taint, n in sorted(taints.items())]
    by_node = _by_node(matched, reasons_at)
    lines += [f"{n} {PREFIX}for node reason that {text}" for text, n in sorted(by_node.items())]
    return [*lines, f"{total} {PREFIX}matched owner total"]


def _by_node(matched: Counter[int], reasons_at: Callable[[int], Sequence[str]]) -> Counter[str]:
    """Count what keeps the pod from nodes whose reservations would do."""
    found: Counter[str] = Counter()
    for row, count in matched.items():
        reasons = reasons_at(row)
        of_node = [reason for reason in reasons if not reason.startswith(PREFIX)]
        left = count - (len(reasons) - len(of_node))
        for reason in of_node if left > 0 else ():
            found[reason] += left
    return found
