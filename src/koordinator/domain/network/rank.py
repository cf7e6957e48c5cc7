"""The order of the members of a job: neighbours in it become neighbours in the network.

Source: koordinator apis/extension/network_topology.go (the index).  Different here: the index
counts to the end (upstream sorts by name again), and without one w-2 comes before w-10.
"""

import re

from koordinator.api.annotations.gang import network_topology_index
from koordinator.api.meta import ObjectMeta

_LAST = 1 << 31  # above every index
_NUMBERS = re.compile(r"(\d+)")

#: index; text and numbers of the name in turn; namespace
RankKey = tuple[int, tuple[str | int, ...], str]


def rank_key(meta: ObjectMeta) -> RankKey:
    """Return what members of a gang are sorted by: index, then name with numbers as numbers."""
    index = network_topology_index(meta)
    parts: list[str | int] = [*_NUMBERS.split(meta.name)]
    parts[1::2] = map(int, parts[1::2])
    return (_LAST if index is None else index, tuple(parts), meta.namespace)
