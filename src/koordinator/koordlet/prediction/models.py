"""One pair of histograms for every pod, for the node, and for its priority bands.

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
    """Return the id of the model of a priority band, or of ``sys``."""
    return f"__node-{name}__"


SYSTEM = item("sys")
NODE_MODELS = (NODE, SYSTEM, *(item(band) for band in PriorityBand))


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionOptions:
    """Seconds, and percent that are added to what is predicted."""

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
    """Cores and bytes."""

    cpu: float
    memory: float


@dataclass(frozen=True, slots=True)
class Peak:
    """What will hardly be exceeded: milli-CPU (95 % of the time) and bytes (98 %)."""

    cpu_milli: int
    memory_bytes: int


class ModelCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A model as it is stored.  Names are the original's."""

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
    """Learns what pods, bands and the rest of the system use."""

    def __init__(self, options: PredictionOptions) -> None:
        self.options = options
        self._models: dict[str, _Model] = {}

    def train(
        self,
        pods: Mapping[str, tuple[PriorityBand, UsageSample]],
        node: UsageSample | None,
        now_s: float,
    ) -> None:
        """Take in the use of the last interval: of pods by UID, and of the node if it is known.

        The share of the node that is no pod's goes to ``sys``.
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
        """Return the prediction of a model, None if there is none."""
        model = self._models.get(uid)
        if model is None:
            return None
        return Peak(int(model.cpu.percentile(0.95) * 1000), int(model.memory.percentile(0.98)))

    def expire(self, now_s: float) -> list[str]:
        """Drop, and return, the models that were not updated for long."""
        oldest_s = now_s - self.options.expiration_s
        gone = [uid for uid, model in self._models.items() if model.updated_s < oldest_s]
        for uid in gone:
            del self._models[uid]
        return gone

    def due(self, now_s: float) -> list[ModelCheckpoint]:
        """Return what has to be stored now, the longest unstored first."""
        options = self.options
        waiting = sorted(self._models.items(), key=lambda entry: entry[1].stored_s)
        found = []
        for uid, model in waiting[: options.checkpoints_per_step]:
            if now_s - model.stored_s < options.checkpoint_interval_s:
                break
            model.stored_s = now_s
            found.append(
                ModelCheckpoint(
                    uid=uid,
                    cpu=model.cpu.checkpoint(),
                    memory=model.memory.checkpoint(),
                    last_updated=to_datetime(now_s),
                )
            )
        return found

    def restore(self, checkpoints: Iterable[ModelCheckpoint], known: frozenset[str]) -> list[str]:
        """Take in what was stored; return the ids of models that are unknown or unreadable."""
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
