"""Amounts in the fields that kube-scheduler keeps them in, as its pages show them.

Source: kubernetes pkg/scheduler/framework/types.go ``Resource``.
"""

from collections.abc import Mapping
from typing import Any

_FIELDS = {
    "cpu": "MilliCPU",
    "memory": "Memory",
    "ephemeral-storage": "EphemeralStorage",
    "pods": "AllowedPodNumber",
}


def go_amounts(amounts: Mapping[str, int]) -> dict[str, Any]:
    """Return amounts by resource in canonical units, old resource names in a field of their own."""
    scalars = {name: amount for name, amount in amounts.items() if name not in _FIELDS}
    return {
        **{spelt: amounts.get(name, 0) for name, spelt in _FIELDS.items()},
        "ScalarResources": scalars or None,
    }
