"""Host ports: one holder per address, protocol and number."""

import pytest
from tests.unit.scheduler.conftest import World
from tests.unit.scheduler.questions import built, hopeless, refused
from tests.worlds import add, node, pod

from koordinator.scheduler.ingest import Ingest
from koordinator.scheduler.plugins.node_ports import PLUGIN

REASON = "node(s) didn't have free ports for the requested pod ports"


@pytest.mark.parametrize(
    ("used", "wanted", "clash"),
    [
        (80, 80, True),
        (80, 81, False),
        ("10.0.0.1:80", "10.0.0.1:80", True),
        ("10.0.0.1:80", "10.0.0.2:80", False),
        ("10.0.0.1:80", 80, True),  # every address clashes with this one …
        (80, "10.0.0.1:80", True),  # … and this one with every address
        ("0.0.0.0:80", 80, True),
        (80, "80/UDP", False),
        ("10.0.0.1:80/UDP", "80/TCP", False),
        ("10.0.0.1:80/UDP", "80/UDP", True),
    ],
)
def test_port_of_any_address_conflicts_with_every_address(
    world: World, used: int | str, wanted: int | str, clash: bool
) -> None:
    """No address means all addresses."""
    state = world(node("n"), node("free"), pod("p", ports=[used], on="n"))
    plugin, pending = built(PLUGIN, state), pod("new", ports=[wanted])

    assert refused(plugin, state, pending) == ({"n": REASON} if clash else {})
    assert hopeless(plugin, state, pending) == set()  # the holder of the port may be evicted


def test_port_is_free_after_its_pod_is_deleted(world: World) -> None:
    """Of two pods on different addresses both must be deleted."""
    first, second = (pod(f"p{i}", ports=[f"10.0.0.{i}:80"], on="n") for i in (1, 2))
    state = world(node("n"), first, second)
    plugin, pending = built(PLUGIN, state), pod("new", ports=[80])

    Ingest(state).drop_placed(first)
    assert refused(plugin, state, pending) == {"n": REASON}
    Ingest(state).drop_placed(second)
    assert refused(plugin, state, pending) == {}


def test_sidecars_hold_ports_and_plain_init_containers_do_not(world: World) -> None:
    """Init containers have finished before the pod runs."""
    ports = [{"containerPort": 80, "hostPort": 80}]
    init = {"name": "i", "ports": ports}
    state = world(node("sidecar"), node("init"))
    add(
        state,
        pod("a", on="sidecar", initContainers=[init | {"restartPolicy": "Always"}]),
        pod("b", on="init", initContainers=[init]),
    )

    assert refused(built(PLUGIN, state), state, pod("new", ports=[80])) == {"sidecar": REASON}
