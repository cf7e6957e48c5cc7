"""Peak models: a pair of histograms per pod, for the node, and per priority band.

Source: koordinator pkg/koordlet/prediction/predict_server.go, checkpoint.go.
"""

import datetime as dt
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from koordinator.api.qos import PriorityBand
from koordinator.foundation.clock import to_datetime, to_epoch_s
from koordinator.foundation.errors import InputError
from koordinator.koordlet.prediction.histogram import (
    CPU_BUCKETS,
    MEMORY_BUCKETS,
    DecayingHistogram,
    HistogramCheckpoint,
)

NODE = "__node__"


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
