"""Bandwidth of real pods: the agent's classes, read back with tc where the node's packets leave."""

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml
from tests.e2e.host.network_tools import environment
from tests.e2e.node.conftest import StartAgent
from tests.e2e.real_node import RealNode
from tests.e2e.real_node.node import Manifest, pod
from tests.e2e.waiting import eventually

UPLINK, HERE, WORLD = "uplink0", "192.0.2.2", "192.0.2.1"
TOTAL_BPS = 100_000_000
OWN_BPS = 8_000_000
_SENDS = f"ping -c 1000000 -s 1000 {WORLD} > /dev/null; sleep 2147483647"
Classes = dict[str, tuple[int, int]]  # by classid: bit/s that it is guaranteed, bytes sent


@pytest.fixture
def uplink(monkeypatch: pytest.MonkeyPatch, node: RealNode) -> Iterator[None]:
    """Give the node a way out, whose packets go nowhere, and the tools that shape it."""
    assert node.is_ready()
    try:
        tools = environment()
    except OSError as error:
        pytest.skip(f"iptables and ipset: {error}")
    for name, value in tools.items():
        monkeypatch.setenv(name, value)
    for words in (
        f"link add {UPLINK} type veth peer name world0",
        "link set world0 up",
        f"address add {HERE}/24 dev {UPLINK}",
        f"link set {UPLINK} up",
        f"neighbour add {WORLD} lladdr 02:00:00:00:00:01 dev {UPLINK}",  # no host answers
        f"route add default via {WORLD}",
    ):
        _run("ip", *words.split())
    _run("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
    yield
    _run("ip", "link", "delete", UPLINK)


def _run(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}: {done.stderr}"
    return done.stdout


def classes() -> Classes:
    """Return what tc shows of the uplink."""
    shown = _run("tc", "-s", "class", "show", "dev", UPLINK)
    matches = re.findall(r"class htb (\S+) .*?rate (\d+)(\w*)bit.*\n Sent (\d+) bytes", shown)
    units = {"": 1, "K": 1_000, "M": 1_000_000, "G": 1_000_000_000}
    return {name: (int(rate) * units[unit], int(sent)) for name, rate, unit, sent in matches}


def follow(kubectl: Callable[..., str], node: RealNode, policy: str) -> None:
    """Give the node a NodeSLO with a policy for its network."""

    def of(percent: int) -> dict[str, Any]:
        return {"networkQOS": {"enable": True, "egressRequest": percent}}

    manifest = {
        "apiVersion": "slo.koordinator.sh/v1alpha1",
        "kind": "NodeSLO",
        "metadata": {"name": node.name},
        "spec": {
            "systemStrategy": {"totalNetworkBandwidth": str(TOTAL_BPS)},
            "resourceQOSStrategy": {
                "policies": {"netQOSPolicy": policy},
                "lsClass": of(50),
                "beClass": of(20),
            },
        },
    }
    kubectl("apply", "--server-side", "--filename=-", stdin=yaml.safe_dump(manifest))


def sender(name: str, qos: str, **annotations: str) -> Manifest:
    """Return a pod that sends as long as it lives."""
    labels = {"koordinator.sh/qosClass": qos}
    return pod(name, _SENDS, labels=labels, annotations=annotations)


@pytest.mark.usefixtures("uplink")
def test_egress_of_pods_is_classified(
    start_agent: StartAgent, node: RealNode, kubectl: Callable[..., str]
) -> None:
    """A pod with a limit of its own has a class of its own until it is deleted."""
    limit = {"koordinator.sh/networkQOS": json.dumps({"egressLimit": str(OWN_BPS)})}
    follow(kubectl, node, "tc")
    start_agent("--feature-gates=TCNetworkQoS=true")
    latency, batch, limited = node.run(
        sender("latency", "LS"), sender("batch", "BE"), sender("limited", "BE", **limit)
    )

    def own() -> str:
        """Return the class of the pod with a limit."""
        names = [name for name, (rate, _) in classes().items() if rate == OWN_BPS]
        return names[0] if len(names) == 1 else ""

    name = eventually(own)
    rates = {each: rate for each, (rate, _) in classes().items() if each != name}
    assert rates == {
        "1:1": TOTAL_BPS,
        "1:2": TOTAL_BPS * 30 // 100,
        "1:3": TOTAL_BPS * 50 // 100,
        "1:4": TOTAL_BPS * 20 // 100,
    }
    for each in ("1:3", "1:4", name):
        eventually(lambda each=each: classes()[each][1] > 0)  # type: ignore[misc]

    node.delete(limited)
    eventually(lambda: set(classes()) == set(rates))
    node.delete(latency, batch)


@pytest.mark.usefixtures("uplink")
def test_nothing_is_left_when_another_policy_counts(
    start_agent: StartAgent, node: RealNode, kubectl: Callable[..., str]
) -> None:
    """No rule exists before a policy is chosen, or after another one is."""
    start_agent("--feature-gates=TCNetworkQoS=true")
    assert classes() == {}
    follow(kubectl, node, "tc")
    eventually(classes)
    follow(kubectl, node, "terway-qos")
    eventually(lambda: not classes())
    assert "KOORDLET-NETQOS" not in _run("iptables", "-w", "-t", "mangle", "-S")


@pytest.mark.usefixtures("uplink")
def test_a_deleted_policy_ends_like_another_one(
    start_agent: StartAgent, node: RealNode, kubectl: Callable[..., str]
) -> None:
    """Without NodeSLO the defaults count, which shape nothing."""
    start_agent("--feature-gates=TCNetworkQoS=true")
    follow(kubectl, node, "tc")
    eventually(classes)
    kubectl("delete", "nodeslo", node.name)
    eventually(lambda: not classes())
