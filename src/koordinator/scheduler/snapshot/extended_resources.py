"""Extended resources and GPUs that resource claims allocate.

Of several classes with one resource name the newest counts, of equally old ones the first by name.

A claim keeps its devices even if the pod that uses it is unknown.
"""

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from koordinator.api.core import ResourceList
from koordinator.api.device import DeviceType
from koordinator.api.dynamic_resources import DeviceClass, ResourceClaim
from koordinator.api.pod import PodSpec
from koordinator.domain.devices.allocation import Allocation
from koordinator.domain.dynamic_resources.extended_resources import owner_of, resources_of
from koordinator.domain.dynamic_resources.node_gpus import ClaimedGpu, claimed_gpus
from koordinator.scheduler.snapshot.nodes import NodeTable
from koordinator.scheduler.snapshot.objects import ChangeLog

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
            for requests in _requests(spec)
            for name, amount in requests.items()
            if name in self.classes and amount.nanos > 0
        }


def _requests(spec: PodSpec) -> Iterable[ResourceList]:
    for container in (*spec.init_containers, *spec.containers):
        yield container.resources.requests


class ClaimedGpuTable:
    """Written by ``ClusterState`` only; rows whose devices change are logged."""

    def __init__(self, nodes: NodeTable, log: ChangeLog) -> None:
        self._nodes, self._log = nodes, log
        self._of_claim: dict[str, Mapping[str, tuple[ClaimedGpu, ...]]] = {}  # by key, by node
        self._on_node: dict[str, dict[str, tuple[ClaimedGpu, ...]]] = {}  # by name, by claim
        self._charged: dict[str, Allocation] = {}  # by name of a node that is known

    def take(self, key: str, claim: ResourceClaim | None) -> None:
        """Apply a version of a claim; None: it was deleted."""
        before = self._of_claim.pop(key, {})
        after = claimed_gpus(claim) if claim is not None else {}
        if after:
            self._of_claim[key] = after
        if before == after:
            return
        for name in {*before, *after}:
            claims = self._on_node.setdefault(name, {})
            claims.pop(key, None)
            if name in after:
                claims[key] = after[name]
            if not claims:
                del self._on_node[name]
            self.release(name)
            self.charge(name)

    def release(self, name: str) -> None:
        """Charge a node no more, as before its report changes or it goes."""
        charged = self._charged.pop(name, None)
        if charged is not None:
            row = self._nodes.rows[name]
            self._nodes.devices.charge(row, charged, -1)
            self._log.append(row)

    def charge(self, name: str) -> None:
        """Charge a node that is not charged yet, by its reported devices."""
        row, claims = self._nodes.rows.get(name), self._on_node.get(name)
        if row is None or not claims:
            return
        devices = self._nodes.devices
        totals = devices.columns[DeviceType.GPU].total[row]
        none = (0,) * totals.shape[1]
        charged = self._charged[name] = {
            DeviceType.GPU: tuple(
                gpu.taken(totals[gpu.minor].tolist() if gpu.minor < len(totals) else none)
                for gpus in claims.values()
                for gpu in gpus
            )
        }
        devices.charge(row, charged, 1)
        self._log.append(row)

    def charged(self) -> Iterator[tuple[int, Allocation]]:
        """Yield the rows that are charged, with what."""
        for name, allocation in self._charged.items():
            yield self._nodes.rows[name], allocation
