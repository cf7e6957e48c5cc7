"""Order of arrivals of the published experiments, drawn from their seeds as in Go's ``math/rand``.

The generator is a lagged Fibonacci generator, y[k] = y[k-607] + y[k-273] modulo 2**64, whose state
a small generator fills from the seed, combined with the state that the same generator has after
7.8e12 steps from seed 1.  That state is computed here, as the power of a polynomial, not listed.

Source: kubernetes-scheduler-simulator pkg/simulator/core.go ``Simulate``; simulator.go
``SortClusterPods``, ``TunePodsByNodeTotalResource``, ``tuneUpPods``, ``tuneDownPods``,
``syncClusterResourceList``; Go src/math/rand: rng.go ``Seed``, ``Uint64``, gen_cooked.go; rand.go
``Shuffle``, ``int31n``, ``Int31n``, ``Perm``.
"""

from collections.abc import Iterator, MutableSequence, Sequence
from functools import cache
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

_LENGTH: Final = 607
_TAP: Final = 273
_MODULUS: Final = (1 << 31) - 1
_FACTOR: Final = 48271
_ZERO_SEED: Final = 89482311  # replaces a seed of 0
_SKIPPED: Final = 20  # numbers of the small generator before the first one that counts
_STEPS: Final = 7_800_000_000_000
_MASK_63: Final = (1 << 63) - 1
_MASK_64: Final = (1 << 64) - 1
_MASK_32: Final = (1 << 32) - 1

_Words = npt.NDArray[np.uint64]

#: GPU demand of all arrivals as a multiple of the cluster, in the published experiments.
PUBLISHED_RATIO: Final = 1.3

#: Numbers that the start of the scheduler takes between the pods and the nodes: as many in each of
#: the 58 published runs that this was compared with.
_TAKEN_AT_START: Final = 10


class GoRandom:
    """Random number source with the results of the Go methods of the same names."""

    def __init__(self, seed: int) -> None:
        filled = _filled(seed, (40, 20, 0))
        self._state = [word ^ other for word, other in zip(filled, _cooked(), strict=True)]
        self._tap, self._feed = 0, _LENGTH - _TAP

    def int63(self) -> int:
        """Return a number below 2**63."""
        self._tap = (self._tap - 1) % _LENGTH
        self._feed = (self._feed - 1) % _LENGTH
        number = (self._state[self._feed] + self._state[self._tap]) & _MASK_64
        self._state[self._feed] = number
        return number & _MASK_63

    def intn(self, bound: int) -> int:
        """Return a number below the bound, which is at most 2**31."""
        if bound & (bound - 1) == 0:
            return (self.int63() >> 32) & (bound - 1)
        most = (1 << 31) - 1 - (1 << 31) % bound
        number = self.int63() >> 32
        while number > most:
            number = self.int63() >> 32
        return number % bound

    def permutation(self, count: int) -> list[int]:
        """Return the numbers below ``count`` in some order, as ``Perm``."""
        order = [0] * count
        for index in range(count):
            other = self.intn(index + 1)
            order[index] = order[other]
            order[other] = index
        return order

    def shuffle(self, items: MutableSequence[Any]) -> None:
        """Put the items into some order, as ``Shuffle`` with an exchange."""
        for index in range(len(items) - 1, 0, -1):
            other = self._below(index + 1)
            items[index], items[other] = items[other], items[index]

    def _below(self, bound: int) -> int:
        product = (self.int63() >> 31) * bound
        if product & _MASK_32 < bound:
            least = (-bound & _MASK_32) % bound
            while product & _MASK_32 < least:
                product = (self.int63() >> 31) * bound
        return product >> 32


def _filled(seed: int, shifts: tuple[int, int, int]) -> list[int]:
    """Return the state that a seed fills: three numbers of the small generator to a word."""
    numbers = _small(seed)
    for _ in range(_SKIPPED):
        next(numbers)
    words = []
    for _ in range(_LENGTH):
        word = 0
        for shift in shifts:
            word ^= next(numbers) << shift
        words.append(word & _MASK_64)
    return words


def _small(seed: int) -> Iterator[int]:
    number = seed % _MODULUS or _ZERO_SEED
    while True:
        number = number * _FACTOR % _MODULUS
        yield number


@cache
def _cooked() -> tuple[int, ...]:
    """Return the state after the steps from seed 1, slot by slot."""
    first = _filled(1, (20, 10, 0))
    slots = [(_LENGTH - _TAP - 1 - step) % _LENGTH for step in range(_LENGTH)]
    sequence = [first[slot] for slot in slots]
    for index in range(_LENGTH, 2 * _LENGTH):
        sequence.append((sequence[index - _LENGTH] + sequence[index - _TAP]) & _MASK_64)
    known = np.array(sequence, np.uint64)
    power = _power(_STEPS)
    words = [0] * _LENGTH
    for offset in range(_LENGTH):
        value = int((power * known[offset : offset + _LENGTH]).sum(dtype=np.uint64))
        # Word ``offset`` after the steps was written in step ``_STEPS - _LENGTH + offset``.
        words[(_LENGTH - _TAP - 1 - (_STEPS - _LENGTH + offset)) % _LENGTH] = value
    return tuple(words)


def _power(exponent: int) -> _Words:
    """Return x**exponent modulo x**607 - x**334 - 1, coefficients modulo 2**64, constant first."""
    power = np.zeros(_LENGTH, np.uint64)
    power[0] = 1
    for bit in f"{exponent:b}":
        power = _reduced(_product(power, power))
        if bit == "1":
            power = _reduced(np.concatenate([np.zeros(1, np.uint64), power]))
    return power


def _product(one: _Words, other: _Words) -> _Words:
    total = np.zeros(len(one) + len(other) - 1, np.uint64)
    for index, factor in enumerate(one):
        if factor:
            total[index : index + len(other)] += factor * other
    return total


def _reduced(words: _Words) -> _Words:
    words = words.copy()
    stop = len(words)
    while stop > _LENGTH:
        start = max(stop - _TAP, _LENGTH)  # so many at a time do not change one another
        words[start - _LENGTH : stop - _LENGTH] += words[start:stop]
        words[start - _TAP : stop - _TAP] += words[start:stop]
        stop = start
    return words[:_LENGTH]


class PublishedOrder(msgspec.Struct):
    """Order of arrivals, and winners of ties: positions in the lists sorted by name."""

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
