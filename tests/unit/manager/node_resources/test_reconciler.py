"""Writes to nodes, and the thresholds below which they are skipped."""

import datetime as dt
import json
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from tests.unit.manager.configuration.test_reader import read
from tests.unit.manager.node_resources.nodes import (
    NOW,
    amounts,
    counted,
    metric,
    node,
    pod,
    usage,
)
from tests.unit.manager.node_resources.test_node_figures import device, gpu
from tests.unit.manager.node_resources.test_zones import topology

from koordinator.api.codec import apply_merge_patch, decode, to_manifest
from koordinator.api.node import Node
from koordinator.manager.configuration.strategies import Strategies
from koordinator.manager.node_resources.calculation import ALL_PLUGINS, ManagedNode, NodePlugin
from koordinator.manager.node_resources.reconciler import (
    LastWrites,
    NodeOutcome,
    reconcile_node_resource,
)
from koordinator.manager.writes import Patch

NOW_S = NOW.timestamp()
ON = {"enable": True}
BATCH, MID = "kubernetes.io/batch-cpu", "kubernetes.io/mid-cpu"
BATCH_MEMORY = "kubernetes.io/batch-memory"
PREFIX = "node.koordinator.sh/"
ORIGIN = f"{PREFIX}originExtendedAllocatable"


def outcome(view: ManagedNode, synced: LastWrites | None = None, **more: Any) -> NodeOutcome:
    """Reconcile; colocation is on, and the last write was just now."""
    config = read(**{"colocation": ON} | more.pop("config", {}))
    now_s = more.pop("now_s", NOW_S)
    return reconcile_node_resource(
        view, Strategies(config), synced or LastWrites(NOW_S), now_s, **more
    )


def after(view: ManagedNode, node_outcome: NodeOutcome) -> Node:
    """Return the node with all patches of it applied."""
    tree = to_manifest(view.node)
    for write in node_outcome.writes:
        assert isinstance(write, Patch)
        if write.kind is Node:
            tree = apply_merge_patch(tree, write.body)
    return decode(tree, Node)


def shown(view: ManagedNode, node_outcome: NodeOutcome) -> dict[str, str]:
    """Return what the node would show beyond CPU and memory; capacity is the same."""
    status = after(view, node_outcome).status
    extra = {k: str(v) for k, v in status.allocatable.items() if k not in {"cpu", "memory"}}
    assert extra == {k: str(status.capacity[k]) for k in extra}
    return extra


MACHINE = node(amounts(10, "10G"), annotations={"a": "b"})
IDLE = metric(used=amounts(0, 0), system=amounts(0, 0))


def test_an_idle_node_gives_its_capacity_but_for_the_margin() -> None:
    """In one write with the annotation that keeps what third parties are subtracted from."""
    view = ManagedNode(MACHINE, IDLE)
    result = outcome(view)

    (write,) = result.writes
    assert isinstance(write, Patch)
    assert write.subresource == "status"
    assert shown(view, result) == {
        BATCH: "6k",
        BATCH_MEMORY: "6500000000",
        MID: "0",
        "kubernetes.io/mid-memory": "0",
    }
    assert json.loads(after(view, result).metadata.annotations[ORIGIN]) == {
        "resources": {BATCH: "6k", BATCH_MEMORY: "6500000000"}
    }


@pytest.mark.parametrize(
    "node_metric",
    [
        None,
        replace(IDLE, status=type(IDLE.status)()),
        metric(when=NOW - dt.timedelta(minutes=15, seconds=1)),
    ],
)
def test_without_fresh_metrics_nothing_is_given(node_metric: Any) -> None:
    """Amounts that were published before are withdrawn."""
    given = {BATCH: "6000", BATCH_MEMORY: "1", MID: "1"}
    view = ManagedNode(node({**amounts(10, "10G"), **given}, annotations={"a": "b"}), node_metric)
    result = outcome(view)

    assert shown(view, result) == {}
    assert '"0"' in after(view, result).metadata.annotations[ORIGIN]


def test_a_report_is_good_until_just_its_age_limit() -> None:
    """The node is reconciled again at the age limit."""
    view = ManagedNode(MACHINE, IDLE)

    assert outcome(view, now_s=NOW_S + 900).again_s == NOW_S + 900
    assert BATCH in shown(view, outcome(view, now_s=NOW_S + 900))
    assert BATCH not in shown(view, outcome(view, now_s=NOW_S + 900.001))


@pytest.mark.parametrize(
    ("now", "written"), [("6000", False), ("5455", False), ("5454", True), ("7000", True)]
)
def test_small_changes_are_not_worth_a_write(now: str, written: bool) -> None:
    """Up to a tenth of what is shown; the rest waits for the next write that is due."""
    given = {BATCH: now, BATCH_MEMORY: "6500000000", MID: "0", "kubernetes.io/mid-memory": "0"}
    origin = json.dumps(
        {"resources": {BATCH: "6k", BATCH_MEMORY: "6500000000"}}, separators=(",", ":")
    )
    annotations = {ORIGIN: origin, f"{PREFIX}cpu-normalization-ratio": "1.00"}
    view = ManagedNode(node({**amounts(10, "10G"), **given}, annotations=annotations), IDLE)

    result = outcome(view)
    due = outcome(view, now_s=NOW_S + 301)

    assert bool(result.writes) is written
    assert bool(due.writes) is (now != "6000")
    assert due.synced.status_s == NOW_S + 301
    if not written and now != "6000":
        assert result.again_s == NOW_S + 300


def test_the_first_time_everything_is_written() -> None:
    """The state before the start is unknown."""
    view = ManagedNode(MACHINE, IDLE)
    shown_ = after(view, outcome(view))
    drifted = replace(
        shown_,
        status=replace(
            shown_.status,
            allocatable={
                **shown_.status.allocatable,
                BATCH: type(shown_.status.allocatable["cpu"]).from_int(5900),
            },
        ),
    )

    assert not outcome(ManagedNode(drifted, IDLE)).writes
    assert outcome(ManagedNode(drifted, IDLE), LastWrites()).writes


def test_a_node_that_is_not_colocated_gives_nothing() -> None:
    """Devices and the normalization stay, the amplification goes."""
    annotations = {
        f"{PREFIX}resource-amplification-ratio": '{"cpu":1.50}',
        f"{PREFIX}cpu-normalization-ratio": "1.20",
    }
    given = {BATCH: "6000", MID: "1", "koordinator.sh/gpu": "100"}
    view = ManagedNode(node({**amounts(10, "10G"), **given}, annotations=annotations), IDLE)
    result = outcome(view, config={"colocation": {"enable": False}})

    assert shown(view, result) == {"koordinator.sh/gpu": "100"}
    left = after(view, result).metadata.annotations
    assert left.keys() == {f"{PREFIX}cpu-normalization-ratio", ORIGIN}


def test_third_parties_get_theirs_first() -> None:
    """Third parties' batch resources are subtracted; the annotation has the total."""
    allocations = [
        {
            "name": "yarn",
            "priority": "koord-batch",
            "resources": {BATCH: "1500", BATCH_MEMORY: "8G"},
        },
        {"name": "other", "priority": "koord-mid", "resources": {BATCH: "1000"}},
    ]
    annotations = {f"{PREFIX}thirdPartyAllocations": json.dumps({"allocations": allocations})}
    view = ManagedNode(node(amounts(10, "10G"), annotations=annotations), IDLE)
    result = outcome(view)

    assert (shown(view, result)[BATCH], shown(view, result)[BATCH_MEMORY]) == ("4500", "0")
    assert '"6k"' in after(view, result).metadata.annotations[ORIGIN]


def shared(cpu: str, origin: str = "6k", **meta: Any) -> Node:
    """Return a node with batch CPU allocated to a third party, and none shown to pods."""
    allocations = [{"name": "yarn", "priority": "koord-batch", "resources": {BATCH: cpu}}]
    resources = {BATCH: origin, BATCH_MEMORY: "0"}
    annotations = {
        f"{PREFIX}thirdPartyAllocations": json.dumps({"allocations": allocations}),
        ORIGIN: json.dumps({"resources": resources}),
    }
    given = {BATCH: "0", BATCH_MEMORY: "0", MID: "0", "kubernetes.io/mid-memory": "0"}
    return node({**amounts(10, "0"), **given}, annotations=annotations, **meta)


def test_a_share_that_changes_is_written_at_once() -> None:
    """Small changes are written as well, since their user waits for the write."""
    view = ManagedNode(shared("5990"), IDLE)
    assert shown(view, outcome(view))[BATCH] == "10"
    settled = ManagedNode(shared("6000"), IDLE)
    assert ORIGIN not in str(outcome(settled).writes)


def test_what_third_parties_may_have_is_written_though_pods_are_shown_the_same() -> None:
    """Third parties read the annotation; small changes are written later, as always."""
    view = ManagedNode(shared("9000", origin="3k"), IDLE)
    result = outcome(view)
    assert shown(view, result)[BATCH] == "0"
    assert '"6k"' in after(view, result).metadata.annotations[ORIGIN]
    assert ORIGIN not in str(outcome(ManagedNode(shared("9000", origin="5900"), IDLE)).writes)


def test_a_share_that_changes_meanwhile_is_not_overwritten() -> None:
    """The write holds for the node as it was read, where third parties have a share."""
    (write,) = outcome(ManagedNode(shared("5000", resourceVersion="7"), IDLE)).writes
    assert isinstance(write, Patch)
    assert write.body["metadata"]["resourceVersion"] == "7"
    (write,) = outcome(ManagedNode(MACHINE, IDLE)).writes
    assert isinstance(write, Patch)
    assert "resourceVersion" not in write.body["metadata"]


def test_a_new_normalization_scales_batch_at_once_and_amplification_later() -> None:
    """6501 x 1.30 is 8452, two decimals count; the amplification reads what was there before."""
    info = {f"{PREFIX}cpu-basic-info": '{"cpuModel":"M","hyperThreadEnabled":true}'}
    model = {"enable": True, "ratioModel": {"M": {"hyperThreadEnabledRatio": 1.304}}}
    there = replace(topology(), metadata=type(MACHINE.metadata)(name="n", annotations=info))
    report = metric(used=amounts(0, 0), pods=[usage("x", amounts("3499m", 0))])
    view = ManagedNode(MACHINE, report, topology=there)
    config = {"colocation": ON | {"cpuReclaimThresholdPercent": 100}, "cpu_normalization": model}

    first = outcome(view, config=config)
    node_ = after(view, first)
    assert shown(view, first)[BATCH] == "8452"
    assert node_.metadata.annotations[f"{PREFIX}cpu-normalization-ratio"] == "1.30"
    assert f"{PREFIX}resource-amplification-ratio" not in node_.metadata.annotations

    second = outcome(ManagedNode(node_, report, topology=there), config=config)
    (write,) = second.writes
    assert isinstance(write, Patch)
    assert (write.subresource, write.body) == (
        "",
        {"metadata": {"annotations": {f"{PREFIX}resource-amplification-ratio": '{"cpu":1.30}'}}},
    )


def test_an_unknown_model_changes_nothing() -> None:
    """The ratio is unchanged, and the reason is reported."""
    annotations = {f"{PREFIX}cpu-normalization-ratio": "1.20"}
    view = ManagedNode(node(amounts(10, "10G"), annotations=annotations), IDLE)
    result = outcome(view, config={"cpu_normalization": ON})

    assert after(view, result).metadata.annotations[f"{PREFIX}cpu-normalization-ratio"] == "1.20"
    assert [plugin for plugin, _ in result.problems] == [NodePlugin.NORMALIZATION]


def test_devices_are_shown_with_their_labels() -> None:
    """Devices of a deleted Device object are removed from the node; its labels stay."""
    view = ManagedNode(MACHINE, IDLE, device=device(gpu(), **{"gpu-model": "A100"}))
    result = outcome(view)

    assert shown(view, result)["koordinator.sh/gpu"] == "100"
    node_ = after(view, result)
    assert node_.metadata.labels == {f"{PREFIX}gpu-model": "A100"}

    managed_node = ManagedNode(node_, IDLE)
    assert "koordinator.sh/gpu" not in shown(managed_node, outcome(managed_node))
    assert after(managed_node, outcome(managed_node)).metadata.labels == node_.metadata.labels


def test_only_the_plugins_that_are_on_say_something() -> None:
    """The rest of the node is left as it is."""
    view = ManagedNode(node(amounts(10, "10G") | {MID: "7"}), IDLE, device=device(gpu()))
    result = outcome(view, plugins=frozenset({NodePlugin.BATCH}))

    assert shown(view, result).keys() == {BATCH, BATCH_MEMORY, MID}
    assert NodePlugin.GPU in ALL_PLUGINS


def test_numa_nodes_get_their_part() -> None:
    """The write is skipped if the topology has changed in the meantime."""
    pods = counted([pod("p", amounts(4, 0))])
    result = outcome(
        ManagedNode(
            MACHINE,
            metric(used=amounts(0, 0), pods=[usage("p", amounts(2, 0))]),
            pods=pods,
            topology=topology(amounts(5, "5G"), amounts(5, "5G")),
        )
    )

    zones, _ = result.writes
    assert isinstance(zones, Patch)
    assert zones.body["metadata"] == {"resourceVersion": ""}
    cpus = [
        {r["name"]: r["allocatable"] for r in zone["resources"]}[BATCH]
        for zone in zones.body["zones"]
    ]
    assert cpus == ["2k", "2k"]
    assert result.synced.topology_s == NOW_S


def test_a_node_that_reports_nothing_is_left_alone() -> None:
    """The kubelet of such a node has not started yet."""
    bare = msgspec.structs.replace(MACHINE, status=type(MACHINE.status)())

    assert outcome(ManagedNode(bare, IDLE), LastWrites()).writes == ()
