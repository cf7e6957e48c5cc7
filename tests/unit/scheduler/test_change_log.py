"""The bounded log of changed rows."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from koordinator.scheduler.snapshot.objects import ChangeLog

CAPACITY = 50

rows = st.integers(0, 9)
changes = st.lists(st.one_of(rows, st.lists(rows, max_size=3 * CAPACITY)), max_size=40)


@given(changes)
def test_reader_gets_every_change_or_a_resync(
    written: list[int | list[int]],
) -> None:
    """Arrays returned earlier do not change."""
    log, every = ChangeLog(CAPACITY), list[int]()
    reads: list[tuple[np.ndarray, list[int]]] = []
    for each in written:
        if isinstance(each, int):
            log.append(each)
            every.append(each)
        else:
            log.extend(np.array(each, np.int64))
            every += each
        position = max(0, len(every) - CAPACITY // 2)
        since = log.since(position)
        if since is not None:
            reads.append((since, every[position:]))
        assert log.since(log.position) is not None
        assert log.position == len(every)
    for rows, expected in reads:
        assert rows.tolist() == expected
    for row in set(every):
        assert row not in every[log.last(row) :]
        assert log.last(row) <= len(every)


def test_newest_half_is_available() -> None:
    """Changes are added one by one, far beyond the capacity."""
    log = ChangeLog(CAPACITY)
    for row in range(10 * CAPACITY):
        log.append(row)
        known = log.since(max(0, log.position - CAPACITY))
        assert known is not None
        assert known[-1] == row
