"""Nodes that show more CPU than they have: what bound CPUs count for, row by row.

A CPU that a pod is bound to is a whole one, so it counts for as much as the node shows for it.
Source: koordinator pkg/scheduler/plugins/nodenumaresource/plugin.go, ``filterAmplifiedCPUs``;
scoring.go, ``scoreWithAmplifiedCPUs``; apis/extension/node_resource_amplification.go, ``Amplify``.
"""

from typing import Final

import numpy as np

from koordinator.foundation.arrays import BoolArray, FloatArray, IntArray

INSUFFICIENT_CPU: Final = "Insufficient amplified cpu"
INVALID_RATIO: Final = "node(s) invalid CPU amplification ratio"


def amplified_rows(amounts: IntArray, ratios: FloatArray) -> IntArray:
    """Return the amounts times the ratios, rounded up; a ratio up to 1 changes nothing."""
    return np.ceil(amounts * np.maximum(ratios, 1.0)).astype(np.int64)


def amplified_request(requested: IntArray, bound: IntArray, ratios: FloatArray) -> IntArray:
    """Return what pods request of each node when bound CPUs count amplified; milli-CPU.

    ``bound`` is the part of ``requested`` that is bound.
    """
    return requested - bound + amplified_rows(bound, ratios)


def short_of_cpu(
    cpu_milli: int,
    *,
    binds: BoolArray,
    allocatable: IntArray,
    requested: IntArray,
    bound: IntArray,
    ratios: FloatArray,
) -> BoolArray:
    """Return the amplified nodes, ``(n,)``, on which a pod's CPU is more than what is left.

    ``binds`` says where the pod would get CPUs of its own; amounts are in milli-CPU.
    """
    adjusted = amplified_request(requested, bound, ratios)
    used = np.where((bound > 0) & (requested >= bound), adjusted, requested)
    asked = np.where(binds, amplified_rows(np.full_like(requested, cpu_milli), ratios), cpu_milli)
    short: BoolArray = (ratios > 1) & (asked > allocatable - used)
    return short & (cpu_milli > 0)
