"""Comparison of the agent's inventory with ``nvidia-smi``."""

from dataclasses import replace

import pytest
from tests.gpu.inventory import differences, mig_mode, parse_query, short_bus_id

from koordinator.host.gpus import Gpu

ROWS = parse_query("0, GPU-a, Card X, 81559, 00000000:65:00.0, Disabled\n")
GPU = Gpu(
    minor=0,
    uuid="GPU-a",
    model="Card X",
    memory_bytes=81559 << 20,
    bus_id="0000:65:00.0",
)


def test_row_becomes_a_field_per_column() -> None:
    assert ROWS[0]["memory.total"] == "81559"
    assert ROWS[0]["mig.mode.current"] == "Disabled"


def test_row_with_missing_column_is_rejected() -> None:
    with pytest.raises(ValueError, match="shorter"):
        parse_query("0, GPU-a\n")


def test_equal_inventory_has_no_differences() -> None:
    """Memory may differ by what nvidia-smi rounds away."""
    rounded = replace(GPU, memory_bytes=GPU.memory_bytes + (1 << 19))

    assert differences([GPU], ROWS) == []
    assert differences([rounded], ROWS) == []


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        (replace(GPU, model="Card Y"), "name"),
        (replace(GPU, memory_bytes=GPU.memory_bytes + (2 << 20)), "memory.total"),
        (replace(GPU, bus_id="0001:65:00.0"), "pci.bus_id"),
        (replace(GPU, uuid="GPU-b"), "uuid"),
    ],
)
def test_changed_value_is_a_difference(changed: Gpu, field: str) -> None:
    (text,) = differences([changed], ROWS)

    assert field in text


def test_gpu_that_the_agent_misses_is_a_difference() -> None:
    assert differences([], ROWS) == ["uuid: expected ['GPU-a'], got []"]


def test_bus_address_is_spelled_as_in_sysfs() -> None:
    assert short_bus_id("00000000:AF:00.0") == "0000:af:00.0"


def test_mig_mode_is_spelled_as_in_nvidia_smi() -> None:
    assert [mig_mode(mode) for mode in (None, 0, 1)] == ["[N/A]", "Disabled", "Enabled"]
