"""Training of the peak predictions, with checkpoints that survive a restart.

Source: koordinator pkg/koordlet/prediction/predict_server.go, checkpoint.go.
"""

from collections.abc import Sequence
from contextlib import suppress

import msgspec

from koordinator.api.qos import PriorityBand
from koordinator.foundation.decoders import decode_json
from koordinator.foundation.errors import HostError, InputError
from koordinator.foundation.path_component import path_component
from koordinator.host.port import Files
from koordinator.koordlet.app.node_state import FILE as NODE_STATE
from koordinator.koordlet.metrics import Metric, MetricStore
from koordinator.koordlet.prediction.models import (
    NODE_MODELS,
    ModelCheckpoint,
    PeakModels,
    PredictionOptions,
    UsageSample,
)
from koordinator.koordlet.prediction.reclaimable import Prediction, predict_prod
from koordinator.koordlet.view.machine import Machine
from koordinator.koordlet.view.pods import PodView

_PERCENTILE = 0.9


class Forecasts:
    """Predictions with checkpoints in ``folder``; an empty folder disables checkpoints."""

    def __init__(self, files: Files, folder: str, options: PredictionOptions) -> None:
        self._files = files
        self._folder = folder
        self._models = PeakModels(options)
        self.is_restored = False

    def restore(self, pods: Sequence[PodView]) -> None:
        """Restore the checkpoints; delete the checkpoints of pods that no longer exist."""
        self.is_restored = True
        if not self._folder:
            return
        checkpoints = []
        for name in self._files.names(self._folder):
            if name == NODE_STATE:
                continue
            try:
                text = self._files.read(f"{self._folder}/{name}")
                checkpoints.append(decode_json(text, ModelCheckpoint))
            except (HostError, msgspec.DecodeError, msgspec.ValidationError):
                self._remove(name)
        known = frozenset({*NODE_MODELS, *(pod.uid for pod in pods)})
        for uid in self._models.restore(checkpoints, known):
            self._remove(uid)

    def train(self, store: MetricStore, pods: Sequence[PodView], now_s: float) -> None:
        """Add the usage of the last interval to the models."""
        start_s = now_s - self._models.options.training_interval_s
        usages: dict[str, tuple[PriorityBand, UsageSample]] = {}
        for pod in pods:
            usage = _usage(store, (Metric.POD_CPU, Metric.POD_MEMORY), pod.uid, start_s, now_s)
            if usage is not None:
                usages[pod.uid] = (pod.band, usage)
        node = _usage(store, (Metric.NODE_CPU, Metric.NODE_MEMORY), "", start_s, now_s)
        self._models.train(usages, node, now_s)

    def save(self, now_s: float) -> None:
        """Write the checkpoints that are due, and delete the models of pods that have ended."""
        for uid in self._models.expire(now_s):
            self._remove(uid)
        for checkpoint in self._models.due(now_s) if self._folder else ():
            try:
                text = msgspec.json.encode(checkpoint).decode()
                self._files.replace(f"{self._folder}/{checkpoint.uid}", text)
            except HostError:
                return  # retried in the next round

    def predict(self, pods: Sequence[PodView], machine: Machine, now_s: float) -> Prediction | None:
        """Predict the reclaimable resources of prod pods; None without enough samples."""
        return predict_prod(self._models, pods, machine, now_s)

    def _remove(self, uid: str) -> None:
        if not self._folder:
            return
        with suppress(InputError):  # a file name that the agent did not write
            self._files.remove(f"{self._folder}/{path_component(uid)}")


def _usage(
    store: MetricStore, metrics: tuple[Metric, Metric], owner: str, start_s: float, now_s: float
) -> UsageSample | None:
    cpu, memory = (store.between(metric, owner, start_s, now_s) for metric in metrics)
    if cpu is None or memory is None:
        return None
    return UsageSample(cpu.percentile(_PERCENTILE), memory.percentile(_PERCENTILE))
