"""The DeviceClass of each extended resource, and the claims created for them.

Of several classes with one resource name the newest counts, of equally old ones the first by name.
"""

import datetime as dt
from collections.abc import Iterable
from typing import Final

from koordinator.api.core import ResourceList
from koordinator.api.dynamic_resources import DeviceClass, ResourceClaim
from koordinator.api.pod import PodSpec
from koordinator.domain.dynamic_resources.extended_resources import owner_of, resources_of

_LONG_AGO: Final = dt.datetime.min.replace(tzinfo=dt.UTC)


class ExtendedResources:
    """Written by ``ClusterState`` only."""

    def __init__(self) -> None:
        self.classes: dict[str, str] = {}  # by resource
        self.version = 0  # of the above
        self.claims: dict[str, str] = {}  # keys of claims by the uid of the pod they are for
        self._offers: dict[str, dict[str, dt.datetime]] = {}  # by resource, by class
        self._of_class: dict[str, tuple[str, ...]] = {}  # resources by class
        self._owners: dict[str, str] = {}  # uids of pods by claim

    def take_class(self, name: str, device_class: DeviceClass | None) -> None:
        """Apply a version of a class; None: it was deleted."""
        before = self._of_class.pop(name, ())
        for resource in before:
            del self._offers[resource][name]
        after = tuple(resources_of(device_class)) if device_class is not None else ()
        if device_class is not None:
            self._of_class[name] = after
            for resource in after:
                created = device_class.metadata.creation_timestamp or _LONG_AGO
                self._offers.setdefault(resource, {})[name] = created
        for resource in {*before, *after}:
            self._choose(resource)

    def _choose(self, resource: str) -> None:
        offers = self._offers[resource]
        if not offers:
            del self._offers[resource], self.classes[resource]
            self.version += 1
            return
        newest = max(offers.values())
        chosen = min(name for name, created in offers.items() if created == newest)
        if self.classes.get(resource) != chosen:
            self.classes[resource] = chosen
            self.version += 1

    def take_claim(self, key: str, claim: ResourceClaim | None) -> None:
        """Apply a version of a claim; None: it was deleted."""
        owner = owner_of(claim) if claim is not None else ""
        before = self._owners.pop(key, "")
        if owner:
            self._owners[key] = owner
        if before != owner and self.claims.get(before) == key:
            del self.claims[before]
        if owner:
            self.claims.setdefault(owner, key)

    def served(self, spec: PodSpec) -> dict[str, str]:
        """Return the classes that serve a pod's extended resources, by resource."""
        if not self.classes:
            return {}
        return {
            name: self.classes[name]
            for asked in _requests(spec)
            for name, amount in asked.items()
            if name in self.classes and amount.nanos > 0
        }


def _requests(spec: PodSpec) -> Iterable[ResourceList]:
    for container in (*spec.init_containers, *spec.containers):
        yield container.resources.requests
