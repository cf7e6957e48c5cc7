"""Strategies that need no samples: memory QoS, resctrl, disks, kernel settings."""

from collections.abc import Iterable
from dataclasses import replace as clone
from typing import Any

import pytest
from msgspec.structs import replace
from tests.nodes import GIB, LAYOUT, Tree, machine, pod, slo

from koordinator.api.meta import Condition
from koordinator.domain.cgroups.files import MAX_INT64, CgroupFile
from koordinator.foundation.errors import InputError
from koordinator.koordlet.intents import Intent, RemoveResctrl, SetBlockDevice, SetCgroup, SetFile
from koordinator.koordlet.intents import SetResctrl as Group
from koordinator.koordlet.qos.blkio import plan_blkio
from koordinator.koordlet.qos.memory_qos import plan_memory_qos, plan_system_config
from koordinator.koordlet.qos.resctrl import (
    ResctrlFacts,
    l3_mask,
    memory_bandwidth,
    parse_schemata,
    plan_class_resctrl,
    plan_pod_resctrl,
)
from koordinator.koordlet.view.pods import PodView


def values(intents: Iterable[Intent], file: CgroupFile) -> dict[str, int]:
    """Return what a file is to be, by folder."""
    return {i.folder: int(i.value) for i in intents if isinstance(i, SetCgroup) and i.file is file}


def memory(**settings: Any) -> Any:
    """Return a NodeSLO with memory QoS for LS and BE."""
    on = {"memoryQOS": {"enable": True, **settings}}
    return slo(resourceQOSStrategy={"lsrClass": on, "lsClass": on, "beClass": on})


def test_memory_high_lies_between_request_and_limit() -> None:
    """4 GiB, 10 GiB and 80 %: on a page boundary."""
    tree = Tree()
    sizes: dict[str, Any] = {"requests": {"memory": "4Gi"}, "limits": {"memory": "10Gi"}}
    view = tree.add_pod(pod("a", "LS", **sizes))

    planned = plan_memory_qos(tree.view(view, slo=memory(throttlingPercent=80)))

    assert values(planned, CgroupFile.MEMORY_HIGH) == {view.containers[0].folder: 9_448_927_232}


def test_memory_high_is_below_the_limit_of_a_pod() -> None:
    """The kubelet limits a container without limit to that of its pod."""
    made = pod("a", "LS")
    whole = pod("x", limits={"memory": GIB}).spec.containers[0].resources
    tree = Tree()
    view = tree.add_pod(replace(made, spec=replace(made.spec, resources=whole)))

    planned = plan_memory_qos(tree.view(view, slo=memory(throttlingPercent=80)))

    high = values(planned, CgroupFile.MEMORY_HIGH)
    assert high[view.containers[0].folder] == (GIB * 80 // 100 // 4096 * 4096)


def test_memory_high_is_below_the_granted_limit_of_a_pod() -> None:
    """A resize of the whole pod that is pending has not changed the limit."""
    made = pod("a", "LS")
    more, granted = (
        pod("x", limits={"memory": amount}).spec.containers[0].resources
        for amount in (4 * GIB, GIB)
    )
    pending = Condition(type="PodResizePending", status="True", reason="Deferred")
    status = replace(made.status, resources=granted, conditions=(pending,))
    tree = Tree()
    view = tree.add_pod(replace(made, spec=replace(made.spec, resources=more), status=status))

    planned = plan_memory_qos(tree.view(view, slo=memory(throttlingPercent=80)))

    high = values(planned, CgroupFile.MEMORY_HIGH)
    assert high[view.containers[0].folder] == (GIB * 80 // 100 // 4096 * 4096)


@pytest.mark.parametrize(
    ("settings", "file", "container", "of_pod"),
    [
        ({"minLimitPercent": 50}, CgroupFile.MEMORY_MIN, 2 * GIB, 4 * GIB),
        ({"lowLimitPercent": 25}, CgroupFile.MEMORY_LOW, GIB, 2 * GIB),
        (
            {"minLimitPercent": 50, "lowLimitPercent": 25},
            CgroupFile.MEMORY_LOW,
            2 * GIB,
            4 * GIB,
        ),
        ({"minLimitPercent": 50}, CgroupFile.MEMORY_LOW, 0, 0),
    ],
)
def test_protected_memory_sums_up_to_the_tiers(
    settings: dict[str, int], file: CgroupFile, container: int, of_pod: int
) -> None:
    """Two containers of 4 GiB; low is at least min, the root has everything."""
    tree = Tree()
    view = tree.add_pod(pod("a", "LS", containers=2, requests={"memory": "4Gi"}))

    result = values(plan_memory_qos(tree.view(view, slo=memory(**settings))), file)

    assert result[view.containers[0].folder] == container
    assert result[view.folder] == of_pod
    percent = settings.get(
        "minLimitPercent" if file is CgroupFile.MEMORY_MIN else "lowLimitPercent", 0
    )
    assert result[LAYOUT.burstable] == result[LAYOUT.kubepods] == 8 * GIB * percent // 100


def test_best_effort_counts_its_batch_memory() -> None:
    """Without a limit the node bounds it."""
    tree = Tree()
    view = tree.add_pod(pod("a", "BE", requests={"kubernetes.io/batch-memory": "4Gi"}))
    where = machine(allocatable={"memory": 20 * GIB})

    planned = plan_memory_qos(
        tree.view(view, machine_=where, slo=memory(minLimitPercent=100, throttlingPercent=50))
    )

    container = view.containers[0].folder
    assert values(planned, CgroupFile.MEMORY_MIN)[container] == 4 * GIB
    assert values(planned, CgroupFile.MEMORY_HIGH)[container] == 12 * GIB


@pytest.mark.parametrize(("allocatable", "high"), [(40 * GIB, 12 * GIB), (0, MAX_INT64)])
def test_memory_high_is_below_the_memory_that_the_node_really_has(
    allocatable: int, high: int
) -> None:
    """Of an amplified node the raw amount counts; without any amount nothing is throttled."""
    tree = Tree()
    view = tree.add_pod(pod("a", "LS", requests={"memory": "4Gi"}))
    raw = {"node.koordinator.sh/raw-allocatable": '{"memory": "20Gi"}'} if allocatable else {}
    where = machine(allocatable={"memory": allocatable}, annotations=raw)

    planned = plan_memory_qos(tree.view(view, machine_=where, slo=memory(throttlingPercent=50)))

    assert values(planned, CgroupFile.MEMORY_HIGH) == {view.containers[0].folder: high}


@pytest.mark.parametrize(
    ("annotation", "ratio"),
    [
        ("{}", 50),
        ('{"policy":"none"}', 0),
        ('{"policy":"auto"}', 95),
        ('{"policy":"auto","wmarkRatio":70}', 70),
        ('{"wmarkRatio":70}', 70),
        ("broken", 50),
    ],
)
def test_a_pod_has_its_own_memory_qos(annotation: str, ratio: int) -> None:
    """Over those its policy begins with; unreadable is none."""
    tree = Tree()
    view = tree.add_pod(pod("a", "LS", annotations={"koordinator.sh/memoryQOS": annotation}))

    planned = plan_memory_qos(tree.view(view, slo=memory(wmarkRatio=50)))

    assert values(planned, CgroupFile.WMARK_RATIO)[view.folder] == ratio


def test_disabled_memory_qos_is_reset() -> None:
    """No protection, no throttling."""
    tree = Tree()
    view = tree.add_pod(pod("a", "LS", requests={"memory": "4Gi"}))
    planned = plan_memory_qos(tree.view(view))

    assert set(values(planned, CgroupFile.MEMORY_MIN).values()) == {0}
    assert set(values(planned, CgroupFile.MEMORY_HIGH).values()) == {MAX_INT64}


@pytest.mark.parametrize(
    ("settings", "size", "enable"),
    [
        ({"pageCacheLimitPercent": 50}, 2 * GIB, 1),
        ({"pageCacheLimitSize": 9 * GIB}, 4 * GIB, 1),
        ({"pageCacheLimitSize": 0}, 0, 0),
        ({"pageCacheLimitPercent": 50, "pageCacheEnable": False}, 2 * GIB, 0),
    ],
)
def test_page_cache_is_limited_by_pod(settings: dict[str, Any], size: int, enable: int) -> None:
    """By size, else as a share of the limit; never above it."""
    tree = Tree()
    view = tree.add_pod(pod("a", "LS", limits={"memory": "4Gi"}))
    planned = plan_memory_qos(tree.view(view, slo=memory(**settings)))

    assert values(planned, CgroupFile.PAGE_CACHE_SIZE) == {view.folder: size}
    assert values(planned, CgroupFile.PAGE_CACHE_ENABLE) == {view.folder: enable}


@pytest.mark.parametrize(
    ("ways", "start", "end", "mask"),
    [(20, 20, 70, 0x3FF0), (11, 0, 30, 0xF), (4, 0, 1, 1), (20, 0, 100, 0xFFFFF)],
)
def test_partly_covered_cache_way_is_included(ways: int, start: int, end: int, mask: int) -> None:
    """A way that is partly covered is covered."""
    assert l3_mask((1 << ways) - 1, start, end) == mask


@pytest.mark.parametrize("ways", range(4, 21))
def test_any_range_of_ways_is_contiguous(ways: int) -> None:
    """As the hardware wants it."""
    for start in range(0, 100, 7):
        try:
            mask = l3_mask((1 << ways) - 1, start, min(start + 30, 100))
        except InputError:
            continue
        low = mask & -mask
        assert mask & (mask + low) == 0
        assert mask < 1 << ways


@pytest.mark.parametrize(
    ("percent", "vendor", "value"),
    [(1, "GenuineIntel", 10), (90, "GenuineIntel", 90), (91, "", 100), (50, "AuthenticAMD", 80),
     (100, "AuthenticAMD", 2048)],
)  # fmt: skip
def test_memory_bandwidth_has_the_unit_of_the_vendor(percent: int, vendor: str, value: int) -> None:
    """Tens of percent on Intel, eighths of a gigabyte per second on AMD."""
    assert memory_bandwidth(percent, vendor) == value


@pytest.mark.parametrize(("mask", "start", "end"), [(0b101, 0, 50), (0, 0, 50), (7, 50, 50)])
def test_impossible_caches_are_refused(mask: int, start: int, end: int) -> None:
    """Nothing is written then."""
    with pytest.raises(InputError):
        l3_mask(mask, start, end)


def test_groups_of_classes_and_of_pods() -> None:
    """Pods with shares of their own are in no class, and stay within it."""
    tree = Tree()
    own = (
        '{"llc":{"schemata":{"range":[0,50]},'
        '"schemataPerCache":[{"cacheID":1,"range":[50,100]}]},'
        '"mb":{"schemata":{"percent":20}}}'
    )
    ls = tree.add_pod(pod("ls", "LS", requests={"cpu": 1}))
    be = tree.add_pod(pod("be", "BE"))
    special = tree.add_pod(pod("s", "BE", annotations={"node.koordinator.sh/resctrl": own}))
    on = {"resctrlQOS": {"enable": True}}
    facts = ResctrlFacts((0, 1), 0xFF, "GenuineIntel", ("BE", "koordlet-uid-gone", "mon_data"))
    view = tree.view(ls, be, special, slo=slo(resourceQOSStrategy={"beClass": on}))

    planned = [*plan_class_resctrl(view, facts), *plan_pod_resctrl(view, facts)]

    groups = {i.group: i for i in planned if isinstance(i, Group)}
    assert set(groups) == {"LSR", "LS", "BE", "koordlet-uid-s"}
    assert groups["BE"].schemata == ("L3:0=7;1=7", "MB:0=100;1=100")
    assert groups["BE"].cgroups == (be.containers[0].folder,)
    assert groups["LS"].cgroups == (ls.containers[0].folder,)
    assert groups["koordlet-uid-s"].schemata == ("L3:0=7;1=7", "MB:0=20;1=20")
    assert [i.group for i in planned if isinstance(i, RemoveResctrl)] == ["koordlet-uid-gone"]


def test_pods_whose_init_containers_run_have_their_shares_and_limits() -> None:
    """The pod is Pending; before a container has started, nothing can be limited."""
    tree = Tree()
    annotations = {
        "node.koordinator.sh/resctrl": '{"llc":{"schemata":{"range":[0,50]}}}',
        "koordinator.sh/blkioQOS": '{"blocks":[{"name":"/dev/sda","type":"device"}]}',
    }
    init = tree.add_pod(pod("init", "LS", phase="Pending", annotations=annotations))
    folder = f"{LAYOUT.besteffort}/poduid-waiting"
    new = pod("waiting", "LS", phase="Pending", annotations=annotations)
    waiting = clone(init, pod=new, folder=folder, containers=())
    view = tree.view(init, waiting, slo=slo(resourceQOSStrategy={}))
    facts = ResctrlFacts((0,), 0xFF, "GenuineIntel")
    groups = {i.group: i.cgroups for i in plan_pod_resctrl(view, facts) if isinstance(i, Group)}
    assert groups.pop("koordlet-uid-init") == (init.containers[0].folder,)
    assert list(groups.values()) == [()]  # made before the first container starts
    limited = {i.folder for i in plan_blkio(view, FakeDisks()) if isinstance(i, SetBlockDevice)}
    assert limited == {init.folder}


def test_padded_schemata_are_parsed() -> None:
    """Masks with zeros, percentages with blanks, names with blanks in front."""
    text = "    MB:0= 50;1=100\n    L3:0=00f;1=fff\nL3CODE:what\n"

    assert parse_schemata(text) == {"MB": {0: 50, 1: 100}, "L3": {0: 0xF, 1: 0xFFF}}


def test_no_bandwidth_is_set_without_support() -> None:
    """The kernel would refuse the line every time."""
    facts = ResctrlFacts((0,), 0xFF, "GenuineIntel", has_bandwidth=False)
    own = '{"llc":{"schemata":{"range":[0,50]}},"mb":{"schemata":{"percent":20}}}'
    tree = Tree()
    special = tree.add_pod(pod("s", "BE", annotations={"node.koordinator.sh/resctrl": own}))
    view = tree.view(
        special, slo=slo(resourceQOSStrategy={"beClass": {"resctrlQOS": {"enable": True}}})
    )
    planned = [*plan_class_resctrl(view, facts), *plan_pod_resctrl(view, facts)]

    groups = {i.group: i.schemata for i in planned if isinstance(i, Group)}
    assert groups["BE"] == ("L3:0=7",)
    assert groups["koordlet-uid-s"] == ("L3:0=7",)


class FakeDisks:
    """Host with one disk, which has every name."""

    def of_device(self, name: str) -> str | None:
        return "8:0" if name == "/dev/sda" else None

    def of_volume_group(self, group: str) -> str | None:
        return "8:16" if group == "vg" else None

    def of_pod_volume(self, pod: PodView, volume: str) -> str | None:
        return "8:32" if (pod.uid, volume) == ("uid-a", "data") else None


def test_disks_are_limited_for_best_effort_pods_and_the_machine() -> None:
    """Without a setting there is no limit; a removed setting is reset."""
    tree = Tree()
    own = '{"blocks":[{"name":"data","type":"podvolume","ioCfg":{"writeIOPS":50}}]}'
    view = tree.add_pod(pod("a", "LS", annotations={"koordinator.sh/blkioQOS": own}))
    tree.set(CgroupFile.READ_BPS, LAYOUT.besteffort, "8:48 77")
    block = {"name": "/dev/sda", "type": "device", "ioCfg": {"readBPS": 1000}}
    spec = slo(
        resourceQOSStrategy={
            "beClass": {"blkioQOS": {"enable": True, "blocks": [block]}},
            "cgroupRoot": {
                "blkioQOS": {"enable": True, "blocks": [{"name": "vg", "type": "volumegroup"}]}
            },
        }
    )

    planned = [
        i
        for i in plan_blkio(tree.view(view, slo=spec), FakeDisks())
        if isinstance(i, SetBlockDevice)
    ]

    written = {(i.folder, i.file, i.device): i.value for i in planned}
    assert written[LAYOUT.besteffort, CgroupFile.READ_BPS, "8:0"] == "1000"
    assert written[LAYOUT.besteffort, CgroupFile.IO_WEIGHT, "8:0"] == "100"
    assert written[LAYOUT.besteffort, CgroupFile.READ_BPS, "8:48"] == "0"
    assert written[view.folder, CgroupFile.WRITE_IOPS, "8:32"] == "50"
    assert written["", CgroupFile.IO_QOS, "8:16"] == (
        "enable=1 ctrl=user rpct=95 rlat=3000 wpct=95 wlat=3000"
    )
    assert written["", CgroupFile.IO_MODEL, "8:16"] == "ctrl=auto"
    places = [i.folder for i in planned]
    assert places.index("") < places.index(LAYOUT.besteffort)  # a weight needs the node's model


def test_settings_of_the_kernel() -> None:
    """64 GiB at 150 in ten thousand; values out of range are left out."""
    spec = slo(
        systemStrategy={
            "minFreeKbytesFactor": 150,
            "watermarkScaleFactor": 5,
            "memcgReapBackGround": 1,
            "schedFeatures": {"ID_BOOK_CPU": False},
        }
    )
    planned = plan_system_config(Tree().view(machine_=machine(8, 64 * GIB), slo=spec))

    assert {i.path: i.value for i in planned if isinstance(i, SetFile)} == {
        "vm/min_free_kbytes": "1006632",
        "kernel/mm/memcg_reaper/reap_background": "1",
        "kernel/debug/sched_features": "NO_ID_BOOK_CPU",
    }
