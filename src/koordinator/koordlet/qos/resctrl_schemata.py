"""Lines of resctrl: which ways of the last-level cache, how much memory bandwidth.

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
    """Return the ways from one percentage to another, at least partly covered ones included.

    Raises InputError for a mask with holes, and for a range that is none.
    """
    ways = full_mask.bit_length()
    if not full_mask or full_mask != (1 << ways) - 1:
        raise InputError(f"found {full_mask:x}; accepted is ones from the lowest bit on", path="L3")
    if not 0 <= start_percent < end_percent <= 100:  # noqa: PLR2004 -- percent
        raise InputError(
            f"found {start_percent}..{end_percent}; accepted is a range in 0..100", path="L3"
        )
    start, end = -(-ways * start_percent // 100), -(-ways * end_percent // 100)
    mask = (1 << end) - (1 << start)
    if not mask:
        raise InputError(f"{start_percent}..{end_percent} % is no whole way of {ways}", path="L3")
    return mask


def memory_bandwidth(percent: int, vendor: str) -> int:
    """Return the value of a line ``MB:``; percent on Intel, units of 1/8 GB/s on AMD.

    Raises InputError for a percentage outside of 1..100.
    """
    if not 1 <= percent <= 100:  # noqa: PLR2004 -- percent
        raise InputError(f"found {percent}; accepted is 1..100", path="MB")
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

    The kernel pads them, with zeros or blanks, to the width of the largest.  Lines that can't be
    read are left out.  Source: Linux fs/resctrl/ctrlmondata.c, ``show_doms``.
    """
    found = {}
    for line in text.splitlines():
        name, _, rest = line.strip().partition(":")
        base = 10 if name.endswith(_BANDWIDTH) else 16
        pairs = (part.partition("=") for part in rest.split(";"))
        try:
            found[name] = {int(cache): int(value, base) for cache, _, value in pairs}
        except ValueError:
            continue
    return found
