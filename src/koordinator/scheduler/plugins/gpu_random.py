"""Random placement: any node that fits, and any of its GPUs that fits, with equal probability.

Source: the Random baseline of Weng et al., "Beware of Fragmentation", USENIX ATC 2023,
section 6.1.
"""

from hashlib import blake2b
from typing import Annotated, ClassVar

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from koordinator.api.kubescheduler import PluginArgs
from koordinator.foundation.arrays import IntArray
from koordinator.foundation.memo import Memo
from koordinator.scheduler.contract import PluginHints, PluginSpec, Reads
from koordinator.scheduler.snapshot import PodClass, ResourceAxis, Snapshot

#: High enough that two of some thousand nodes seldom have the highest score.
MAX_RANDOM_SCORE = 1 << 30

_Words = npt.NDArray[np.uint64]
_NODES: Memo[_Words] = Memo()

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class GpuRandomArgs(PluginArgs, frozen=True, kw_only=True):
    """Arguments; equal seeds give equal scores for the same sequence of pods."""

    seed: Annotated[int, Meta(ge=0)] = 0  # of all draws


class GpuRandom:
    """Score that is drawn for each arriving pod, from the seed and the names of the nodes."""

    reads: ClassVar = Reads.PLACED

    def __init__(self, args: GpuRandomArgs) -> None:
        self._seed_word = _mixed(_word(str(args.seed)))
        self._number = 0  # of the arriving pod
        self.hints = PluginHints(
            key=lambda _pod: None,
            version=lambda snapshot: (self._number, snapshot.node_version),
        )

    def on_arrival(self, _snapshot: Snapshot, _pod: PodClass) -> None:
        """Draw new scores."""
        self._number += 1

    def score(self, snapshot: Snapshot, _pod: PodClass) -> IntArray:
        """Return ``(n,)``, 0..MAX_RANDOM_SCORE; independent of the pods of nodes."""
        return (self._words(snapshot) % np.uint64(MAX_RANDOM_SCORE + 1)).astype(np.int64)

    def prefer_devices(self, node: Snapshot, _pod: PodClass) -> IntArray:
        """Return ``(n_minors,)``: a random order of the GPUs."""
        minors = np.arange(1, node.gpu_total.shape[1] + 1, dtype=np.uint64)
        words = _mixed(self._words(node)[0] + minors * _GOLDEN)
        return (words >> np.uint64(1)).astype(np.int64)

    def _words(self, snapshot: Snapshot) -> _Words:
        """Return a random word per row, of the node's name, the seed and the number of the pod."""
        cluster = snapshot.cluster
        of_names = _NODES.as_of(cluster.shared, cluster.node_version, _name_words, cluster)
        drawn = _mixed(np.array([self._number], np.uint64) + self._seed_word)
        return _mixed(of_names[snapshot.row_numbers] ^ drawn)


def _name_words(cluster: Snapshot) -> _Words:
    return np.array([_word(name)[0] for name in cluster.node_names], np.uint64)


def _word(text: str) -> _Words:
    return np.frombuffer(blake2b(text.encode(), digest_size=8).digest(), "<u8").astype(np.uint64)


def _mixed(words: _Words) -> _Words:
    """Return words that look independent of the given ones: the finalizer of SplitMix64."""
    with np.errstate(over="ignore"):
        words = words + _GOLDEN
        words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return words ^ (words >> np.uint64(31))


def build(args: GpuRandomArgs, _axis: ResourceAxis) -> GpuRandom:
    return GpuRandom(args)


PLUGIN = PluginSpec("GPURandom", GpuRandomArgs, build, max_score=MAX_RANDOM_SCORE)
