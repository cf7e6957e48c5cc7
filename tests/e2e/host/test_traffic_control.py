"""Classes of bandwidth on real packets: node, two pods and world in network namespaces."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.e2e.host.network_tools import environment
from tests.nodes import Tree, slo
from tests.unit.koordlet.qos.test_network import LIMIT, with_address

from koordinator.foundation.errors import HostError
from koordinator.host.linux.programs import LinuxNetworkTools
from koordinator.koordlet.executor.traffic_control import TrafficControl
from koordinator.koordlet.qos.tc_network import SETS, NetworkShape, plan_network_shape

if os.geteuid() != 0:
    pytest.skip("network namespaces need root", allow_module_level=True)

WORLD, NODE, LATENCY, BATCH = "192.0.2.1", "192.0.2.2", "10.9.0.2", "10.9.1.2"
MBIT = 1_000_000
_SECONDS = 2.0
_RECEIVE = """
import socket, sys, time
server = socket.create_server(("0.0.0.0", int(sys.argv[1])))
print("listening", flush=True)
peer, _ = server.accept()
peer.recv(1)
start, got = time.monotonic(), 0
while chunk := peer.recv(1 << 16):
    got += len(chunk)
print(got * 8 / (time.monotonic() - start))
"""
_SEND = """
import socket, sys, time
sender = socket.create_connection((sys.argv[1], int(sys.argv[2])))
end = time.monotonic() + float(sys.argv[3])
while time.monotonic() < end:
    sender.send(bytes(1 << 14))
"""


class Network:
    """``node`` routes between two pods and the world, and hides pods behind its own address."""

    def __init__(self, tools: dict[str, str]) -> None:
        self._env = ["env", *(f"{name}={value}" for name, value in tools.items())]
        self._processes = {
            name: subprocess.Popen(
                ["unshare", "--net", "sh", "-c", "echo; exec sleep 1000"],  # noqa: S607 -- of PATH
                stdout=subprocess.PIPE,
            )
            for name in ("node", "world", "latency", "batch")
        }
        for process in self._processes.values():
            assert process.stdout is not None
            process.stdout.readline()
        self._connect("eth0", f"{NODE}/24", "world", f"{WORLD}/24")
        self._connect("pod0", "10.9.0.1/24", "latency", f"{LATENCY}/24")
        self._connect("pod1", "10.9.1.1/24", "batch", f"{BATCH}/24")
        self.run("node", "ip", "route", "add", "default", "via", WORLD)
        for pod in ("latency", "batch"):
            via = "10.9.0.1" if pod == "latency" else "10.9.1.1"
            self.run(pod, "ip", "route", "add", "default", "via", via)
        self.run("node", "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        hide = "-t nat -A POSTROUTING -s 10.9.0.0/16 -o eth0 -j MASQUERADE"
        self.run("node", "iptables", *hide.split())
        self._ports = iter(range(4000, 5000))

    def prefix(self, place: str) -> list[str]:
        """Return what runs a command in a namespace."""
        return ["nsenter", f"--net=/proc/{self._processes[place].pid}/ns/net", *self._env]

    def run(self, place: str, *words: str) -> str:
        """Run a command there; return what it printed."""
        command = [*self.prefix(place), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout

    def sent_bps(self, place: str) -> float:
        """Send at full speed; return the rate."""
        port = str(next(self._ports))
        receiver = subprocess.Popen(
            [*self.prefix("world"), sys.executable, "-c", _RECEIVE, port], stdout=subprocess.PIPE
        )
        assert receiver.stdout is not None
        receiver.stdout.readline()
        self.run(place, sys.executable, "-c", _SEND, WORLD, port, str(_SECONDS))
        output, _ = receiver.communicate(timeout=60)
        return float(output)

    def sent_bytes(self) -> dict[str, int]:
        """Return the bytes sent by each class."""
        shown = self.run("node", "tc", "-s", "class", "show", "dev", "eth0")
        matches = re.findall(r"class htb (\S+) .*\n Sent (\d+) bytes", shown)
        return {name: int(count) for name, count in matches}

    def close(self) -> None:
        """End the namespaces."""
        for process in self._processes.values():
            process.kill()
            process.communicate()

    def _connect(self, device: str, address: str, other: str, other_address: str) -> None:
        pid = str(self._processes[other].pid)
        pair = ("ip", "link", "add", device, "type", "veth", "peer", "name", "eth0", "netns", pid)
        self.run("node", *pair)
        for place, name, its in (("node", device, address), (other, "eth0", other_address)):
            self.run(place, "ip", "address", "add", its, "dev", name)
            self.run(place, "ip", "link", "set", name, "up")


@pytest.fixture(scope="module")
def tools() -> dict[str, str]:
    """Return where the programs are."""
    try:
        return environment()
    except OSError as error:
        pytest.skip(f"iptables and ipset: {error}")


@pytest.fixture
def network(tools: dict[str, str]) -> Iterator[Network]:
    made = Network(tools)
    yield made
    made.close()


def shape(limits: Sequence[str] = (), **classes: Any) -> NetworkShape:
    """Return what is planned for both pods on 100 Mbit/s; some are limited to 8 Mbit/s."""
    tree = Tree()
    own = {name: {LIMIT: '{"egressLimit":"8M"}'} for name in limits}
    pods = [
        with_address(tree, name, qos, address, annotations=own.get(name, {}))
        for name, qos, address in (("latency", "LS", LATENCY), ("batch", "BE", BATCH))
    ]
    spec = slo(
        systemStrategy={"totalNetworkBandwidth": "100M"},
        resourceQOSStrategy={
            name: {"networkQOS": {"enable": True, **stated}} for name, stated in classes.items()
        },
    )
    shape_plan = plan_network_shape(tree.view(*pods, slo=spec))
    assert shape_plan is not None
    return shape_plan


def test_a_class_sends_no_more_than_it_may(network: Network) -> None:
    """Behind the address of the node, too; what belongs to no pod is the system's."""
    control = TrafficControl(LinuxNetworkTools(network.prefix("node")))
    ls, be = {"egressRequest": 50, "egressLimit": 90}, {"egressRequest": 5, "egressLimit": 8}
    lacks = control.shape(shape(lsClass=ls, beClass=be))

    assert network.sent_bps("batch") < 10 * MBIT
    assert network.sent_bps("latency") > 12 * MBIT
    sent = network.sent_bytes()
    assert sent["1:4"] < sent["1:3"]
    before = sent["1:2"]
    network.sent_bps("node")
    assert network.sent_bytes()["1:2"] - before > 1_000_000
    assert all("cgroup" in each for each in lacks)  # what this kernel may not have


def test_a_pod_with_a_limit_has_it_alone_and_loses_it_again(network: Network) -> None:
    """Nothing that was set before is left, and nothing that others have set is touched."""
    control = TrafficControl(LinuxNetworkTools(network.prefix("node")))
    control.shape(shape(["latency"]))
    limited = network.sent_bps("latency")
    classes = set(network.sent_bytes())

    control.shape(shape())
    control.shape(shape())  # twice is once
    free = network.sent_bps("latency")

    assert limited < 10 * MBIT < 12 * MBIT < free
    assert len(classes) == 5
    assert set(network.sent_bytes()) == {"1:1", "1:2", "1:3", "1:4"}
    rules = network.run("node", "iptables", "-t", "mangle", "-S", "POSTROUTING").splitlines()
    assert rules.count("-A POSTROUTING -j KOORDLET-NETQOS") == 1


def test_disabling_removes_all_rules(network: Network) -> None:
    """Rules are removed even if they were disabled before, or if some of them are missing."""
    control = TrafficControl(LinuxNetworkTools(network.prefix("node")))
    control.shape(shape(["batch"]))
    network.run("node", "iptables", "-t", "mangle", "-F", "KOORDLET-NETQOS")

    control.clear(tuple(SETS.values()))
    control.clear(tuple(SETS.values()))

    assert "htb" not in network.run("node", "tc", "qdisc", "show", "dev", "eth0")
    assert network.run("node", "ipset", "list", "-name") == ""
    assert "KOORDLET" not in network.run("node", "iptables", "-t", "mangle", "-S")
    assert "MASQUERADE" in network.run("node", "iptables", "-t", "nat", "-S")


def test_missing_route_or_tools_are_reported(network: Network) -> None:
    """Errors name the command."""
    network.run("node", "ip", "route", "del", "default")
    with pytest.raises(HostError, match="default route"):
        TrafficControl(LinuxNetworkTools(network.prefix("node"))).shape(shape())
    with pytest.raises(HostError, match="ip -j -4 route show default"):
        TrafficControl(LinuxNetworkTools(["/nowhere"])).shape(shape())


def test_many_pods_are_matched_by_a_set(network: Network) -> None:
    """A set takes them in one step, whatever was in it."""
    control = TrafficControl(LinuxNetworkTools(network.prefix("node")))
    wanted = shape()
    addresses = frozenset(f"10.{i // 250}.{i % 250}.7" for i in range(1000))
    first, *others = wanted.sets
    control.shape(replace(wanted, sets=(replace(first, addresses=addresses), *others)))
    control.shape(wanted)

    shown = network.run("node", "ipset", "list", first.name)
    assert "Number of entries: 0" in shown
