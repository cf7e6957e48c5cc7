"""What a failed attempt says of reservations, in a message of its own.

Source: koordinator pkg/scheduler/frameworkext/eventhandlers/reservation_handler.go,
``generatePodEventOnReservationLevel``.
"""

import re
from typing import Final

_HEAD: Final = re.compile(r"^0/\d+ nodes are available: ")
_ITEM: Final = re.compile(r"^\d+ Reservation\(s\) ")
_TOTAL: Final = re.compile(r"^(\d+) Reservation\(s\) matched owner total$")
_FIRST: Final = "exactly matches the requested reservation name"
_LAST: Final = "for node reason that"


def reservation_message(message: str) -> str:
    """Return the part of a pod's message about reservations; empty if it owns none.

    Named ones come first, reasons of nodes last.
    """
    items = [
        item.strip().rstrip(".")
        for item in _HEAD.sub("", message).replace(". ", ", ").split(",")
        if _ITEM.match(item.strip())
    ]
    totals = [found.group(1) for item in items if (found := _TOTAL.match(item))]
    if not totals:
        return ""
    left = [item for item in items if not _TOTAL.match(item)]
    left.sort(key=lambda item: (_LAST in item) - (_FIRST in item))
    return f"0/{totals[0]} reservations are available: {', '.join(left)}."
