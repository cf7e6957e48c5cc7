"""Counters of resctrl become samples."""

import pytest
from tests.nodes import LAYOUT, START_S, Tree, machine

from koordinator.api.node_slo import NodeSloSpec
from koordinator.koordlet.collectors.context import CollectionContext
from koordinator.koordlet.collectors.performance import ResctrlCollector
from koordinator.koordlet.metrics import Metric, MetricStore
from koordinator.koordlet.view.slo import effective_slo

ROOT = "/sys/fs/resctrl"


def collected(files: dict[str, str]) -> MetricStore:
    """Return the samples that files give."""
    tree = Tree()
    for path, text in files.items():
        tree.host.put(f"{ROOT}/{path}", text)
    store = MetricStore(600, 1)
    context = CollectionContext(
        files=tree.host,
        roots=tree.roots,
        cgroups=tree.cgroups,
        store=store,
        layout=LAYOUT,
        machine=machine(),
        slo=effective_slo(NodeSloSpec(), LAYOUT),
        pods=(),
    )
    ResctrlCollector().collect(context, START_S)
    return store


def test_cache_and_bandwidth_of_each_class_and_cache() -> None:
    """For classes only; the root group and groups of pods are skipped."""
    store = collected(
        {
            "mon_data/mon_L3_00/llc_occupancy": "99\n",
            "BE/mon_data/mon_L3_00/llc_occupancy": "1000\n",
            "BE/mon_data/mon_L3_00/mbm_local_bytes": "2000\n",
            "BE/mon_data/mon_L3_00/mbm_total_bytes": "3000\n",
            "BE/mon_data/mon_L3_01/llc_occupancy": "4000\n",
            "LS/mon_data/mon_L3_01/llc_occupancy": "5000\n",
            "koordlet-uid/mon_data/mon_L3_00/llc_occupancy": "6000\n",
        }
    )
    cache, bandwidth = Metric.RESCTRL_LLC, Metric.RESCTRL_MB

    assert {o: store.last(cache, o, 0) for o in store.owners(cache)} == {
        "BE/0": 1000,
        "BE/1": 4000,
        "LS/1": 5000,
    }
    assert {o: store.last(bandwidth, o, 0) for o in store.owners(bandwidth)} == {
        "BE/0/mbm_local_bytes": 2000,
        "BE/0/mbm_total_bytes": 3000,
    }


@pytest.mark.parametrize("text", ["Unavailable\n", "Error\n", "", "-1\n"])
def test_a_counter_that_the_hardware_has_not_gives_no_sample(text: str) -> None:
    """The other counters yield samples."""
    store = collected(
        {
            "BE/mon_data/mon_L3_00/llc_occupancy": text,
            "BE/mon_data/mon_L3_00/mbm_total_bytes": "7\n",
            "BE/mon_data/mon_PERF_PKG_00/core_energy": "1\n",
        }
    )

    assert list(store.owners(Metric.RESCTRL_LLC)) == []
    assert list(store.owners(Metric.RESCTRL_MB)) == ["BE/0/mbm_total_bytes"]


def test_a_machine_without_resctrl_gives_nothing() -> None:
    """Nothing is mounted, or nothing is monitored."""
    assert len(collected({})) == 0
    assert len(collected({"BE/schemata": "L3:0=ff\n"})) == 0
