"""What a CPU of a node is worth, compared with the one that pods were written for.

Source: koordinator pkg/slo-controller/noderesource/plugins/cpunormalization/plugin.go,
``getCPUNormalizationRatio``; apis/extension/cpu_normalization.go.
"""

from typing import Final

from koordinator.api.annotations.numa import CpuBasicInfo
from koordinator.api.slo_config import CpuNormalizationStrategy
from koordinator.foundation.errors import InputError

LEAST, MOST = 1.0, 5.0
NEUTRAL: Final = 1.0
_CLOSE = 0.01


def normalization_ratio(strategy: CpuNormalizationStrategy, info: CpuBasicInfo) -> float:
    """Return the ratio of the model, else the default one.

    Raises InputError if neither is known, or if it is not in 1..5.
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
    """Return a ratio with the two decimals that are written of it."""
    return float(f"{ratio:.2f}")


def is_another_ratio(old: float, new: float) -> bool:
    """Return whether two ratios differ by more than what is written of them."""
    return old > new + _CLOSE or old < new - _CLOSE


def _on(enabled: bool) -> str:
    return "on" if enabled else "off"
