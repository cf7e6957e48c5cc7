"""The agent applies the network settings of its NodeSLO and removes them again."""

import pytest
from tests.nodes import pod, slo
from tests.unit.koordlet.app.world import World

from koordinator.api.meta import ObjectMeta
from koordinator.api.node_slo import NodeSlo
from koordinator.foundation.errors import ClusterError, HostError
from koordinator.koordlet.app.options import gates_of

TERWAY = "/var/lib/terway/qos"


class PlayedTools:
    """Machine with one interface and without ``cls_cgroup``; calls fail while ``problem`` is set.

    ``rates`` are the rates set on the root class, None for a removal.
    """

    def __init__(self) -> None:
        self.rates: list[str | None] = []
        self.problem = ""

    def run(self, *words: str, text: str = "") -> str:
        if self.problem:
            raise HostError(self.problem)
        if words[0] == "ip":
            return '[{"dst":"default","dev":"eth0"}]'
        if words[:3] == ("tc", "filter", "replace"):
            raise HostError("no such classifier")
        if words == ("tc", "-batch", "-"):
            (root,) = (line for line in text.splitlines() if "classid 1:1 " in line)
            self.rates.append(root.split()[10])
        if words[:2] == ("ipset", "destroy") and words[2] == "be_class":
            self.rates.append(None)
        return ""


def follow(world: World, policy: str, total: str = "100M", request: int = 50) -> None:
    """Give the node a NodeSLO, and the agent and its outbox some seconds."""
    on = {"networkQOS": {"enable": True, "egressRequest": request}}
    spec = slo(
        systemStrategy={"totalNetworkBandwidth": total},
        resourceQOSStrategy={
            "policies": {"netQOSPolicy": policy},
            "lsClass": on,
            "beClass": on,
        },
    )
    node_slo = NodeSlo(metadata=ObjectMeta(name="n1"), spec=spec)
    try:
        world.cluster.create(node_slo)
    except ClusterError:
        world.cluster.update(node_slo)
    live(world, 3)


def live(world: World, seconds: int) -> None:
    """Advance the clock, and run the jobs of the outbox."""
    for _ in range(seconds):
        world.seconds(1)
        world.outbox.deliver(world.cluster)


def audited(world: World) -> list[str]:
    """Return what was done to the network, and what went wrong."""
    events = [event for event in world.agent.audit.events if event.type == "network"]
    return [event.error or event.after for event in events]


@pytest.fixture
def tools() -> PlayedTools:
    return PlayedTools()


@pytest.fixture
def world(tools: PlayedTools) -> World:
    made = World(gates=gates_of({"TCNetworkQoS": True, "TerwayQoS": True}))
    made.agent = made.start(network_tools=tools)
    return made


def test_classes_are_made_when_something_changes(world: World, tools: PlayedTools) -> None:
    """Classes are also written once a minute, because other programs may change them."""
    follow(world, "tc")
    world.add(pod("a", "LS"))
    live(world, 5)
    assert [rate for rate in tools.rates if rate] == ["100000000bit"]
    live(world, 60)
    assert [rate for rate in tools.rates if rate] == ["100000000bit"] * 2

    follow(world, "tc", "200M")
    assert tools.rates[-1] == "200000000bit"
    follow(world, "terway-qos")
    assert tools.rates[-1] is None


def test_invalid_bandwidth_is_audited_once_and_the_previous_shape_stays(
    world: World, tools: PlayedTools
) -> None:
    """Requests of more than the node has; a kernel that can't choose by process."""
    follow(world, "tc")
    before = list(tools.rates)
    follow(world, "tc", request=60)
    live(world, 20)

    assert tools.rates == before
    entries = audited(world)
    assert [each for each in entries if "must be at most 100000000 bit/s together" in each] != []
    assert len(entries) == len(set(entries))


def test_a_tool_that_fails_is_tried_again(world: World, tools: PlayedTools) -> None:
    """After ten seconds."""
    tools.problem = "tc: No such file or directory"
    follow(world, "tc")
    assert tools.problem in audited(world)
    tools.problem = ""
    live(world, 12)

    assert tools.rates[-1] == "100000000bit"
    assert audited(world)[-1] != tools.problem


def test_terway_has_its_files_while_it_has_the_say(world: World) -> None:
    """A change of the policy removes the files of Terway."""
    follow(world, "terway-qos")
    host = world.tree.host
    view = world.add(pod("a", "BE"))
    live(world, 2)
    assert host.read(f"{TERWAY}/global_bps_config").startswith("hw_tx_bps_max 12500000\n")
    assert view.uid in host.read(f"{TERWAY}/pod.json")

    follow(world, "tc")

    assert host.names(TERWAY) == []


def test_nothing_is_touched_without_the_gates(tools: PlayedTools) -> None:
    """The feature gates are off by default."""
    world = World()
    world.agent = world.start(network_tools=tools)
    follow(world, "tc")
    follow(world, "terway-qos")

    assert tools.rates == []
    assert world.tree.host.names(TERWAY) == []
