"""Schemata of resctrl: ways of the last-level cache, and memory bandwidth.

Source: koordinator pkg/koordlet/util/system/resctrl.go, ``CalculateCatL3MaskValue``;
pkg/koordlet/qosmanager/plugins/resctrl/resctrl_reconcile.go, ``calculateMba``.
"""

from typing import Final

from koordinator.foundation.errors import InputError

_AMD: Final = "AuthenticAMD"
_AMD_UNITS: Final = 160  # of 1/8 GB/s: 80 % of 25 GB/s
_AMD_UNLIMITED: Final = 2048
_INTEL_STEP: Final = 10
_BANDWIDTH: Final = "MB"


def l3_mask(full_mask: int, start_percent: int, end_percent: int) -> int:
    """Return the mask of the ways between two percentages, including partly covered ones.

    Raises InputError for a full mask with holes, and for an invalid or empty range.
    """
    ways = full_mask.bit_length()
    if not full_mask or full_mask != (1 << ways) - 1:
        raise InputError(f"must be contiguous from the lowest bit, got {full_mask:x}", path="L3")
    if not 0 <= start_percent < end_percent <= 100:  # noqa: PLR2004 -- percent
        raise InputError(
            f"must be a range in 0..100, got {start_percent}..{end_percent}", path="L3"
        )
    start, end = -(-ways * start_percent // 100), -(-ways * end_percent // 100)
    mask = (1 << end) - (1 << start)
    if not mask:
        got = f"got {start_percent}..{end_percent} %"
        raise InputError(f"must cover at least one of {ways} cache ways, {got}", path="L3")
    return mask


def memory_bandwidth(percent: int, vendor: str) -> int:
    """Return the value of an ``MB:`` line: percent on Intel, units of 1/8 GB/s on AMD.

    Raises InputError for a percentage outside of 1..100.
    """
    if not 1 <= percent <= 100:  # noqa: PLR2004 -- percent
        raise InputError(f"must be in 1..100, got {percent}", path="MB")
    if vendor == _AMD:
        unlimited = percent == 100  # noqa: PLR2004 -- percent
        return _AMD_UNLIMITED if unlimited else _AMD_UNITS * percent // 100
    return -(-percent // _INTEL_STEP) * _INTEL_STEP


def l3_line(masks: dict[int, int]) -> str:
    """Return ``L3:0=ff;1=ff`` for masks by cache id."""
    return "L3:" + ";".join(f"{cache}={mask:x}" for cache, mask in sorted(masks.items()))


def mb_line(values: dict[int, int]) -> str:
    """Return ``MB:0=100;1=100`` for values by cache id."""
    return f"{_BANDWIDTH}:" + ";".join(
        f"{cache}={value}" for cache, value in sorted(values.items())
    )


def parse_schemata(text: str) -> dict[str, dict[int, int]]:
    """Return the values by resource and cache id.

    The kernel pads them with zeros or blanks to equal width.  Invalid lines are skipped.
    Source: Linux fs/resctrl/ctrlmondata.c, ``show_doms``.
    """
    schemata = {}
    for line in text.splitlines():
        name, _, rest = line.strip().partition(":")
        base = 10 if name.endswith(_BANDWIDTH) else 16
        pairs = (part.partition("=") for part in rest.split(";"))
        try:
            schemata[name] = {int(cache): int(value, base) for cache, _, value in pairs}
        except ValueError:
            continue
    return schemata
