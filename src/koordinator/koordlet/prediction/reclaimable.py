"""Reclaimable resources of band koord-prod, and its predicted peak.

Two predictors are combined, per pod and per band: the smaller reclaimable amount and the larger
peak.
Source: koordinator pkg/koordlet/prediction/peak_predictor.go.
"""

from collections.abc import Sequence

from koordinator.api.pod import is_terminal
from koordinator.api.qos import PriorityBand
from koordinator.foundation.clock import to_epoch_s
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.koordlet.prediction.models import SYSTEM, Peak, PeakModels, item
from koordinator.koordlet.view.machine import Machine
from koordinator.koordlet.view.pods import PodView

_PROTECTED = frozenset({PriorityBand.PROD, PriorityBand.NONE})


@dataclass(frozen=True, slots=True)
class PredictedAmounts:
    """Amounts in milli-CPU and bytes."""

    cpu_milli: int = 0
    memory_bytes: int = 0

    def __add__(self, other: "PredictedAmounts") -> "PredictedAmounts":
        return PredictedAmounts(
            self.cpu_milli + other.cpu_milli, self.memory_bytes + other.memory_bytes
        )

    def less(self, other: "PredictedAmounts") -> "PredictedAmounts":
        """Return the difference, at least 0."""
        return PredictedAmounts(
            max(self.cpu_milli - other.cpu_milli, 0),
            max(self.memory_bytes - other.memory_bytes, 0),
        )

    def smaller(self, other: "PredictedAmounts") -> "PredictedAmounts":
        """Return the element-wise minimum."""
        return PredictedAmounts(
            min(self.cpu_milli, other.cpu_milli), min(self.memory_bytes, other.memory_bytes)
        )

    def larger(self, other: "PredictedAmounts") -> "PredictedAmounts":
        """Return the element-wise maximum."""
        return PredictedAmounts(
            max(self.cpu_milli, other.cpu_milli), max(self.memory_bytes, other.memory_bytes)
        )


@dataclass(frozen=True, slots=True)
class Prediction:
    """Reclaimable resources and peak usage, with the predictor's name."""

    reclaimable: PredictedAmounts
    peak: PredictedAmounts
    predictor: str = "minPredictor"
    parts: tuple["Prediction", ...] = ()  # combined predictions


def predict_prod(
    models: PeakModels, pods: Sequence[PodView], machine: Machine, now_s: float
) -> Prediction | None:
    """Return the prediction for band koord-prod; None until the node's models exist."""
    by_band = _by_band(models, pods, machine, now_s)
    if by_band is None:
        return None
    by_pod = _by_pod(models, pods, machine, now_s)
    return Prediction(
        by_pod.reclaimable.smaller(by_band.reclaimable),
        by_pod.peak.larger(by_band.peak),
        parts=(by_pod, by_band),
    )


def _by_pod(
    models: PeakModels, pods: Sequence[PodView], machine: Machine, now_s: float
) -> Prediction:
    reclaimable, peaks, unpredicted = PredictedAmounts(), PredictedAmounts(), PredictedAmounts()
    for pod in pods:
        if pod.band not in _PROTECTED:
            continue
        if _is_young(pod, models, now_s):
            unpredicted += _requested(pod)
            continue
        if _is_ending(pod):
            continue
        predicted = models.peak(pod.uid)
        if predicted is None:
            unpredicted += _requested(pod)
            continue
        peak = _with_margin(predicted, models)
        peaks += peak
        reclaimable += _requested(pod).less(peak)
    return Prediction(
        _left(machine, peaks).smaller(reclaimable), peaks + unpredicted, "podReclaimablePredictor"
    )


def _by_band(
    models: PeakModels, pods: Sequence[PodView], machine: Machine, now_s: float
) -> Prediction | None:
    cpu_milli = memory_bytes = 0
    for uid in (SYSTEM, *(item(band) for band in PriorityBand if band in _PROTECTED)):
        predicted = models.peak(uid)
        if predicted is None:
            return None
        cpu_milli += predicted.cpu_milli
        memory_bytes += predicted.memory_bytes
    peak = _with_margin(Peak(cpu_milli, memory_bytes), models)
    requested = PredictedAmounts()
    for pod in pods:
        if pod.band not in _PROTECTED or _is_ending(pod):
            continue
        # An old pod without a model is neither in the peak nor in the requests.
        if _is_young(pod, models, now_s) or models.peak(pod.uid) is not None:
            requested += _requested(pod)
    return Prediction(
        _left(machine, peak).smaller(requested.less(peak)), peak, "priorityReclaimablePredictor"
    )


def _with_margin(peak: Peak, models: PeakModels) -> PredictedAmounts:
    ratio = (100 + models.options.safety_margin_percent) / 100
    return PredictedAmounts(int(peak.cpu_milli * ratio), int(peak.memory_bytes * ratio))


def _requested(pod: PodView) -> PredictedAmounts:
    return PredictedAmounts(pod.requests.get("cpu", 0), pod.requests.get("memory", 0))


def _left(machine: Machine, peaks: PredictedAmounts) -> PredictedAmounts:
    allocatable = machine.raw_allocatable
    return PredictedAmounts(allocatable.get("cpu", 0), allocatable.get("memory", 0)).less(peaks)


def _is_young(pod: PodView, models: PeakModels, now_s: float) -> bool:
    created_s = to_epoch_s(pod.pod.metadata.creation_timestamp)
    return now_s - created_s <= models.options.cold_start_s


def _is_ending(pod: PodView) -> bool:
    return pod.pod.metadata.deletion_timestamp is not None or is_terminal(pod.pod)
