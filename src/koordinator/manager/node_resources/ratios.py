"""Ratios of a node: CPU normalization by model, and amplification of allocatable resources.

Source: koordinator pkg/slo-controller/noderesource/plugins/cpunormalization/plugin.go,
``getCPUNormalizationRatio``; plugins/resourceamplification/plugin.go;
pkg/webhook/node/plugins/resourceamplification/resource_amplification.go;
apis/extension/cpu_normalization.go.
"""

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from koordinator.api.annotations.node import RAW_ALLOCATABLE, read_amplification_ratios
from koordinator.api.annotations.numa import CpuBasicInfo
from koordinator.api.core import ResourceList
from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Node
from koordinator.api.resource_names import CPU, MEMORY
from koordinator.api.slo_config import CpuNormalizationStrategy
from koordinator.foundation.errors import InputError
from koordinator.foundation.quantity import Quantity
from koordinator.manager.node_resources.node import NANOS_PER_MILLI

LEAST, MOST = 1.0, 5.0
NEUTRAL: Final = 1.0
_CLOSE = 0.01

_AMPLIFIED = (CPU, MEMORY)


def normalization_ratio(strategy: CpuNormalizationStrategy, info: CpuBasicInfo) -> float:
    """Return the ratio of the CPU model, by default the default ratio.

    Raises InputError if the strategy has neither, or if the ratio is not in 1..5.
    """
    model = strategy.ratio_model.get(info.cpu_model)
    ratio = None
    if model is not None:
        if info.hyper_thread_enabled and info.turbo_enabled:
            ratio = model.hyper_thread_turbo_enabled_ratio
        elif info.hyper_thread_enabled:
            ratio = model.hyper_thread_enabled_ratio
        elif info.turbo_enabled:
            ratio = model.turbo_enabled_ratio
        else:
            ratio = model.base_ratio
    if ratio is None:
        ratio = strategy.default_ratio
    if ratio is None:
        raise InputError(
            f"no ratio for CPU model {info.cpu_model!r} with hyper-threading "
            f"{_on(info.hyper_thread_enabled)} and turbo {_on(info.turbo_enabled)}; "
            "ratioModel must have one, or defaultRatio must be set"
        )
    if not LEAST <= ratio <= MOST:
        raise InputError(f"the ratio must be {LEAST:g}..{MOST:g}, got {ratio}")
    return ratio


def round_ratio(ratio: float) -> float:
    """Return a ratio rounded to the two decimals of its annotation."""
    return float(f"{ratio:.2f}")


def is_another_ratio(old: float, new: float) -> bool:
    """Return whether two ratios differ by more than the precision of the annotation."""
    return old > new + _CLOSE or old < new - _CLOSE


def _on(enabled: bool) -> str:
    return "on" if enabled else "off"


def amplification_ratios(
    configured: Mapping[str, float], normalization: float | None
) -> dict[str, float]:
    """Return the amplification ratios of a node, with CPU multiplied by its normalization.

    Raises InputError for a ratio below 1.
    """
    ratios = dict(configured)
    own = ratios.get(CPU, 0.0)
    cpu = (own if own > 0 else 1.0) * (normalization or 1.0)
    if cpu > 1:
        ratios[CPU] = cpu
    for resource, ratio in ratios.items():
        if not ratio >= 1:
            raise InputError(f"the ratio of {resource} must be at least 1, got {ratio}")
    return ratios


def amplified(old: Node, new: Node) -> tuple[ObjectMeta, ResourceList]:
    """Return metadata and amplified allocatable resources of a node after a kubelet update.

    An annotation keeps the amounts that the kubelet reported.  Amounts that an update leaves
    unchanged are already amplified and do not replace the annotation.
    Raises InputError for an annotation that can't be parsed.
    """
    meta, allocatable = new.metadata, new.status.allocatable
    ratios = read_amplification_ratios(meta)
    annotations = dict(meta.annotations)
    if ratios is None:
        annotations.pop(RAW_ALLOCATABLE.key, None)
        return _with(meta, annotations), allocatable
    raw = RAW_ALLOCATABLE.read(meta)
    if raw is None or _reported(old) != _reported(new):
        raw = {name: allocatable[name] for name in _AMPLIFIED if name in allocatable}
        if raw:
            annotations |= RAW_ALLOCATABLE.entry(raw)
    shown = dict(allocatable)
    for name in _AMPLIFIED:
        if name in raw and name in ratios:
            shown[name] = _times(raw[name], ratios[name])
    return _with(meta, annotations), shown


def _reported(node: Node) -> tuple[Quantity | None, ...]:
    return tuple(node.status.allocatable.get(name) for name in _AMPLIFIED)


def _times(amount: Quantity, ratio: float) -> Quantity:
    if ratio <= 1:
        return amount
    milli = int(amount.milli() * ratio)
    return Quantity(milli * NANOS_PER_MILLI, amount.notation)


def _with(meta: ObjectMeta, annotations: dict[str, str]) -> ObjectMeta:
    return meta if annotations == meta.annotations else replace(meta, annotations=annotations)
