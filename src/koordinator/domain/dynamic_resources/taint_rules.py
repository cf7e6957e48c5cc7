"""Device taints set by administrators in addition to the drivers' taints.

Source: k8s.io/dynamic-resource-allocation resourceslice/tracker/tracker.go ``applyPatches``.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from koordinator.api.dynamic_resources import (
    DeviceTaintRule,
    DeviceTaintSelector,
    PoolDevice,
    ResourceSlice,
    ResourceSliceSpec,
)

_EVERY = DeviceTaintSelector()


def concerns(rule: DeviceTaintRule, spec: ResourceSliceSpec) -> bool:
    """Return whether a rule may select a device of a slice."""
    wanted = _selector(rule)
    return (
        wanted is not None
        and wanted.driver in {None, spec.driver}
        and wanted.pool in {None, spec.pool.name}
    )


def with_taints(item: ResourceSlice, rules: Iterable[DeviceTaintRule]) -> ResourceSlice:
    """Return a slice whose devices also have the taints of the rules, in order of the rules."""
    those = [rule for rule in rules if concerns(rule, item.spec)]
    if not those:
        return item
    devices = tuple(_tainted(device, those) for device in item.spec.devices)
    return replace(item, spec=replace(item.spec, devices=devices))


def _tainted(device: PoolDevice, rules: Iterable[DeviceTaintRule]) -> PoolDevice:
    added = tuple(
        rule.spec.taint
        for rule in rules
        if (wanted := _selector(rule)) is not None and wanted.device in {None, device.name}
    )
    return replace(device, taints=(*device.taints, *added)) if added else device


def _selector(rule: DeviceTaintRule) -> DeviceTaintSelector | None:
    """Return a rule's selector; None if it selects nothing.

    Before v1, a missing selector selects every device.
    """
    wanted = rule.spec.device_selector
    return _EVERY if wanted is None and type(rule) is not DeviceTaintRule else wanted
