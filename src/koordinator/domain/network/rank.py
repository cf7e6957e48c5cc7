"""The order of the members of a job: neighbours in it become neighbours in the network.

Source: koordinator apis/extension/network_topology.go (the index).  Different here: the index
counts to the end (upstream sorts by name again), and without one w-2 comes before w-10.
"""

import re

from koordinator.api.annotations.gang import network_topology_index
from koordinator.api.meta import ObjectMeta

_LAST = 1 << 31  # above every index
_NUMBERS = re.compile(r"(\d+)")

RankKey = tuple[int, tuple[tuple[int, str], ...], str]


def rank_key(meta: ObjectMeta) -> RankKey:
    """Return what members of a gang are sorted by: index, then name with numbers as numbers."""
    index = network_topology_index(meta)
    parts = tuple(
        (int(part), "") if part.isdecimal() else (-1, part) for part in _NUMBERS.split(meta.name)
    )
    return (_LAST if index is None else index, parts, meta.namespace)
