"""Metrics of the agent under the original's names, and the page on which they are served."""

from collections.abc import Iterable

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.samples import Sample
from tests.core_scheduling import Kernel
from tests.nodes import LAYOUT, START_S, pod, slo
from tests.unit.koordlet.app.world import ALL, World

from koordinator.api.meta import ObjectMeta
from koordinator.api.node_slo import NodeSlo
from koordinator.domain.cgroups.files import CgroupFile
from koordinator.host.linux.core_scheduling import LinuxCoreScheduling
from koordinator.koordlet.app.metrics import NodeGauges
from koordinator.koordlet.prediction.reclaimable import PredictedAmounts, Prediction
from koordinator.process.endpoints import joined

#: Names and labels of the original, koordinator pkg/koordlet/metrics.
INTERNAL = {
    "collect_node_cpu_info_status": {"node", "status"},
    "collect_node_local_storage_info_status": {"node", "status"},
    "collect_node_numa_info_status": {"node", "status"},
    "container_scaled_cfs_burst_us": {
        "node", "pod_namespace", "pod_name", "container_id", "container_name",
    },
    "container_scaled_cfs_quota_us": {
        "node", "pod_namespace", "pod_name", "container_id", "container_name",
    },
    "core_sched_cookie_manage_status": {"node", "core_sched_group", "status"},
    "node_predicted_resource_peak": {"node", "predictor", "resource", "unit"},
    "node_predicted_resource_reclaimable": {"node", "predictor", "resource", "unit"},
    "pod_eviction": {"node", "reason"},
    "pod_eviction_detail": {"node", "pod_namespace", "pod_name", "reason"},
    "resource_update_duration_milliseconds_count": {"type", "status"},
    "runtime_hook_reconciler_invoked_duration_milliseconds_count": {
        "node", "level", "resource_type", "status",
    },
    "start_time": {"node"},
}  # fmt: skip
EXTERNAL = {
    "node_resource_allocatable": {"node", "resource", "unit"},
    "node_priority_resource_reclaimable": {"node", "priority", "resource", "unit"},
    "node_resource_priority_reclaimable_status": {"node", "priority"},
}


def samples(registry: CollectorRegistry, name: str = "") -> list[Sample]:
    """Return the samples of a scrape, or only the samples with a name."""
    result = [sample for family in registry.collect() for sample in family.samples]
    return [each for each in result if not name or each.name == f"koordlet_{name}"]


def values(exported: Iterable[Sample], label: str) -> dict[str, float]:
    """Return values by one label."""
    return {sample.labels[label]: sample.value for sample in exported}


class Scraped:
    """A node on which everything has happened once, and what a scrape of it shows."""

    def __init__(self) -> None:
        self.internal, self.external = CollectorRegistry(), CollectorRegistry()
        self.world = World(gates=ALL | {"CoreSched", "BlkIOReconcile"})
        self.world.tree.host.put("/sys/block/vda/dev", "8:0\n")
        self.gauges = NodeGauges(self.internal, "n1", START_S, self.external)
        self.kernel = Kernel(1)
        self.world.agent = self.world.start(
            gauges=self.gauges, core_scheduling=LinuxCoreScheduling(self.kernel.prctl)
        )
        on = {"cpuQOS": {"enable": True}}
        spec = slo(
            cpuBurstStrategy={"policy": "auto", "sharePoolThresholdPercent": 100},
            resourceQOSStrategy={"policies": {"cpuPolicy": "coreSched"}, "beClass": on},
            resourceUsedThresholdWithBE={
                "enable": True,
                "memoryEvictThresholdPercent": 70,
                "memoryEvictLowerPercent": 60,
            },
        )
        self.world.cluster.create(NodeSlo(metadata=ObjectMeta(name="n1"), spec=spec))
        limits: dict[str, str | int] = {"cpu": "200m"}
        self.service = self.world.add(pod("service", "LS", limits=limits, requests=limits))
        container = self.service.containers[0].folder
        for folder in (self.service.folder, container):
            self.world.tree.set(CgroupFile.CFS_QUOTA, folder, "20000")
        batch: dict[str, str | int] = {"kubernetes.io/batch-memory": "8Gi"}
        self.job = self.world.add(pod("job", "BE", requests=batch, limits=batch))
        self.world.tree.set(CgroupFile.PROCS, self.job.containers[0].folder, "1")
        self.world.tree.set(
            CgroupFile.MEMORY_STAT,
            self.job.folder,
            f"total_inactive_anon {8 << 30}\ntotal_active_anon 0\ntotal_inactive_file 0\n"
            "total_active_file 0\ntotal_unevictable 0",
        )
        self.world.seconds(2)
        self.throttle(1)
        self.world.seconds(1)
        self.throttle(2)
        self.world.seconds(1)
        self.world.memory(30)
        self.world.seconds(2)
        self.gauges.set_prediction(
            Prediction(
                PredictedAmounts(1500, 1 << 30),
                PredictedAmounts(2500, 2 << 30),
                parts=(
                    Prediction(
                        PredictedAmounts(), PredictedAmounts(1000), "podReclaimablePredictor"
                    ),
                ),
            )
        )

    def throttle(self, count: int) -> None:
        """Throttle the service in some rounds."""
        text = f"nr_periods {count * 10}\nnr_throttled {count * 5}\nthrottled_time 1"
        self.world.tree.set(CgroupFile.CPU_STAT, self.service.containers[0].folder, text)


@pytest.fixture(scope="module")
def scraped() -> Scraped:
    return Scraped()


@pytest.mark.parametrize("name", sorted(INTERNAL))
def test_metrics_about_the_agent_are_on_the_internal_page(scraped: Scraped, name: str) -> None:
    """With the labels of the original."""
    result = samples(scraped.internal, name)

    assert {frozenset(each.labels) for each in result} == {frozenset(INTERNAL[name])}
    assert samples(scraped.external, name) == []


@pytest.mark.parametrize("name", sorted(EXTERNAL))
def test_metrics_for_users_are_on_the_external_page(scraped: Scraped, name: str) -> None:
    """With the labels of the original."""
    result = samples(scraped.external, name)

    assert {frozenset(each.labels) for each in result} == {frozenset(EXTERNAL[name])}
    assert samples(scraped.internal, name) == []


def test_the_page_of_all_has_everything_once(scraped: Scraped) -> None:
    """Of both pages."""
    both = joined(scraped.internal, scraped.external)

    assert samples(both) == [*samples(scraped.internal), *samples(scraped.external)]
    keys = [(each.name, *sorted(each.labels.items())) for each in samples(both)]
    assert len(keys) == len(set(keys))


def test_evicted_pod_is_shown_for_five_minutes(scraped: Scraped) -> None:
    """The number of evictions stays as a counter with the original's labels."""
    reason = "trigger by koordlet feature BEMemoryEvict"
    (detail,) = samples(scraped.internal, "pod_eviction_detail")
    before = values(samples(scraped.internal, "pod_eviction"), "reason")

    assert (detail.labels["pod_name"], detail.labels["reason"]) == ("job", reason)
    assert before[reason] == detail.value >= 1
    later = Scraped()
    later.world.memory(3)
    later.world.seconds(301)
    assert samples(later.internal, "pod_eviction_detail") == []
    assert values(samples(later.internal, "pod_eviction"), "reason") == before


def test_burst_is_shown_where_it_is_set(scraped: Scraped) -> None:
    """A quota only where it differs from what it was."""
    burst = values(samples(scraped.internal, "container_scaled_cfs_burst_us"), "pod_name")
    quota = values(samples(scraped.internal, "container_scaled_cfs_quota_us"), "pod_name")

    assert burst == {"service": 200_000}
    assert 20_000 < quota["service"] <= 60_000


def test_duration_of_writes_is_observed_by_type(scraped: Scraped) -> None:
    """By kind, and by level of the cgroup where a hook wanted it."""
    writes = samples(scraped.internal, "resource_update_duration_milliseconds_count")
    name = "runtime_hook_reconciler_invoked_duration_milliseconds_count"
    reconciled = samples(scraped.internal, name)

    assert {each.labels["type"] for each in writes} >= {"cgroup"}
    assert {each.labels["level"] for each in reconciled} <= {"kubeqos", "pod", "container"}


def test_predictions_are_shown_by_predictor(scraped: Scraped) -> None:
    """Without a prediction the status is 1 and nothing is reclaimable."""
    cpu = [
        each
        for each in samples(scraped.internal, "node_predicted_resource_peak")
        if each.labels["resource"] == "cpu"
    ]
    assert values(cpu, "predictor") == {"minPredictor": 2.5, "podReclaimablePredictor": 1.0}
    status = "node_resource_priority_reclaimable_status"
    assert [each.value for each in samples(scraped.external, status)] == [0]

    scraped.gauges.set_prediction(None)

    assert [each.value for each in samples(scraped.external, status)] == [1]
    given = samples(scraped.external, "node_priority_resource_reclaimable")
    assert [each.value for each in given] == [0, 0]


def test_cgroup_metrics_have_the_levels_of_tier_pod_and_container() -> None:
    """Tiers, pods and containers; what is outside of pods has none."""
    levels = {
        LAYOUT.kubepods: "kubeqos",
        LAYOUT.besteffort: "kubeqos",
        f"{LAYOUT.kubepods}/poda": "pod",
        f"{LAYOUT.burstable}/poda": "pod",
        f"{LAYOUT.burstable}/poda/c": "container",
        "": "",
        "host-best-effort/a": "",
    }
    assert {folder: LAYOUT.level(folder) for folder in levels} == levels
