"""What devices of one claim must have in common, or must not.

Source: k8s.io/dynamic-resource-allocation structured/internal/incubating/allocator_incubating.go
``matchAttributeConstraint``; structured/internal/incubating/constraint.go for distinct ones.
"""

from dataclasses import dataclass, field
from typing import Any

from koordinator.api.dynamic_resources import DeviceConstraint
from koordinator.domain.dynamic_resources.inventory import OfferedDevice
from koordinator.domain.dynamic_resources.requests import RequestOption


@dataclass(slots=True)
class AttributeConstraint:
    """Holds the values of an attribute that the devices so far have, in the order they came."""

    attribute: str
    requests: tuple[str, ...]  # those that it is about; none: all
    is_distinct: bool
    _values: list[Any] = field(default_factory=list)

    @classmethod
    def of(cls, constraint: DeviceConstraint) -> "AttributeConstraint | None":
        """Return the constraint at the start of a search; None if it says nothing."""
        if constraint.match_attribute is not None:
            return cls(constraint.match_attribute, constraint.requests, is_distinct=False)
        if constraint.distinct_attribute is not None:
            return cls(constraint.distinct_attribute, constraint.requests, is_distinct=True)
        return None

    def concerns(self, option: RequestOption) -> bool:
        """Return whether devices of a request are constrained."""
        if not self.requests:
            return True
        return option.name in self.requests or option.name.partition("/")[0] in self.requests

    def add(self, device: OfferedDevice) -> bool:
        """Take in a device; return False, and leave it out, if that breaks the constraint."""
        value = device.attribute(self.attribute)
        if value is None:
            return False
        if self._values and (value in self._values) is self.is_distinct:
            return False
        self._values.append(value)
        return True

    def take_back(self) -> None:
        """Forget the device that came last."""
        self._values.pop()
