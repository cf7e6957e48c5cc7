"""Comparison of the agent's inventory with ``nvidia-smi``."""

import csv
import io
from collections.abc import Mapping, Sequence

from koordinator.host.gpus import Gpu

#: Fields of ``nvidia-smi --query-gpu``.
FIELDS = ("index", "uuid", "name", "memory.total", "pci.bus_id", "mig.mode.current")
#: ``nvidia-smi`` rounds to MiB.
MEMORY_TOLERANCE_MIB = 1.0


def parse_query(text: str) -> list[dict[str, str]]:
    """Return the rows of ``nvidia-smi --format=csv,noheader,nounits``, by field.

    Raises ValueError for a row with another number of columns.
    """
    rows = csv.reader(io.StringIO(text), skipinitialspace=True)
    return [dict(zip(FIELDS, (cell.strip() for cell in row), strict=True)) for row in rows if row]


def differences(gpus: Sequence[Gpu], rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Return one text for each value that differs between the agent and ``nvidia-smi``."""
    wrong = []
    expected = {row["uuid"]: row for row in rows}
    actual = {gpu.uuid: gpu for gpu in gpus}
    if actual.keys() != expected.keys():
        wrong.append(f"uuid: expected {sorted(expected)}, got {sorted(actual)}")
    for uuid in sorted(actual.keys() & expected.keys()):
        gpu, row = actual[uuid], expected[uuid]
        if gpu.model != row["name"]:
            wrong.append(f"{uuid} name: expected {row['name']!r}, got {gpu.model!r}")
        bus_id = short_bus_id(row["pci.bus_id"])
        if gpu.bus_id != bus_id:
            wrong.append(f"{uuid} pci.bus_id: expected {bus_id!r}, got {gpu.bus_id!r}")
        mib = gpu.memory_bytes / 2**20
        if abs(mib - float(row["memory.total"])) > MEMORY_TOLERANCE_MIB:
            wrong.append(f"{uuid} memory.total: expected {row['memory.total']} MiB, got {mib:.1f}")
    return wrong


def short_bus_id(text: str) -> str:
    """Return a bus address as sysfs spells it: a domain of four digits, lower case."""
    domain, _, rest = text.lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def mig_mode(current: int | None) -> str:
    """Return NVML's MIG mode as ``nvidia-smi`` spells it; None for an unsupported one."""
    if current is None:
        return "[N/A]"
    return "Enabled" if current else "Disabled"
