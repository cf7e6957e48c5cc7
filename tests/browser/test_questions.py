"""Tasks of users of the page: each is done within three clicks from the start.

A click is one on a link, button or cell, or a choice in a list; typing costs the click into its
field.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace
from tests.reservations import reservation
from tests.unit.dashboard.dashboards import Browser, manifests, served
from tests.worlds import START_S, configuration, device, gpu_pod, made, node, pod

from koordinator.api.meta import KubeObject
from koordinator.dashboard.sources.manifests import ManifestSource
from koordinator.foundation.clock import to_datetime
from koordinator.simulator.embedded import STOCK

pytestmark = pytest.mark.slow

OpenPage = Callable[..., Any]
MAX_CLICKS = 3
PARTITIONS = "scheduling.koordinator.sh/gpu-partitions"
QUOTA = "quota.scheduling.koordinator.sh/name"
GANG = "pod-group.scheduling.sigs.k8s.io"
CONFIG = configuration(
    plugins={
        "multiPoint": {
            "enabled": [{"name": name} for name in ("ElasticQuota", "DeviceShare", "Reservation")]
        },
        "queueSort": {"enabled": [{"name": "Coscheduling"}], "disabled": [{"name": "*"}]},
        **{point: {"enabled": [{"name": "Coscheduling"}]} for point in ("preEnqueue", "permit")},
    }
)


def gpu_node(name: str, *sizes: int, unhealthy: tuple[int, ...] = ()) -> list[KubeObject]:
    """Return a node of eight GPUs linked in partitions of these sizes."""
    report = device(name, gpus=8, unhealthy=unhealthy)
    table = {
        str(size): [
            {"minors": list(range(first, first + size)), "allocationScore": 1}
            for first in range(0, 8, size)
        ]
        for size in sizes
    }
    meta = replace(report.metadata, annotations={PARTITIONS: json.dumps(table)})
    amounts: Any = {"koordinator.sh/gpu-core": 800, "koordinator.sh/gpu-memory-ratio": 800}
    return [node(name, cpu=4, **amounts), replace(report, metadata=meta)]


def quota(name: str, low: int, high: int) -> KubeObject:
    amounts = {"min": {"cpu": str(low)}, "max": {"cpu": str(high)}}
    group = "scheduling.sigs.k8s.io/v1alpha1"
    return made("ElasticQuota", name, group, metadata={"namespace": name}, spec=amounts)


def cluster() -> list[KubeObject]:
    """Return tenants that lend and borrow, a pending gang, and GPU nodes with two link types."""
    blue: Any = {"namespace": "blue", "labels": {QUOTA: "blue"}}
    group = "scheduling.sigs.k8s.io/v1alpha1"
    return [
        node("cpu-0", cpu=16),
        node("cpu-1", cpu=16),
        *gpu_node("gpu-0", 1, 8, unhealthy=(7,)),
        *gpu_node("gpu-1", 1, 8),
        *gpu_node("gpu-2", 1, 8),
        *gpu_node("gpu-3", 1, 4),
        pod("web-0", cpu=12, on="cpu-0", **blue),
        pod("web-1", cpu=10, on="cpu-1", **blue),
        gpu_pod("train", "gpu-1", minors=[3], gpu_core=100, gpu_memory_ratio=100),
        gpu_pod("half", "gpu-1", minors=[4], gpu_core=50, gpu_memory_ratio=50),
        quota("blue", 8, 40),
        quota("red", 30, 40),
        quota("green", 2, 2),
        made("PodGroup", "ring", group, metadata={"namespace": "red"}, spec={"minMember": 3}),
        *(
            pod(f"ring-{n}", cpu=6, namespace="red", labels={GANG: "ring", QUOTA: "red"})
            for n in range(3)
        ),
        pod("capped", cpu=3, namespace="green", labels={QUOTA: "green"}),
        pod("new-1", cpu=1),
        reservation("left-over", cpu=1, on="cpu-0"),
    ]


@pytest.fixture(scope="module")
def shown(chromium: Any) -> Iterator[Browser]:
    assert chromium
    with served(manifests(cluster(), CONFIG)) as server:
        yield server


class Reader:
    """User of the page whose clicks are counted."""

    def __init__(self, page: Any) -> None:
        self.page, self.clicks = page, 0
        page.get_by_text("pending pods", exact=True).wait_for()

    def click(self, target: Any) -> None:
        self.clicks += 1
        target.click()

    def open(self, view: str) -> None:
        self.click(self.page.get_by_role("navigation").get_by_role("link", name=view))

    def choose(self, label: str, option: str) -> None:
        self.clicks += 1
        self.page.get_by_role("combobox", name=label, exact=True).select_option(option)

    def type(self, label: str, text: str) -> None:
        self.clicks += 1
        self.page.get_by_label(label).fill(text)

    def reads(self, text: str) -> None:
        """Wait for a text on the page and check the number of clicks."""
        self.page.get_by_text(text).first.wait_for()
        assert self.clicks <= MAX_CLICKS


@pytest.fixture
def reader(open_page: OpenPage, shown: Browser) -> Reader:
    """Open the page at its start."""
    return Reader(open_page(f"http://127.0.0.1:{shown.port}/#/waiting"))


def test_tenant_above_its_guarantee_and_its_lenders(reader: Reader) -> None:
    """A sentence above the quota tree names them."""
    reader.open("Shares")
    above = reader.page.get_by_role("list", name="Over their guarantee")
    above.wait_for()
    assert "blue uses 22 cpu, 8 guaranteed: " in above.inner_text()
    assert "borrowed from red" in above.inner_text()
    assert reader.clicks <= MAX_CLICKS


def test_causes_age_and_remedies_of_a_gang(
    reader: Reader,
) -> None:
    """The members of the gang are in the list of pending pods."""
    reader.click(reader.page.get_by_role("link", name="red/ring-").first)
    reader.reads("Pending since")
    reader.reads("Remedies, smallest first")
    reader.reads("Causes")


def test_gang_links_to_the_explanation_of_a_member(reader: Reader) -> None:
    reader.open("Shares")
    gangs = reader.page.get_by_role("region", name="Gangs")
    reader.click(gangs.get_by_text("red/ring", exact=True))
    reader.click(reader.page.get_by_role("link", name="Why is it pending"))
    reader.reads("Pending since")


def test_expected_start_of_a_pod(reader: Reader) -> None:
    """Without known ends of running pods the page has the reason."""
    reader.click(reader.page.get_by_role("link", name="red/ring-").first)
    reader.click(reader.page.get_by_role("button", name="When would it start?"))
    reader.reads("The start is unknown: ")


def test_nodes_with_8_linked_free_gpus(reader: Reader) -> None:
    """Eight free GPUs without links are not enough."""
    reader.open("Nodes")
    reader.type("free GPUs", "8")
    reader.reads("2 nodes: gpu-2, gpu-3")
    reader.click(reader.page.get_by_label("linked by NVLink"))
    reader.reads("1 node: gpu-2")


def test_most_fragmented_nodes_are_named_above_the_map(reader: Reader) -> None:
    """The highest values are named above the map."""
    reader.open("Nodes")
    reader.choose("colour", "holes")
    highest = reader.page.get_by_text("Highest:")
    highest.wait_for()
    assert highest.inner_text().startswith("Highest: gpu-1 ")
    assert reader.clicks <= MAX_CLICKS


def test_holder_of_a_gpu(reader: Reader) -> None:
    """A search for the node opens its details."""
    reader.open("Nodes")
    reader.type("Find a node", "gpu-1")
    reader.page.keyboard.press("Enter")
    reader.page.get_by_role("img", name="default/train 100 percent").wait_for()
    assert reader.clicks <= MAX_CLICKS


def test_reservations_unused_for_ten_minutes_are_problems(reader: Reader) -> None:
    """Reservations unused for ten minutes are problems."""
    reader.open("Problems")
    reader.reads("reserves resources on cpu-0 that no pod uses")
    reader.reads("left-over")


def test_unhealthy_gpus_are_listed(reader: Reader) -> None:
    reader.open("Problems")
    reader.reads("gpu 7: unhealthy, not allocated to pods")


def test_what_if_with_a_larger_quota(reader: Reader) -> None:
    """No manifest has to be written."""
    reader.open("What if")
    reader.choose("quota", "green")
    reader.click(reader.page.get_by_role("button", name="Compare"))
    reader.page.get_by_role("cell", name="green/capped").wait_for()
    reader.reads("1 pod differs")


def test_changes_of_the_last_10_minutes(open_page: OpenPage) -> None:
    objects, version = cluster(), 1
    source = ManifestSource("t", lambda: objects, lambda: version, STOCK, lambda: now_s)
    now_s = START_S
    with served(source) as server:
        reader = Reader(open_page(f"http://127.0.0.1:{server.port}/#/waiting"))
        objects, now_s, version = [*objects, node("new", cpu=64)], START_S + 60, 2
        reader.open("Time")
        reader.choose("in", "600")
        reader.reads("node new was added")


def test_holders_of_a_nodes_gpus_over_time(reader: Reader) -> None:
    """GPUs are filtered by the name of a node, pod or job."""
    reader.open("Time")
    reader.page.get_by_placeholder("node, pod or job").fill("gpu-1")
    reader.reads("coloured by")
    chart = reader.page.get_by_role("application", name="GPUs over time: 8 GPUs")
    chart.focus()
    reader.page.keyboard.press("Home")
    reader.reads("gpu-1 GPU 3: default/train")


def test_decisions_about_a_pod_and_runners_up(reader: Reader) -> None:
    """A placed pod is found by its name."""
    reader.type("Find a cause, namespace or pod", "new-1")
    reader.click(reader.page.get_by_role("link", name="default/new-1"))
    reader.reads("bound")
    reader.click(reader.page.get_by_text("Runners-up:"))
    reader.page.get_by_role("region", name="Scores of the best nodes").wait_for()
    assert reader.clicks <= MAX_CLICKS


def test_jobs_rejected_most_often_are_listed(reader: Reader) -> None:
    reader.open("Time")
    reader.click(reader.page.get_by_text("Jobs rejected most often"))
    reader.page.get_by_role("button", name="red/ring").wait_for()
    assert reader.clicks <= MAX_CLICKS


def test_decisions_about_a_job(reader: Reader) -> None:
    """A pod of the job links to the decisions."""
    reader.click(reader.page.get_by_role("link", name="red/ring-").first)
    reader.click(reader.page.get_by_role("link", name="All decisions about red/ring"))
    table = reader.page.get_by_role("region", name="Decisions, newest first")
    table.get_by_role("cell", name="unschedulable").first.wait_for()
    assert table.get_by_role("link", name="red/ring-").count() >= 1
    assert reader.clicks <= MAX_CLICKS


def test_gang_is_one_row_of_the_queue(reader: Reader) -> None:
    """A gang is one row of the queue."""
    reader.open("Shares")
    queue = reader.page.get_by_role("region", name="Queue, in scheduling order")
    queue.get_by_role("link", name="red/ring", exact=True).wait_for()
    assert "3 pods" in queue.inner_text()
    assert reader.clicks <= MAX_CLICKS


def test_plan_of_the_descheduler_needs_no_input_and_writes_nothing(reader: Reader) -> None:
    """Nothing has to be entered, and nothing is written."""
    reader.open("What if")
    reader.click(reader.page.get_by_role("button", name="Plan moves"))
    reader.reads("No pod moves.")


def test_causes_by_longest_waiting_pod(open_page: OpenPage) -> None:
    """Causes are sorted by the number of pods or by the longest waiting pod."""
    early = pod("early", memory="900Gi", namespace="red")
    since = replace(early.metadata, creation_timestamp=to_datetime(START_S - 7200))
    objects = [
        node("n", cpu=1, memory="8Gi"),
        replace(early, metadata=since),
        *(pod(f"late-{number}", cpu=9, namespace="blue") for number in range(3)),
    ]
    with served(manifests(objects)) as server:
        reader = Reader(open_page(f"http://127.0.0.1:{server.port}/#/waiting"))
        first = reader.page.locator("article h2").first
        assert first.inner_text() == "3 pods: too little cpu is free"
        reader.choose("order", "longest")
        assert first.inner_text() == "1 pod: too little memory is free"
        reader.reads("longest 2 h")
