"""Bandwidths of the NodeSLO and of pods, as classes of tc and as files of Terway."""

import json
from dataclasses import replace as changed
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.nodes import LAYOUT, START_S, Tree, pod, slo

from koordinator.domain.cgroups.files import CgroupFile
from koordinator.foundation.errors import InputError
from koordinator.koordlet.intents import SetCgroup
from koordinator.koordlet.qos.tc_network import (
    BandwidthClass,
    NetworkShape,
    bandwidth_bps,
    plan_network_classes,
    plan_network_shape,
    pod_limits,
)
from koordinator.koordlet.qos.terway_network import plan_terway
from koordinator.koordlet.view.pods import PodView

MBIT = 1_000_000
LIMIT = "koordinator.sh/networkQOS"


def bandwidths(total: str = "100M", policy: str | None = None, **classes: Any) -> Any:
    """Return a NodeSLO with a bandwidth, and what classes get of it."""
    strategy: dict[str, Any] = {
        name: {"networkQOS": {"enable": True, **stated}} for name, stated in classes.items()
    }
    if policy is not None:
        strategy["policies"] = {"netQOSPolicy": policy}
    system = {"totalNetworkBandwidth": total}
    return slo(systemStrategy=system, resourceQOSStrategy=strategy)


def with_address(
    tree: Tree, name: str, qos: str, address: str, *, host: bool = False, **more: Any
) -> PodView:
    """Return a pod that has an address."""
    made = pod(name, qos, **more)
    status = replace(made.status, pod_ip=address)
    spec = replace(made.spec, host_network=host)
    return tree.add_pod(replace(made, status=status, spec=spec))


def shape(spec: Any, *pods: PodView, tree: Tree | None = None) -> NetworkShape:
    """Return what is planned, which there must be."""
    result = plan_network_shape((tree or Tree()).view(*pods, slo=spec))
    assert result is not None
    return result


def test_classes_have_their_rates_and_the_system_the_rest() -> None:
    """A number is a percentage; a missing limit equals the request."""
    result = shape(
        bandwidths(
            lsClass={"egressRequest": 40, "egressLimit": 80}, beClass={"egressRequest": "20M"}
        )
    )

    assert result.total_bps == 100 * MBIT
    assert result.classes == (
        BandwidthClass(minor=2, rate_bps=40 * MBIT, ceil_bps=100 * MBIT, priority=1),
        BandwidthClass(minor=3, rate_bps=40 * MBIT, ceil_bps=80 * MBIT, priority=2),
        BandwidthClass(minor=4, rate_bps=20 * MBIT, ceil_bps=20 * MBIT, priority=3),
    )
    assert result.default_minor == 2


def test_disabled_class_may_use_idle_bandwidth() -> None:
    """The kernel takes no class without a rate."""
    _, latency, batch = shape(bandwidths()).classes

    assert (latency.rate_bps, latency.ceil_bps) == (8000, 100 * MBIT)
    assert (batch.rate_bps, batch.ceil_bps) == (8000, 100 * MBIT)


@pytest.mark.parametrize(
    "spec", [slo(), bandwidths("0"), bandwidths(policy="terway-qos"), bandwidths(policy="other")]
)
def test_nothing_is_shaped_without_a_bandwidth_or_by_another_policy(spec: Any) -> None:
    """By default the node has none."""
    assert plan_network_shape(Tree().view(slo=spec)) is None


def test_more_than_the_node_has_is_refused() -> None:
    """The last classes stay."""
    spec = bandwidths(lsClass={"egressRequest": "60M"}, beClass={"egressRequest": 50})

    with pytest.raises(
        InputError, match=r"at most 100000000 bit/s together .*, got 60000000 and 50000000"
    ):
        plan_network_shape(Tree().view(slo=spec))


@pytest.mark.parametrize(
    ("stated", "bits"), [(30, 300), (101, 0), (-1, 0), ("2k", 2000), ("x", 0), ("-5", 0), (None, 0)]
)
def test_invalid_bandwidth_counts_as_zero(stated: Any, bits: int) -> None:
    """As in the original."""
    assert bandwidth_bps(stated, 1000) == bits


def test_pods_are_in_the_class_of_their_label() -> None:
    """By their address; those in the node's network by their processes, and no address of it."""
    tree = Tree()
    pods = [
        with_address(tree, "system", "SYSTEM", "10.0.0.1"),
        with_address(tree, "latency", "LSR", "10.0.0.2"),
        with_address(tree, "batch", "BE", "10.0.0.3"),
        with_address(tree, "plain", "", "10.0.0.4"),
        with_address(tree, "host", "BE", "192.0.2.1", host=True),
        with_address(tree, "six", "LS", "fd00::1"),
        with_address(tree, "new", "LS", ""),
        with_address(tree, "gone", "LS", "10.0.0.5", phase="Succeeded"),
    ]
    sets = {each.name: each.addresses for each in shape(bandwidths(), *pods, tree=tree).sets}

    assert sets == {
        "system_class": {"10.0.0.1"},
        "ls_class": {"10.0.0.2"},
        "be_class": {"10.0.0.3"},
    }
    classes = {
        intent.folder: intent.value
        for intent in plan_network_classes(tree.view(*pods, slo=bandwidths()))
        if isinstance(intent, SetCgroup) and intent.file is CgroupFile.NET_CLASS
    }
    by_name = {each.pod.metadata.name: classes.get(each.folder) for each in pods}
    assert by_name == {
        "system": "65538",
        "latency": "65539",
        "batch": "65540",
        "plain": None,
        "host": "65540",
        "six": "65539",
        "new": "65539",
        "gone": None,
    }


def test_egress_limit_of_a_pod() -> None:
    """The original divides it by 8 once too often; only what is sent is limited.

    It is sure of no more than its class is.
    """
    tree = Tree()
    own = {LIMIT: '{"ingressLimit":"40M","egressLimit":"10M"}'}
    limited = with_address(tree, "a", "BE", "10.0.0.3", annotations=own)
    other = with_address(tree, "b", "LS", "10.0.0.4", annotations={LIMIT: '{"ingressLimit":"1M"}'})
    broken = with_address(tree, "c", "LS", "10.0.0.5", annotations={LIMIT: '{"egressLimit":"x"}'})
    spec = bandwidths(beClass={"egressRequest": "4M", "egressLimit": "20M"})
    result = shape(spec, limited, other, broken, tree=tree)

    *_, mine = result.classes
    assert (mine.rate_bps, mine.ceil_bps, mine.priority) == (4 * MBIT, 10 * MBIT, 3)
    assert result.addresses == (("10.0.0.3", mine.minor),)
    assert {name for each in result.sets for name in each.addresses} == {"10.0.0.4", "10.0.0.5"}
    (intent, *_) = plan_network_classes(tree.view(limited, slo=bandwidths()))
    assert isinstance(intent, SetCgroup)
    assert int(intent.value) == 65536 | mine.minor


@given(st.sets(st.integers(0, 10**6), max_size=60), st.integers(0, 10**6))
def test_every_limited_pod_has_a_class_of_its_own(names: set[int], further: int) -> None:
    """Distinct from the node's classes; independent of other pods, except on a collision."""
    tree = Tree()
    own = {LIMIT: '{"egressLimit":"10M"}'}
    views = {
        number: tree.add_pod(pod(f"p{number}", "LS", annotations=own))
        for number in names | {further}
    }
    minors = {limit.pod.uid: limit.minor for limit in pod_limits(views.values())}

    assert len(set(minors.values())) == len(views)
    assert all(0x100 <= minor <= 0xFFFE for minor in minors.values())
    (alone,) = pod_limits([views[further]])
    others = {minor for uid, minor in minors.items() if uid != alone.pod.uid}
    assert alone.minor in {minors[alone.pod.uid], *others}


def test_terway_files_have_the_node_and_each_pod() -> None:
    """Amounts in bytes, shares of the node in bits: the original's files, to the letter."""
    tree = Tree()
    own = {LIMIT: '{"ingressLimit":"40M","egressLimit":"10M"}'}
    batch = with_address(tree, "a", "BE", "10.0.0.3", annotations=own)
    plain = tree.add_pod(pod("b", requests={"cpu": 1}))
    broken = tree.add_pod(pod("c", "LS", annotations={LIMIT: "[]"}))
    spec = bandwidths(
        "1G",
        "terway-qos",
        lsClass={"ingressRequest": 30, "ingressLimit": 80, "egressRequest": "80M"},
        beClass={"egressLimit": "400M"},
    )
    result = plan_terway(tree.view(batch, plain, broken, slo=spec))

    assert result is not None
    assert result.node == (
        "hw_tx_bps_max 125000000\nhw_rx_bps_max 125000000\n"
        "offline_l1_tx_bps_min 10000000\noffline_l1_tx_bps_max 0\n"
        "offline_l1_rx_bps_min 300000000\noffline_l1_rx_bps_max 800000000\n"
        "offline_l2_tx_bps_min 0\noffline_l2_tx_bps_max 50000000\n"
        "offline_l2_rx_bps_min 0\noffline_l2_rx_bps_max 0\n"
    )
    assert json.loads(result.pods) == {
        "uid-a": {
            "podName": "a",
            "podNamespace": "default",
            "podUID": "uid-a",
            "prio": 2,
            "cgroupDir": f"/sys/fs/cgroup/net_cls/{batch.folder}",
            "qosConfig": {"ingressBandwidth": 5_000_000, "egressBandwidth": 1_250_000},
        },
        "uid-b": {
            "podName": "b",
            "podNamespace": "default",
            "podUID": "uid-b",
            "prio": 1,
            "cgroupDir": f"/sys/fs/cgroup/net_cls/{plain.folder}",
            "qosConfig": {"ingressBandwidth": 0, "egressBandwidth": 0},
        },
    }
    assert plan_terway(tree.view(batch, slo=bandwidths())) is None


@pytest.mark.parametrize(
    ("total", "stated", "complaint"),
    [
        ("1k", "80M", "must be at most 1000 bytes/s"),
        ("1k", "x", "egressRequest"),
        ("-5", 1, "must be at least 0, got -5"),
    ],
)
def test_invalid_bandwidth_is_not_written_for_terway(
    total: str, stated: Any, complaint: str
) -> None:
    """The error names the field."""
    spec = bandwidths(total, "terway-qos", lsClass={"egressRequest": stated})

    with pytest.raises(InputError, match=complaint):
        plan_terway(Tree().view(slo=spec))


def test_terway_priorities_follow_the_label_then_kubernetes() -> None:
    """SYSTEM first, best effort last."""
    tree = Tree()
    pods = [tree.add_pod(pod(qos.lower() or "plain", qos)) for qos in ("SYSTEM", "LSE", "BE", "")]
    view = changed(tree.view(*pods, slo=bandwidths(policy="terway-qos")), now_s=START_S)
    result = plan_terway(view)

    assert result is not None
    priorities = json.loads(result.pods).values()
    assert {each["podName"]: each["prio"] for each in priorities} == {
        "system": 0,
        "lse": 1,
        "be": 2,
        "plain": 2,
    }
    assert LAYOUT.besteffort in json.dumps([*priorities])
