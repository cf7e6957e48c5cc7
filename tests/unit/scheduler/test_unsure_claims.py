"""Claim writes with an unknown outcome and late events: their devices stay allocated."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from tests.unit.scheduler.plugins.test_dynamic_resources import GPUS, claim, devices, slice_of, user
from tests.unit.scheduler.watches import restarted
from tests.worlds import START_S, node

from koordinator.api.dynamic_resources import ResourceClaim
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.cluster.port import NO_SELECTORS, Watch, WatchEvent
from koordinator.foundation.clock import VirtualClock
from koordinator.foundation.errors import ClusterError
from koordinator.scheduler.loop import Scheduler


class LateClaims:
    """Watch that delivers no events of claims while its cluster requires it."""

    def __init__(self, cluster: "UnsureCluster", watch: Watch) -> None:
        self._cluster, self._watch = cluster, watch
        self._kept: list[WatchEvent] = []

    def poll(self) -> Sequence[WatchEvent]:
        self._kept += self._watch.poll()
        is_late = self._cluster.is_late
        kept = [e for e in self._kept if is_late and isinstance(e.object, ResourceClaim)]
        brought, self._kept = [e for e in self._kept if e not in kept], kept
        return brought

    def refresh(self) -> None:
        self._watch.refresh()

    def close(self) -> None:
        self._watch.close()


class UnsureCluster(MemoryCluster):
    """Cluster with late events of claims and lost responses of status writes."""

    is_late = False
    loses = ""  # the answer, or the request
    is_silent = False  # reads of the claim c get no response

    def watch(  # type: ignore[override]  # the port's
        self,
        kind_types: Sequence[type[KubeObject]],
        field_selectors: Mapping[type[KubeObject], str] = NO_SELECTORS,
    ) -> LateClaims:
        return LateClaims(self, super().watch(kind_types, field_selectors))

    def get(self, kind: Any, name: str, namespace: str = "") -> Any:
        if kind is ResourceClaim and self.is_silent and name == "c":
            raise ClusterError("connection refused")
        return super().get(kind, name, namespace)

    def patch(
        self, kind_type: Any, name: str, namespace: str, merge_patch: Any, subresource: str = ""
    ) -> Any:
        lost = self.loses if kind_type is ResourceClaim and subresource == "status" else ""
        done = None
        if lost != "request":
            done = super().patch(kind_type, name, namespace, merge_patch, subresource)
        if lost:
            self.loses, self.is_silent = "", True
            raise ClusterError("connection lost")
        return done


def two_pods_for_one_gpu(loses: str) -> tuple[UnsureCluster, VirtualClock, Scheduler]:
    """Return a scheduler after one attempt with an unknown outcome."""
    clock = VirtualClock(START_S)
    cluster = UnsureCluster(clock)
    cluster.load([node("n"), slice_of("n", 1), GPUS, claim("c"), claim("d")])
    scheduler = restarted(cluster, clock)
    scheduler.step()
    cluster.load([user("p", "c")])
    cluster.is_late, cluster.loses = True, loses
    scheduler.step()
    cluster.load([user("q", "d")])
    scheduler.step()
    return cluster, clock, scheduler


def given(cluster: UnsureCluster) -> dict[str, list[str]]:
    """Return the stored devices of each claim."""
    cluster.is_silent = False
    return {c.metadata.name: devices(c) for c in cluster.list(ResourceClaim).items}


@pytest.mark.parametrize("loses", ["answer", "request"])
def test_device_with_an_unknown_allocation_is_not_reallocated(loses: str) -> None:
    """Once the cluster shows the outcome, it goes to one of the two pods."""
    cluster, clock, scheduler = two_pods_for_one_gpu(loses)
    scheduler.step()
    cluster.is_late = False
    assert given(cluster)["d"] == []

    for _ in range(30):
        clock.advance_to(clock.now_s() + 15)
        scheduler.step()
    got = given(cluster)
    assert sorted(map(len, got.values())) == [0, 1]
    bound = [p.metadata.name for p in cluster.list(Pod).items if p.spec.node_name]
    assert bound == ["p" if got["c"] else "q"]
    scheduler.validate()


def test_deleted_claim_is_resolved() -> None:
    """The device of the deleted claim goes to the other pod."""
    cluster, clock, scheduler = two_pods_for_one_gpu("request")
    cluster.is_silent, cluster.is_late = False, False
    cluster.delete(Pod, "p", "default")
    cluster.delete(ResourceClaim, "c", "default")
    free = cluster.get(ResourceClaim, "c", "default") if "c" in given(cluster) else None
    if free is not None:  # its finalizer was written
        cluster.patch(ResourceClaim, "c", "default", {"metadata": {"finalizers": None}})
    for _ in range(30):
        clock.advance_to(clock.now_s() + 15)
        scheduler.step()
    assert given(cluster)["d"] == ["n/gpu-0"]
