"""Sums of pods over topology domains, for the nodes of a cluster.

``domains`` ``(n,)`` are the indices of the label values of nodes, -1 for a node without the label,
and ``number`` is the number of values.  ``counts`` ``(n,)`` are pods by node.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from koordinator.foundation.arrays import BoolArray, IntArray, Kernel

DomainIds = npt.NDArray[np.int32]


def _domain_sums(
    domains: DomainIds, number: int, counts: IntArray, counted: BoolArray
) -> tuple[IntArray, BoolArray]:
    inside = counted & (domains >= 0)
    own_domains = domains[inside]
    sums = np.bincount(own_domains, counts[inside], number + 1).astype(np.int64)
    present = np.zeros(number + 1, np.bool_)
    present[own_domains] = True
    return sums, present


def _domain_sums_loop(
    domains: DomainIds, number: int, counts: IntArray, counted: BoolArray
) -> tuple[IntArray, BoolArray]:
    sums, present = np.zeros(number + 1, np.int64), np.zeros(number + 1, np.bool_)
    for node in range(len(domains)):
        domain = domains[node]
        if counted[node] and domain >= 0:
            sums[domain] += counts[node]
            present[domain] = True
    return sums, present


def _crowding(  # noqa: PLR0917 (numba takes no keywords)
    domains: DomainIds,
    number: int,
    counts: IntArray,
    counted: BoolArray,
    feasible: IntArray,
    considered: BoolArray,
) -> tuple[IntArray, int]:
    feasible_domains = domains[feasible]
    used = np.zeros(number + 1, np.bool_)
    used[feasible_domains[considered]] = True
    return _domain_sums(domains, number, counts, counted)[0][feasible_domains], int(
        np.count_nonzero(used)
    )


def _crowding_loop(  # noqa: PLR0917 (numba takes no keywords)
    domains: DomainIds,
    number: int,
    counts: IntArray,
    counted: BoolArray,
    feasible: IntArray,
    considered: BoolArray,
) -> tuple[IntArray, int]:
    sums, used = np.zeros(number + 1, np.int64), np.zeros(number + 1, np.bool_)
    for node in range(len(domains)):
        if counted[node] and domains[node] >= 0:
            sums[domains[node]] += counts[node]
    crowds, size = np.zeros(len(feasible), np.int64), 0
    for place in range(len(feasible)):
        domain = domains[feasible[place]]
        if domain < 0:
            domain = number
        crowds[place] = sums[domain]
        if considered[place] and not used[domain]:
            used[domain] = True
            size += 1
    return crowds, size


def _around(domains: DomainIds, number: int, counts: IntArray) -> IntArray:
    inside = domains >= 0
    sums = np.bincount(domains[inside], counts[inside], number + 1).astype(np.int64)
    around: IntArray = sums[domains]
    return around


def _around_loop(domains: DomainIds, number: int, counts: IntArray) -> IntArray:
    sums = np.zeros(number + 1, np.int64)
    for node in range(len(domains)):
        if domains[node] >= 0:
            sums[domains[node]] += counts[node]
    around = np.zeros(len(domains), np.int64)
    for node in range(len(domains)):
        if domains[node] >= 0:
            around[node] = sums[domains[node]]
    return around


def _ids(types: Any) -> Any:
    return types.Array(types.int32, 1, "C", readonly=True)


def _counts(types: Any) -> Any:
    return types.Array(types.int64, 1, "C", readonly=True)


def _mask(types: Any) -> Any:
    return types.Array(types.boolean, 1, "C", readonly=True)


#: Pods by domain on the counted nodes, ``(number + 1,)``, and whether one of these is there.  The
#: last entries, which index -1 reads, are 0 and False.
domain_sums = Kernel(
    _domain_sums,
    _domain_sums_loop,
    lambda t: (_ids(t), t.int64, _counts(t), _mask(t)),
)
#: Pods on the counted nodes in the domain of each feasible node, ``(k,)``, and the number of
#: domains of those that are ``considered``, ``(k,)``.  Nodes without the label make up one domain.
crowding = Kernel(
    _crowding,
    _crowding_loop,
    lambda t: (_ids(t), t.int64, _counts(t), _mask(t), _counts(t), _mask(t)),
)
#: ``(n,)``: the pods in the domain of each node; 0 where the node has none.
pods_around = Kernel(_around, _around_loop, lambda t: (_ids(t), t.int64, _counts(t)))
