"""Which sets of NUMA nodes have enough for a pod, on many nodes at once.

Equal to ``NumaTrial.fits`` and ``resource_hints``, node by node, for pods that reuse nothing of
others, on nodes whose NUMA nodes report CPU.
"""

from dataclasses import dataclass

import numpy as np

from koordinator.api.annotations.numa import CpuBindPolicy
from koordinator.api.resource_names import CPU
from koordinator.domain.numa_masks import MAX_COMBINED, subsets, zones_of
from koordinator.foundation.arrays import BoolArray, IntArray
from koordinator.scheduler.rules.numa.node import MILLI
from koordinator.scheduler.rules.numa.request import NumaRequest
from koordinator.scheduler.rules.numa.rows import POLICIES, NumaRows


@dataclass(frozen=True, slots=True)
class SetFit:
    """What one set of NUMA nodes has for a pod."""

    zones: int  # the set
    fits: BoolArray  # (n,): the pod can be allocated there
    hinted: BoolArray  # (n, n_requested): … and no NUMA node of it has nothing of the resource
    touched: BoolArray  # (n, n_zones): NUMA nodes that the pod would take something of


@dataclass(frozen=True, slots=True)
class Fits:
    """The sets of NUMA nodes, the smallest first, for one pod on every row."""

    sets: tuple[SetFit, ...]
    reported: BoolArray  # (n, n_requested)
    available: IntArray  # (n, n_zones, n_resources); of CPU no more than can be bound as required


def fits_of(rows: NumaRows, request: NumaRequest, *, largest: int = MAX_COMBINED) -> Fits:
    """Return what each set of at most ``largest`` NUMA nodes has for a pod.

    Single ones are all that SingleNUMANode needs.
    """
    asked = [name for name in request.amounts if name in rows.resources]
    columns = [rows.resources.index(name) for name in asked]
    available = np.maximum(rows.capacity - rows.used, 0)
    required = request.required_policy
    bindable = rows.bindable[:, :, POLICIES.index(required)]
    if required:
        cpu = rows.resources.index(CPU)
        available[:, :, cpu] = np.minimum(available[:, :, cpu], bindable * MILLI)
    reported = rows.reported[:, columns]
    amounts = np.array([request.amounts[name] for name in asked], np.int64) * reported
    sets = []
    for zones in subsets(tuple(range(rows.exists.shape[1]))):
        if zones.bit_count() > largest:
            break
        members = list(zones_of(zones))
        has = available[:, members][:, :, columns]
        touched = np.zeros(rows.exists.shape, bool)
        fits: BoolArray = np.logical_and.reduce(rows.exists[:, members], axis=1)
        for index, name in enumerate(asked):
            unit = _unit(rows, request, name)
            shares, left = _divide(has[:, :, index], amounts[:, index], unit)
            fits &= left == 0
            touched[:, members] |= shares > 0
            if name == CPU and request.binding is not None:
                fits &= _binds(rows, request, bindable[:, members], shares)
        hinted = fits[:, None] & reported & (has > 0).all(axis=1)
        sets.append(SetFit(zones, fits, hinted, touched))
    return Fits(tuple(sets), reported, available)


def _unit(rows: NumaRows, request: NumaRequest, name: str) -> IntArray:
    """Return, ``(n,)``, what isn't divided between NUMA nodes."""
    if name != CPU or request.binding is None:
        return np.ones(len(rows.cpus_per_core), np.int64)
    whole = request.required_policy == CpuBindPolicy.FULL_PCPUS
    return np.multiply(MILLI, rows.cpus_per_core if whole else np.ones_like(rows.cpus_per_core))


def _divide(has: IntArray, amount: IntArray, unit: IntArray) -> tuple[IntArray, IntArray]:
    """Divide amounts ``(n,)`` over NUMA nodes ``(n, members)``, those that have least first.

    Returns the shares ``(n, members)`` and what is left.
    """
    order = np.argsort(has, axis=1, kind="stable")
    ascending = np.take_along_axis(has, order, axis=1)
    parts = ascending.shape[1]
    left = amount
    given = np.zeros_like(ascending)
    whole_cpus = np.where(unit > 1, MILLI, 1)
    for index in range(parts):
        rounded_up = -(-left // whole_cpus) * whole_cpus
        part = rounded_up // unit // (parts - index) * unit
        given[:, index] = np.minimum(ascending[:, index], part)
        left = left - given[:, index]
    shares = np.zeros_like(has)
    np.put_along_axis(shares, order, given, axis=1)
    return shares, left


def _binds(rows: NumaRows, request: NumaRequest, bindable: IntArray, shares: IntArray) -> BoolArray:
    """Return where the charged CPUs can be bound, as they are required."""
    count = request.binding.count if request.binding is not None else 0
    counts = np.minimum(bindable, shares // MILLI)
    binds: BoolArray = counts.sum(axis=1) == count
    if request.required_policy == CpuBindPolicy.FULL_PCPUS:
        binds &= (counts % rows.cpus_per_core[:, None] == 0).all(axis=1)
    return binds
