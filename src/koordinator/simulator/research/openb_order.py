"""The order of arrivals of the published experiments, drawn from their seeds.

Source: kubernetes-scheduler-simulator pkg/simulator/core.go ``Simulate``; simulator.go
``SortClusterPods``, ``TunePodsByNodeTotalResource``, ``tuneUpPods``, ``tuneDownPods``,
``syncClusterResourceList``.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from koordinator.simulator.research.go_random import GoRandom

#: GPU demand of all arrivals as a multiple of the cluster, in the published experiments.
PUBLISHED_RATIO: Final = 1.3

#: Numbers that the start of the scheduler takes between the pods and the nodes: as many in each of
#: the 58 published runs that this was compared with.
_TAKEN_AT_START: Final = 10


class PublishedOrder(msgspec.Struct):
    """Who arrives when, and which node wins a tie: positions in the lists sorted by name."""

    order: list[int]
    rank: list[int]


def published_order(
    gpu_milli: Sequence[int],
    milli_of_one: Sequence[int],
    cluster_gpu_milli: int,
    nodes: int,
    seed: int,
) -> PublishedOrder:
    """Return the order of a seed.

    ``gpu_milli`` is each pod's total request, ``milli_of_one`` its request per GPU.  Every pod
    arrives once, shuffled.  Then pods are drawn until one would exceed the published ratio, or
    removed at random until the ratio is met.
    """
    random, most = GoRandom(seed), PUBLISHED_RATIO * cluster_gpu_milli
    order = _shuffled(random, len(gpu_milli))
    total = sum(gpu_milli)
    if total > most:
        while total > most:
            total -= gpu_milli[order.pop(random.intn(len(order)))]
    elif total < most and any(gpu_milli):
        while True:
            pod = random.intn(len(gpu_milli))
            if total + milli_of_one[pod] > most:  # it counts one GPU of several, too
                break
            total += gpu_milli[pod]
            order.append(pod)
    for _ in range(_TAKEN_AT_START):
        random.int63()
    return PublishedOrder(order, random.permutation(nodes))


def order_of_all(pods: int, seed: int) -> list[int]:
    """Return the order of a seed before the published ratio is reached: every pod arrives once."""
    return _shuffled(GoRandom(seed), pods)


def _shuffled(random: GoRandom, pods: int) -> list[int]:
    random.int63()  # which a line of the log takes
    order = list(range(pods))
    random.shuffle(order)
    return order
