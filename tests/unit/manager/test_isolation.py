"""Faults that one object causes in a controller: all other objects are reconciled."""

from typing import Any

import pytest
from msgspec.structs import replace
from tests.unit.manager.admission.requests import request
from tests.unit.manager.admission.test_validation import quota
from tests.unit.manager.node_resources.nodes import amounts, node
from tests.unit.manager.test_app import ON, World

from koordinator.api.codec import decode_object
from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.node import Node
from koordinator.api.node_metric import NodeMetric
from koordinator.api.node_slo import NodeSlo
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.foundation.clock import VirtualClock
from koordinator.foundation.errors import Fault
from koordinator.manager.admission.quotas import mutate_quota
from koordinator.manager.app import Manager, ManagerOptions
from koordinator.manager.lookups import WatchLookup
from koordinator.manager.mirror import Mirror
from koordinator.manager.quota_view import QuotaView

RECONCILERS = ("_reconcile_metric", "_reconcile_slo", "_reconcile_resource")


class Boom(Exception):  # noqa: N818 -- an unexpected error
    """Raised by a broken part."""


def kept(world: World, *names: str) -> dict[str, Any]:
    """Return what the manager makes of nodes, but for the one called evil."""
    world.configure(colocation=ON, resource_threshold={"clusterStrategy": {"enable": True}})
    one = node(amounts(10, "10G"))
    world.add(*(replace(one, metadata=replace(one.metadata, name=name)) for name in names))
    for _ in range(10):
        world.run()
        world.clock.advance_to(world.clock.now_s() + 1)
    kinds = (Node, NodeMetric, NodeSlo)
    return {
        f"{obj.KIND} {obj.key}": (obj.metadata.annotations, getattr(obj, "spec", None))
        for kind in kinds
        for obj in world.cluster.list(kind).items
        if obj.key != "evil"
    }


def isolated() -> tuple[World, list[Fault]]:
    world, faults = World(), list[Fault]()
    world.manager = Manager(world.cluster, world.clock, ManagerOptions(), on_fault=faults.append)
    return world, faults


@pytest.mark.parametrize("name", RECONCILERS)
def test_a_controller_that_breaks_on_one_node_keeps_up_the_others(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken controller retries the node with backoff; other controllers serve it normally."""
    own = getattr(Manager, name)

    def broken(self: Manager, key: str) -> Any:
        if key == "evil":
            raise Boom
        return own(self, key)

    monkeypatch.setattr(Manager, name, broken)
    world, faults = isolated()

    result = kept(world, "a", "evil", "b")

    monkeypatch.undo()
    assert result == kept(World(), "a", "b")
    assert {(fault.stage, fault.about) for fault in faults} == {("reconcile", "evil")}
    assert 2 < len(faults) < 30


def test_a_node_that_cannot_be_taken_in_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """All others are kept up."""
    own = Mirror.put

    def broken(self: Any, obj: Any) -> Any:
        if obj.metadata.name == "evil":
            raise RecursionError
        return own(self, obj)

    monkeypatch.setattr(Mirror, "put", broken)
    world, faults = isolated()

    result = kept(world, "a", "evil", "b")

    monkeypatch.undo()
    assert result == kept(World(), "a", "b")
    assert str(faults[0]) == 'Node evil: internal error: news of "Node": RecursionError'


def test_without_a_handler_a_fault_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test without a fault handler fails on an unexpected error."""

    def broken(*_: Any) -> Any:
        raise Boom

    monkeypatch.setattr(Manager, "_reconcile_slo", broken)
    with pytest.raises(Boom):
        kept(World(), "a")


def test_a_quota_that_cannot_be_taken_in_spoils_no_review(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Requests about all other objects are answered."""
    clock = VirtualClock()
    memory_cluster = MemoryCluster(clock)
    memory_cluster.load(decode_object(quota(name)) for name in ("evil", "good"))
    faults: list[Fault] = []
    lookup = WatchLookup(memory_cluster, lambda: 0, clock, on_fault=faults.append)
    take = QuotaView.take_event

    def broken(self: QuotaView, kind: Any, one: ElasticQuota) -> Any:
        if one.metadata.name == "evil":
            raise Boom
        return take(self, kind, one)

    monkeypatch.setattr(QuotaView, "take_event", broken)

    lookup.follow()

    assert lookup.is_synced
    assert [str(fault) for fault in faults] == [
        'ElasticQuota default/evil: internal error: admission news of "ElasticQuota": Boom'
    ]
    child = mutate_quota(request(quota("child", "good")), lookup, frozenset())
    assert child["metadata"]["labels"]["quota.scheduling.koordinator.sh/parent"] == "good"
