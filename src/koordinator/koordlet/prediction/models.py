"""Peak models: decaying histograms per pod, for the node, and per priority band.

Source: koordinator pkg/koordlet/prediction/predict_server.go, checkpoint.go; koordinator
pkg/util/histogram (from the vertical pod autoscaler): histogram.go, decaying_histogram.go,
histogram_options.go, histogram_checkpoint.go.
"""

import datetime as dt
import math
from collections.abc import Iterable, Mapping
from dataclasses import field

import msgspec
import numpy as np

from koordinator.api.qos import PriorityBand
from koordinator.foundation.clock import to_datetime, to_epoch_s
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass

EPSILON = 1e-4  # a bucket with less weight is empty
GROWTH = 1.05  # ratio of the widths of successive buckets
MAX_CHECKPOINT_WEIGHT = 10_000
_MAX_EXPONENT = 100
#: Go's zero time, the origin of half-lives.
_YEAR_ONE = dt.datetime(1, 1, 1, tzinfo=dt.UTC)
_YEAR_ONE_S = -62_135_596_800.0

NODE = "__node__"


@dataclass(frozen=True, slots=True)
class Buckets:
    """Bucket layout: ``first`` is the width of the first bucket, ``most`` the largest value."""

    first: float
    most: float
    count: int = field(init=False)  # of buckets

    def __post_init__(self) -> None:
        last = math.ceil(math.log(self.most * (GROWTH - 1) / self.first + 1, GROWTH))
        object.__setattr__(self, "count", last + 1)

    def index(self, value: float) -> int:
        """Return the bucket of a value; values out of range count in the first or last one."""
        if value < self.first:
            return 0
        index = int(math.log(value * (GROWTH - 1) / self.first + 1, GROWTH))
        return min(max(index, 0), self.count - 1)

    def start(self, index: int) -> float:
        """Return the lower bound of a bucket."""
        return self.first * (GROWTH**index - 1) / (GROWTH - 1)


CPU_BUCKETS = Buckets(first=0.025, most=1024.0)  # cores
MEMORY_BUCKETS = Buckets(first=float(5 << 20), most=float(1 << 41))  # bytes


class HistogramCheckpoint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Stored histogram; the largest weight is 10,000."""

    reference_timestamp: dt.datetime = _YEAR_ONE  # the time at which a sample has weight 1
    bucket_weights: dict[int, int] = {}
    total_weight: float = 0.0


class DecayingHistogram:
    """Histogram in which the weight of a sample halves every ``half_life_s``."""

    __slots__ = (
        "_buckets",
        "_half_life_s",
        "_highest",
        "_lowest",
        "_reference_s",
        "_total",
        "_weights",
    )

    def __init__(self, buckets: Buckets, half_life_s: float) -> None:
        self._buckets = buckets
        self._half_life_s = half_life_s
        self._weights = np.zeros(buckets.count)
        self._total = 0.0
        self._lowest, self._highest = buckets.count - 1, 0
        self._reference_s = _YEAR_ONE_S

    @property
    def is_empty(self) -> bool:
        """Whether no bucket has weight."""
        return bool(self._weights[self._lowest] < EPSILON)

    def add(self, value: float, now_s: float) -> None:
        """Add a sample of weight 1."""
        weight = self._decay(now_s)
        index = self._buckets.index(value)
        self._weights[index] += weight
        self._total += weight
        if self._weights[index] >= EPSILON:
            self._lowest = min(self._lowest, index)
            self._highest = max(self._highest, index)

    def percentile(self, share: float) -> float:
        """Return the upper bound of the bucket in which the share of the weight is reached.

        The last bucket has no upper bound: return its lower one.  Return 0 for an empty histogram.
        """
        if self.is_empty:
            return 0.0
        sums = np.cumsum(self._weights[self._lowest : self._highest])
        index = self._lowest + int(np.searchsorted(sums, share * self._total, side="left"))
        return self._buckets.start(min(index + 1, self._buckets.count - 1))

    def checkpoint(self) -> HistogramCheckpoint:
        """Return the content to store; weights near zero are omitted."""
        most = float(self._weights.max())
        if most <= 0:
            return HistogramCheckpoint(reference_timestamp=self._reference)
        scaled = np.floor(self._weights * (MAX_CHECKPOINT_WEIGHT / most) + 0.5).astype(int)
        return HistogramCheckpoint(
            reference_timestamp=self._reference,
            bucket_weights={int(index): int(scaled[index]) for index in np.flatnonzero(scaled)},
            total_weight=self._total,
        )

    def restore(self, checkpoint: HistogramCheckpoint) -> None:
        """Load a checkpoint into this empty histogram.

        Raises InputError for a checkpoint that does not fit the buckets.
        """
        total = sum(checkpoint.bucket_weights.values())
        indices = checkpoint.bucket_weights
        if any(not 0 <= index < self._buckets.count for index in indices):
            raise InputError(
                f"must be in 0..{self._buckets.count - 1}, got {max(indices)}",
                path="bucketWeights",
            )
        if not 0 <= checkpoint.total_weight < math.inf or min(indices.values(), default=0) < 0:
            raise InputError(
                f"must be at least 0, got {checkpoint.total_weight}", path="totalWeight"
            )
        if not total:
            return
        for index, weight in indices.items():
            self._weights[index] += weight * (checkpoint.total_weight / total)
            self._lowest = min(self._lowest, index)
            self._highest = max(self._highest, index)
        self._total += checkpoint.total_weight
        since = checkpoint.reference_timestamp - _YEAR_ONE
        self._reference_s = _YEAR_ONE_S + since.total_seconds()

    @property
    def _reference(self) -> dt.datetime:
        return _YEAR_ONE + dt.timedelta(seconds=self._reference_s - _YEAR_ONE_S)

    def _decay(self, now_s: float) -> float:
        if now_s > self._reference_s + self._half_life_s * _MAX_EXPONENT:
            self._shift(now_s)
        return float(2.0 ** ((now_s - self._reference_s) / self._half_life_s))

    def _shift(self, now_s: float) -> None:
        """Move the reference time, at which a sample has weight 1, to the present."""
        halves = math.floor((now_s - _YEAR_ONE_S) / self._half_life_s + 0.5)
        reference_s = _YEAR_ONE_S + halves * self._half_life_s
        exponent = math.floor((self._reference_s - reference_s) / self._half_life_s + 0.5)
        factor = math.ldexp(1.0, exponent)
        self._weights *= factor
        self._total *= factor
        self._reference_s = reference_s
        counted = np.flatnonzero(self._weights >= EPSILON)
        last = self._buckets.count - 1
        self._lowest, self._highest = (
            (int(counted[0]), int(counted[-1])) if len(counted) else (last, 0)
        )


def item(name: str) -> str:
    """Return the model id of a priority band, or of ``sys``."""
    return f"__node-{name}__"


SYSTEM = item("sys")
NODE_MODELS = (NODE, SYSTEM, *(item(band) for band in PriorityBand))


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionOptions:
    """Options of the prediction, in seconds and percent."""

    cold_start_s: float = 24 * 3600.0
    safety_margin_percent: int = 10
    memory_half_life_s: float = 24 * 3600.0
    cpu_half_life_s: float = 12 * 3600.0
    training_interval_s: float = 60.0
    expiration_s: float = 1800.0
    checkpoint_interval_s: float = 600.0
    checkpoints_per_step: int = 12


@dataclass(frozen=True, slots=True)
class UsageSample:
    """Usage in cores and bytes."""

    cpu: float
    memory: float


@dataclass(frozen=True, slots=True)
class Peak:
    """Predicted peak: milli-CPU (95th percentile) and bytes (98th percentile)."""

    cpu_milli: int
    memory_bytes: int


class ModelCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Stored model, with the original's field names."""

    uid: str = msgspec.field(name="UID")
    cpu: HistogramCheckpoint = msgspec.field(name="CPU")
    memory: HistogramCheckpoint = msgspec.field(name="Memory")
    last_updated: dt.datetime = msgspec.field(name="LastUpdated")


class _Model:
    __slots__ = ("cpu", "memory", "stored_s", "updated_s")

    def __init__(self, options: PredictionOptions) -> None:
        self.cpu = DecayingHistogram(CPU_BUCKETS, options.cpu_half_life_s)
        self.memory = DecayingHistogram(MEMORY_BUCKETS, options.memory_half_life_s)
        self.updated_s = self.stored_s = -math.inf


class PeakModels:
    """Models of the usage of pods, priority bands, and the system."""

    def __init__(self, options: PredictionOptions) -> None:
        self.options = options
        self._models: dict[str, _Model] = {}

    def train(
        self,
        pods: Mapping[str, tuple[PriorityBand, UsageSample]],
        node: UsageSample | None,
        now_s: float,
    ) -> None:
        """Add the usage of the last interval: of pods by UID, and of the node if measured.

        The node's usage outside of pods is added to ``sys``.
        """
        sums = {band: UsageSample(0.0, 0.0) for band in PriorityBand}
        for uid, (band, usage) in pods.items():
            self._add(uid, usage, now_s)
            sums[band] = UsageSample(sums[band].cpu + usage.cpu, sums[band].memory + usage.memory)
        if node is not None:
            self._add(NODE, node, now_s)
        for band, usage in sums.items():
            self._add(item(band), usage, now_s)
        if node is not None:
            cpu = node.cpu - sum(usage.cpu for usage in sums.values())
            memory = node.memory - sum(usage.memory for usage in sums.values())
            self._add(SYSTEM, UsageSample(max(cpu, 0.0), max(memory, 0.0)), now_s)

    def peak(self, uid: str) -> Peak | None:
        """Return the peak of a model; None if there is no such model."""
        model = self._models.get(uid)
        if model is None:
            return None
        return Peak(int(model.cpu.percentile(0.95) * 1000), int(model.memory.percentile(0.98)))

    def expire(self, now_s: float) -> list[str]:
        """Drop the models without recent updates, and return their ids."""
        oldest_s = now_s - self.options.expiration_s
        expired = [uid for uid, model in self._models.items() if model.updated_s < oldest_s]
        for uid in expired:
            del self._models[uid]
        return expired

    def due(self, now_s: float) -> list[ModelCheckpoint]:
        """Return the checkpoints to store now, least recently stored first."""
        options = self.options
        waiting = sorted(self._models.items(), key=lambda entry: entry[1].stored_s)
        checkpoints = []
        for uid, model in waiting[: options.checkpoints_per_step]:
            if now_s - model.stored_s < options.checkpoint_interval_s:
                break
            model.stored_s = now_s
            checkpoints.append(
                ModelCheckpoint(
                    uid=uid,
                    cpu=model.cpu.checkpoint(),
                    memory=model.memory.checkpoint(),
                    last_updated=to_datetime(now_s),
                )
            )
        return checkpoints

    def restore(self, checkpoints: Iterable[ModelCheckpoint], known: frozenset[str]) -> list[str]:
        """Load checkpoints; return the ids of unknown or invalid ones."""
        refused = []
        for checkpoint in checkpoints:
            model = _Model(self.options)
            if checkpoint.uid not in known:
                refused.append(checkpoint.uid)
                continue
            try:
                model.cpu.restore(checkpoint.cpu)
                model.memory.restore(checkpoint.memory)
            except InputError:
                refused.append(checkpoint.uid)
                continue
            model.updated_s = to_epoch_s(checkpoint.last_updated)
            self._models[checkpoint.uid] = model
        return refused

    def _add(self, uid: str, usage: UsageSample, now_s: float) -> None:
        model = self._models.get(uid)
        if model is None:
            model = self._models[uid] = _Model(self.options)
        model.updated_s = now_s
        model.cpu.add(usage.cpu, now_s)
        model.memory.add(usage.memory, now_s)
