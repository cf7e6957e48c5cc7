"""Nodes that show more than they have.

Source: koordinator pkg/slo-controller/noderesource/plugins/resourceamplification/plugin.go;
pkg/webhook/node/plugins/resourceamplification/resource_amplification.go.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from koordinator.api.annotations.node import RAW_ALLOCATABLE, read_amplification_ratios
from koordinator.api.core import ResourceList
from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Node
from koordinator.api.resource_names import CPU, MEMORY
from koordinator.foundation.errors import InputError
from koordinator.foundation.quantity import Quantity
from koordinator.manager.node_resources.amounts import NANOS_PER_MILLI

_AMPLIFIED = (CPU, MEMORY)


def amplification_ratios(
    configured: Mapping[str, float], normalization: float | None
) -> dict[str, float]:
    """Return the ratios a node is to have; a CPU that is worth more counts as more.

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
    """Return metadata and allocatable resources of a node whose kubelet has reported.

    What the kubelet reports is kept in an annotation; what it repeats of our own making is not
    taken for a change.
    Raises InputError for an annotation that can't be read.
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
