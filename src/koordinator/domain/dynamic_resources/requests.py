"""Requests of claims: alternatives, device classes and compiled selectors.

Source: k8s.io/dynamic-resource-allocation structured/internal/incubating/allocator_incubating.go
``validateDeviceRequest``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Final

from koordinator.api.dynamic_resources import (
    ALL,
    DeviceClaimRequest,
    DeviceClaimSpec,
    DeviceClass,
    DeviceSelector,
    DeviceSubRequest,
    DeviceToleration,
    ExactDeviceRequest,
    ResourceClaim,
)
from koordinator.domain.dynamic_resources.inventory import InventoryDevice
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.lazy_module import lazy_module
from koordinator.foundation.quantity import Quantity

if TYPE_CHECKING:
    from koordinator.domain.dynamic_resources import selectors
    from koordinator.foundation import cel
else:  # without selectors, nothing evaluates expressions
    selectors = lazy_module("koordinator.domain.dynamic_resources.selectors")
    cel = lazy_module("koordinator.foundation.cel")

_MISSING_KEY_HINT: Final = (
    "consider using CEL optional chaining (.? followed by orValue()) or guarding the check with "
    "has() for optional fields"
)
FindClass = Callable[[str], DeviceClass | None]


class AllocationError(Exception):
    """A claim can't be evaluated on a node, for instance because a pool is being updated."""


class BrokenSelectorError(AllocationError):
    """A selector failed on a device, for instance because an attribute is missing."""

    def __init__(self, label: str, device: str, reason: str) -> None:
        super().__init__(f"{label}: CEL runtime error: {reason}")
        self._label, self._device, self._reason = label, device, reason

    def with_device(self) -> str:
        """Return the message of Kubernetes 1.37, which names the device and a remedy."""
        hint = f". {_MISSING_KEY_HINT}" if "no such key:" in self._reason else ""
        return f"{self._label} on device {self._device}: CEL runtime error: {self._reason}{hint}"


@dataclass(frozen=True, slots=True)
class SelectorCondition:
    """A selector, and its label in errors."""

    label: str  # class gpu: selector #0, or claim ns/name: selector #1
    expression: str
    program: "cel.CelProgram | InputError"

    def matches(self, device: InventoryDevice) -> bool:
        """Return whether the device matches.  Raises AllocationError."""
        if isinstance(self.program, InputError):
            raise AllocationError(f"{self.label}: CEL compile error: {self.program}")
        try:
            return device.matches(self.program)
        except cel.CelError as error:
            name = "/".join(device.id)
            raise BrokenSelectorError(self.label, name, str(error)) from None


@dataclass(frozen=True, slots=True)
class RequestOption:
    """A request, or one of its alternatives."""

    name: str  # name in results: r0, or r0/s1
    short_name: str  # name in errors: r0, or s1
    device_class: DeviceClass
    conditions: tuple[SelectorCondition, ...]
    takes_all: bool
    count: int
    admin_access: bool
    tolerations: tuple[DeviceToleration, ...]
    capacity: Mapping[str, Quantity] = field(default_factory=dict)
    is_derived: bool = False  # computes attributes of devices, which is not supported

    def selects(self, device: InventoryDevice) -> bool:
        """Return whether all conditions hold for the device.  Raises AllocationError."""
        return all(condition.matches(device) for condition in self.conditions)


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """A request; its first satisfiable option is used."""

    name: str
    options: tuple[RequestOption, ...]
    has_alternatives: bool


@dataclass(frozen=True, slots=True)
class PendingClaim:
    """A claim without allocation."""

    key: str  # namespace/name
    uid: str
    spec: DeviceClaimSpec
    requests: tuple[ClaimRequest, ...]

    @property
    def has_alternatives(self) -> bool:
        """Whether a request has alternatives, so that nodes may differ in score."""
        return any(request.has_alternatives for request in self.requests)


def pending_claim(claim: ResourceClaim, find_class: FindClass) -> PendingClaim | str:
    """Return the parsed requests of a claim, or the reason why no node can satisfy them."""
    requests = []
    for request in claim.spec.devices.requests:
        known = _request(claim.key, request, find_class)
        if isinstance(known, str):
            return known
        requests.append(known)
    return PendingClaim(claim.key, claim.metadata.uid, claim.spec.devices, tuple(requests))


def _request(key: str, request: DeviceClaimRequest, find_class: FindClass) -> ClaimRequest | str:
    options = []
    parts: Sequence[tuple[str, str, ExactDeviceRequest | DeviceSubRequest]] = (
        [(request.name, request.name, request.exactly)]
        if request.exactly is not None
        else [(f"{request.name}/{sub.name}", sub.name, sub) for sub in request.first_available]
    )
    if not parts:
        return f"request {request.name}: unknown request type"
    for name, short_name, part in parts:
        known = find_class(part.device_class_name)
        if known is None:
            return f"request {name}: device class {part.device_class_name} does not exist"
        options.append(_option(key, name, short_name, part, known))
    return ClaimRequest(request.name, tuple(options), has_alternatives=request.exactly is None)


def _option(
    key: str,
    name: str,
    short_name: str,
    part: ExactDeviceRequest | DeviceSubRequest,
    device_class: DeviceClass,
) -> RequestOption:
    of_class = f"class {device_class.metadata.name}"
    return RequestOption(
        name,
        short_name,
        device_class,
        (
            *_conditions(of_class, device_class.spec.selectors),
            *_conditions(f"claim {key}", part.selectors),
        ),
        takes_all=part.allocation_mode == ALL,
        count=max(part.count, 1),
        admin_access=isinstance(part, ExactDeviceRequest) and bool(part.admin_access),
        tolerations=part.tolerations,
        capacity=part.capacity.requests if part.capacity is not None else {},
        is_derived=bool(part.derived_attributes),
    )


def _conditions(owner: str, declared: Sequence[DeviceSelector]) -> tuple[SelectorCondition, ...]:
    return tuple(
        SelectorCondition(
            f"{owner}: selector #{index}",
            selector.cel.expression,
            selectors.compile_selector(selector.cel.expression),
        )
        for index, selector in enumerate(declared)
        if selector.cel is not None
    )
